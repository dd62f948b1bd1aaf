"""Where in a step the gradients of the last window are dropped."""

from collections.abc import Callable

from memlab.plan import ZeroGrad


class GradientReset:
    """Drops the gradients at one place of the step; the other places do nothing.

    `drop(set_to_none)` frees them, or with False fills them with zeros and keeps their memory.
    """

    def __init__(self, when: ZeroGrad, drop: Callable[[bool], None]) -> None:
        self._when = when
        self._drop = drop

    def after_error(self) -> None:
        """Drop what a broken step left, so that the next one does not add to it."""
        self._drop(True)

    def before_forward(self) -> None:
        """Pass the start of the step."""
        if self._when == "before_forward":
            self._drop(True)

    def before_backward(self, micro_step: int) -> None:
        """Pass the start of a backward; later ones of the window must find the sum of the earlier."""
        if self._when == "before_backward" and micro_step == 0:
            self._drop(True)

    def after_step(self) -> None:
        """Pass the end of the step."""
        if self._when in ("after_step", "in_place"):
            self._drop(self._when == "after_step")
