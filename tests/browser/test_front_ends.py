"""The bench in other front ends than JupyterLab: it draws, runs and stops there too."""

import importlib.util
import secrets
import shutil
from collections.abc import Iterator

import pytest
from browser_lab import BROWSER_FLAGS, HARMLESS, Notebook, jupyterlab
from playwright.sync_api import Page, sync_playwright
from test_bench_in_browser import notebook, start, stop

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATHS = {"notebook": "notebooks", "voila": "voila/render"}


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(BROWSER_FLAGS)
        )
        yield browser.new_page(viewport={"width": 1366, "height": 768})
        browser.close()


@pytest.mark.parametrize("front_end", list(PATHS))
def test_the_bench_runs_and_stops(front_end, page, tmp_path) -> None:
    if importlib.util.find_spec(front_end) is None:
        pytest.skip(f"needs {front_end}: pip install -e '.[front-ends]'")
    name = notebook(tmp_path)
    view = Notebook(page)
    page.on("pageerror", lambda error: view.complaints.append(str(error)))
    with jupyterlab(tmp_path, front_end=front_end) as server:
        page.goto(f"{server.address}/{PATHS[front_end]}/{name}?token={server.token}&x={secrets.token_hex(2)}")
        if front_end == "notebook":
            page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
            page.wait_for_timeout(4000)
            view.complaints.clear()  # Notebook's own, before any cell ran
            view.run_all()
        page.wait_for_selector(".memlab-bench .memlab-run", timeout=90_000)
        page.wait_for_timeout(2000)
        start(view)
        stop(view, "A")
    assert [text for text in view.complaints if not any(word in text for word in HARMLESS)] == []
