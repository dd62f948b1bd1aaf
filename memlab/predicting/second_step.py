"""Tell the second optimizer step's micro-steps by those of the first, and trace its update alone.

Where gradients are dropped after the update, a step leaves nothing behind but weights and the optimizer's state, and
no micro-step looks at that: the next step's make again what the first one's made. Whether nothing was left is seen
in the first step's trace; where something was, such as a loss scale made on the way, the second is traced as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from typing_extensions import override

from memlab.memory.ledger import GRADIENTS, Ledger
from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.predicting.dataless import DatalessMode
from memlab.predicting.stream import Calls
from memlab.trace import ARRAYS, Trace
from memlab.training.loop import Trainer
from memlab.training.window import Window


def may_be_told(plan: Plan, steps: Sequence[Window]) -> bool:
    """Say whether the second of two `steps` may be like the first, as far as the plan shows."""
    ours_alone = plan.model != "custom" and plan.world_size == 1  # what others keep in Python is not known
    return (
        ours_alone
        and plan.zero_grad == "after_step"
        and len(steps) == 2
        and len(set(map(_shape, steps))) == 1
    )


def _shape(window: Window) -> tuple[object, ...]:
    return tuple(tuple((t.shape, t.dtype) for t in batch) for batch in window.micro_batches)


@dataclass(frozen=True)
class Gradient:
    """What backward left on a weight."""

    weight: nn.Parameter
    number: int
    """Of its storage, which holds nothing else."""
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype


class GradientNotes(Meter):
    """A meter that notes each step's gradients, as the update finds them."""

    gradients: tuple[Gradient, ...] | None = None
    """None: one of them shares its storage."""
    changes = calls = 0
    """Before the update."""

    @override
    def watch(self, model: nn.Module | None, optimizer: torch.optim.Optimizer | None) -> None:
        super().watch(model, optimizer)
        assert model is not None and optimizer is not None
        owners = (weight for group in optimizer.param_groups for weight in group["params"])
        self._weights = list(dict.fromkeys([*model.parameters(), *owners]))

    @override
    def mark(self, phase: str, micro_step: int = 0) -> None:
        if phase == "optimizer":
            self.changes = len(self.ledger)
            self.calls = len(self._dataless.calls or ()) if isinstance(self._dataless, DatalessMode) else 0
            found = [_noted(self.ledger, weight) for weight in self._weights if weight.grad is not None]
            self.gradients = None if None in found else tuple(each for each in found if each is not None)
        super().mark(phase, micro_step)


def _noted(ledger: Ledger, weight: nn.Parameter) -> Gradient | None:
    gradient = weight.grad
    if type(gradient) is not FakeTensor or gradient.layout is not torch.strided:
        return None
    entry = ledger.find(gradient)
    if entry is None or entry.size != gradient.numel() * gradient.element_size():
        return None
    return Gradient(weight, entry.number, gradient.shape, gradient.stride(), gradient.dtype)


@dataclass(frozen=True)
class MicroSteps:
    """The changes of a step before its update, all of which come again."""

    trace: Trace
    """Of the whole step."""
    changes: int
    calls: Calls
    gradients: tuple[Gradient, ...]
    first: int
    """Number of the first storage that was born."""
    born: int

    @classmethod
    def of(cls, meter: GradientNotes, trace: Trace, calls: Calls) -> "MicroSteps | None":
        """Return those of the step that `meter` saw last; None where that left something behind, or took something.

        To be called after the step, when all it made and gave back is gone.
        """
        before, after = trace.allocation[: meter.changes], trace.allocation[meter.changes :]
        numbers = before[trace.delta_bytes[: meter.changes] > 0]
        if not meter.gradients or not len(numbers):
            return None
        first, born = int(numbers[0]), len(numbers)
        theirs = range(first, first + born)
        gradients = {gradient.number for gradient in meter.gradients}
        if (
            len(gradients) < len(meter.gradients)
            or not gradients.issubset(theirs)
            or before.min() < first  # they freed what was there before
            or not gradients.issuperset(set(after.tolist()).intersection(theirs))
            or any(entry.number in theirs for entry in meter.ledger.living())
        ):
            return None
        return cls(trace, meter.changes, calls[: meter.calls], meter.gradients, first, born)

    def update_alone(
        self, trainer: Trainer, window: Window, meter: Meter, mode: DatalessMode
    ) -> tuple[Trace, Calls]:
        """Run the next step's update on gradients like these; return the trace and the calls of the whole step."""
        late = len(meter.ledger)  # what the step before gave back
        for gradient in self.gradients:
            made = mode.empty(gradient.shape, gradient.dtype, gradient.strides)
            meter.ledger.add(made, GRADIENTS)
            gradient.weight.grad = made
        del made
        trainer.run(replace(window, micro_batches=(), divisors=()))
        update = meter.last_step
        return self._before(update, late), self._calls_before(mode.calls or (), late)

    def _before(self, update: Trace, late: int) -> Trace:
        """Return `update` with the micro-steps in the place of the gradients, after `late` changes."""
        given = len(self.gradients)
        first = int(update.allocation[late])
        places = np.array([gradient.number - self.first for gradient in self.gradients])
        rest = update.allocation[late + given :].copy()
        of_update, of_gradients = rest >= first + given, (rest >= first) & (rest < first + given)
        rest[of_update] += self.born - given
        rest[of_gradients] = first + places[rest[of_gradients] - first]
        columns = {}
        for name in ARRAYS:
            changes, own = getattr(self.trace, name)[: self.changes], getattr(update, name)
            if name == "allocation":
                changes, own = changes - self.first + first, np.concatenate([own[: late + given], rest])
            if name == "step":
                changes = changes + 1
            columns[name] = np.concatenate([own[:late], changes, own[late + given :]])
        columns["micro_step"][late + self.changes :] = self.trace.micro_step[self.changes - 1]
        return replace(update, **{name: columns[name].astype(kind) for name, kind in ARRAYS.items()})

    def _calls_before(self, calls: Calls, late: int) -> Calls:
        shift = self.changes - len(self.gradients)
        return (
            *((place + late, func) for place, func in self.calls),
            *((place + shift, func) for place, func in calls),
        )
