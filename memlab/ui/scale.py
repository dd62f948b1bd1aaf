"""The unit in which a whole figure is drawn, so that its parts can be compared."""

from dataclasses import dataclass

from memlab.units import GiB, KiB, MiB


@dataclass(frozen=True)
class Scale:
    """A unit of bytes."""

    unit: int
    name: str


def scale_for(largest_bytes: int) -> Scale:
    """Return the largest unit that keeps `largest_bytes` at 1 or above, as format_bytes does.

    >>> scale_for(150 * MiB), scale_for(3 * GiB)
    (Scale(unit=1048576, name='MiB'), Scale(unit=1073741824, name='GiB'))
    """
    for unit, name in ((GiB, "GiB"), (MiB, "MiB")):
        if largest_bytes >= unit:
            return Scale(unit, name)
    return Scale(KiB, "KiB")
