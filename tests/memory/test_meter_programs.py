"""Programs that do unusual things: what ends up in the model or the optimizer is called so."""

import copy

import pytest
import torch
from programs import n_model
from torch import nn

from memlab import Meter
from memlab.trace import CATEGORIES


def end(meter: Meter) -> dict[str, int]:
    return dict(zip(CATEGORIES, meter.trace.end, strict=True))


def size(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        model(torch.randn(4, 32)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("change", ["double", "assign"])
def test_weights_that_are_replaced_are_parameters_again(change) -> None:
    model = n_model(2, 32)
    with Meter(model) as meter:
        if change == "double":
            model.double()
        else:
            model.load_state_dict({name: t.clone() for name, t in model.state_dict().items()}, assign=True)
    assert end(meter)["parameters"] == size(model.parameters()) == sum(meter.trace.end)


def test_state_that_is_loaded_is_optimizer_state() -> None:
    model = n_model(2, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    with Meter(model, optimizer) as meter:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    state = size(value for values in optimizer.state.values() for value in values.values())
    assert end(meter)["optimizer_state"] == state


def test_the_history_of_lbfgs_is_optimizer_state() -> None:
    model = n_model(1, 32)
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=3, max_iter=4)
    x = torch.randn(4, 32)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    with Meter(model, optimizer) as meter:
        for _ in range(3):
            optimizer.step(closure)
    state = optimizer.state[next(model.parameters())]
    history = size([*state["old_dirs"], *state["old_stps"]])
    assert end(meter)["optimizer_state"] >= history > 0


def test_batches_of_a_data_loader_with_workers_are_inputs() -> None:
    model = n_model(1, 32)
    loader = torch.utils.data.DataLoader(torch.ones(8, 32), batch_size=4, num_workers=1)
    with Meter(model) as meter:
        for x in loader:
            model(x).sum().backward()
    # the second batch is fetched before the name `x` lets go of the first
    assert 4 * 32 * 4 <= meter.peak["inputs"] <= 2 * 4 * 32 * 4


def test_updates_inside_backward_make_one_step_together() -> None:
    model = n_model(3, 32)
    optimizers = {weight: torch.optim.AdamW([weight]) for weight in model.parameters()}

    def update(weight):
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(update)
    with Meter(model) as meter:
        for _ in range(3):
            model(torch.randn(4, 32)).pow(2).mean().backward()
    assert len(meter.step_peaks) == 3
    assert end(meter)["gradients"] == 0
    assert end(meter)["optimizer_state"] == 2 * size(model.parameters()) + 4 * len(optimizers)


def test_gradients_of_weights_that_joined_late_are_gradients() -> None:
    model = n_model(2, 32)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with Meter(model, optimizer) as meter:
        train(model, optimizer, steps=1)
        model[0].requires_grad_(True)
        optimizer.add_param_group({"params": list(model[0].parameters())})
        model(torch.randn(4, 32)).sum().backward()
    assert end(meter)["gradients"] == size(model.parameters())


def test_weights_without_a_module_are_parameters() -> None:
    with Meter() as meter:
        weight = torch.randn(1000, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        weight.pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert end(meter)["parameters"] == end(meter)["optimizer_state"] == 4000


def test_each_of_two_optimizers_ends_a_step() -> None:
    first, second = n_model(1, 32), n_model(1, 32)
    pairs = [(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in (first, second)]
    with Meter() as meter:
        for _ in range(2):
            for model, optimizer in pairs:
                train(model, optimizer, steps=1)
    assert len(meter.step_peaks) == 4
