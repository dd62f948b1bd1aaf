"""torchrun: the command that starts ranks on this machine."""

import os
import socket
import sys
from pathlib import Path

from memlab.engine.environment import processor_count
from memlab.engine.process import environment
from memlab.training.ranks import MEETING_POINT


def on_this_machine(folder: Path, world_size: int) -> list[str]:
    """Return what starts `world_size` ranks here; they find each other through files in `folder`, not a port."""
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "1", "--nproc-per-node", str(world_size), "--max-restarts", "0"),
        # torch's store listens on every address of a machine; a file listens on none.
        *("--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"),
        *("--rdzv-endpoint", str(folder / "rendezvous"), "--local-addr", "127.0.0.1"),
        *("--monitor-interval", "0.1"),
        *("-m", "memlab.engine.rank", str(folder)),
    ]


def ranks_environment(folder: Path, world_size: int, import_from: list[str]) -> dict[str, str]:
    """Return the environment of ranks on this machine: traffic stays on the loopback, cores are shared out."""
    inherited = environment()
    paths = [inherited["PYTHONPATH"], *import_from]
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {
        "OMP_NUM_THREADS": str(max(1, processor_count() // world_size)),
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "2",  # seconds; torchrun has no flag for it before torch 2.12
        MEETING_POINT: (folder / "ranks").as_uri(),
        **({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}),
    }
