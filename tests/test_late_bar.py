"""The bar appears late, and counts from the start nevertheless."""

import time

import pytest

from memlab.late_bar import LateBar


def test_it_says_how_long_it_has_gone_on_not_since_when_it_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LateBar(1.0, bar_format="{desc} for {elapsed}", desc="working") as bar:
        bar.draw()
        assert capsys.readouterr().err == ""
        time.sleep(1.1)
        bar.draw()
        assert capsys.readouterr().err.strip() == "working for 00:01"


def test_its_speed_is_that_of_all_that_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    with LateBar(0.5, bar_format="{rate:.0f} a second") as bar:
        time.sleep(1.0)
        bar.draw(10, 20)
        said = capsys.readouterr().err
    assert 5 <= float(said.split()[0]) <= 10
