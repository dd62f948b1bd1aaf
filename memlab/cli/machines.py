"""`memlab train --machines`: the commands to type, one on each of several machines."""

import argparse
import errno
import shlex
import socket

from memlab.cli.parser import Parser, UsageError
from memlab.cli.plan_flags import SWITCHES, flag, given_fields
from memlab.plan import Plan


def add_machine_flags(parser: Parser) -> None:
    """Add --machines and --rendezvous."""
    group = parser.add_argument_group("several machines")
    group.add_argument(
        "--machines",
        metavar="N",
        help="print N torchrun commands, one to type on each of N machines, which share the ranks; train nothing here",
    )
    group.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        help="address of the first machine, and a free port of it, where all find each other",
    )


def machines_command(options: argparse.Namespace, plan: Plan) -> str | None:
    """Return one command a line, one for each machine, the one with the rendezvous first; None where --machines is not asked for. Raises UsageError."""
    if options.machines is None:
        if options.rendezvous is not None:
            raise UsageError("--rendezvous is for several machines: add --machines=N, or leave it out.")
        return None
    machines = _count(options.machines, plan)
    host, port = _rendezvous(options.rendezvous)
    words = " ".join(map(shlex.quote, _words(options, plan)))
    # A fixed address, not c10d's rendezvous: that needs every machine's own name to resolve.
    return "\n".join(
        f"python -m torch.distributed.run --nnodes {machines} --node-rank {number} "
        f"--nproc-per-node {plan.world_size // machines} --master-addr {host} --master-port {port} "
        f"-m memlab train {words}"
        for number in range(machines)
    )


def _count(text: str, plan: Plan) -> int:
    machines = int(text) if text.isdigit() else 0
    if machines < 2:
        raise UsageError(
            f"--machines={text} must be a whole number, 2 or more; one machine needs no such flag."
        )
    if plan.world_size % machines:
        raise UsageError(
            f"--world-size={plan.world_size} does not divide by --machines={machines}: each takes as many ranks; the "
            f"next that does is {(plan.world_size // machines + 1) * machines}."
        )
    return machines


def _rendezvous(endpoint: str | None) -> tuple[str, str]:
    host, _, port = (endpoint or "").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise UsageError(
            "--machines needs --rendezvous=HOST:PORT, the address of the first machine and a free port of it, "
            "such as --rendezvous=10.0.0.1:29400."
        )
    try:
        with socket.socket() as probe:
            probe.bind((host.strip("[]"), int(port)))
    except OSError as error:  # another machine's address cannot be bound here: it will say for itself
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"--rendezvous={endpoint}: port {port} is in use by another program on this machine; name a free one."
            ) from None
    return host, port


def _words(options: argparse.Namespace, plan: Plan) -> list[str]:
    fields = given_fields(options)
    words = []
    for name, value in fields.items():
        if name in SWITCHES:
            words.append(flag(name) if value else f"--no-{flag(name)[2:]}")
        else:
            words.append(f"{flag(name)}={value}")
    if "gradient_accumulation_steps" not in fields and plan.gradient_accumulation_steps > 1:
        words.append(f"--gradient-accumulation-steps={plan.gradient_accumulation_steps}")
    return words + ([f"--json={options.json}"] if options.json else [])
