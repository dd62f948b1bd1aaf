"""Where a training program is: forward, backward or optimizer, which micro-step, which step."""

from collections.abc import Callable

from memlab.memory.categories import Categories
from memlab.memory.ledger import BACKWARD, FORWARD, OPTIMIZER, Ledger
from memlab.memory.storage_mode import Dataless, StorageMode


class Phases:
    """Follows a program by what it does, or by marks once it sets them.

    Backward shows itself by running inside autograd's engine, the optimizer by its hooks. What
    follows a backward is called "optimizer" until a module or another backward shows that it was
    the next micro-step's forward.
    """

    def __init__(
        self,
        ledger: Ledger,
        categories: Categories,
        end_step: Callable[[], None],
        dataless: Dataless | None = None,
    ) -> None:
        """`dataless` replaces the operators themselves."""
        self.mode = StorageMode(ledger, self._turn, self.before_allocation, dataless)
        self.marked = False
        self.steps_given = False  # by whoever meters, not found by the optimizer
        self.step = 0
        self._ledger, self._categories, self._end_step = ledger, categories, end_step
        self._phase, self._micro_step = FORWARD, 0
        self._first_of_micro_step = 0  # index into the ledger's born
        self._recomputed_from: int | None = None
        self._stepped_in_backward = False

    @property
    def _stepped(self) -> bool:
        """Whether an optimizer stepped; the dispatch mode asks nobody while it says no."""
        return self.mode.may_begin_step

    @_stepped.setter
    def _stepped(self, stepped: bool) -> None:
        self.mode.may_begin_step = stepped

    def go(self, phase: int, micro_step: int | None = None) -> None:
        """From here on the program is in `phase`; `micro_step` None: as before."""
        if phase == BACKWARD:
            self._categories.forward_ended(self._first_of_micro_step)
        elif phase == FORWARD:
            self._first_of_micro_step = len(self._ledger.born)
        if self._phase == BACKWARD:
            self._categories.backward_ended()
        self._phase = phase
        self._micro_step = self._micro_step if micro_step is None else micro_step
        self.mode.in_forward = phase == FORWARD
        self._ledger.mark(phase, self._micro_step, self.step)

    def mark(self, phase: int, micro_step: int | None, steps_by_marks: bool) -> None:
        """The program says where it is; a forward after the optimizer may begin the next step."""
        self.marked = True
        if steps_by_marks and self._phase == OPTIMIZER and phase == FORWARD:
            self._next_step()
        self.go(phase, micro_step)

    def step_closed(self) -> None:
        """The ledger began anew."""
        self._first_of_micro_step = 0

    def _turn(self, backward: bool, recomputing: bool) -> None:
        """The dispatch mode saw backward, or a recomputation inside it, begin or end."""
        if self._recomputed_from is not None and not recomputing:
            self._categories.recomputation_ended(self._recomputed_from)
        self._recomputed_from = len(self._ledger.born) if recomputing else None
        if self.marked:
            return
        if backward and self._phase != BACKWARD:
            self._tail_was_forward()
            self.go(BACKWARD)
        elif not backward and self._phase == BACKWARD:
            self.go(OPTIMIZER)
            self._first_of_micro_step = len(self._ledger.born)
            self.mode.in_forward = True  # perhaps: what is made now may be the next micro-batch
            self._stepped, self._stepped_in_backward = self._stepped_in_backward, False

    def _tail_was_forward(self) -> None:
        """After a backward came no optimizer step: it was the next micro-step's forward."""
        if self._phase == OPTIMIZER and not self._stepped:
            self._phase, self._micro_step = FORWARD, self._micro_step + 1
            self._ledger.remark(FORWARD, self._micro_step, self.step)
            self.mode.in_forward = True

    def before_allocation(self) -> None:
        """After an optimizer's step the first allocation begins the next step."""
        if self._stepped and not self.steps_given:
            self._next_step()

    def step_ended(self) -> None:
        """The step that was given ended."""
        self._stepped = False
        self.step += 1

    def _next_step(self) -> None:
        self._stepped = False
        self._end_step()
        self.step += 1
        self.go(FORWARD, 0)

    def module_begins(self) -> None:
        """A module's forward runs."""
        if not self.marked and self._phase == OPTIMIZER:
            self.before_allocation()
            self._tail_was_forward()
            if self._stepped:  # two models train in turn, within one step
                self._stepped = False
                self.go(FORWARD, self._micro_step + 1)

    def optimizer_begins(self) -> None:
        """An optimizer's step runs."""
        if not self.marked and not self.mode.in_backward:
            if self._phase == OPTIMIZER:
                self._categories.no_inputs(self._first_of_micro_step)
            self.go(OPTIMIZER)

    def optimizer_ended(self) -> None:
        """An optimizer's step ended; those that run inside backward make one step together."""
        if self.mode.in_backward:
            self._stepped_in_backward = not self.marked
        else:
            self._stepped = not self.marked
