"""The budget holds runs against cards: exact figures as text, and bars that say the same."""

import re
from dataclasses import replace

import pytest

import memlab
from memlab import Plan
from memlab.memory.cards import CardError, card
from memlab.ui.budget import LONGEST_BAR, NAME_WIDTH, budget
from memlab.ui.heat_map_figure import available_bytes
from memlab.units import GiB

RUN = memlab.predict(Plan(model="mlp", steps=1, device="cpu"))


def needing(size: float) -> memlab.Run:
    """Return a run that needs `size` GiB, all of it parameters."""
    peak = replace(RUN.peak, sizes=(int(size * GiB), *[0] * (len(RUN.peak.sizes) - 1)))
    return replace(RUN, peak=peak, peak_reserved=int(size * GiB))


def test_a_card_holds_a_run_up_to_its_memory_less_the_context() -> None:
    limit = available_bytes(card("a100-40gb"))
    within, beyond = (replace(RUN, peak_reserved=limit + more) for more in (0, 1))

    found = budget({"within": within, "beyond": beyond})

    assert [found.fits(run, card("a100-40gb")) for run in (within, beyond)] == [True, False]


def test_on_the_card_that_was_predicted_for_its_allocator_decides() -> None:
    run = replace(RUN, environment={"device": "card:a100-40gb"}, fits=False)

    found = budget({"run": run})

    assert not found.fits(run, card("a100-40gb")) and found.fits(run, card("a100-80gb"))


def test_the_table_is_text() -> None:
    assert repr(budget({"a": needing(20), "b": needing(50)}, cards=("a100-40gb", "rtx-4090"))) == (
        "GiB at the peak, predicted     a     b\n"
        "parameters                  20.0  50.0\n"
        "live tensors                20.0  50.0\n"
        "allocator's reserve         20.0  50.0\n"
        "fits 23.2 of rtx-4090        yes    no\n"
        "fits 39.1 of a100-40gb       yes    no"
    )


def test_bars_and_limits_share_one_scale_and_names_are_escaped() -> None:
    page = budget({"<b>": needing(100)}, cards=("a100-80gb",))._repr_html_()

    assert "<b>" not in page and "&lt;b&gt;" in page
    assert f"width:{LONGEST_BAR}px" in page
    limit = round(available_bytes(card("a100-80gb")) * LONGEST_BAR / (100 * GiB))
    assert f"left:{NAME_WIDTH + limit}px" in page


def test_what_cannot_be_held_against_each_other_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no run: hand in runs by name"):
        budget({})
    with pytest.raises(CardError, match="card='a100' is not in the table"):
        budget({"a": RUN}, cards=("a100",))


def test_each_cards_name_stands_on_a_line_of_its_own() -> None:
    page = budget({"a": RUN}, cards=("rtx-4090", "t4", "a100-40gb"))._repr_html_()

    assert re.findall(r";top:(\d+)px", page) == ["0", "12", "24"]
    assert page.count("white-space:nowrap") == 4, "three names of cards and a bar"
    assert "padding-top:40px" in page
