"""Laws that hold for every state of the allocator model, and a second, plain model to hold it against."""

from typing import NamedTuple

from hypothesis import strategies as st

from memlab.memory.allocator import Allocator, CardFull, round_size, segment_size
from memlab.units import KiB, MiB


class Step(NamedTuple):
    """Allocate `size` bytes, or free one of what is alive (`which`, counted round) where size is 0."""

    size: int
    which: int


_SMALL = st.integers(1, 4 * KiB) | st.integers(1, MiB) | st.sampled_from([512, MiB, MiB - 511])
_LARGE = st.integers(MiB + 1, 12 * MiB) | st.integers(10 * MiB, 70 * MiB)
_EDGE = st.sampled_from([MiB + 1, 10 * MiB - 512, 10 * MiB, 19 * MiB, 20 * MiB, 20 * MiB + 512, 40 * MiB])
steps = st.lists(st.builds(Step, st.just(0) | _SMALL | _LARGE | _EDGE, st.integers(0, 1000)), max_size=60)


def walk(allocator: Allocator, program: list[Step]) -> dict[int, int]:
    """Run the program, checking the laws after every step; return what is alive, by number."""
    alive: dict[int, int] = {}
    for number, step in enumerate(program):
        if step.size:
            try:
                allocator.malloc(number, step.size)
                alive[number] = step.size
            except CardFull as full:
                by_pages = allocator.settings.expandable_segments  # of 20 MiB: fewer may be free than bytes
                assert by_pages or full.shortfall.asked_bytes > full.shortfall.free_bytes
        elif alive:
            allocator.free(list(alive)[step.which % len(alive)])
            del alive[list(alive)[step.which % len(alive)]]
        check(allocator, alive)
    return alive


def check(allocator: Allocator, alive: dict[int, int]) -> None:
    """Assert that the segment map accounts for every byte and every allocation, once."""
    segments = allocator.segments()
    end = 0
    for segment in segments:
        assert segment.address >= end, "segments overlap"
        end = segment.address + segment.size
        offset = 0
        for block in segment.blocks:
            assert block.offset == offset, "blocks do not tile their segment"
            assert block.size > 0 and block.size % 512 == 0
            offset += block.size
        assert offset == segment.size
        states = [block.state for block in segment.blocks]
        assert ("free", "free") not in zip(states, states[1:], strict=False), "free neighbours did not merge"
    held = {
        block.allocation: block for part in segments for block in part.blocks if block.state == "allocated"
    }
    assert {number: block.requested for number, block in held.items()} == alive
    assert all(block.requested <= block.size for block in held.values())
    assert allocator.requested == sum(alive.values())
    assert allocator.allocated == sum(block.size for block in held.values()) <= allocator.reserved
    assert allocator.reserved == sum(segment.size for segment in segments)
    limit = allocator.settings.limit_bytes
    assert limit is None or allocator.reserved <= limit
    assert allocator.inactive_split == sum(
        segment.size - segment.allocated
        for segment in segments
        if not segment.expandable and len(segment.blocks) > 1
    )


class PlainModel:
    """The default rules by linear search over lists: slow, and short enough to be read as the rules."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.retries = 0
        self.segments: list[tuple[bool, list[list]]] = []  # small pool?, blocks as [size, number or None]

    @property
    def reserved(self) -> int:
        return sum(size for _, blocks in self.segments for size, _ in blocks)

    @property
    def allocated(self) -> int:
        return sum(size for _, blocks in self.segments for size, number in blocks if number is not None)

    def malloc(self, number: int, size: int) -> bool:
        rounded = round_size(size)
        small = rounded <= MiB
        fits = [
            (block[0], place, offset)
            for place, (kind, blocks) in enumerate(self.segments)
            for offset, block in enumerate(blocks)
            if kind == small and block[1] is None and block[0] >= rounded
        ]
        if fits:
            _, place, offset = min(fits)
        elif self._reserve(small, segment_size(rounded)):
            place, offset = len(self.segments) - 1, 0
        else:
            return False
        blocks = self.segments[place][1]
        rest = blocks[offset][0] - rounded
        if rest >= 512 if small else rest > MiB:
            blocks[offset : offset + 1] = [[rounded, number], [rest, None]]
        else:
            blocks[offset][1] = number
        return True

    def _reserve(self, small: bool, size: int) -> bool:
        if self.limit is not None and self.reserved + size > self.limit:
            self.retries += 1
            self.segments = [
                (kind, blocks)
                for kind, blocks in self.segments
                if any(number is not None for _, number in blocks)
            ]
            if self.reserved + size > self.limit:
                return False
        self.segments.append((small, [[size, None]]))
        return True

    def free(self, number: int) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                if block[1] == number:
                    block[1] = None
            for index in reversed(range(len(blocks) - 1)):
                if blocks[index][1] is None and blocks[index + 1][1] is None:
                    blocks[index][0] += blocks.pop(index + 1)[0]
