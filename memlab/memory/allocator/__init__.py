"""A model of torch's CUDA caching allocator: what a sequence of allocations would reserve on a card."""

from memlab.memory.allocator.cache import Allocator
from memlab.memory.allocator.replay import Replay, replay_events
from memlab.memory.allocator.report import CardFull, MappedBlock, MappedSegment, Shortfall
from memlab.memory.allocator.rules import AllocatorError, Settings, round_size, segment_size

__all__ = [
    "Allocator",
    "AllocatorError",
    "CardFull",
    "MappedBlock",
    "MappedSegment",
    "Replay",
    "Settings",
    "Shortfall",
    "replay_events",
    "round_size",
    "segment_size",
]
