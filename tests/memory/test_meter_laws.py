"""What holds for every program under the meter."""

import gc

import pytest
import torch
from programs import n_model, sgd
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

from memlab import Meter, Plan
from memlab.trace import CATEGORIES, PHASES, Trace
from memlab.training.loop import Trainer


def train_by_hand(model, optimizer, *, steps=2, micro_steps=2, batch=16) -> None:
    for _ in range(steps):
        for _ in range(micro_steps):
            model(torch.randn(batch, 32)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def phases_of(trace: Trace) -> list[tuple[str, int, int]]:
    """Return the phases in order, each once: (phase, micro-step, step)."""
    found = []
    for phase, micro_step, step in zip(trace.phase, trace.micro_step, trace.step, strict=True):
        place = (PHASES[phase], int(micro_step), int(step))
        if not found or found[-1] != place:
            found.append(place)
    return found


def test_categories_sum_to_the_total_at_every_change() -> None:
    model = n_model(2, 32)
    with Meter(model, sgd(model.parameters())) as meter:
        train_by_hand(model, sgd(model.parameters()))
    trace = meter.trace
    assert len(trace) > 50
    assert (trace.by_category.sum(axis=1) == trace.totals).all()
    assert (trace.by_category >= 0).all()
    assert sum(meter.peak.values()) == meter.peak.total == trace.totals.max()


def test_phases_micro_steps_and_steps_are_found_in_anybody_s_code() -> None:
    model = n_model(2, 32)
    optimizer = sgd(model.parameters())
    with Meter(model, optimizer) as meter:
        train_by_hand(model, optimizer)
    one_step = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("optimizer", 1)]
    expected = [(phase, micro, step) for step in (0, 1) for phase, micro in one_step]
    # plain SGD allocates nothing itself; what it frees afterwards belongs to its phase
    assert [place for place in phases_of(meter.trace)] == expected
    assert len(meter.step_peaks) == 2


def test_every_micro_batch_is_inputs_and_clipping_is_not() -> None:
    model = n_model(2, 32)
    optimizer = sgd(model.parameters())
    with Meter(model, optimizer) as meter:
        for _ in range(2):
            for _ in range(3):
                model(torch.randn(16, 32)).pow(2).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    inputs = meter.trace.by_category[:, CATEGORIES.index("inputs")]
    forward = meter.trace.phase == PHASES.index("forward")
    for micro_step in range(3):
        assert inputs[forward & (meter.trace.micro_step == micro_step)].max() == 16 * 32 * 4
    assert inputs[meter.trace.phase == PHASES.index("optimizer")].max() == 0


def test_phases_follow_the_marks_of_a_program_that_sets_them() -> None:
    with Meter() as meter:
        for _ in range(2):
            for micro_step in range(2):
                meter.mark("forward", micro_step)
                loss = torch.ones(10, requires_grad=True).sum()
                meter.mark("backward", micro_step)
                loss.backward()
            meter.mark("optimizer")
            torch.empty(5)
    one_step = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("optimizer", 1)]
    assert phases_of(meter.trace) == [(phase, micro, step) for step in (0, 1) for phase, micro in one_step]


def test_a_meter_that_was_told_nothing_finds_model_and_optimizer() -> None:
    told_model, found_model = n_model(2, 32), n_model(2, 32)
    told_optimizer = torch.optim.AdamW(told_model.parameters())
    found_optimizer = torch.optim.AdamW(found_model.parameters())
    with Meter(told_model, told_optimizer) as told:
        train_by_hand(told_model, told_optimizer)
    with Meter() as found:
        train_by_hand(found_model, found_optimizer)
    assert found.peak.sizes == told.peak.sizes
    assert found.step_peaks == told.step_peaks


def test_views_tied_weights_and_in_place_results_count_once() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    with Meter(model) as meter:
        x = torch.ones(64)
        y = x.view(8, 8)[2:].t()
        y.add_(1)
        x.relu_()
        del x, y
    assert meter.trace.start[CATEGORIES.index("parameters")] == 8 * 8 * 4
    assert meter.peak.total == 8 * 8 * 4 + 64 * 4
    assert meter.trace.totals[-1] == 8 * 8 * 4


def test_gradients_are_told_from_other_tensors_of_backward() -> None:
    model = n_model(3, 32)
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    with Meter(model) as meter:
        model(torch.randn(4, 32)).sum().backward()
    end = dict(zip(CATEGORIES, meter.trace.end, strict=True))
    assert end["gradients"] == end["parameters"] == weights
    assert end["activations"] == end["temporaries"] == 0


def test_gradients_that_a_hook_frees_at_once_are_gradients_all_the_same() -> None:
    model = n_model(3, 32)
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda w: setattr(w, "grad", None))
    with Meter(model) as meter:
        model(torch.randn(4, 32)).sum().backward()
    largest = max(parameter.numel() * 4 for parameter in model.parameters())
    gradients = meter.trace.by_category[:, CATEGORIES.index("gradients")]
    assert 0 <= gradients.max() <= 2 * largest
    assert meter.trace.end[CATEGORIES.index("gradients")] == 0


def test_autocast_copies_of_weights_are_told_from_activations() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    with Meter(model) as meter, torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 64)).float().sum()
    copies = meter.trace.by_category[:, CATEGORIES.index("low_precision_copies")]
    assert copies.max() == sum(parameter.numel() * 2 for parameter in model.parameters())
    assert loss.requires_grad


def test_recomputed_activations_are_activations_again() -> None:
    model = n_model(4, 64)
    x = torch.randn(256, 64, requires_grad=True)
    with Meter(model) as meter:
        loss = checkpoint(model, x, use_reentrant=False).pow(2).mean()
        loss.backward()
    activations = meter.trace.by_category[:, CATEGORIES.index("activations")]
    backward = meter.trace.phase == PHASES.index("backward")
    one = 256 * 64 * 4
    assert activations[~backward].max() <= 2 * one
    # inputs of three Linears (the first one's is x) and of four GELUs; the last output is not remade
    assert 7 * one <= activations[backward].max() < 7 * one + 64


def test_the_peak_names_the_module_that_ran() -> None:
    model = nn.Sequential(nn.Linear(4, 4096), nn.Linear(4096, 4, bias=False))
    with Meter(model) as meter, torch.no_grad():
        model(torch.randn(1024, 4))
    assert meter.peak.where in ("0", "1")


def test_the_world_is_left_as_it_was_also_after_an_exception() -> None:
    model = n_model(1, 8)
    before = (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks))
    with pytest.raises(ZeroDivisionError), Meter(model, sgd(model.parameters())):
        model(torch.randn(2, 8)).sum().backward()
        raise ZeroDivisionError
    assert _get_current_dispatch_mode() is None
    assert (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)) == before
    assert not optimizers._global_optimizer_pre_hooks and not optimizers._global_optimizer_post_hooks
    assert "resize_" not in vars(torch.UntypedStorage)
    assert not any(weight._post_accumulate_grad_hooks for weight in model.parameters())


def test_between_two_steps_no_other_program_meets_the_meter() -> None:
    trainer = Trainer(Plan(model="mlp", device="cpu"), meter=Meter(keep="selected"))
    trainer.step()
    assert not modules._global_forward_hooks and not modules._global_forward_pre_hooks
    assert not optimizers._global_optimizer_pre_hooks and "resize_" not in vars(torch.UntypedStorage)


def test_the_meter_keeps_no_tensor_alive_and_takes_no_note_after_its_end() -> None:
    model = n_model(1, 8)
    with Meter(model) as meter:
        model(torch.randn(2, 8)).sum().backward()
    before = len(meter.trace)
    storages = [weight.untyped_storage() for weight in model.parameters()]
    del model
    gc.collect()
    assert all(storage.nbytes() for storage in storages)
    del storages
    assert len(meter.trace) == before


def test_other_dispatch_modes_may_run_inside_and_around() -> None:
    class Counting(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counting.seen += 1
            return func(*args, **(kwargs or {}))

    with Counting(), Meter() as meter, Counting():
        kept = torch.ones(1000) + 1
    assert Counting.seen >= 4
    assert meter.peak.total == 8000 and kept.numel() == 1000


def test_sparse_gradients_are_counted_by_their_parts() -> None:
    model = nn.Embedding(1000, 8, sparse=True)
    with Meter(model) as meter:
        model(torch.tensor([1, 2, 3])).sum().backward()
    end = dict(zip(CATEGORIES, meter.trace.end, strict=True))
    assert end["gradients"] == 3 * 8 * 4 + 3 * 8, "values and 64-bit indices"


def test_an_empty_block_reports_what_lived_through_it() -> None:
    model = n_model(1, 8)
    with Meter(model) as meter:
        pass
    assert meter.peak.total == meter.peak["parameters"] == (8 * 8 + 8) * 4


def test_a_step_of_forty_thousand_changes_is_kept_change_by_change() -> None:
    with Meter() as meter:
        for _ in range(20_000):
            torch.empty(3)
    assert len(meter.trace) == 40_000
    assert meter.peak.total == 12
