"""A progress bar that appears when something takes long, and leaves nothing behind.

tqdm's own `delay` is forgotten when a postfix is set, and the bar then stays in front of an error.
"""

import sys
import time
from typing import Any

from typing_extensions import Self


class LateBar:
    """Drawn by `draw` once `quiet_seconds` have passed; the settings are tqdm's."""

    def __init__(self, quiet_seconds: float, **settings: Any) -> None:
        self._began = time.time()  # tqdm's clock
        self._quiet_seconds = quiet_seconds
        self._settings = settings
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def draw(self, done: int = 0, total: int | None = None, what: str = "") -> None:
        """Say how far it is, once it has taken long."""
        if time.time() - self._began < self._quiet_seconds:
            return
        if self._bar is None:
            from tqdm import tqdm

            # Any delay keeps it from drawing itself at once, with a time that begins now.
            self._bar = tqdm(total=total, file=sys.stderr, leave=False, delay=1e-9, **self._settings)
            self._bar.start_t = self._began
        self._bar.total, self._bar.n = total, done
        self._bar.set_postfix_str(what)
