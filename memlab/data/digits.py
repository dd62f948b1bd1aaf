"""Handwritten digits: 1,797 images of 8x8 pixels, kept beside this file with source and licence."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import torch
from numpy.typing import NDArray

from memlab.data.samples import Batch

SIDE = 8
PIXELS = SIDE * SIDE
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
        return torch.from_numpy(self._images.take(indices, 0)), torch.from_numpy(
            self._labels.take(indices, 0)
        )


class EnlargedDigits:
    """The digits as a photograph's tensor: images float32 (batch, 3, size, size) from 0 to 1, labels as before.

    Each pixel becomes a square, and its grey all three colours. Made on the host, as the images of a
    real data set are; `size` is a multiple of 8.
    """

    def __init__(self, size: int) -> None:
        self._digits = Digits()
        self._square = size // SIDE

    def __len__(self) -> int:
        return len(self._digits)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return images and labels of the samples `indices`."""
        small, labels = self._digits.batch(indices)
        grey = small.numpy().astype(np.float32) / PIXEL_RANGE  # (batch, 1, 8, 8)
        large = grey.repeat(self._square, axis=2).repeat(self._square, axis=3)
        return torch.from_numpy(large.repeat(3, axis=1)), labels


@cache
def _read() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    with (files("memlab.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"][:, None], arrays["labels"].astype(np.int64)
