"""What every data set looks like."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

Batch = tuple[Tensor, ...]
"""Host tensors of one micro-batch; their first dimension is the samples, the last of them the labels."""

IGNORED = -100
"""Label that no loss counts; torch's own number for it."""


class Samples(Protocol):
    """Samples numbered from 0 to `len - 1`."""

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the samples `indices` as one micro-batch."""
        ...
