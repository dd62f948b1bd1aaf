"""Activation checkpointing: policies that make blocks recompute their forward during backward."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from memlab.plan import Plan, PlanError
from memlab.training.norms import batch_norms

Contexts = tuple[AbstractContextManager[object], AbstractContextManager[object]]
"""What torch holds around the forward pass of a block, and around its recomputation."""

aten = torch.ops.aten
MATRIX_PRODUCTS = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
}
"""Operators whose results "selective" keeps: they cost the most to compute again."""


class Policy(Protocol):
    """Chooses which blocks recompute, and what of them."""

    def apply(self, blocks: Sequence[nn.Module], names: Sequence[str]) -> None:
        """Make blocks recompute, in place; `names` are theirs within the model, for errors."""
        ...


class KeepAll:
    """Every activation lives until backward needs it."""

    def apply(self, blocks: Sequence[nn.Module], names: Sequence[str]) -> None:
        """Change nothing."""


class EveryNth:
    """Blocks number N, 2N, ... keep their input alone; N = 1 is every block."""

    def __init__(self, every: int, said: str) -> None:
        self.every = every
        self.said = said

    def apply(self, blocks: Sequence[nn.Module], names: Sequence[str]) -> None:
        """Make every N-th block recompute; raise PlanError where there is none."""
        _need_blocks(blocks, self.said)
        if self.every > len(blocks):
            raise PlanError(
                f"activation_checkpointing={self.said!r} recomputes no block of a model with {len(blocks)}; "
                f"choose N of {len(blocks)} or less."
            )
        for block, name in list(zip(blocks, names, strict=True))[self.every - 1 :: self.every]:
            recompute(block, name, _keep_nothing)


class KeepMatrixProducts:
    """Every block keeps the results of matrix products and attention, and recomputes the rest."""

    def apply(self, blocks: Sequence[nn.Module], names: Sequence[str]) -> None:
        """Make every block recompute all but the matrix products; raise PlanError without blocks."""
        _need_blocks(blocks, "selective")
        for block, name in zip(blocks, names, strict=True):
            recompute(block, name, partial(create_selective_checkpoint_contexts, _keeps_matrix_products))


def policy_for(plan: Plan) -> Policy:
    """Return the plan's policy."""
    match plan.activation_checkpointing:
        case "none":
            return KeepAll()
        case "selective":
            return KeepMatrixProducts()
        case said:
            return EveryNth(plan.checkpoint_every, said)


class _Recomputed:
    """Mixed into a block's class: forward keeps the inputs, and runs again during backward."""

    _recomputed_name: str
    _recomputed_contexts: Callable[[], Contexts]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # Not reentrant: works where no input needs a gradient, and under DDP. The random state is kept.
        return checkpoint(
            super().forward, *args, use_reentrant=False, context_fn=self._named_contexts, **kwargs
        )

    def _named_contexts(self) -> Contexts:
        forward, recomputation = self._recomputed_contexts()
        return forward, _recomputing(self, recomputation)


def recompute(block: nn.Module, name: str, contexts: Callable[[], Contexts]) -> None:
    """Make `block` recompute during backward, in place; module names and hooks stay.

    The class of the block is changed, not its forward: a bound method stored on the block would be a
    reference cycle, which keeps the weights alive after the run.
    """
    kind = type(block)
    members = {"_recomputed_name": name, "_recomputed_contexts": staticmethod(contexts)}
    block.__class__ = type(kind.__name__, (_Recomputed, kind), members)


class RecomputationError(RuntimeError):
    """A block computed something else in its second forward pass."""


_last_recomputed = ""
# torch complains after the recomputation has ended, and on a GPU backward runs in a thread of its own: so
# the name of the block is left here, for `explain_mismatch` to find.


def explain_mismatch(error: BaseException) -> None:
    """Raise torch's complaint about a recomputation as one that names the module; let other errors pass."""
    if isinstance(error, CheckpointError):
        raise RecomputationError(
            f"{_last_recomputed} computed tensors of other shapes, or another number of them, when its "
            "forward ran again for activation checkpointing: make its forward depend on its inputs and torch's random "
            "state alone, or leave it out of Workload.blocks."
        ) from error


@contextmanager
def _recomputing(block: Any, inner: AbstractContextManager[object]) -> Iterator[None]:
    global _last_recomputed
    _last_recomputed = f"Module {block._recomputed_name!r} ({type(block).__name__})"
    with ExitStack() as stack:
        for norm in batch_norms(block):
            stack.enter_context(_counted_once(norm))
        stack.enter_context(inner)
        yield


@contextmanager
def _counted_once(norm: Any) -> Iterator[None]:
    """Let BatchNorm see a batch again without moving its running statistics again.

    Momentum 0 rather than `track_running_stats=False`: autograd must save the same tensors as before.
    """
    momentum, batches = norm.momentum, norm.num_batches_tracked
    norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        norm.momentum, norm.num_batches_tracked = momentum, batches


def _keep_nothing() -> Contexts:
    return nullcontext(), nullcontext()


def _keeps_matrix_products(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in MATRIX_PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def _need_blocks(blocks: Sequence[nn.Module], said: str) -> None:
    if not blocks:
        raise PlanError(
            f"activation_checkpointing={said!r} needs blocks to work on, and the workload names none: "
            "return them from Workload.blocks, or choose 'none'."
        )
