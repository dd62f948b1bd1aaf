"""What the CUDA caching allocator and the driver say: three figures that are often confused.

Allocated: bytes in blocks that hold live tensors, rounded up by the allocator. Reserved: segments
that the allocator took from the driver. Whole device: what NVML says is in use, by all processes,
with CUDA contexts and libraries. See pytorch.org/docs/stable/notes/cuda.html#memory-management.
"""

import importlib

import torch


def allocator_for(device: torch.device, reset_peaks: bool) -> "CudaAllocator | None":
    """Return the allocator's meter for a CUDA device, None for others."""
    return CudaAllocator(device, reset_peaks) if device.type == "cuda" else None


class CudaAllocator:
    """Reads `torch.cuda.memory_stats` around a step.

    With `reset_peaks` the device's peak counters start anew at each step, and the peaks are exact.
    Without, counters are left alone: a peak below the highest since the process began shows as the
    larger of the figures at the step's two ends.
    """

    def __init__(self, device: torch.device, reset_peaks: bool) -> None:
        self._device, self._reset_peaks = device, reset_peaks
        self._before: dict[str, int] = {}
        self.allocated = 0
        self.reserved = 0
        self.retries = 0

    def begin(self) -> None:
        """Note where the counters stand."""
        if self._reset_peaks:
            torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_stats(self._device)

    def end(self) -> None:
        """Read the peaks since `begin`."""
        after = torch.cuda.memory_stats(self._device)
        self.allocated = self._peak("allocated_bytes.all", after)
        self.reserved = self._peak("reserved_bytes.all", after)
        self.retries = after.get("num_alloc_retries", 0) - self._before.get("num_alloc_retries", 0)

    def _peak(self, name: str, after: dict[str, int]) -> int:
        before_peak, peak = self._before.get(f"{name}.peak", 0), after.get(f"{name}.peak", 0)
        if self._reset_peaks or peak > before_peak:
            return peak
        return max(self._before.get(f"{name}.current", 0), after.get(f"{name}.current", 0))


def whole_device_bytes(device: torch.device) -> int | None:
    """Return what NVML says is in use on `device`, bytes; None without CUDA or nvidia-ml-py."""
    if device.type != "cuda":
        return None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    nvml.nvmlInit()
    try:
        # By UUID: CUDA_VISIBLE_DEVICES renumbers what torch sees, not what NVML sees.
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    finally:
        nvml.nvmlShutdown()
