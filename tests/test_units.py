"""Sizes as people read them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.units import GiB, KiB, MiB, format_bytes, format_count


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KiB, "1.0 KiB"),
        (MiB - 52, "1023.9 KiB"),
        (MiB - 51, "1.0 MiB"),
        (30_065_160, "28.7 MiB"),
        (GiB - 1, "1.0 GiB"),
        (-3 * GiB, "-3.0 GiB"),
        (107_814_649_856, "100.4 GiB"),
    ],
)
def test_bytes_are_shown_in_powers_of_1024(size: int, text: str) -> None:
    assert format_bytes(size) == text


@settings(deadline=None)
@given(st.integers(0, GiB - 1))
def test_no_number_below_a_gib_is_shown_as_1024_of_a_unit(size: int) -> None:
    assert float(format_bytes(size).split()[0]) < 1024


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (12, "12"),
        (999, "999"),
        (2_304, "2.3 K"),
        (999_949, "999.9 K"),
        (999_950, "1.0 M"),
        (6_738_415_616, "6.7 B"),
    ],
)
def test_counts_are_shown_in_powers_of_1000(number: int, text: str) -> None:
    assert format_count(number) == text
