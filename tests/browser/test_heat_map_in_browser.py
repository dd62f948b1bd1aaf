"""The heat map in a real browser: it fills by itself, tells all in a table, and works by the keyboard."""

from pathlib import Path

import nbformat
import pytest
from browser_lab import Notebook, jupyterlab, opened
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = pytest.mark.browser

MAP = (
    "from memlab.ui.heat_map import HeatMap\n"
    "HeatMap(('t4', 'a100-40gb'), model='gpt-tiny', sequence_lengths=(64, 128), micro_batch_sizes=(1, 2))"
)


def notebook(folder: Path, source: str = MAP) -> str:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [new_code_cell(source)]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "map.ipynb")
    return "map.ipynb"


def wait_for_all_cells(view: Notebook, seconds: float = 120) -> None:
    view.wait(view._begun, seconds)
    view.wait(lambda: "all cells predicted" in view.said(), seconds)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fills_by_itself_and_works_by_the_keyboard(tmp_path: Path, dark: bool) -> None:
    with jupyterlab(tmp_path, dark=dark) as lab, opened(lab, notebook(tmp_path), dark=dark) as view:
        wait_for_all_cells(view)
        page = view.page
        drawn = page.evaluate(
            "document.querySelector('.memlab-is-heat-map-chart .js-plotly-plot').data.map(trace => trace.type)"
        )
        assert drawn == ["heatmap", "scatter", "scatter"]

        page.get_by_role("combobox", name="activation checkpointing").focus()
        page.keyboard.type("sel")
        page.get_by_role("button", name="Peak over").focus()
        page.keyboard.press("Space")
        view.wait(lambda: "selective checkpointing" in page.locator(".memlab-table caption").inner_text())
        assert page.locator(".memlab-table th[scope=row]").count() == 2

        assert page.get_by_role("img", name="Peak over").count() == 1
        assert view.complaints == []


@pytest.mark.slow
def test_keys_turn_its_lists_and_leave_the_notebook_alone(tmp_path: Path) -> None:
    with jupyterlab(tmp_path) as lab, opened(lab, notebook(tmp_path)) as view:
        wait_for_all_cells(view)
        page = view.page
        chosen = page.get_by_role("combobox", name="activation checkpointing")
        cells = page.locator(".jp-Cell").count()

        chosen.focus()
        for key, value in (
            ("ArrowDown", "selective checkpointing"),
            ("ArrowDown", "full checkpointing"),
            ("ArrowUp", "selective checkpointing"),
            ("End", "full checkpointing"),
            ("Home", "no checkpointing"),
        ):
            page.keyboard.press(key)
            view.wait(lambda value=value: chosen.input_value() == value, 5)
        page.keyboard.type("b")  # in JupyterLab: a new cell below
        page.keyboard.press("End")
        view.wait(lambda: chosen.input_value() == "full checkpointing", 5)
        wait_until_table_says(view, "full checkpointing")

        assert page.locator(".jp-Cell").count() == cells
        assert view.complaints == []


def wait_until_table_says(view: Notebook, words: str) -> None:
    """Open the table by its key and read its caption."""
    view.page.get_by_role("button", name="Peak over").focus()
    view.page.keyboard.press("Enter")
    view.wait(lambda: words in view.page.locator(".memlab-table caption").inner_text())
