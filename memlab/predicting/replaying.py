"""What a recorded program would make the CUDA caching allocator hold."""

from typing import Any

from memlab.memory.allocator import AllocatorError, Replay, replay_events
from memlab.trace import Trace


def replay(
    trace: Trace, limit_bytes: int | None = None, *, expandable_segments: bool = False, **settings: Any
) -> Replay:
    """Replay `trace` through the model of the allocator; the settings are those of its `Allocator`.

    Raises AllocatorError where `trace` is none.
    """
    if not isinstance(trace, Trace):
        raise AllocatorError(
            f"trace is a value of type {type(trace).__name__}; hand over what memlab.record returned, or a Run's trace."
        )
    return replay_events(
        trace.delta_bytes,
        trace.allocation,
        held=trace.held,
        limit_bytes=limit_bytes,
        expandable_segments=expandable_segments,
        **settings,
    )
