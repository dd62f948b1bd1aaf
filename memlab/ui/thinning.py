"""Long series made short enough to send ten times a second."""

import numpy as np
from numpy.typing import NDArray

POINTS = 2000
"""Points a trace: what a browser draws at ten updates a second without falling behind."""


def thin(y: NDArray, points: int = POINTS) -> NDArray[np.int64]:
    """Return the indices to keep, at most `points`, in order: the lowest and highest of each bucket.

    First and last stay, and every peak, so that the drawn maximum is the real one.
    """
    if len(y) <= points:
        return np.arange(len(y))
    edges = np.linspace(1, len(y) - 1, (points - 2) // 2 + 1).astype(int)
    kept = {0, len(y) - 1}
    for first, last in zip(edges[:-1], edges[1:], strict=True):
        bucket = y[first:last]
        if np.isnan(bucket).all():
            kept.add(int(first))
        else:
            kept.update((int(first + np.nanargmin(bucket)), int(first + np.nanargmax(bucket))))
    return np.array(sorted(kept))
