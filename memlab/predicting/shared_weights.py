"""FSDP2 without other ranks: torch's own, on tensors without data and a group that exchanges nothing."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed import fake_pg  # registers the group that exchanges nothing
from torch.utils._python_dispatch import _disable_current_modes
from typing_extensions import override

from memlab.plan import Plan, PlanError
from memlab.training.sharded import SharedWeights
from memlab.training.window import Window


class DatalessSharedWeights(SharedWeights):
    """The first rank: its shares are the largest, where the first dimension of a weight does not divide."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        if dist.is_initialized():
            raise PlanError(
                "data_parallel='fsdp2' is predicted in a process that has joined no others, and this one has: predict "
                "before torch.distributed.init_process_group, or in a process of its own."
            )
        dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=0, world_size=plan.world_size)
        super().__init__(plan, device)

    @override
    def _mesh(self) -> DeviceMesh:
        with _disable_current_modes(), torch.device("cpu"):  # it reads numbers that it makes
            return init_device_mesh(self._device.type, (self.world_size,))

    @override
    def agreed(self, window: Window) -> Window:
        return window

    @override
    def close(self) -> None:
        super().close()
        dist.destroy_process_group()
