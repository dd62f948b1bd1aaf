"""The meter: live bytes of anybody's training code, by category, phase, micro-step and module."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import nn
from typing_extensions import Self

from memlab.memory.categories import Categories
from memlab.memory.cuda import allocator_for
from memlab.memory.hooks import ModuleNames, watch_modules, watch_optimizers, watch_resizes, watch_weights
from memlab.memory.ledger import COMMUNICATION, FORWARD, INPUTS, Ledger
from memlab.memory.peaks import Peaks
from memlab.memory.phases import Phases
from memlab.memory.placement import new_modules, new_optimizers, placement, roots
from memlab.memory.storage_mode import Dataless
from memlab.trace import PHASES, Breakdown, Trace


class Meter:
    """Count live tensor storages while code runs: `with Meter(model, optimizer) as meter: ...`.

    Every byte is in one category of `memlab.trace.CATEGORIES` at every change; views and tied
    weights count once. The bytes are requested bytes of storages on the model's kind of device
    (without a model: CUDA where it is in use, else the CPU). Phases and micro-steps are found by
    themselves, or follow `mark` once it was called. Not seen: random states kept by activation
    checkpointing (about 5 KiB a segment on the CPU), scratch memory inside kernels, operations of
    other threads than the one that opened the `with`, and on CUDA what the allocator adds. A
    tensor made before the meter began that is no parameter, buffer, gradient or optimizer state
    is counted from its first use. See docs/meter.md.

    `keep="selected"` keeps the changes of the first two steps, the peak's and the last.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        device: torch.device | None = None,
        keep: Literal["all", "selected"] = "all",
        reset_peaks: bool = False,
        dataless: Dataless | None = None,
    ) -> None:
        """`device` None: the model's. `reset_peaks` starts CUDA's peak counters anew at each step.

        `dataless` gives what operations give, without data, while the meter sees them.
        """
        self._model, self._optimizer = model, optimizer
        self._device = device or _device_of(model)
        self._keep, self._reset_peaks = keep, reset_peaks
        self._dataless = dataless
        self._setting_up = ExitStack()
        self._running = ExitStack()
        self._exchanged: list[torch.Tensor] = []  # buffers that were there before `watch`
        self._watched = False
        self._begin()

    def _begin(self) -> None:
        self._ledger = Ledger(self._device.type, dataless=self._dataless is not None)
        self._categories = Categories(self._ledger)
        self._phases = Phases(self._ledger, self._categories, self._end_step, self._dataless)
        self._allocator = allocator_for(self._device, self._reset_peaks)
        self._names = ModuleNames()
        self._peaks = Peaks(self._keep)
        self._by_steps = self._closed = False

    def __enter__(self) -> Self:
        self.watch(self._model, self._optimizer)
        self._running.enter_context(self._active())
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()
        self._end_step()
        self.close()

    def _catch_up(self) -> None:
        # A training loop's steps end by themselves; what dies between two belongs to neither.
        if not self._by_steps and not self._closed:
            self._end_step()

    @property
    def ledger(self) -> Ledger:
        """The book of live storages."""
        return self._ledger

    @property
    def trace(self) -> Trace:
        """Every change that was kept, so far."""
        self._catch_up()
        return self._peaks.trace()

    @property
    def peak(self) -> Breakdown:
        """The instant of the largest total, so far."""
        self._catch_up()
        return self._peaks.peak

    @property
    def peaks_by_phase(self) -> dict[str, Breakdown]:
        """The largest instant of each phase, so far: which of the peaks wins."""
        self._catch_up()
        return dict(self._peaks.by_phase)

    @property
    def step_peaks(self) -> tuple[int, ...]:
        """Peak of live bytes of each optimizer step, so far."""
        self._catch_up()
        return tuple(self._peaks.of_steps)

    @property
    def last_step(self) -> Trace:
        """The changes of the last optimizer step alone."""
        self._catch_up()
        return self._peaks.last

    @property
    def allocated(self) -> int:
        """Allocator's peak within the last step, bytes; on the CPU the peak of live bytes."""
        return self._allocator.allocated if self._allocator else int(self.last_step.peak.total)

    @property
    def reserved(self) -> int:
        """Peak of what the allocator held within the last step; on the CPU equal to `allocated`."""
        return self._allocator.reserved if self._allocator else self.allocated

    @property
    def allocator_retries(self) -> int:
        """Times that the CUDA allocator emptied its cache and tried again; 0 on the CPU."""
        return self._allocator.retries if self._allocator else 0

    def watch(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> None:
        """Enter what lives before the first step, and follow modules, gradients and optimizers."""
        if model is not None and _device_of(model) != self._device:
            self._device = _device_of(model)
            self._begin()
        models = [] if model is None else [model]
        self._watch(models, [] if optimizer is None else [optimizer])

    def _watch(self, models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        for model in models:
            self._watch_model(model)
        for optimizer in optimizers:
            self._categories.take_optimizer(optimizer)
        self._ledger.label(self._exchanged, COMMUNICATION)
        self._exchanged, self._watched = [], True
        self._ledger.begin(tensor for model in models for tensor in placement(model))

    def exchange(self, buffer: torch.Tensor) -> None:
        """Learn of a tensor through which ranks exchange gradients; before `watch`, or while recording."""
        if self._watched:
            self._ledger.label([buffer], COMMUNICATION)
        else:
            self._exchanged.append(buffer)

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Enter what a program makes before its first step; what dies within is left out."""
        with new_modules() as made, new_optimizers() as optimizers, self._phases.mode:
            yield
        self._ledger.label_rest(INPUTS)
        self._watch(roots(made), optimizers)

    @contextmanager
    def recording(self, *, marked: bool = True) -> Iterator[None]:
        """Meter one optimizer step; the next one that is recorded counts as the next step.

        `marked` False: nobody calls `mark`, and the phases are found by themselves.
        """
        self._by_steps = self._phases.steps_given = True
        self._phases.marked = marked
        try:
            with self._active():
                yield
        finally:
            self._end_step()
            self._phases.step_ended()

    def mark(self, phase: str, micro_step: int = 0) -> None:
        """Say that `phase` of `micro_step` begins; from the first call on phases follow the marks.

        The optimizer's phase belongs to the window: its `micro_step` stays that of the last one.
        """
        of = None if phase == "optimizer" else micro_step
        self._phases.mark(PHASES.index(phase), of, steps_by_marks=not self._by_steps)

    def close(self) -> None:
        """Take every hook away; what was metered stays."""
        self._setting_up.close()
        self._ledger.release()
        self._categories.forget_optimizers()
        self._closed = True

    @contextmanager
    def _active(self) -> Iterator[None]:
        if self._allocator:
            self._allocator.begin()
        self._phases.go(FORWARD, 0)
        try:
            with self._following(), self._phases.mode:
                yield
        finally:
            if self._allocator:
                self._allocator.end()
            self._names.leave_all()
            self._phases.mode.inside_module = False

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Follow modules, optimizers and resizes; their hooks are the whole process's, so only while metering."""
        with watch_modules(self._enter_module, self._leave_module):
            with watch_optimizers(self._before_step, self._phases.optimizer_ended):
                with watch_resizes(self._ledger.resized_storage):
                    yield

    def _end_step(self) -> None:
        self._categories.step_ended()
        if len(self._ledger) or not self._peaks.of_steps:
            self._peaks.add(self._ledger.close_step(self._names.all))
            self._phases.step_closed()

    def _watch_model(self, model: nn.Module) -> None:
        found = self._categories
        self._names.add(model)
        found.take_model(model)
        self._setting_up.enter_context(watch_weights(model, found.take_gathered, found.gradient_made))

    def _enter_module(self, module: nn.Module) -> None:
        if not self._names.knows(module) and not self._phases.mode.inside_module:
            self._watch_model(module)
        self._phases.module_begins()
        self._ledger.enter_module(self._names.enter(module))
        self._phases.mode.inside_module = True

    def _leave_module(self) -> None:
        self._ledger.enter_module(self._names.leave())
        self._phases.mode.inside_module = self._names.depth > 0

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._categories.take_optimizer(optimizer)
        self._phases.optimizer_begins()


def _device_of(model: nn.Module | None) -> torch.device:
    first = next(iter(model.parameters()), None) if model is not None else None
    if first is not None:
        return first.device
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
