"""A run is reproducible, and leaves the program around it as it was."""

import gc
import weakref

import pytest
import torch
from toys import Points, Values, custom

from memlab.events import StepFinished
from memlab.plan import Plan
from memlab.training.loop import Trainer, train

FIELDS = {"dropout": 0.5, "steps": 4, "micro_batch_size": 8, "learning_rate": 0.1}


def losses(disturb: bool = False, **fields: object) -> list[float]:
    found = []
    for event in train(custom(**{**FIELDS, **fields}), Points()):
        if disturb:
            torch.rand(5)
        if isinstance(event, StepFinished):
            found.append(event.loss)
    return found


def test_a_run_repeats_and_follows_its_seed() -> None:
    assert losses() == losses() != losses(seed=1)


def test_random_numbers_drawn_between_events_change_nothing() -> None:
    torch.manual_seed(7)
    assert losses(disturb=True) == losses()


def test_the_random_state_is_as_found_at_every_event() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()

    for _ in train(custom(**FIELDS), Points()):
        assert torch.equal(torch.get_rng_state(), before)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_state_is_restored_after_an_error() -> None:
    class Broken(Points):
        def batch(self, indices: list[int]) -> tuple[torch.Tensor, ...]:
            torch.rand(3)
            raise OSError("gone")

    before = torch.get_rng_state()
    with pytest.raises(OSError, match="gone"):
        list(train(custom(**FIELDS), Broken()))

    assert torch.equal(torch.get_rng_state(), before)


def test_other_global_settings_are_as_found_at_every_event() -> None:
    def settings() -> tuple[object, ...]:
        return (
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
        )

    before = settings()
    plan = custom(precision="bf16-mixed", activation_checkpointing="full", **FIELDS)

    assert all(settings() == before for _ in train(plan, Points()))


@pytest.mark.parametrize("ends", ["runs out", "is closed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "fp16-mixed", "clip_norm": 1.0, "schedule": "cosine"},
        {"precision": "bf16-true", "gradient_precision": "bf16+fp32", "activation_checkpointing": "full"},
        {"batch_norm_statistics": "accumulated", "activation_checkpointing": "selective"},
    ],
    ids=str,
)
def test_nothing_holds_the_model_afterwards(ends: str, fields: dict) -> None:
    seen = []

    class Seen(Points):
        def build_model(self, plan: Plan) -> torch.nn.Module:
            model = super().build_model(plan)
            seen.extend(weakref.ref(part) for part in (model, *model.parameters()))
            return model

    gc.collect()
    gc.disable()  # no cycle may hold it until the collector comes
    try:
        events = train(custom(steps=2, **fields), Seen(norm=True))
        while not isinstance(next(events), StepFinished):
            pass
        assert seen[0]() is not None
        list(events) if ends == "runs out" else events.close()
        assert [reference() for reference in seen if reference() is not None] == []
    finally:
        gc.enable()


def test_started_counts_the_weights() -> None:
    started = Trainer(Plan(model="gpt-tiny", lora_rank=2)).started

    assert 0 < started.trainable_parameters < started.parameters and started.device == "cpu"


def test_train_and_trainer_are_the_same_run() -> None:
    trainer = Trainer(custom(**FIELDS), Points())

    assert [trainer.step().loss for _ in range(4)] == losses()


def test_the_host_keeps_the_batches_that_it_made() -> None:
    workload = Values([1.0] * 8)
    trainer = Trainer(custom(precision="bf16-true"), workload)
    trainer.step()

    assert workload.values.dtype == torch.float32


def test_a_broken_step_leaves_no_gradient_to_the_next() -> None:
    class Breaking(Values):
        calls = 0

        def loss_sum(self, model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
            self.calls += 1
            if self.calls == 2:
                raise MemoryError("full")
            return super().loss_sum(model, batch)

    plan = custom(micro_batch_size=1, gradient_accumulation_steps=2)
    trainer = Trainer(plan, Breaking([1.0] * 4))
    with pytest.raises(MemoryError, match="^full$"):
        trainer.step()
    trainer.step()

    assert trainer.model.weight.item() == 0.0


def test_a_model_handed_over_for_evaluation_trains_but_its_frozen_parts_stay_so() -> None:
    class Half(Points):
        def build_model(self, plan: Plan) -> torch.nn.Module:
            model = super().build_model(plan)
            model.blocks[0].eval()
            return model

    class Whole(Points):
        def build_model(self, plan: Plan) -> torch.nn.Module:
            return super().build_model(plan).eval()

    half, whole = Trainer(custom(), Half()).model, Trainer(custom(), Whole()).model
    assert [half.training, half.blocks[0].training, half.blocks[1].training] == [True, False, True]
    assert all(module.training for module in whole.modules())
