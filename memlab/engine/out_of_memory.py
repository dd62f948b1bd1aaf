"""Recognise that memory ran out, and say it in one sentence."""

import gc
import re

import torch

from memlab.plan import Plan
from memlab.units import format_bytes


class OutOfMemory(MemoryError):
    """A run did not fit into the memory of its device. Holds no tensors: the next run works."""


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether `error` means that memory ran out, of a GPU or of the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # torch's CPU allocator has no exception of its own.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def sentence(error: BaseException, plan: Plan, device: str, samples: int) -> str:
    """Say what did not fit, and the way out; `samples` is the length of an epoch."""
    asked = _requested_bytes(str(error))
    tried = f" while it asked for {format_bytes(asked)} more" if asked else ""
    all_there_are = f" (all {samples:,} samples)" if samples < plan.micro_batch_size else ""
    return (
        f"Out of memory on {device}{tried}: micro_batch_size={plan.micro_batch_size}{all_there_are} does not "
        f"fit; {_way_out(plan, min(plan.micro_batch_size, samples))}."
    )


def release() -> None:
    """Drop what the broken run left, so that the next one starts from empty."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _requested_bytes(message: str) -> int | None:
    """Read the size out of "tried to allocate 4096 bytes" (CPU) or "Tried to allocate 2.50 GiB" (CUDA)."""
    found = re.search(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)", message, re.IGNORECASE)
    if found is None:
        return None
    units = {"bytes": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
    return int(float(found[1]) * units[found[2].lower()])


def _way_out(plan: Plan, micro_batch: int) -> str:
    if micro_batch > 1:
        return (
            f"try micro_batch_size={micro_batch // 2} with more gradient_accumulation_steps, "
            "or activation_checkpointing='full'"
        )
    if plan.activation_checkpointing == "none":
        return "try activation_checkpointing='full' or a smaller model"
    return "try a shorter sequence_length or a smaller model"
