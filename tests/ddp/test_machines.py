"""The printed command trains one plan on two hosts: two network namespaces with nothing but a cable between them."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlab.cli import main
from memlab.engine.measure import measure
from memlab.plan import Plan

HOSTS = {"memlab-a": "10.77.0.1", "memlab-b": "10.77.0.2"}
FLAGS = [
    "--model=mlp",
    "--world-size=4",
    "--micro-batch-size=2",
    "--steps=3",
    "--gradient-accumulation-steps=2",
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Two hosts that see each other and nothing else."""
    a, b = HOSTS
    try:
        ip("netns", "add", a)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs `ip netns add`, which this user may not do here")
    try:
        ip("netns", "add", b)
        ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
        for name, address in HOSTS.items():
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield HOSTS
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def codes_of(commands: dict[str, list[str]]) -> list[int]:
    """Run one command on each host at once; return how they ended."""
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, *command],
            # The hosts' names do not resolve to an address of theirs: gloo is told which network to use.
            env={**os.environ, "GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"},
        )
        for name, (_, *command) in commands.items()
    ]
    try:
        return [process.wait(120) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_the_printed_command_trains_on_two_hosts(
    hosts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*FLAGS, f"--json={tmp_path / 'run.json'}"]
    assert main(["train", *flags, "--machines=2", "--rendezvous=10.77.0.1:29400"]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]

    codes = codes_of(dict(zip(hosts, commands, strict=True)))

    assert codes == [0, 0]
    run = json.loads((tmp_path / "run.json").read_text())
    alone = measure(Plan(model="mlp", micro_batch_size=8, steps=3, gradient_accumulation_steps=2))
    assert run["losses"] == pytest.approx(alone.losses, rel=1e-5)
    assert [rank["rank"] for rank in run["ranks"]] == [0, 1, 2, 3]
    assert len({rank["weights_checksum"] for rank in run["ranks"]}) == 1


REFUSED = {
    (
        "--world-size=5",
        "--machines=2",
        "--rendezvous=h:1",
    ): "--world-size=5 does not divide by --machines=2: each takes as many ranks; the next that does is 6.",
    (
        "--world-size=4",
        "--machines=1",
    ): "--machines=1 must be a whole number, 2 or more; one machine needs no such flag.",
    (
        "--world-size=4",
        "--machines=2",
    ): "--machines needs --rendezvous=HOST:PORT, the address of the first machine and "
    "a free port of it, such as --rendezvous=10.0.0.1:29400.",
    ("--rendezvous=h:1",): "--rendezvous is for several machines: add --machines=N, or leave it out.",
}


@pytest.mark.parametrize("flags", REFUSED, ids=str)
def test_what_several_machines_cannot_do_is_one_line(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *flags]) == 2

    assert capsys.readouterr().err == f"memlab: {REFUSED[flags]}\n"


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["train", "--world-size=2", "--machines=2", f"--rendezvous={endpoint}"]) == 2

    assert capsys.readouterr().err == (
        f"memlab: --rendezvous={endpoint}: port {endpoint[10:]} is in use by another program on this machine; "
        "name a free one.\n"
    )
