"""What a Workload hands over, checked where it enters."""

from torch import Tensor, nn

from memlab.data import Batch
from memlab.plan import PlanError
from memlab.workload import Workload

_A_BATCH = (
    "return a tuple of tensors with the labels last, as in `return x, y`, or `return (x,)` without labels."
)
_A_LOSS = (
    "return the sum of the losses, a tensor of shape () that depends on the model's weights, as in `.sum()`"
)


def checked_batch(workload: Workload, batch: object) -> Batch:
    """Return `batch` as a tuple; raise PlanError where it holds anything but tensors."""
    if not isinstance(batch, (tuple, list)):
        raise _wrong(workload, "batch", f"a value of type {type(batch).__name__}; {_A_BATCH}")
    if not batch:
        raise _wrong(workload, "batch", f"an empty {type(batch).__name__}; {_A_BATCH}")
    for value in batch:
        if not isinstance(value, Tensor):
            said = f"a {type(batch).__name__} that holds a value of type {type(value).__name__}"
            raise _wrong(workload, "batch", f"{said}; {_A_BATCH}")
    return tuple(batch)


def checked_loss_sum(workload: Workload, model: nn.Module, batch: Batch) -> Tensor:
    """Return `workload.loss_sum(model, batch)`; raise PlanError where backward could not start from it."""
    loss = workload.loss_sum(model, batch)
    if not isinstance(loss, Tensor):
        raise _wrong(workload, "loss_sum", f"a value of type {type(loss).__name__}; {_A_LOSS}.")
    if loss.shape != ():
        raise _wrong(workload, "loss_sum", f"a tensor of shape {tuple(loss.shape)}; {_A_LOSS}.")
    if not loss.requires_grad:
        raise _wrong(
            workload,
            "loss_sum",
            f"a tensor that requires no gradient; {_A_LOSS}, without .item(), .detach() or torch.no_grad() on the way.",
        )
    return loss


def _wrong(workload: Workload, method: str, said: str) -> PlanError:
    return PlanError(f"{type(workload).__name__}.{method} returned {said}")
