"""A Run and its events survive JSON, also where a loss is no number."""

import json
import math
from dataclasses import replace

import pytest

from memlab import events
from memlab.plan import Plan
from memlab.run import Rank, Run, RunError
from memlab.trace import CATEGORIES, Breakdown, Trace

PEAK = Breakdown((1024, 0, 512, *(0,) * (len(CATEGORIES) - 3)), "backward", 1, 2, "blocks.0")
RUN = Run(
    plan=Plan(micro_batch_size=4, gradient_accumulation_steps=2),
    source="measured",
    losses=(5.5, math.nan, math.inf, -math.inf),
    peak=PEAK,
    peak_allocated=1536,
    peak_reserved=2048,
    fits=True,
    peaks_by_phase={"backward": PEAK},
    step_peaks=(1024, 1536),
    environment={"device": "cpu", "torch": "2.13.0"},
    ranks=(Rank(pid=7, peak=PEAK, communication={"all_reduce calls": 1}),),
    trace=Trace.join([]),
    skipped_steps=(1,),
    notices=("BatchNorm sees micro-batches.",),
    samples_per_second=12.5,
    device_bytes={"nvml used": 3},
)


@pytest.mark.parametrize("run", [RUN, replace(RUN, trace=None, ranks=())], ids=["whole", "without trace"])
def test_json_gives_the_same_run_back(run: Run) -> None:
    assert Run.from_json(run.to_json()) == run


WAY_OUT = "read a file that run.to_json() or --json wrote."
WITHOUT_PEAK = json.dumps(
    {name: value for name, value in RUN.to_dict().items() if name not in ("peak", "trace")}
)
ODD_PEAK = json.dumps({**RUN.to_dict(), "peak": {}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", f"a run is a JSON object of names and values, not a value of type list; {WAY_OUT}"),
        (
            "nope",
            f"a run is a JSON object, and this text is no JSON (Expecting value: line 1 column 1 (char 0)); {WAY_OUT}",
        ),
        ("{}", f"this JSON object is no run, for it lacks {', '.join(vars(RUN))}; {WAY_OUT}"),
        (WITHOUT_PEAK, f"this JSON object is no run, for it lacks peak, trace; {WAY_OUT}"),
        (ODD_PEAK, f"this run has a part that is none of memlab's (KeyError('parameters')); {WAY_OUT}"),
    ],
    ids=["list", "no JSON", "empty", "without peak", "odd peak"],
)
def test_json_that_is_no_run_says_so(text: str, sentence: str) -> None:
    with pytest.raises(RunError) as caught:
        Run.from_json(text)

    assert str(caught.value) == sentence


def test_the_keys_of_the_json_are_the_names_of_the_attributes() -> None:
    assert set(json.loads(RUN.to_json())) == set(vars(RUN))


def test_losses_that_json_cannot_hold_are_words() -> None:
    assert json.loads(RUN.to_json())["losses"] == [5.5, "nan", "inf", "-inf"]


def test_the_report_names_plan_device_categories_and_peak() -> None:
    assert repr(RUN).splitlines() == [
        "Run of gpt-tiny: micro-batch 4 x K 2 x 1 rank(s), fp32, measured on cpu",
        "            parameters     1.0 KiB",
        "             gradients       512 B",
        "  peak of live tensors     1.5 KiB  (backward 2 of step 3)",
    ]


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (Breakdown(), "before the first step"),
        (Breakdown(phase="forward", micro_step=0, step=0), "forward 1 of step 1"),
        (Breakdown(phase="optimizer", step=3), "optimizer step 4"),
    ],
)
def test_the_place_of_the_peak_in_words(peak: Breakdown, words: str) -> None:
    assert replace(RUN, peak=peak).peak_place == words


STEP = events.StepFinished(
    step=0,
    epoch=0,
    loss=2.5,
    micro_steps=2,
    samples=8,
    items=1024,
    samples_seen=8,
    learning_rate=3e-4,
    gradient_norm=math.inf,
    loss_scale=65536.0,
    skipped=True,
    seconds=0.5,
)
ONE_OF_EACH = [
    events.Started(plan=Plan(), parameters=10, trainable_parameters=9, device="cpu"),
    events.Notice(kind="batch-norm", message="BatchNorm sees micro-batches."),
    STEP,
    replace(STEP, gradient_norm=None, loss_scale=None, skipped=False),
    events.Finished(run=RUN, stopped=True),
    events.Failed(kind="crash", message="The worker ended.", details="exit 9"),
]


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_that_gives_the_same_event_back(event: events.Event) -> None:
    line = events.to_json(event)

    assert "\n" not in line
    assert events.from_json(line) == event


def test_a_loss_that_is_no_number_stays_none() -> None:
    again = events.from_json(events.to_json(replace(STEP, loss=math.nan)))

    assert isinstance(again, events.StepFinished) and math.isnan(again.loss)
