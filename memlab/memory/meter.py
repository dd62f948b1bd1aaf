"""The meter: live bytes of anybody's training code, by category, phase, micro-step and module."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from memlab.memory.cuda import allocator_for
from memlab.memory.hooks import ModuleNames, watch_gradients, watch_modules, watch_optimizers
from memlab.memory.ledger import (
    ACTIVATIONS,
    BACKWARD,
    BUFFERS,
    FORWARD,
    GRADIENTS,
    INPUTS,
    OPTIMIZER,
    OPTIMIZER_STATE,
    PARAMETERS,
    TEMPORARIES,
    Ledger,
    Storage,
)
from memlab.memory.peaks import Peaks
from memlab.memory.storage_mode import StorageMode
from memlab.trace import PHASES, Breakdown, Trace


class Meter:
    """Count live tensor storages while code runs: `with Meter(model, optimizer) as meter: ...`.

    Every byte is in one category of `memlab.trace.CATEGORIES` at every change; views and tied
    weights count once. The bytes are requested bytes of storages on the model's kind of device
    (without a model: of the CPU). Phases and micro-steps are found by themselves, or follow
    `mark` once it was called. Not seen, because no operation shows them: random states kept by
    activation checkpointing (about 5 KiB a segment on the CPU), scratch memory inside kernels,
    and on CUDA what the allocator adds. A tensor made before the meter began that is no
    parameter, buffer, gradient or optimizer state is counted from its first use.

    `keep="selected"` keeps the changes of the first two steps, the peak's and the last.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        keep: Literal["all", "selected"] = "all",
        reset_peaks: bool = False,
    ) -> None:
        """`reset_peaks` lets `allocated` be exact for each step: it starts CUDA's peak counters anew."""
        self._model, self._optimizer = model, optimizer
        self._device = _device_of(model)
        self._keep, self._reset_peaks = keep, reset_peaks
        self._setting_up = ExitStack()
        self._running = ExitStack()
        self._begin()

    def _begin(self) -> None:
        self._ledger = Ledger(self._device.type)
        self._mode = StorageMode(self._ledger, self._turn, self._next_step_if_stepped)
        self._allocator = allocator_for(self._device, self._reset_peaks)
        self._names = ModuleNames()
        self._optimizers: list[torch.optim.Optimizer] = []
        self._peaks = Peaks(self._keep)
        self._phase, self._micro_step, self._step = FORWARD, 0, 0
        self._first_of_micro_step = 0  # index into the ledger's born
        self._recomputed_from: int | None = None
        self._explicit = self._by_steps = self._stepped = self._closed = False

    # --- anybody's code ------------------------------------------------------------------------

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

    # --- the training loop's meter (training.metering.StepMeter) ---------------------------------

    def watch(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> None:
        """Enter what lives before the first step, and follow modules, gradients and optimizers."""
        if model is not None and _device_of(model) != self._device:
            self._device = _device_of(model)
            self._begin()
        self._setting_up.enter_context(watch_modules(self._enter_module, self._leave_module))
        self._setting_up.enter_context(watch_optimizers(self._before_step, self._after_step))
        if model is not None:
            self._watch_model(model)
        if optimizer is not None:
            self._watch_optimizer(optimizer)
        self._ledger.begin()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Meter one optimizer step; the next one that is recorded counts as the next step."""
        self._explicit = self._by_steps = True
        try:
            with self._active():
                yield
        finally:
            self._end_step()
            self._step += 1

    def mark(self, phase: str, micro_step: int = 0) -> None:
        """Say that `phase` of `micro_step` begins; from the first call on phases follow the marks."""
        self._explicit = True
        if not self._by_steps and self._phase == OPTIMIZER and phase == "forward":
            self._next_step()
        self._go(PHASES.index(phase), self._micro_step if phase == "optimizer" else micro_step)

    def close(self) -> None:
        """Take every hook away; what was metered stays."""
        self._setting_up.close()
        self._ledger.release()
        self._optimizers.clear()
        self._closed = True

    # --- phases --------------------------------------------------------------------------------

    @contextmanager
    def _active(self) -> Iterator[None]:
        if self._allocator:
            self._allocator.begin()
        self._go(FORWARD, 0)
        try:
            with self._mode:
                yield
        finally:
            if self._allocator:
                self._allocator.end()
            self._names.leave_all()
            self._mode.inside_module = False

    def _go(self, phase: int, micro_step: int) -> None:
        self._settle(phase)
        self._phase, self._micro_step = phase, micro_step
        self._mode.in_forward = phase == FORWARD
        self._ledger.mark(phase, micro_step, self._step)

    def _settle(self, following: int) -> None:
        """Decide the categories that only the end of a phase can tell."""
        self._ledger.check_sizes()
        if following == BACKWARD:
            self._settle_forward()
        elif following == FORWARD:
            self._first_of_micro_step = len(self._ledger.born)
        if self._phase == BACKWARD:
            self._settle_gradients()

    def _settle_forward(self) -> None:
        for storage in self._ledger.born[self._first_of_micro_step :]:
            if storage.category == TEMPORARIES and storage() is not None:
                storage.category = ACTIVATIONS
            elif storage.category == INPUTS and storage() is None:
                storage.category = TEMPORARIES

    def _settle_gradients(self) -> None:
        gradients = (weight.grad for optimizer in self._optimizers for weight in _weights(optimizer))
        self._ledger.label((grad for grad in gradients if grad is not None), GRADIENTS, only=TEMPORARIES)

    def _turn(self, backward: bool, recomputing: bool) -> None:
        """The dispatch mode saw backward, or a recomputation inside it, begin or end."""
        if self._recomputed_from is not None and not recomputing:
            kept = self._ledger.born[self._recomputed_from :]
            _relabel((storage for storage in kept if storage() is not None), TEMPORARIES, ACTIVATIONS)
        self._recomputed_from = len(self._ledger.born) if recomputing else None
        if self._explicit:
            return
        if backward and self._phase != BACKWARD:
            self._tail_was_forward()
            self._go(BACKWARD, self._micro_step)
        elif not backward and self._phase == BACKWARD:
            self._go(OPTIMIZER, self._micro_step)  # or the next forward: what follows will tell
            self._first_of_micro_step = len(self._ledger.born)

    def _tail_was_forward(self) -> None:
        """After a backward came no optimizer step: it was the next micro-step's forward."""
        if self._phase == OPTIMIZER and not self._stepped:
            self._phase, self._micro_step = FORWARD, self._micro_step + 1
            self._ledger.remark(FORWARD, self._micro_step, self._step)
            self._mode.in_forward = True

    def _next_step_if_stepped(self) -> None:
        """After an optimizer's step the first allocation begins the next step."""
        if self._stepped:
            self._stepped = False
            self._next_step()

    def _next_step(self) -> None:
        self._end_step()
        self._step += 1
        self._go(FORWARD, 0)

    def _end_step(self) -> None:
        self._settle_state()
        if len(self._ledger) or not self._peaks.of_steps:
            self._peaks.add(self._ledger.close_step(self._names.all))
            self._first_of_micro_step = 0

    def _settle_state(self) -> None:
        if any(storage.category == TEMPORARIES and storage() is not None for storage in self._ledger.born):
            for optimizer in self._optimizers:
                self._ledger.label(_state(optimizer), OPTIMIZER_STATE, only=TEMPORARIES)

    # --- hooks ---------------------------------------------------------------------------------

    def _watch_model(self, model: nn.Module) -> None:
        self._names.add(model)
        parameters = list(model.parameters())
        self._ledger.label(parameters, PARAMETERS)
        self._ledger.label(model.buffers(), BUFFERS)
        self._ledger.label((weight.grad for weight in parameters if weight.grad is not None), GRADIENTS)
        self._setting_up.enter_context(watch_gradients(parameters, self._gradient_is_made))

    def _watch_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(optimizer)
        # Weights that are not the model's are master copies, which belong to the optimizer.
        copies = OPTIMIZER_STATE if self._names.any else PARAMETERS
        self._ledger.label(_weights(optimizer), copies, only=TEMPORARIES)
        self._ledger.label(_state(optimizer), OPTIMIZER_STATE)

    def _gradient_is_made(self, weight: Tensor) -> None:
        if weight.grad is not None:
            self._ledger.label([weight.grad], GRADIENTS, only=TEMPORARIES)

    def _enter_module(self, module: nn.Module) -> None:
        if not self._names.knows(module) and not self._mode.inside_module:
            self._watch_model(module)
        if not self._explicit and self._phase == OPTIMIZER:
            self._next_step_if_stepped()
            self._tail_was_forward()
        self._ledger.enter_module(self._names.enter(module))
        self._mode.inside_module = True

    def _leave_module(self) -> None:
        self._ledger.enter_module(self._names.leave())
        self._mode.inside_module = self._names.depth > 0

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self._optimizers:
            self._watch_optimizer(optimizer)
        if not self._explicit:
            self._go(OPTIMIZER, self._micro_step)

    def _after_step(self) -> None:
        if not self._explicit:
            self._stepped = True


def _device_of(model: nn.Module | None) -> torch.device:
    first = next(iter(model.parameters()), None) if model is not None else None
    return first.device if first is not None else torch.device("cpu")


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    ]


def _relabel(storages: Iterator[Storage], old: int, new: int) -> None:
    for storage in storages:
        if storage.category == old:
            storage.category = new
