"""Bytes are integers; people read them as KiB, MiB and GiB (IEC 80000-13: powers of 1024)."""

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


def format_bytes(size: int) -> str:
    """Return `size` (bytes) in the largest unit that shows it as 1.0 or more.

    >>> format_bytes(30_065_160), format_bytes(512), format_bytes(-3 * GiB), format_bytes(MiB - 1)
    ('28.7 MiB', '512 B', '-3.0 GiB', '1.0 MiB')
    """
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if abs(size) >= unit - unit // KiB // 20:  # else the next smaller unit would show 1024.0
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def signed_bytes(size: int) -> str:
    """Return a difference of bytes with its sign; none where there is none.

    >>> signed_bytes(3 * MiB), signed_bytes(-512), signed_bytes(0)
    ('+3.0 MiB', '-512 B', '0 B')
    """
    return f"+{format_bytes(size)}" if size > 0 else format_bytes(size)


def format_count(number: int) -> str:
    """Return `number` as people say it: 124.4 M parameters, not 124439808.

    >>> format_count(124_439_808), format_count(2_304), format_count(12), format_count(999_999)
    ('124.4 M', '2.3 K', '12', '1.0 M')
    """
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit - unit // 1000 // 20:
            return f"{number / unit:.1f} {name}"
    return str(number)
