"""`memlab lab`: open JupyterLab on the bench."""

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import memlab
from memlab.cli.parser import Parser, UsageError

HELP = "open JupyterLab on the bench notebook"
BENCH = "00_bench.ipynb"
DEFAULTS = Path(__file__).with_name("jupyter")
"""A configuration folder of Jupyter's kind: labconfig/default_setting_overrides.json is read from there."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of this command."""
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    parser.add_argument("--port", metavar="N", help="port on 127.0.0.1 [8888, or the next that is free]")


def run(options: argparse.Namespace) -> int:
    """Start JupyterLab and stay until it ends."""
    chosen = port(options.port)
    if chosen is not None and not is_free(chosen):
        raise UsageError(
            f"--port={chosen} is in use, perhaps by another JupyterLab: name another, or leave --port out and the next "
            "free one is taken."
        )
    if importlib.util.find_spec("jupyterlab") is None:
        raise UsageError("JupyterLab is not installed here; `pip install jupyterlab` adds it.")
    command = lab_command(bench_notebook(), chosen, browser=not options.no_browser)
    environment = lab_environment(os.environ)
    if os.name == "posix":  # JupyterLab itself then hears Ctrl-C, and ends its kernels in order
        os.execve(command[0], command, environment)
    return subprocess.call(command, env=environment)


def port(text: str | None) -> int | None:
    """Return the port that `text` names; raise UsageError where it names none."""
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise UsageError(f"--port={text} must be a whole number from 1 to 65535.")
    return int(text)


def is_free(port: int) -> bool:
    """Say whether a server could listen on `port` of this machine's loopback."""
    with socket.socket() as probe:
        if os.name == "posix":  # as the server does: a port whose last connections are closing is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def bench_notebook() -> Path:
    """Return the bench notebook: the one below this folder, else the checkout's that memlab runs from."""
    places = [Path.cwd(), Path.cwd() / "notebooks", Path(memlab.__file__).parents[1] / "notebooks"]
    for folder in places:
        if (folder / BENCH).is_file():
            return folder / BENCH
    raise UsageError(
        f"{BENCH} is neither here nor in ./notebooks; go to the folder of memlab's notebooks, then `memlab lab`."
    )


def lab_command(notebook: Path, port: int | None, *, browser: bool) -> list[str]:
    """Return what starts JupyterLab on `notebook`, for this machine alone and with its token on."""
    command = [sys.executable, "-m", "jupyterlab", str(notebook), "--ServerApp.ip=127.0.0.1"]
    # Both ask the network.
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    # JupyterLab's root is the notebook's folder. Without this the address that it prints opens no notebook.
    command += [f"--LabApp.default_url=/lab/tree/{notebook.name}"]
    if port is not None:
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container; else it refuses to start
        command.append("--allow-root")
    return command


def lab_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with our defaults of JupyterLab's settings; what a user sets in JupyterLab wins.

    JupyterLab asks whether it may fetch news while its setting fetchNews is at "none", its default, whatever
    LabApp.news_url says; no flag changes a default, files in a configuration path do.
    """
    path = environment.get("JUPYTER_CONFIG_PATH")
    return {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join([*([path] if path else []), str(DEFAULTS)])}
