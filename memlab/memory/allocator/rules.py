"""What torch's CUDA caching allocator rounds to, and the settings that change it. See docs/allocator.md."""

from dataclasses import dataclass

from memlab.units import MiB

BLOCK_BYTES = 512
"""Sizes of blocks are multiples of it (kMinBlockSize in c10/core/AllocatorConfig.h)."""
SMALL_REQUEST_BYTES = MiB
"""Up to this rounded size, a request goes to the small pool (kSmallSize)."""
SMALL_SEGMENT_BYTES = 2 * MiB
"""Segment, or page of an expandable segment, of the small pool (kSmallBuffer)."""
LARGE_SEGMENT_BYTES = 20 * MiB
"""The same of the large pool, for requests below LARGE_REQUEST_BYTES (large_segment_size_)."""
LARGE_REQUEST_BYTES = 10 * MiB
"""From here on, a request gets a segment of its own size (kMinLargeAlloc)."""
SEGMENT_ROUNDING_BYTES = 2 * MiB
"""Sizes of such segments are multiples of it (kRoundLarge)."""


class AllocatorError(ValueError):
    """Says in one sentence which event or setting breaks which rule, and the way out."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides what a sequence of allocations reserves, as PYTORCH_ALLOC_CONF says it."""

    limit_bytes: int | None = None
    """Most that may be reserved: the card's memory less what others hold there; None: no limit."""
    expandable_segments: bool = False
    roundup_power2_divisions: int = 0
    """Steps between two powers of 2 that sizes round up to; 0 or 1: multiples of 512 bytes."""
    max_split_size_bytes: int | None = None
    """Blocks from this size on are neither split nor given to smaller requests; None: all may be split."""
    garbage_collection_threshold: float | None = None
    """Share of the limit above which unused segments go before new ones come; None: at the limit only."""

    def __post_init__(self) -> None:
        limit, divisions, split = self.limit_bytes, self.roundup_power2_divisions, self.max_split_size_bytes
        if limit is not None and limit < 0:
            raise AllocatorError(f"limit_bytes={limit} must be 0 or more, or None for no limit.")
        if divisions < 0 or divisions & (divisions - 1):
            raise AllocatorError(
                f"roundup_power2_divisions={divisions} must be a power of 2, or 0 to round to 512 bytes only."
            )
        if split is not None and split < LARGE_SEGMENT_BYTES:
            raise AllocatorError(
                f"max_split_size_bytes={split} must be at least {LARGE_SEGMENT_BYTES} (20 MiB), as torch asks, "
                "or None to split every block."
            )
        self._check_garbage_collection()

    def _check_garbage_collection(self) -> None:
        threshold = self.garbage_collection_threshold
        if threshold is None:
            return
        if not 0 < threshold < 1:
            raise AllocatorError(
                f"garbage_collection_threshold={threshold} must lie between 0 and 1, or be None to collect "
                "at the limit only."
            )
        if self.limit_bytes is None:
            raise AllocatorError(
                f"garbage_collection_threshold={threshold} is a share of limit_bytes, which is None; "
                "give a limit or drop the threshold."
            )


def round_size(size: int, roundup_power2_divisions: int = 0) -> int:
    """Return the bytes of the block that a request of `size` bytes takes.

    >>> round_size(1), round_size(513), round_size(1200 * 1024, 4) // 1024
    (512, 1024, 1280)
    """
    if roundup_power2_divisions > 1 and size > BLOCK_BYTES * roundup_power2_divisions:
        step = (1 << (size.bit_length() - 1)) // roundup_power2_divisions
        return -(-size // step) * step
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES if size > BLOCK_BYTES else BLOCK_BYTES


def segment_size(rounded: int) -> int:
    """Return the bytes that the allocator asks of the driver for a block of `rounded` bytes.

    >>> [segment_size(size) >> 20 for size in (512, 2 << 20, 11 << 20)]
    [2, 20, 12]
    """
    if rounded <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if rounded < LARGE_REQUEST_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-rounded // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES
