"""The only training loop: `train` yields what happens; a Trainer is the same, one step at a time."""

import time
from collections.abc import Iterator
from contextlib import closing

import torch
from torch import nn

from memlab.device import resolve_device
from memlab.events import Notice, Started, StepCommunication, StepFinished
from memlab.plan import Plan, PlanError
from memlab.training import notices
from memlab.training.checkpointing import explain_mismatch, policy_for
from memlab.training.clipping import clip_for
from memlab.training.metering import NULL_METER, StepMeter
from memlab.training.norms import explain_one_value, norms_for
from memlab.training.precision import FullPrecision, precision_for
from memlab.training.random_state import RandomState
from memlab.training.schedule import schedule_for
from memlab.training.step import Outcome, Parts, optimizer_step
from memlab.training.surroundings import by_default_on, plain_torch
from memlab.training.sync import SingleRank, sync_for
from memlab.training.window import Window, windows
from memlab.training.zeroing import GradientReset
from memlab.workload import Workload, prepare_model, workload_for


def train(
    plan: Plan, workload: Workload | None = None, *, meter: StepMeter = NULL_METER
) -> Iterator[Started | Notice | StepFinished | StepCommunication]:
    """Train `plan` and yield what happens: Started first, then a StepFinished for each optimizer step.

    With several ranks this process is one of them, and a StepCommunication follows each step.

    `workload` goes with model="custom" alone. Torch's random state, and all else that is shared with
    the program around it, is as that program left it at each event and at the end.
    """
    try:
        with closing(Trainer(plan, workload, meter=meter)) as trainer:
            yield trainer.started
            yield from trainer.take_notices()
            for _ in range(plan.steps):
                yield trainer.step()
                yield from trainer.take_communication()
                yield from trainer.take_notices()
    finally:
        meter.close()


class Trainer:
    """A run of one plan: model, optimizer and data, built and ready to step."""

    def __init__(
        self,
        plan: Plan,
        workload: Workload | None = None,
        *,
        meter: StepMeter = NULL_METER,
        dataless_device: torch.device | None = None,
        sync: SingleRank | None = None,
    ) -> None:
        """`dataless_device` replaces the plan's: one whose tensors have no data, for `run` alone.

        `sync` is how ranks agree; None: as the plan says, with the other ranks.
        """
        self.plan = plan
        # A trial without data may cut one of our models.
        self.workload = (
            _workload(plan, workload) if dataless_device is None else workload or workload_for(plan)
        )
        self.device = dataless_device or resolve_device(plan.device)
        self.steps_done = 0
        self.samples_seen = 0
        self._random = RandomState(plan.seed, self.device)
        with plain_torch(), self._random:
            precision = precision_for(plan, self.device, has_data=dataless_device is None)
            sync = sync or sync_for(plan, self.device)
            self._parts = _build(plan, self.workload, precision, meter, sync)
        self._random.begin_rank(self._parts.sync.rank)
        self._windows = windows(self.workload, plan, self._parts.sync.rank)
        self._notices = notices.at_start(plan, self.workload, self.model, self.device)
        if dataless_device is None:
            self._notices += notices.of_this_machine(plan, self.device)
        self._lost = False

    @property
    def model(self) -> nn.Module:
        """The model in training, without what DDP puts around it."""
        return self._parts.sync.bare(self._parts.model)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Its optimizer; with bf16-true weights it may hold FP32 owners of them."""
        return self._parts.optimizer

    @property
    def started(self) -> Started:
        """What is said before the first step."""
        parameters = list(self.model.parameters())
        return Started(
            plan=self.plan,
            parameters=sum(parameter.numel() for parameter in parameters),
            trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
            device=str(self.device),
        )

    def step(self, window: Window | None = None) -> StepFinished:
        """Train on `window`, or on the next one of the data, and return what came of it."""
        begin = time.perf_counter()
        learning_rate = self.optimizer.param_groups[0]["lr"]
        loss_scale = self._parts.precision.loss_scale
        with plain_torch(), self._random:
            window = self._parts.sync.agreed(next(self._windows) if window is None else window)
            outcome = self._trained(window)
        self.samples_seen += window.samples
        finished = StepFinished(
            step=self.steps_done,
            epoch=window.epoch,
            loss=self._parts.sync.mean(outcome.loss),  # waits for the device, once a step
            micro_steps=len(window.micro_batches),
            samples=window.samples,
            items=window.items,
            samples_seen=self.samples_seen,
            learning_rate=float(learning_rate),
            gradient_norm=None if outcome.gradient_norm is None else float(outcome.gradient_norm),
            loss_scale=loss_scale,
            skipped=not outcome.updated,
            seconds=time.perf_counter() - begin,
        )
        self.steps_done += 1
        self._note(finished)
        return finished

    def run(self, window: Window) -> Outcome:
        """Train on `window` and read nothing of what came of it."""
        with plain_torch(), self._random:
            return self._trained(self._parts.sync.agreed(window))

    def _trained(self, window: Window) -> Outcome:
        _check_items(window, self.steps_done)
        with self._parts.meter.recording():
            try:
                return optimizer_step(self._parts, window)
            except BaseException as error:
                self._parts.zero_grad.after_error()
                explain_one_value(error, self.plan)
                explain_mismatch(error)
                self._parts.sync.explain(error)
                raise

    def _note(self, finished: StepFinished) -> None:
        self._notices += notices.after_step(finished, self._parts.precision.loss_scale)
        if notices.is_lost(finished) and not self._lost:
            self._lost = True
            self._notices.append(notices.loss_not_finite(finished))

    def take_notices(self) -> list[Notice]:
        """Return the notices since the last call."""
        taken, self._notices = self._notices, []
        return taken

    def take_communication(self) -> list[StepCommunication]:
        """Return what this rank exchanged with others in the step that ended; empty where it trains alone."""
        return self._parts.sync.communication(self.steps_done - 1)

    def close(self) -> None:
        """Take our hooks off the model, which stays usable, and leave the other ranks."""
        self._parts.norms.close()
        self._parts.sync.close()


def _workload(plan: Plan, workload: Workload | None) -> Workload:
    if workload is None:
        return workload_for(plan)
    if plan.model != "custom":
        raise PlanError(
            f"model={plan.model!r} brings its own workload: leave yours out, or set model='custom'."
        )
    return workload


def _build(
    plan: Plan, workload: Workload, precision: FullPrecision, meter: StepMeter, sync: SingleRank
) -> Parts:
    """Build model and optimizer, then everything that the plan chooses around them."""
    with by_default_on(precision.device):
        model = prepare_model(workload, plan)
    if not model.training:  # handed over for evaluation as a whole; parts of it may be so on purpose
        model.train()
    policy_for(plan).apply(*_blocks(workload, model))
    sync.divide(model, workload.blocks(model))
    optimizer = sync.optimizer(workload.build_optimizer(precision.prepare(model), plan))
    norms = norms_for(plan.batch_norm_statistics, model)
    model = sync.wrap(model, meter)
    meter.watch(model, optimizer)
    return Parts(
        workload=workload,
        model=model,
        optimizer=optimizer,
        precision=precision,
        sync=sync,
        norms=norms,
        zero_grad=GradientReset(plan.zero_grad, lambda to_none: precision.zero_grad(optimizer, to_none)),
        clip=clip_for(plan.clip_norm),
        schedule=schedule_for(plan, optimizer),
        meter=meter,
    )


def _blocks(workload: Workload, model: nn.Module) -> tuple[list[nn.Module], list[str]]:
    names = {module: name for name, module in model.named_modules()}
    blocks = workload.blocks(model)
    return blocks, [names.get(block) or type(block).__name__ for block in blocks]


def _check_items(window: Window, step: int) -> None:
    if window.items == 0:
        raise PlanError(
            f"optimizer step {step + 1} has no label to learn from: all labels of its {window.samples} samples are "
            "ignored (-100); leave such samples out, or enlarge micro_batch_size or gradient_accumulation_steps."
        )
