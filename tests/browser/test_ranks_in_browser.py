"""Two ranks on the bench, in a real browser: lanes grow, counts are told, nothing lies over anything."""

from pathlib import Path

import nbformat
import pytest
from browser_lab import jupyterlab, opened
from nbformat.v4 import new_code_cell, new_notebook
from test_bench_in_browser import axe, overlaps, stop, violations  # noqa: F401 - axe is a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TWO = (
    "memlab.Bench(model='mlp', micro_batch_size=4, gradient_accumulation_steps=4, world_size=2, steps=10**6)"
)
SYNC = ".memlab-is-gradient-sync select"


@pytest.mark.parametrize(("theme", "width"), [("light", 1366), ("dark", 683)])
def test_the_bug_is_found_by_counting(theme: str, width: int, axe: str, tmp_path: Path) -> None:  # noqa: F811
    cells = [new_code_cell("import memlab"), new_code_cell(f"bench = {TWO}\nbench")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), tmp_path / "ranks.ipynb")
    dark = theme == "dark"
    with jupyterlab(tmp_path, dark=dark) as lab, opened(lab, "ranks.ipynb", width=width, dark=dark) as view:
        view.close_sidebar()
        view.run_all()
        ranks = view.page.locator(".memlab-ranks")
        assert not ranks.is_visible()
        for letter, sync, calls in (("A", "sync: last micro-step", 1), ("B", "sync: backward only", 4)):
            view.page.locator(SYNC).select_option(label=sync)
            view.press("Run")
            view.wait(lambda calls=calls: f": {calls} all-reduce" in ranks.inner_text(), 60)
            view.wait(lambda: view.points("lanes") > 0)
            stop(view, letter)

        assert "the same on all ranks" in ranks.inner_text()
        assert overlaps(view) == []
        assert violations(view, axe) == []
        assert view.complaints == []
