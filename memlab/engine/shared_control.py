"""Pause and Stop for ranks that must do both together, and what shows that one hangs."""

import sys
import threading
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from memlab.engine.control import Control, Stopped
from memlab.training.data_parallel import lay_out_anew

_COLLECTIVES = "/torch/distributed/distributed_c10d.py"
_DDP = "/torch/nn/parallel/distributed.py"
"""Innermost, it waits too: forward brings the buffers of all ranks together."""


def _waits_in(frame: FrameType) -> bool:
    """Say whether the innermost line waits for other ranks in C++, without torch.distributed's own Python."""
    code = frame.f_code
    return code is lay_out_anew.__code__ or code.co_filename.replace("\\", "/").endswith(_DDP)


class SharedControl(Control):
    """A rank alone must not stop: the others would wait for its gradients. They agree after each step."""

    def __init__(self) -> None:
        super().__init__()
        self._main = threading.get_ident()
        self._progress = 0
        self._place = "the start"
        self._beats = 0

    @override
    def check(self) -> None:
        self._wait_while_paused()

    @override
    def reach(self, place: str) -> None:
        self._progress += 1
        self._place = place
        self.check()

    @override
    def step_ended(self) -> None:
        wishes = torch.tensor(int(self.stopping))
        dist.all_reduce(wishes, dist.ReduceOp.MAX)
        if wishes.item():
            raise Stopped

    def beat(self) -> dict[str, Any]:
        """Return how far the main thread is, where, and whether it waits for other ranks; for another thread."""
        line, waits = self._line()
        self._beats += 1
        return {
            "number": self._beats,
            "progress": self._progress,
            "place": self._place,
            "line": line,
            "waits": waits,
            "paused": self.paused,
        }

    def _line(self) -> tuple[str, bool]:
        """Return the innermost line that is not torch's, and whether torch waits in a collective beneath it."""
        frame = sys._current_frames().get(self._main)
        waits = frame is not None and _waits_in(frame)
        while frame is not None:
            name = frame.f_code.co_filename.replace("\\", "/")
            waits = waits or name.endswith(_COLLECTIVES)
            if "/torch/" not in name and not name.startswith("<"):
                return f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno} ({frame.f_code.co_name})"[:200], waits
            frame = frame.f_back
        return "", waits
