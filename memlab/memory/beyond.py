"""What a card holds beyond the allocator's tensors: constants with their source, never added silently."""

from typing import Literal, get_args

from memlab.memory.cards import Card
from memlab.units import KiB, MiB

Item = Literal["cuda_context_low", "cuda_context_high", "cublas_workspace", "nccl_buffer"]

SOURCES: dict[Item, str] = {
    "cuda_context_low": (
        "What the process takes before its first tensor: driver structures and, since CUDA 11.7, only the "
        "kernels used so far. 256 MiB on an RTX 3090 (invoke-ai/InvokeAI#9413), 426 MiB on an RTX 6000 Ada "
        "(unslothai/unsloth-zoo#1053), 300 MB on a V100 (pytorch/pytorch#20532)."
    ),
    "cuda_context_high": (
        "The same with the libraries that training loads. 1,461 MiB on an A100 (95th percentile of the MLP "
        "runs of arXiv 2602.17817), 1,343 MB on a V100 (single-GPU training guide of Transformers 4.27)."
    ),
    "cublas_workspace": (
        "One for each stream and handle, at the first matrix product. torch takes it from its allocator, so that "
        "it shows as allocated: :4096:2:16:8, that is 8,519,680 bytes, and 32 MiB on Hopper "
        "(aten/src/ATen/cuda/CublasHandlePool.cpp) and, since pytorch/pytorch#175344, on Blackwell."
    ),
    "nccl_buffer": (
        "NCCL_BUFFSIZE, 4 MiB, for each channel and each GPU that a rank exchanges data with; their number "
        "depends on the links (docs.nvidia.com/deeplearning/nccl, Environment Variables). One rank has none."
    ),
}

_CONTEXT_LOW: dict[tuple[int, int], int] = {(7, 0): 300 * MiB, (8, 9): 426 * MiB}
_CONTEXT_HIGH: dict[tuple[int, int], int] = {(7, 0): 1343 * MiB}
_SMALLEST_CONTEXT, _LARGEST_CONTEXT = 256 * MiB, 1461 * MiB
"""Seen on any card (both Ampere): they stand for the architectures without a report of their own."""

_CUBLAS_BYTES = 2 * 4096 * KiB + 8 * 16 * KiB
_CUBLAS_HOPPER_BYTES = 32 * MiB
_NCCL_BUFFER_BYTES = 4 * MiB


def beyond_allocator(card: Card) -> dict[Item, int]:
    """Return bytes that a prediction leaves out on `card`, by name; SOURCES says what each stands for.

    The context is a range: it grows with the kernels that a program happens to use.
    """
    capability = card.compute_capability
    sizes: dict[Item, int] = {
        "cuda_context_low": _CONTEXT_LOW.get(capability, _SMALLEST_CONTEXT),
        "cuda_context_high": _CONTEXT_HIGH.get(capability, _LARGEST_CONTEXT),
        "cublas_workspace": _CUBLAS_HOPPER_BYTES if capability >= (9, 0) else _CUBLAS_BYTES,
        "nccl_buffer": _NCCL_BUFFER_BYTES,
    }
    assert tuple(sizes) == get_args(Item)
    return sizes
