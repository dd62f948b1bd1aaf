"""A learner's way through the bench, in a real browser on a real JupyterLab."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from browser_lab import Lab, Notebook, jupyterlab, opened
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = pytest.mark.browser

LONG = "memlab.Bench(model='mlp', micro_batch_size=4, gradient_accumulation_steps=4, steps=100_000)"
NOTED = LONG.replace("mlp", "convnet")
"""BatchNorm under accumulation: a note of three lines or more."""
SERIOUS = ("serious", "critical")


def notebook(folder: Path, bench: str = LONG) -> str:
    """Write a notebook with a bench whose run lasts until it is stopped; return its name."""
    cells = [new_code_cell("import memlab"), new_code_cell(f"bench = {bench}\nbench"), new_code_cell("1 + 1")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "bench.ipynb")
    return "bench.ipynb"


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("light")) as lab:
        yield lab


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("dark"), dark=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source of axe-core, which npm fetches."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm to fetch axe-core")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(
        ["npm", "install", "--no-save", "--no-audit", "--prefix", str(folder), "axe-core@4"],
        check=True,
        capture_output=True,
    )
    return (folder / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def move_slider(view: Notebook) -> None:
    """Move the micro-batch slider by the keyboard, and see the product follow."""
    handle = view.page.get_by_role("slider", name="micro-batch size")
    handle.focus()
    for _ in range(4):
        handle.press("ArrowRight")
    view.wait(lambda: "8 x 4 x 1 rank = global batch 32" in view.page.locator(".memlab-product").inner_text())


def legend(view: Notebook) -> str:
    """Return the legend of the memory chart."""
    return view.page.locator(".memlab-is-memory-chart .memlab-legend").inner_text()


def see_ghost(view: Notebook, words: str) -> None:
    """See the prediction of the setting drawn, without Run."""
    view.wait(lambda: "ghost: predicted for" in legend(view) and words in legend(view), 60)
    assert view.points("memory") > 0


def choose_card(view: Notebook, title: str) -> None:
    """Choose a card and see what is predicted for it."""
    view.page.locator(".memlab-is-card select").select_option(label=title)
    view.wait(lambda: f"Predicted on {title}" in view.page.locator(".memlab-forecast").inner_text())
    view.wait(lambda: f"on {title}" in legend(view))


def start(view: Notebook) -> None:
    """Press Run and see the traces grow."""
    view.press("Run")
    view.wait(lambda: view.points("loss") > 0 and view.points("memory") > 0)
    first = view.points("loss")
    view.wait(lambda: view.points("loss") > first)


def stop(view: Notebook, letter: str) -> None:
    view.press("Stop")
    view.wait(lambda: f"stopped: run {letter}" in view.state())
    last = view.points("loss")
    view.page.wait_for_timeout(500)
    assert view.points("loss") == last


def pause_and_resume(view: Notebook) -> None:
    view.press("Pause")
    view.wait(lambda: view.state() == "paused")
    view.page.wait_for_timeout(400)
    held = view.points("step-peaks")
    view.page.wait_for_timeout(600)
    assert view.points("step-peaks") == held
    view.press("Resume")
    view.wait(lambda: view.points("step-peaks") > held)


def rows(view: Notebook) -> list[str]:
    """Return the rows of the table of runs."""
    return view.page.locator(".memlab-peaks tbody tr:visible").all_inner_texts()


def test_a_run_grows_and_stops(light: Lab) -> None:
    with opened(light, notebook(light.folder)) as view:
        view.run_all()
        see_ghost(view, "mlp 4 x 4 fp32")
        move_slider(view)
        see_ghost(view, "mlp 8 x 4 fp32")
        start(view)
        view.wait(lambda: "measured - predicted = 0 B" in legend(view))
        stop(view, "A")

        assert view.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1366, 683])
def test_the_whole_way_of_a_learner(
    theme: str, width: int, axe: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    lab: Lab = request.getfixturevalue(theme)
    with opened(lab, notebook(lab.folder), width=width, dark=theme == "dark") as view:
        view.close_sidebar()
        view.run_all()
        see_ghost(view, "mlp 4 x 4 fp32")
        assert violations(view, axe) == []
        move_slider(view)
        see_ghost(view, "mlp 8 x 4 fp32")
        start(view)
        pause_and_resume(view)
        stop(view, "A")
        assert "measured - predicted = 0 B" in legend(view)
        view.press("Pin")
        view.page.locator(".memlab-is-precision button", has_text="fp16").click()
        see_ghost(view, "mlp 8 x 4 fp16-mixed")
        choose_card(view, "Tesla T4 16 GB")
        view.picture(tmp_path / f"{theme}-{width}-card.png")
        start(view)
        view.wait(lambda: view.points("loss-scale") > 0)
        stop(view, "B")
        view.picture(tmp_path / f"{theme}-{width}.png")

        assert [row.split()[0] for row in rows(view)] == ["A", "B"]
        assert "fp16-mixed" in rows(view)[1]
        assert "0 B" in rows(view)[0].split("\t"), "measured is what was predicted"
        assert overlaps(view) == []
        assert violations(view, axe) == []
        assert view.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1366, 683])
def test_run_pause_and_stop_stay_in_sight_whatever_is_noted(light: Lab, width: int) -> None:
    with opened(light, notebook(light.folder, NOTED), width=width) as view:
        view.close_sidebar()
        view.run_all()
        head = view.page.locator(".memlab-top").bounding_box()["height"]
        start(view)
        view.wait(lambda: "BatchNorm" in view.said())

        for part in (".memlab-bench", ".memlab-is-loss-chart", ".memlab-is-step-peaks-chart"):
            view.page.evaluate("place => document.querySelector(place).scrollIntoView()", part)
            view.page.wait_for_timeout(300)
            assert out_of_sight(view) == [], part
        if width == 1366:
            assert view.page.locator(".memlab-top").bounding_box()["height"] == head, "controls move"
        stop(view, "A")


def out_of_sight(view: Notebook) -> list[str]:
    """Return those of Run, Pause and Stop that the middle of a click would miss."""
    script = """() => [...document.querySelectorAll('.memlab-buttons button')].filter((button) => {
      const box = button.getBoundingClientRect();
      const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      return hit === null || !button.contains(hit);
    }).map((button) => button.innerText)"""
    return view.page.evaluate(script)


@pytest.mark.slow
def test_another_cell_answers_while_a_run_goes_on(light: Lab) -> None:
    with opened(light, notebook(light.folder)) as view:
        view.run_all()
        start(view)

        view.page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
        view.page.keyboard.press("Shift+Enter")
        view.wait(lambda: "2" in view.page.locator(".jp-OutputArea-output pre").last.inner_text(), 10)

        assert view.state() == "running"
        stop(view, "A")


def violations(view: Notebook, axe: str) -> list[str]:
    """Return what axe finds serious within the bench."""
    view.page.evaluate(axe)
    found = view.page.evaluate("axe.run('.memlab-bench')")["violations"]
    return [
        f"{one['id']}: {json.dumps([node['html'][:200] for node in one['nodes'][:3]])}"
        for one in found
        if one["impact"] in SERIOUS
    ]


def overlaps(view: Notebook) -> list[str]:
    """Return pairs of cards that lie over each other, and cards that reach out of the bench."""
    script = """() => {
      const boxes = [...document.querySelectorAll('.memlab-side, .memlab-card')]
        .map((card) => [card.innerText.slice(0, 30), card.getBoundingClientRect()])
        .filter(([, box]) => box.height > 0);
      const right = document.querySelector('.memlab-bench').getBoundingClientRect().right;
      const out = boxes.filter(([, box]) => box.right > right + 1).map(([name]) => name + ' reaches out');
      boxes.forEach(([name, a], index) => boxes.slice(index + 1).forEach(([other, b]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
          out.push(name + ' lies over ' + other);
      }));
      return out;
    }"""
    return view.page.evaluate(script)
