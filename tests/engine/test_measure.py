"""A measured run: its figures agree with one another, and it leaves nothing behind."""

import gc
import weakref

import numpy as np
import pytest
import torch

from memlab.engine.control import Control
from memlab.engine.environment import environment
from memlab.engine.measure import measure, measure_events
from memlab.engine.out_of_memory import OutOfMemory
from memlab.events import Finished, StepFinished, StepMemory
from memlab.plan import Plan, PlanError
from memlab.run import Run
from memlab.trace import CATEGORIES
from memlab.workload import Workload

PLANS = (
    Plan(model="mlp", micro_batch_size=4, gradient_accumulation_steps=3, steps=4, device="cpu"),
    Plan(model="convnet", micro_batch_size=2, precision="bf16-mixed", steps=2, device="cpu"),
    Plan(micro_batch_size=2, sequence_length=16, activation_checkpointing="full", steps=2, device="cpu"),
)


class Small(Workload):
    """One matrix and a thousand samples."""

    batches = 0

    def __len__(self) -> int:
        return 1000

    def build_model(self, plan: Plan) -> torch.nn.Module:
        self.model = weakref.ref(model := torch.nn.Linear(4, 4))
        return model

    def batch(self, indices: list[int]) -> tuple[torch.Tensor, ...]:
        return torch.ones(len(indices), 4), torch.zeros(len(indices), dtype=torch.int64)


class Swelling(Small):
    """Needs a megabyte more in batch 30 alone."""

    def loss_sum(self, model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.batches += 1
        swelling = torch.empty(2**18 if self.batches == 31 else 1)
        return super().loss_sum(model, batch) + 0 * swelling.numel()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.model)
def test_the_figures_of_a_run_agree(plan: Plan) -> None:
    run = measure(plan)

    assert (run.source, run.plan, run.fits, run.environment["device"]) == ("measured", plan, True, "cpu")
    assert len(run.losses) == len(run.step_peaks) == plan.steps
    assert run.peak.total == sum(run.peak[name] for name in CATEGORIES) == max(run.step_peaks)
    assert run.peak.total == run.peak_allocated == run.peak_reserved
    assert run.trace.peak == run.peak
    assert max(peak.total for peak in run.peaks_by_phase.values()) == run.peak.total
    assert run.ranks[0].peak == run.peak and run.samples_per_second > 0
    assert Run.from_json(run.to_json()) == run


def test_memory_follows_every_step_and_the_run_comes_last() -> None:
    plan = PLANS[0]

    events = list(measure_events(plan))

    steps = [event for event in events if isinstance(event, StepFinished)]
    memories = [event for event in events if isinstance(event, StepMemory)]
    assert [type(event) for event in events[1:]] == [StepFinished, StepMemory] * plan.steps + [Finished]
    assert [memory.step for memory in memories] == [step.step for step in steps] == list(range(plan.steps))
    run = events[-1].run
    assert tuple(memory.peak["total"] for memory in memories) == run.step_peaks
    highest = [max(np.sum(memory.by_category, axis=0)) for memory in memories]
    assert tuple(highest) == run.step_peaks


def test_two_measurements_of_one_plan_are_equal_to_the_byte() -> None:
    first, second = measure(PLANS[0]), measure(PLANS[0])

    assert (first.trace, first.losses) == (second.trace, second.losses)


def test_the_kept_steps_are_right_where_steps_between_are_dropped() -> None:
    # The scale overflows at first: Adam's state appears in a step that is not kept.
    plan = Plan(
        model="custom",
        micro_batch_size=4,
        precision="fp16-mixed",
        initial_loss_scale=2.0**30,
        steps=40,
        device="cpu",
    )

    run = measure(plan, Swelling())

    first_updated = min(set(range(40)) - set(run.skipped_steps))
    assert 2 < first_updated < run.peak.step == 30
    kept = {step: part.peak.total for step, part in run.trace.steps().items()}
    assert {step: kept[step] for step in (0, 1, 30, 39)} == {
        step: run.step_peaks[step] for step in (0, 1, 30, 39)
    }
    assert run.trace.peak == run.peak


def test_stop_between_steps_ends_with_the_run_so_far() -> None:
    control = Control()
    events = measure_events(PLANS[0], control=control)

    seen = [next(events) for _ in range(3)]
    control.stop()
    rest = list(events)

    assert isinstance(seen[-1], StepMemory) and len(rest) == 1
    assert rest[0].stopped and len(rest[0].run.losses) == len(rest[0].run.step_peaks) == 1


class Hungry(Small):
    """Asks for more memory than any machine has, in its second batch."""

    def loss_sum(self, model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.batches += 1
        if self.batches == 2:
            torch.empty(2**46)
        return super().loss_sum(model, batch)


def test_out_of_memory_is_one_sentence_and_holds_no_tensors() -> None:
    workload = Hungry()

    with pytest.raises(OutOfMemory) as caught:
        measure(Plan(model="custom", micro_batch_size=4, steps=2, device="cpu"), workload)

    gc.collect()
    assert str(caught.value) == (
        "Out of memory on cpu while it asked for 262144.0 GiB more: micro_batch_size=4 does not fit; "
        "try micro_batch_size=2 with more gradient_accumulation_steps, or activation_checkpointing='full'."
    )
    assert workload.model() is None, "the error keeps the model alive"
    assert len(measure(Plan(model="custom", micro_batch_size=4, steps=2, device="cpu"), workload).losses) == 2


def test_the_limit_of_host_memory_is_lifted_again() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)

    inside = [resource.getrlimit(resource.RLIMIT_DATA) for _ in measure_events(PLANS[0])]

    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert all(limit <= before or before[0] == resource.RLIM_INFINITY for limit in inside)


def test_a_plan_without_its_workload_is_refused() -> None:
    with pytest.raises(PlanError, match="model='custom' needs a Workload of yours"):
        measure(Plan(model="custom", device="cpu"))


def test_every_fact_of_the_environment_is_text() -> None:
    facts = environment("cpu")

    assert facts["device"] == "cpu" and facts["torch"] == torch.__version__
    assert {"device_name", "python", "memlab", "threads", "date"} <= set(facts)
    assert all(isinstance(fact, str) and fact for fact in facts.values()), facts
