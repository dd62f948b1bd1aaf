"""Train a plan with a meter, on the device at hand."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace

import torch

from memlab.device import resolve_device
from memlab.engine.control import Control, Stopped
from memlab.engine.environment import device_bytes, environment
from memlab.engine.host_memory import limited_to_free_memory
from memlab.engine.launch import launched
from memlab.engine.merge import merged
from memlab.engine.out_of_memory import is_out_of_memory, release, sentence
from memlab.engine.preflight import why_it_cannot_fit
from memlab.engine.tally import Tally
from memlab.engine.thin import step_memory
from memlab.engine.verdict import as_error
from memlab.events import Event, Failed, Finished, Notice, StepCommunication, StepFinished
from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.run import Run
from memlab.training.loop import train
from memlab.training.ranks import join, place
from memlab.workload import Workload, workload_for


def measure(plan: Plan, workload: Workload | None = None) -> Run:
    """Train `plan` on this device and return what it took.

    Several ranks are processes of their own, started by torchrun. Raises OutOfMemory where the device is
    too small, PlanError where plan and workload do not match, RankFailed where a rank broke off.
    """
    for event in measure_events(plan, workload):
        match event:
            case Finished(run=run):
                return run
            case Failed():
                raise as_error(event)
    raise AssertionError("a run ends with Finished or Failed")


def measure_events(
    plan: Plan, workload: Workload | None = None, *, control: Control | None = None
) -> Iterator[Event]:
    """Train `plan` and yield its events, a StepMemory after each step, and Finished at the end.

    Where memory runs out, Failed is the last event, and the only one where the plan's weights, gradients and
    optimizer state alone are more than is free. `control` pauses or stops the run. Several ranks are started
    here, unless this process is one that torchrun started.
    """
    control = control or Control()
    if plan.world_size > 1 and place() is None:
        yield from launched(plan, workload, control)
    else:
        yield from _measured(plan, workload, control)


def _measured(plan: Plan, workload: Workload | None, control: Control) -> Iterator[Event]:
    device = resolve_device(plan.device)
    if workload is None and (refusal := why_it_cannot_fit(plan, device)):
        yield Failed(kind="out-of-memory", message=refusal)
        return
    failed = None
    try:
        with _guarded(device):
            yield from _metered(plan, workload, control, device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        samples = len(workload if workload is not None else workload_for(plan))
        failed = Failed(kind="out-of-memory", message=sentence(error, plan, str(device), samples))
    if failed is not None:  # outside of `except`: the traceback, and the tensors it held, are gone
        release()
        yield failed


def _guarded(device: torch.device) -> AbstractContextManager[None]:
    # A CUDA context maps far more of the address space than it uses: no limit there.
    return limited_to_free_memory() if device.type == "cpu" else nullcontext()


def _metered(
    plan: Plan, workload: Workload | None, control: Control, device: torch.device
) -> Iterator[Event]:
    leave = join(plan, device) if plan.world_size > 1 else None  # stays until the ranks' results are together
    try:
        yield from _metered_here(plan, workload, control, device)
    finally:
        if leave is not None:
            leave()


def _metered_here(
    plan: Plan, workload: Workload | None, control: Control, device: torch.device
) -> Iterator[Event]:
    meter = _ControlledMeter(control)
    tally = Tally()
    stopped = False
    try:
        with closing(train(plan, workload, meter=meter)) as events:
            for event in _interruptible(events, control):
                yield from _noted(event, meter, tally)
                control.check()
                if isinstance(event, StepCommunication):
                    control.step_ended()
    except Stopped:
        control.interruptible = False  # also where it broke off the line that would have said so
        stopped = True
    run = tally.run(plan, meter, environment(device), device_bytes(device))
    yield Finished(run=merged(run), stopped=stopped)


def _interruptible(events: Iterator[Event], control: Control) -> Iterator[Event]:
    while True:
        with control.training():
            event = next(events, None)
        if event is None:
            return
        yield event


def _noted(event: Event, meter: "_ControlledMeter", tally: Tally) -> Iterator[Event]:
    match event:
        case StepFinished():
            event = meter.without_pause(event)
            tally.step(event, meter)
            yield event
            yield step_memory(meter.last_step, event.step, allocated=meter.allocated, reserved=meter.reserved)
        case StepCommunication():
            tally.communication(event)
            yield replace(event, phases=meter.take_phases(), peak_by_category=meter.last_step.peak.sizes)
        case Notice():
            if event.kind != "half-precision-slow":  # true of this machine now, not of the plan
                tally.notice(event)
            yield event
        case _:
            yield event


class _ControlledMeter(Meter):
    """A Meter whose marks are also the places where a run can pause and stop."""

    def __init__(self, control: Control) -> None:
        super().__init__(keep="selected", reset_peaks=True)
        self._control = control
        self._place = "the start"
        self._paused_before = 0.0
        self._marks: list[tuple[str, int, float]] = []

    def mark(self, phase: str, micro_step: int = 0) -> None:
        self._place = f"{phase} {micro_step + 1}" if phase != "optimizer" else "the optimizer step"
        self._control.reach(self._place)
        self._marks.append((phase, micro_step, time.perf_counter()))
        super().mark(phase, micro_step)

    def exchange(self, buffer: torch.Tensor) -> None:
        self._control.reach(self._place)
        super().exchange(buffer)

    def take_phases(self) -> tuple[tuple[str, int, float, float], ...]:
        """Return (phase, micro_step, begin, end) of those that began since the last call; now ends the last."""
        marks, self._marks = self._marks, []
        ends = [begin for _, _, begin in marks[1:]] + [time.perf_counter()]
        return tuple((*mark, end) for mark, end in zip(marks, ends, strict=False))

    def without_pause(self, event: StepFinished) -> StepFinished:
        """Return `event` with the time that the run stood still since the last one taken off."""
        paused = self._control.paused_seconds - self._paused_before
        self._paused_before += paused
        return replace(event, seconds=event.seconds - paused)
