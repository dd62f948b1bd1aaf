"""Handwritten digits: 1,797 images of 8x8 pixels, kept beside this file with source and licence."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from numpy.typing import NDArray

from memlab.data.samples import Batch

PIXELS = 64
PIXEL_RANGE = 16
"""Pixels are whole numbers from 0 to this."""
CLASSES = 10


class Digits:
    """The UCI digits: images uint8 (batch, 1, 8, 8), labels int64 (batch,)."""

    def __init__(self) -> None:
        self._images, self._labels = _read()

    def __len__(self) -> int:
        return len(self._labels)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return images and labels of the samples `indices`."""
        rows = np.asarray(indices, np.int64)
        return torch.from_numpy(self._images[rows]), torch.from_numpy(self._labels[rows])


@cache
def _read() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    with (files("memlab.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"][:, None], arrays["labels"].astype(np.int64)
