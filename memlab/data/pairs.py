"""Pairs of texts: does the second piece follow the first? One of the two tasks that BERT was trained on."""

from collections.abc import Sequence

import numpy as np
import torch

from memlab.data.samples import Batch
from memlab.data.text import TextWindows


class TextPairs:
    """A text cut into windows; in every second one the second half is that of a window far away.

    Tokens and segments (0 in the first half, 1 in the second) are int64 (batch, seq), labels int64
    (batch,): 1 where the halves belong together. Bytes alone are tokens: no separators.
    Devlin et al. 2018, https://arxiv.org/abs/1810.04805, "next sentence prediction".
    """

    def __init__(self, text: bytes, sequence_length: int) -> None:
        self._windows = TextWindows(text, sequence_length)
        self._half = sequence_length // 2

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return tokens, segments and labels of the windows `indices`."""
        rows = np.asarray(indices, np.int64)
        follows = rows % 2 == 0
        second = np.where(follows, rows, (rows + len(self) // 2) % len(self))
        tokens = self._windows.rows(rows)[:, :-1].copy()
        tokens[:, self._half :] = self._windows.rows(second)[:, self._half : -1]
        segments = np.zeros_like(tokens)
        segments[:, self._half :] = 1
        return (
            torch.from_numpy(tokens),
            torch.from_numpy(segments),
            torch.from_numpy(follows.astype(np.int64)),
        )
