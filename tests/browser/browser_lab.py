"""A JupyterLab of its own on the loopback, in a folder of its own, and a browser's way around it."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, sync_playwright

BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
HARMLESS = ("favicon", "ResizeObserver loop", "[anywidget] Failed to initialize model.")
"""Console errors that are the front end's own.

The last is anywidget's timer: a page needed more than two seconds to load a widget, as on a busy machine. Nothing
else says so; what a widget raises reads otherwise, and a chart that stays empty is looked for.
"""


@dataclass
class Lab:
    """A running JupyterLab, or another front end."""

    address: str
    token: str
    folder: Path

    def url(self, notebook: str) -> str:
        """Return the address of a notebook, in a workspace that nobody has used."""
        workspace = secrets.token_hex(4)
        return f"{self.address}/lab/workspaces/{workspace}/tree/{notebook}?token={self.token}"


@contextmanager
def jupyterlab(folder: Path, *, dark: bool = False, front_end: str = "jupyterlab") -> Iterator[Lab]:
    """Run JupyterLab over `folder`; every setting and every file it writes stays in there.

    `front_end` "notebook" runs Jupyter Notebook instead, "voila" Voila.
    """
    port, token = _free_port(), secrets.token_hex(16)
    _settings(folder, dark)
    program = [sys.executable, "-m", front_end, "--no-browser", *_flags(front_end, port, token)]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            program,
            cwd=folder,
            env=_environment(folder),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            lab = Lab(f"http://127.0.0.1:{port}", token, folder)
            _wait_for_server(lab, server)
            yield lab
        finally:
            os.killpg(server.pid, signal.SIGINT)
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _flags(front_end: str, port: int, token: str) -> list[str]:
    if front_end == "voila":  # its own server, with the same kind of token
        return [f"--port={port}", "--Voila.ip=127.0.0.1", f"--token={token}"]
    address = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1"]
    return [*address, f"--IdentityProvider.token={token}", "--allow-root"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(folder: Path) -> dict[str, str]:
    home = {
        name: str(folder / ".jupyter" / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
    }
    settings = {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "spaces"),
    }
    return {**os.environ, **home, **settings, "MEMLAB_DEVICE": "cpu"}


def _settings(folder: Path, dark: bool) -> None:
    base = folder / "settings" / "@jupyterlab"
    written = {
        "apputils-extension/notification.jupyterlab-settings": {
            "fetchNews": "false",
            "checkForUpdates": False,
        },
        "apputils-extension/themes.jupyterlab-settings": {
            "theme": "JupyterLab Dark" if dark else "JupyterLab Light"
        },
    }
    for name, values in written.items():
        place = base / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(values))


def _wait_for_server(lab: Lab, server: subprocess.Popen) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert server.poll() is None, (lab.folder / "server.log").read_text()
        try:
            urllib.request.urlopen(f"{lab.address}/api/status?token={lab.token}", timeout=2).close()
            return
        except urllib.error.HTTPError:
            return  # Voila has no status page, but it answers
        except OSError:
            time.sleep(0.2)
    raise AssertionError((lab.folder / "server.log").read_text())


@dataclass
class Notebook:
    """A notebook open in a browser."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Errors in the console."""

    def run_all(self, seconds: float = 90) -> None:
        """Run every cell and wait until the kernel has nothing to do."""
        self.wait(self._begun, seconds)
        self.page.wait_for_selector(".memlab-bench .memlab-run", timeout=seconds * 1000)
        self.wait(lambda: self.page.locator(".jp-InputPrompt", has_text="[*]").count() == 0, seconds)

    def _begun(self) -> bool:
        """Ask for all cells; JupyterLab forgets it where its kernel was not quite there yet."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells").first.click()
        self.page.wait_for_timeout(1500)
        return any(text.strip("[] :") for text in self.page.locator(".jp-InputPrompt").all_inner_texts())

    def wait(self, holds: Callable[[], Any], seconds: float = 30) -> None:
        """Wait until `holds` is true."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"not within {seconds} s; the panel says: {self.said()}"
            self.page.wait_for_timeout(50)

    def said(self) -> str:
        """Return the text of the bench's head and messages."""
        return " | ".join(
            self.page.locator(".memlab-top, .memlab-messages, .memlab-side .memlab-error").all_inner_texts()
        )

    def state(self) -> str:
        """Return the state line."""
        return self.page.locator('.memlab-bench [role="status"]').inner_text()

    def press(self, name: str) -> None:
        """Press a button of the bench."""
        self.page.locator(".memlab-bench").get_by_role("button", name=name, exact=True).click()

    def close_sidebar(self) -> None:
        """Give the notebook the whole window, where the list of files is open."""
        tab = self.page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab.lm-mod-current")
        if tab.count():
            tab.click()

    def picture(self, path: Path) -> None:
        """Save what the browser shows, the bench at the top."""
        self.page.evaluate("document.querySelector('.memlab-bench').scrollIntoView()")
        self.page.wait_for_timeout(500)
        self.page.screenshot(path=path)

    def points(self, chart: str, trace: int = 0) -> int:
        """Return how many points a trace of a chart has, as the browser holds it."""
        script = "([place, trace]) => document.querySelector(place)?.data?.[trace]?.x?.length ?? 0"
        return self.page.evaluate(script, [f".memlab-is-{chart}-chart .js-plotly-plot", trace])


@contextmanager
def opened(
    lab: Lab, notebook: str, *, width: int = 1366, height: int = 768, dark: bool = False
) -> Iterator[Notebook]:
    """Open a notebook in a headless browser; wait until its kernel is idle."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(BROWSER_FLAGS)
        )
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        view = Notebook(page)
        page.on("console", lambda message: _complain(view, message))
        page.on("pageerror", lambda error: view.complaints.append(str(error)))
        page.goto(lab.url(notebook))
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        page.wait_for_selector(
            '.jp-NotebookPanel-toolbar [data-status="idle"], .jp-Notebook-ExecutionIndicator[data-status="idle"]',
            timeout=60_000,
            state="attached",  # a narrow window hides it
        )
        page.wait_for_timeout(1000)
        try:
            yield view
        finally:
            browser.close()


def _complain(view: Notebook, message: ConsoleMessage) -> None:
    if message.type == "error" and not any(word in message.text for word in HARMLESS):
        view.complaints.append(message.text)
