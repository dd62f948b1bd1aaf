"""Runs beside each other: exact in text, drawn in plain HTML, escaped."""

import re
from dataclasses import replace

import pytest

from memlab.plan import Plan
from memlab.run import Run
from memlab.trace import Breakdown
from memlab.ui.comparison import LONGEST_BAR, compare

PEAK = Breakdown((4_000, 0, 4_000, 8_000, 16_000, 0, 0, 0, 0), "backward")
RUN = Run(
    plan=Plan(),
    source="measured",
    losses=(1.0,),
    peak=PEAK,
    peak_allocated=32_000,
    peak_reserved=32_000,
    fits=True,
    peaks_by_phase={},
    step_peaks=(32_000,),
    environment={},
)
HALF = replace(RUN, peak=Breakdown((4_000, 0, 4_000, 8_000, 0, 0, 0, 0, 0), "optimizer"))


def test_the_text_holds_every_byte_and_the_share_of_the_first() -> None:
    lines = [line.split() for line in repr(compare({"whole": RUN, "half": HALF})).splitlines()]

    assert lines[0][-2:] == ["whole", "half"]
    assert ["activations", "16,000", "0"] in lines
    assert ["peak", "32,000", "16,000"] in lines
    assert ["share", "of", "the", "first", "100%", "50%"] in lines
    assert ["when", "backward", "optimizer"] in lines


def test_categories_without_a_byte_are_left_out() -> None:
    assert "buffers" not in repr(compare({"whole": RUN}))


def test_the_bars_are_as_long_as_their_bytes() -> None:
    page = compare({"whole": RUN, "half": HALF})._repr_html_()
    bars = page.split("<div>")[1:3]

    lengths = [sum(map(int, re.findall(r"width:(\d+)px", bar))) for bar in bars]

    assert lengths == [LONGEST_BAR, LONGEST_BAR // 2]


def test_names_are_escaped() -> None:
    page = compare({"<script>": RUN})._repr_html_()

    assert "<script>" not in page and "&lt;script&gt;" in page


def test_nothing_to_compare_is_said() -> None:
    with pytest.raises(ValueError, match="there is nothing to compare: hand in runs by name"):
        compare({})
