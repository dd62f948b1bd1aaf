"""The data: real, the same every time, and clear about what it cannot read."""

import os
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from memlab.data import Digits, Paragraphs, TextWindows, manual, read_text
from memlab.plan import PlanError


def test_digits_are_the_uci_set_with_its_source_beside_it() -> None:
    digits = Digits()
    images, labels = digits.batch(range(len(digits)))

    assert len(digits) == 1797
    assert (images.shape, images.dtype) == ((1797, 1, 8, 8), torch.uint8)
    assert (labels.shape, labels.dtype) == ((1797,), torch.int64)
    assert (int(images.min()), int(images.max())) == (0, 16)
    # Class counts that the Repository's description of optdigits.tes lists.
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert "CC BY 4.0" in (files("memlab.data") / "digits.SOURCE.md").read_text(encoding="utf-8")


def test_a_batch_is_the_samples_that_were_asked_for_in_that_order() -> None:
    digits = Digits()
    all_images, all_labels = digits.batch(range(10))

    images, labels = digits.batch([7, 2, 7])

    assert torch.equal(images, all_images[[7, 2, 7]])
    assert torch.equal(labels, all_labels[[7, 2, 7]])


def test_changing_a_batch_does_not_change_the_data() -> None:
    digits = Digits()
    digits.batch([0])[0].zero_()

    assert digits.batch([0])[0].any()


def test_the_manual_is_english_and_long_enough() -> None:
    assert len(manual()) > 300_000
    assert b"The following" in manual()


def test_windows_follow_one_another_and_predict_the_next_byte() -> None:
    text = bytes(range(23))
    windows = TextWindows(text, 5)

    tokens, labels = windows.batch(range(len(windows)))

    assert len(windows) == 4
    assert tokens.flatten().tolist() == list(range(20))
    assert torch.equal(labels, tokens + 1)
    assert tokens.dtype == labels.dtype == torch.int64


@pytest.mark.parametrize(("length", "windows"), [(6, 1), (10, 1), (11, 2), (15, 2), (16, 3)])
def test_a_window_needs_the_token_after_it(length: int, windows: int) -> None:
    assert len(TextWindows(bytes(length), 5)) == windows


@pytest.mark.parametrize("samples", [TextWindows(manual(), 64), Paragraphs(manual(), 64)])
def test_tokens_and_labels_are_tensors_of_their_own(samples: TextWindows | Paragraphs) -> None:
    tokens, labels = samples.batch([0, 1, 2])

    for tensor in (tokens, labels):
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 8
    assert tokens.untyped_storage().data_ptr() != labels.untyped_storage().data_ptr()


def test_too_short_a_text_says_how_long_it_must_be() -> None:
    with pytest.raises(PlanError) as caught:
        TextWindows(b"hello", 5)

    assert str(caught.value) == (
        "the text has 5 bytes, fewer than sequence_length + 1 = 6; "
        "choose a longer text or a smaller sequence_length."
    )


def test_paragraphs_are_cut_at_empty_lines_and_those_without_a_next_token_left_out() -> None:
    paragraphs = Paragraphs(b"ab\ncd\n\n\nx\n \nefghijkl\n", 4)

    tokens, labels = paragraphs.batch([1, 0])

    assert len(paragraphs) == 2
    assert tokens.tolist() == [list(b"efgh"), list(b"ab\nc")]
    assert labels.tolist() == [list(b"fghi"), list(b"b\ncd")]


def test_paragraphs_are_padded_to_the_longest_of_their_micro_batch() -> None:
    paragraphs = Paragraphs(b"abc\n\nabcdefgh\n\nab", 100)

    together, alone = paragraphs.batch([0, 1, 2]), paragraphs.batch([0])

    assert together[0].tolist() == [[*b"ab", 0, 0, 0, 0, 0], [*b"abcdefg"], [*b"a", 0, 0, 0, 0, 0, 0]]
    ignored = [-100] * 5
    assert together[1].tolist() == [[*b"bc", *ignored], [*b"bcdefgh"], [*b"b", -100, *ignored]]
    assert alone[0].tolist() == [[*b"ab"]]


def test_the_manuals_paragraphs_have_unequal_lengths_up_to_the_limit() -> None:
    paragraphs = Paragraphs(manual(), 128)

    lengths = {paragraphs.batch([index])[0].shape[1] for index in range(len(paragraphs))}

    assert len(lengths) > 100 and max(lengths) == 128


def test_a_text_without_paragraphs_says_so() -> None:
    with pytest.raises(PlanError) as caught:
        Paragraphs(b"a\n\nb\n", 4)

    assert str(caught.value) == (
        "the text of 5 bytes has no paragraph of 2 bytes or more; choose another text."
    )


def test_a_python_without_its_manual_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    manual.cache_clear()
    with pytest.raises(PlanError) as caught:
        manual()

    assert str(caught.value) == (
        "data='text' reads Python's own manual, pydoc_data.topics, which this Python was installed without; "
        "choose data='file:PATH' with a text of your own."
    )


def test_a_file_is_read_byte_by_byte(tmp_path: Path) -> None:
    (tmp_path / "größe.txt").write_bytes("Größe".encode())

    assert read_text(str(tmp_path / "größe.txt")) == "Größe".encode()


def test_a_file_that_is_no_text_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("empty.txt").touch()
    Path("picture.png").write_bytes(b"ok\xff\xfe")
    os.mkfifo("pipe")
    too_long = "x" * 300

    sentences = {}
    for name in ("missing.txt", "folder", "empty.txt", "picture.png", "pipe", too_long):
        with pytest.raises(PlanError) as caught:
            read_text(name)
        sentences[name] = str(caught.value)

    assert sentences == {
        "missing.txt": f"data='file:missing.txt' does not exist in {tmp_path}; name a text file in UTF-8.",
        "folder": "data='file:folder' is a folder; name a text file in UTF-8.",
        "empty.txt": "data='file:empty.txt' is empty; name a text file in UTF-8.",
        "picture.png": "data='file:picture.png' is not text: its byte 2 is not UTF-8; name a text file in UTF-8.",
        "pipe": "data='file:pipe' is not a regular file; name a text file in UTF-8.",
        too_long: f"data='file:{too_long}' cannot be read (File name too long); name a text file in UTF-8.",
    }
