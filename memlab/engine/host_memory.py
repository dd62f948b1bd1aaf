"""Keep a run that is too big from taking the machine down: past what is free, allocations fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPARE = 0.9
"""Part of the free memory that a run may take; the rest keeps the system and the kernel alive."""


def free_bytes() -> int | None:
    """Return the host memory that can still be had, in bytes; None where the system does not say."""
    system = _kibibytes(Path("/proc/meminfo"), "MemAvailable")
    within = [figure for figure in (system, _container_free_bytes()) if figure is not None]
    return min(within, default=None)


@contextmanager
def limited_to_free_memory() -> Iterator[None]:
    """Make allocations beyond the free host memory fail here; Linux would grant, then kill.

    Where the system has no such limit (macOS, Windows), nothing changes.
    """
    free, held = free_bytes(), _kibibytes(Path("/proc/self/status"), "VmData")
    if free is None or held is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + int(free * SPARE)
    ceiling = min((limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY), default=wanted)
    resource.setrlimit(resource.RLIMIT_DATA, (min(wanted, ceiling), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _kibibytes(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(words[1]) * 1024 for words in found), None)


def _container_free_bytes() -> int | None:
    """Return what a container's own limit leaves, as on Binder (control groups 2, then 1)."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            figures = [Path("/sys/fs/cgroup", name).read_text().strip() for name in (limit, used)]
        except OSError:
            continue
        if all(figure.isdigit() for figure in figures):
            return max(0, int(figures[0]) - int(figures[1]))
    return None
