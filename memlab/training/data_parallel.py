"""Several ranks, each with all weights: torch's DistributedDataParallel."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import assert_never, override

from memlab.events import StepCommunication
from memlab.plan import GradientSync, Plan, PlanError
from memlab.training.backend_thread import integers_let_go, let_go
from memlab.training.exchange import Exchange, checksum, what_stays
from memlab.training.metering import NULL_METER, StepMeter
from memlab.training.ranks import join
from memlab.training.sync import SingleRank
from memlab.training.window import Window


class SeveralRanks(SingleRank):
    """What ranks agree on, whoever holds the weights: numbers of items, and the loss."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._leave = join(plan, device)
        self._plan, self._device = plan, device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._exchange = Exchange(NULL_METER, self.rank, self.world_size)

    @override
    def agreed(self, window: Window) -> Window:
        self._exchange.begin_step()
        items = torch.tensor(window.items)
        with let_go(items):
            dist.all_reduce(items)
        batches = (
            window.micro_batches if window.stand_in is None else (*window.micro_batches, window.stand_in)
        )
        # Gradients are averaged over ranks, so the part of each counts world_size-fold.
        divisors = [items.item() / self.world_size] * len(window.micro_batches)
        if window.stand_in is not None:
            divisors.append(math.inf)  # its loss and gradient are zeros
        return replace(window, micro_batches=batches, divisors=tuple(divisors), items=int(items))

    @override
    def mean(self, loss: Tensor) -> float:
        with let_go(loss):
            dist.all_reduce(loss)
        return loss.item() / self.world_size

    @override
    def communication(self, step: int) -> list[StepCommunication]:
        return [self._exchange.of_step(step, self._checksum())]

    def _checksum(self) -> int | None:
        return None

    @override
    def close(self) -> None:
        self._leave()


class Replicas(SeveralRanks):
    """DDP: each rank holds all weights; gradients are averaged in buckets while backward runs."""

    @override
    def wrap(self, model: nn.Module, meter: StepMeter) -> nn.Module:
        plan = self._plan
        if plan.sync_batch_norm:
            nn.SyncBatchNorm.convert_sync_batchnorm(model)
        with what_stays() as buckets:
            wrapped = DistributedDataParallel(
                model,
                bucket_cap_mb=plan.bucket_cap_mb,
                find_unused_parameters=plan.find_unused_parameters,
                gradient_as_bucket_view=plan.gradient_as_bucket_view,
            )
        for bucket in buckets:
            meter.exchange(bucket)
        self._exchange = Exchange(meter, self.rank, self.world_size)
        wrapped.register_comm_hook(None, self._exchange.hook)
        wrapped.register_forward_pre_hook(lay_out_anew)
        self._model = model
        return wrapped

    @override
    def _checksum(self) -> int:
        return checksum(self._model)

    @override
    def bare(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, DistributedDataParallel) else model

    @override
    @contextmanager
    def context(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        assert isinstance(model, DistributedDataParallel)
        exchanging = exchanges(self._plan.gradient_sync, is_last=is_last)
        self._exchange.begin_micro_step(exchanging=exchanging)
        with _without_exchange(model, self._plan.gradient_sync, is_last=is_last):
            yield
        if not self._exchange.complete:
            raise PlanError(_no_gradient(model.module))


def lay_out_anew(model: DistributedDataParallel, inputs: object) -> None:
    """Lay DDP's buckets out anew where it is about to, once a run, for it does not wait for gloo's thread."""
    if torch.is_grad_enabled() and not model._has_rebuilt_buckets:
        with integers_let_go():
            model._has_rebuilt_buckets = bool(model.reducer._rebuild_buckets())


def exchanges(when: GradientSync, *, is_last: bool) -> bool:
    """Say whether a micro-step's backward sends its gradients to the other ranks."""
    return {"last-micro-step": is_last, "every-micro-step": True, "backward-only": True, "never": False}[when]


def _without_exchange(
    model: DistributedDataParallel, when: GradientSync, *, is_last: bool
) -> AbstractContextManager[object]:
    """Return `no_sync` at the place where `when` says it, around one micro-step."""
    match when:
        case "last-micro-step":
            return nullcontext() if is_last else model.no_sync()
        case "every-micro-step":
            return nullcontext()
        case "never":
            return model.no_sync()
        case "backward-only":
            return nullcontext() if is_last else _no_sync_after_forward(model)
        case never:
            assert_never(never)


@contextmanager
def _no_sync_after_forward(model: DistributedDataParallel) -> Iterator[None]:
    """Enter `no_sync` when forward is through: too late, for DDP reads it in forward."""
    with ExitStack() as backward:

        def enter(*forward: object) -> None:
            backward.enter_context(model.no_sync())

        hook = model.register_forward_hook(enter)
        backward.callback(hook.remove)
        yield


def _no_gradient(model: nn.Module) -> str:
    names = [
        name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None
    ]
    which = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"{which or 'a weight'} of {type(model).__name__} got no gradient in this micro-step, and DDP waits for one "
        "from every weight: use it in the loss, freeze it (requires_grad_(False)), or set find_unused_parameters=True."
    )
