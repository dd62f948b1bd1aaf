"""Bytes are integers; people read them as KiB, MiB and GiB (IEC 80000-13: powers of 1024)."""

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


def format_bytes(size: int) -> str:
    """Return `size` (bytes) in the largest unit that keeps it at 1 or above.

    >>> format_bytes(30_065_160), format_bytes(512), format_bytes(-3 * GiB)
    ('28.7 MiB', '512 B', '-3.0 GiB')
    """
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if abs(size) >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def format_count(number: int) -> str:
    """Return `number` as people say it: 124.4 M parameters, not 124439808.

    >>> format_count(124_439_808), format_count(2_304), format_count(12)
    ('124.4 M', '2.3 K', '12')
    """
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return str(number)
