"""Small programs whose memory is known, and an independent record of the CPU allocator."""

from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from memlab import Meter, Plan
from memlab.workload import prepare_model, workload_for


def n_model(depth: int, width: int) -> nn.Sequential:
    """N(n, d) of the published cases: n x [Linear(d, d), GELU]."""
    layers = (layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))
    return nn.Sequential(*layers)


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def metered(
    depth: int,
    width: int,
    batch: int,
    make_optimizer=sgd,
    *,
    steps: int = 3,
    micro_steps: int = 1,
    zero: str = "after_step",
    autocast: torch.dtype | None = None,
    forward: Callable | None = None,
    sum_losses: bool = False,
) -> Meter:
    """Train N(depth, width) as a learner's own program does; return the meter that was around it."""
    model = n_model(depth, width)
    optimizer = make_optimizer(model.parameters())
    with Meter(model, optimizer) as meter:
        for _ in range(steps):
            if zero == "before_forward":
                optimizer.zero_grad()
            losses = []
            for micro_step in range(micro_steps):
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    x = torch.randn(batch, width)
                    y = model(x) if forward is None else forward(model, x)
                loss = y.float().pow(2).mean()
                if zero == "before_backward" and micro_step == 0:
                    optimizer.zero_grad()
                del y
                if sum_losses:
                    del x
                    losses.append(loss)
                else:
                    loss.backward()
                del loss
            if sum_losses:
                sum(losses).backward()
                losses.clear()
            optimizer.step()
            if zero in ("after_step", "in_place"):
                optimizer.zero_grad(set_to_none=zero == "after_step")
    return meter


def plan_step(plan: Plan) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    """Build a plan's model and optimizer by hand, and one bare step of it."""
    torch.manual_seed(0)
    workload = workload_for(plan)
    model = prepare_model(workload, plan)
    optimizer = workload.build_optimizer(model.parameters(), plan)
    batch = workload.batch(range(plan.micro_batch_size))
    items = workload.count(batch)
    dtype = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}.get(plan.precision)

    def step() -> None:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = workload.loss_sum(model, batch) / items
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def allocator_peak(step: Callable[[], None]) -> int:
    """Return how far the CPU allocator rose above its level before `step`, in bytes, by torch.profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    records = [
        (event.start_ns(), event.nbytes())
        for event in profiler.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    total = peak = 0
    for _, size in sorted(records, key=lambda record: record[0]):
        total += size
        peak = max(peak, total)
    return peak


def live_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of weights, buffers and optimizer state."""
    state = [value for values in optimizer.state.values() for value in values.values()]
    return sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers(), *state])
