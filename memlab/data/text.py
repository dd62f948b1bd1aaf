"""Text, read byte by byte: Python's own manual, or the learner's file."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from memlab.data.samples import IGNORED, Batch
from memlab.plan import PlanError


class TextWindows:
    """A text cut into windows of `sequence_length` tokens, each with the token after it as last label.

    Tokens and labels are int64 (batch, seq). Windows share no token but that one; what is left at
    the end and too short for a window is dropped.
    """

    def __init__(self, text: bytes, sequence_length: int) -> None:
        if len(text) < sequence_length + 1:
            raise PlanError(
                f"the text has {len(text)} bytes, fewer than sequence_length + 1 = {sequence_length + 1}; "
                "choose a longer text or a smaller sequence_length."
            )
        count = (len(text) - 1) // sequence_length
        tokens = np.frombuffer(text, np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(tokens, sequence_length + 1)
        self._windows: NDArray[np.uint8] = windows[::sequence_length][:count]  # a view: no copy of the text

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return tokens and next tokens of the windows `indices`."""
        rows = self.rows(np.asarray(indices, np.int64))
        # Copies: each is a tensor of its own, as it will be on a GPU.
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows `indices`, each with the token after it: (batch, seq + 1)."""
        return self._windows[indices].astype(np.int64)


class Paragraphs:
    """A text cut at its empty lines: samples of unequal length, padded to the longest of their micro-batch.

    Tokens and labels are int64 (batch, seq); a label is -100 where there is only padding. A paragraph
    is cut to `sequence_length` tokens and the one after; one of a single byte, without a next token,
    is left out.
    """

    def __init__(self, text: bytes, sequence_length: int) -> None:
        parts = (part.strip() for part in re.split(rb"\n\s*\n", text))
        self._paragraphs = [part[: sequence_length + 1] for part in parts if len(part) > 1]
        if not self._paragraphs:
            raise PlanError(
                f"the text of {len(text)} bytes has no paragraph of 2 bytes or more; choose another text."
            )

    def __len__(self) -> int:
        return len(self._paragraphs)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return tokens and next tokens of the paragraphs `indices`."""
        paragraphs = [np.frombuffer(self._paragraphs[index], np.uint8) for index in indices]
        seq = max(len(paragraph) for paragraph in paragraphs) - 1
        # Causal attention never looks to the right, where the padding is: no mask is needed.
        tokens = np.zeros((len(paragraphs), seq), np.int64)
        labels = np.full((len(paragraphs), seq), IGNORED, np.int64)
        for row, paragraph in enumerate(paragraphs):
            tokens[row, : len(paragraph) - 1] = paragraph[:-1]
            labels[row, : len(paragraph) - 1] = paragraph[1:]
        return torch.from_numpy(tokens), torch.from_numpy(labels)


@cache
def manual() -> bytes:
    """Return Python's manual (the standard library's `pydoc_data.topics`), its topics in sorted order.

    Raises PlanError where Python was installed without it.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise PlanError(
            "data='text' reads Python's own manual, pydoc_data.topics, which this Python was installed without; "
            "choose data='file:PATH' with a text of your own."
        ) from None
    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def read_text(path: str) -> bytes:
    """Return the bytes of the text file `path`; raise PlanError where it is none (UTF-8, not empty)."""
    said, way_out = f"data='file:{path}'", "name a text file in UTF-8."
    try:
        text = _bytes_of(Path(path).expanduser(), said, way_out)
        text.decode()
    except UnicodeDecodeError as error:
        raise PlanError(f"{said} is not text: its byte {error.start} is not UTF-8; {way_out}") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: the home of a user who does not exist
        raise PlanError(f"{said} cannot be read ({getattr(error, 'strerror', error)}); {way_out}") from None
    if not text:
        raise PlanError(f"{said} is empty; {way_out}")
    return text


def _bytes_of(path: Path, said: str, way_out: str) -> bytes:
    if path.is_dir():
        raise PlanError(f"{said} is a folder; {way_out}")
    if not path.exists():
        raise PlanError(f"{said} does not exist in {Path.cwd()}; {way_out}")
    if not path.is_file():  # reading a pipe or a device would never end
        raise PlanError(f"{said} is not a regular file; {way_out}")
    return path.read_bytes()
