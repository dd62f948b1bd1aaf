"""What the bench's buttons and lists offer: (text, value of the Plan's field)."""

import os
from pathlib import Path

PRECISIONS = (("fp32", "fp32"), ("bf16", "bf16-mixed"), ("fp16", "fp16-mixed"), ("bf16 pure", "bf16-true"))
CHECKPOINTING = (
    ("none", "none"),
    ("every 2nd", "every-2"),
    ("full", "full"),
    ("selective", "selective"),
)
OPTIMIZERS = (("SGD", "sgd"), ("AdamW", "adamw"))
CPU_RANKS = 4
"""Most processes that the bench offers on a CPU."""
GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver on Linux lists its GPUs: asking torch would load it."""
SYNCS = (
    ("sync: last micro-step", "last-micro-step"),
    ("sync: every micro-step", "every-micro-step"),
    ("sync: backward only", "backward-only"),
    ("sync: never", "never"),
)
DIVISIONS = (("DDP", "ddp"), ("ZeRO-1", "zero1"), ("FSDP2", "fsdp2"))


def most_ranks(device: str) -> int:
    """Return how many ranks are offered for a plan's `device`: a GPU each, where the driver lists some."""
    asked = os.environ.get("MEMLAB_DEVICE", "auto") if device == "auto" else device
    if asked == "cpu" or not GPUS.is_dir():
        return CPU_RANKS
    here = len([*GPUS.iterdir()])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return here if visible is None else min(here, len(visible.split(",")) if visible else 0) or CPU_RANKS
