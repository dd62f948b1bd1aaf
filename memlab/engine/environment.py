"""On what a figure was measured: no figure travels without it."""

import os
import platform
from datetime import datetime, timezone
from pathlib import Path

import torch

import memlab
from memlab.units import format_bytes


def environment(device: torch.device | str) -> dict[str, str]:
    """Return device, versions, threads and date (UTC), each as text."""
    device = torch.device(device)
    facts = _cuda(device) if device.type == "cuda" else {"device": "cpu", "device_name": processor_name()}
    return {
        **facts,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "memlab": memlab.__version__,
        "system": platform.platform(terse=True),
        "threads": str(torch.get_num_threads()),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _cuda(device: torch.device) -> dict[str, str]:
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = torch.cuda.get_device_properties(index)
    return {
        "device": f"cuda:{index}",
        "device_name": properties.name,
        "device_memory": format_bytes(properties.total_memory),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
    }


def processor_name() -> str:
    """Return the processor's name as its maker writes it, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def processor_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_bytes(device: torch.device | str) -> dict[str, int]:
    """Return what the whole device holds, all programs together; empty on the CPU.

    "nvml_used" is nvidia-smi's figure, present where nvidia-ml-py is installed.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    figures = {"device_total": total, "driver_used": total - free}
    try:
        return {**figures, "nvml_used": torch.cuda.device_memory_used(device)}
    except (ModuleNotFoundError, RuntimeError):  # no nvidia-ml-py, or a driver without NVML
        return figures
