"""The process that predicts: what it answers is what `predict` finds and a run measures."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from memlab.engine.measure import measure
from memlab.engine.predict import predict
from memlab.engine.predictor import Prediction, Predictor, Question, Refusal
from memlab.engine.predictor_service import Questions, answer, step_memories, whole_step
from memlab.plan import Plan
from memlab.trace import PHASES, Trace

MLP = Plan(model="mlp", micro_batch_size=4, steps=2, device="cpu")


@pytest.fixture(scope="module")
def predictor() -> Iterator[Predictor]:
    made = Predictor()
    yield made
    made.close()


def answered(predictor: Predictor, question: Question) -> Prediction | Refusal:
    predictor.ask(question)
    _until(lambda: predictor.answer(question) is not None)
    return predictor.answer(question)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < end, "did not come true within 90 s"
        time.sleep(0.01)


def boundaries(trace: Trace) -> dict[tuple[int, int], list[int]]:
    """Return the bytes by category at the end of each forward and backward pass of a step."""
    last = {
        place: i for i, place in enumerate(zip(trace.micro_step.tolist(), trace.phase.tolist(), strict=True))
    }
    passes = ("forward", "backward")
    return {place: trace.by_category[i].tolist() for place, i in last.items() if PHASES[place[1]] in passes}


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("precision", ["fp32", "fp16-mixed"])
def test_every_micro_step_is_predicted_as_it_is_measured_to_the_byte(k: int, precision: str) -> None:
    fields = {"micro_batch_size": 4, "gradient_accumulation_steps": k, "precision": precision}
    plan = Plan(model="mlp", initial_loss_scale=1.0, steps=2, device="cpu", **fields)
    measured, predicted = measure(plan), predict(plan)

    for step in (0, 1):
        whole = whole_step(predicted.trace.steps()[step], plan)
        assert boundaries(whole) == boundaries(measured.trace.steps()[step])
        assert len(boundaries(whole)) == 2 * k
    assert [memory.peak["total"] for memory in step_memories(predicted)] == list(measured.step_peaks)


def test_whole_gradients_of_fsdp2_are_scattered_in_the_last_micro_step_alone() -> None:
    fields = {"world_size": 2, "data_parallel": "fsdp2", "gradient_accumulation_steps": 5}
    plan = Plan(model="gpt-tiny", micro_batch_size=1, sequence_length=16, steps=2, device="cpu", **fields)
    predicted = predict(plan)

    for traced in predicted.trace.steps().values():
        whole = whole_step(traced, plan)
        assert whole.by_category.min() >= 0 and whole.end == traced.end
        found = boundaries(whole)
        backward = [found[micro_step, PHASES.index("backward")] for micro_step in range(5)]
        assert backward[0] == backward[1] == backward[2] == backward[3] != backward[4]


def test_an_answer_is_what_predict_finds(predictor: Predictor) -> None:
    for question in (Question(MLP), Question(MLP, "t4")):
        found = answered(predictor, question)

        expected = predict(question.plan, question.card)
        assert (found.run.peak, found.run.peak_reserved) == (expected.peak, expected.peak_reserved)
        assert found.run.trace is None
        assert found.run.step_peaks == expected.step_peaks
        assert [memory.step for memory in found.memories] == [0, 1]
        assert found.memory(7) is found.memories[1]


def test_a_long_run_is_told_in_a_short_line(predictor: Predictor) -> None:
    plan = replace(MLP, steps=100_000)

    assert len(json.dumps(answer({"plan": plan.to_dict(), "card": None}))) < 100_000
    peaks = answered(predictor, Question(plan)).run.step_peaks
    assert len(peaks) == 100_000
    assert (peaks[0], set(peaks[1:])) == (predict(MLP).step_peaks[0], {predict(MLP).step_peaks[1]})


def test_what_was_answered_is_remembered_without_the_process(predictor: Predictor) -> None:
    found = answered(predictor, Question(MLP))

    predictor.close()
    predictor.ask(Question(MLP))

    assert predictor.answer(Question(MLP)) is found
    assert not predictor.alive


def test_a_refusal_is_one_sentence(predictor: Predictor) -> None:
    said = answered(predictor, Question(Plan(data="file:/no/such/file.txt")))

    assert isinstance(said, Refusal) and "/no/such/file.txt" in said.sentence
    assert "card='toaster'" in answered(predictor, Question(MLP, "toaster")).sentence


def test_the_newest_question_of_a_slot_wins() -> None:
    questions = Questions()
    for number, slot in ((1, "shown"), (2, "run"), (3, "shown"), (4, "shown")):
        questions.put({"number": number, "slot": slot})

    taken, dropped = questions.take()
    assert (taken["number"], dropped) == (2, [1, 3])
    assert questions.take() == ({"number": 4, "slot": "shown"}, [])


def test_a_question_that_was_overtaken_is_answered_when_it_is_asked_again(predictor: Predictor) -> None:
    answered(predictor, Question(MLP, "a100-40gb"))
    os.kill(predictor.pid, signal.SIGSTOP)
    first, second, third = (Question(MLP, name) for name in ("h100-80gb", "b200", "rtx-3090"))
    for question in (first, second, third, second):
        predictor.ask(question)
    predictor.ask(third, "run")
    os.kill(predictor.pid, signal.SIGCONT)

    _until(lambda: predictor.answer(second) and predictor.answer(third))

    assert predictor.waits_for(second) is predictor.waits_for(third) is None


def test_a_long_prediction_can_be_cancelled_and_the_next_one_is_answered(predictor: Predictor) -> None:
    long = Question(Plan(model="llama-2-70b", steps=2), "h200")
    answered(predictor, Question(MLP, "l4"))
    before = predictor.pid
    predictor.ask(long)
    assert predictor.waits_for(long) >= 0

    predictor.cancel()

    assert predictor.waits_for(long) is None and predictor.answer(long) is None
    assert isinstance(answered(predictor, Question(MLP, "a10g")), Prediction)
    assert predictor.pid != before


def test_a_killed_process_is_one_sentence_and_the_next_question_starts_another(predictor: Predictor) -> None:
    answered(predictor, Question(MLP, "v100-16gb"))
    lost = Question(Plan(model="llama-2-70b", steps=2), "h200")
    predictor.ask(lost)

    os.kill(predictor.pid, signal.SIGKILL)
    _until(lambda: predictor.answer(lost) is not None)

    assert predictor.answer(lost).sentence.startswith("The predicting process died (killed by SIGKILL)")
    assert isinstance(answered(predictor, Question(MLP, "v100-32gb")), Prediction)
    predictor.ask(lost)
    assert predictor.answer(lost) is None and predictor.waits_for(lost) is not None, "it is worked at again"
