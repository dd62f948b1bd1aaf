"""A recording shows what a program allocates on a card, without one."""

import io
import urllib.request
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import optimizer as optimizers

import memlab
from memlab.memory.allocator import AllocatorError
from memlab.predicting.refusals import RecordingError
from memlab.trace import CATEGORIES, Trace

WIDTH, SAMPLES, CLASSES = 64, 8, 10
FLOAT = 4
PARAMETERS = WIDTH * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES


def program(
    place: Callable[[nn.Module, torch.device], nn.Module] = lambda model, device: model.to(device),
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
) -> Callable[[torch.device], Callable[[], None]]:
    """Return a small training program; the optimizer is made before `place` moves the model."""

    def setup(device: torch.device) -> Callable[[], None]:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES))
        updates = optimizer(model.parameters(), lr=1e-3)
        place(model, device)

        def iteration() -> None:
            updates.zero_grad()
            inputs = torch.randn(SAMPLES, WIDTH).to(device)
            labels = torch.zeros(SAMPLES, dtype=torch.int64).to(device)
            functional.cross_entropy(model(inputs), labels).backward()
            updates.step()

        return iteration

    return setup


def held_bytes(trace: Trace) -> list[int]:
    return [size for _, size in trace.held]


def test_what_set_up_leaves_alive_is_placed_as_to_does() -> None:
    class Outer(nn.Module):
        def __init__(self, device: torch.device) -> None:
            super().__init__()
            self.mine = nn.Parameter(torch.empty(3, device=device))
            self.register_buffer("buffer", torch.empty(5, device=device))
            self.child = nn.Linear(2, 1, device=device)

    def setup(device: torch.device) -> Callable[[], None]:
        torch.empty(100, device=device).uniform_()  # a temporary
        kept, model = torch.empty(7, device=device), Outer(device)
        return lambda: (kept, model) and None

    trace = memlab.record(setup)

    assert held_bytes(trace) == [2 * FLOAT, 1 * FLOAT, 3 * FLOAT, 5 * FLOAT, 7 * FLOAT]
    assert sum(trace.start) == sum(held_bytes(trace))


def test_only_the_device_lacks_data() -> None:
    def setup(device: torch.device) -> Callable[[], None]:
        def iteration() -> None:
            assert float(torch.ones(3).sum()) == 3
            assert torch.ones(3, device=device).device.type == device.type

        return iteration

    assert memlab.record(setup, iterations=1).totals.max() == 3 * FLOAT


def test_an_optimizer_made_before_the_model_moves_updates_what_moved() -> None:
    trace = memlab.record(program(), iterations=2)

    assert trace.at(-1)["optimizer_state"] == 2 * PARAMETERS * FLOAT
    assert trace.at(-1)["parameters"] == PARAMETERS * FLOAT


@pytest.mark.parametrize(
    "name",
    [
        "SGD",
        "Adam",
        "AdamW",
        "RMSprop",
        "Adagrad",
        "Adadelta",
        "Adamax",
        "NAdam",
        "RAdam",
        "ASGD",
        "Rprop",
        "Adafactor",
    ],
)
def test_every_optimizer_records(name: str) -> None:
    trace = memlab.record(program(optimizer=getattr(torch.optim, name)), iterations=2)

    assert trace.at(-1)["gradients"] == PARAMETERS * FLOAT
    assert set(trace.phase.tolist()) == {1, 2, 3}


def test_a_recording_is_the_same_every_time_and_survives_json() -> None:
    first, second = (memlab.record(program(), iterations=3) for _ in range(2))

    assert first == second == Trace.from_dict(first.to_dict())
    assert memlab.replay(first).peak_reserved == memlab.replay(second).peak_reserved


def test_steps_are_iterations_and_each_replays_by_itself() -> None:
    trace = memlab.record(program(), iterations=3)
    steps = trace.steps()

    assert list(steps) == [0, 1, 2]
    assert [sum(size for _, size in step.held) for step in steps.values()] == [
        sum(step.start) for step in steps.values()
    ]
    assert max(memlab.replay(step).peak_requested for step in steps.values()) == trace.peak.total


def reads_a_number(device: torch.device) -> Callable[[], object]:
    return lambda: torch.ones(2, device=device).sum().item()


def picks_by_value(device: torch.device) -> Callable[[], object]:
    ones = torch.ones(2, device=device)
    return lambda: ones[ones > 0]


def reads_an_array(device: torch.device) -> Callable[[], object]:
    return lambda: torch.ones(2, device=device).cpu().numpy()


def names_a_gpu(device: torch.device) -> Callable[[], object]:
    return lambda: torch.ones(2, device="cuda")


def downloads(device: torch.device) -> Callable[[], object]:
    return lambda: urllib.request.urlopen("http://127.0.0.1:9")


def formats_a_number(device: torch.device) -> Callable[[], object]:
    return lambda: f"{torch.ones((), device=device):.3f}"


def saves_weights(device: torch.device) -> Callable[[], object]:
    return lambda: torch.save(torch.ones(2, device=device), io.BytesIO())


def draws_by_a_generator(device: torch.device) -> Callable[[], object]:
    return lambda: torch.Generator(device)


def autocasts_on_a_gpu(device: torch.device) -> Callable[[], object]:
    return lambda: torch.autocast("cuda", torch.bfloat16)


def looks_up_sparsely(device: torch.device) -> Callable[[], object]:
    table = nn.Embedding(10, 4, sparse=True, device=device)
    rows = torch.zeros(3, dtype=torch.int64, device=device)
    return lambda: table(rows).sum().backward()


@pytest.mark.parametrize(
    ("setup", "line", "rule"),
    [
        (reads_a_number, "item()", "reads data of the device"),
        (picks_by_value, "ones[ones > 0]", "reads data of the device"),
        (reads_an_array, "numpy()", "reads data of the device"),
        (names_a_gpu, 'device="cuda"', "names a device by itself"),
        (downloads, "urlopen", "opens a network connection"),
        (formats_a_number, ":.3f", "reads data of the device (a format string)"),
        (saves_weights, "torch.save", "reads data of the device (pickle, as torch.save does)"),
        (draws_by_a_generator, "torch.Generator(device)", "leave the generator out"),
        (autocasts_on_a_gpu, 'autocast("cuda"', "torch.autocast(device.type)"),
        (looks_up_sparsely, "table(rows)", "set sparse=False"),
    ],
)
def test_what_cannot_be_recorded_is_named_with_its_line(setup: Callable, line: str, rule: str) -> None:
    with pytest.raises(RecordingError) as raised:
        memlab.record(setup)

    said = str(raised.value)
    assert said.startswith("test_record.py:") and line in said and rule in said and "\n" not in said


def test_errors_of_the_program_pass() -> None:
    def setup(device: torch.device) -> Callable[[], None]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        memlab.record(setup)


def test_a_set_up_that_returns_nothing_is_refused() -> None:
    with pytest.raises(RecordingError, match="returned a value of type NoneType; return the function"):
        memlab.record(lambda device: None)


def test_what_is_no_set_up_and_no_trace_is_refused() -> None:
    with pytest.raises(RecordingError, match="setup is a value of type int; hand over a function setup"):
        memlab.record(3)
    with pytest.raises(
        AllocatorError, match="trace is a value of type NoneType; hand over what memlab.record"
    ):
        memlab.replay(None)


def test_state_that_an_optimizer_makes_with_itself_is_its_state_from_the_start() -> None:
    def setup(device: torch.device) -> Callable[[], object]:
        model = nn.Linear(WIDTH, CLASSES, device=device)
        updates = torch.optim.Adagrad(model.parameters())
        return lambda: (model(torch.ones(1, WIDTH, device=device)).sum().backward(), updates.step())

    trace = memlab.record(setup, 1)

    assert trace.start[CATEGORIES.index("optimizer_state")] == (WIDTH + 1) * CLASSES * FLOAT


def test_no_iterations_are_refused() -> None:
    with pytest.raises(RecordingError, match="iterations=0 must be at least 1"):
        memlab.record(program(), iterations=0)


def test_torch_is_left_as_it_was() -> None:
    types = list(optimizers._foreach_supported_types)

    memlab.record(program())
    with pytest.raises(RecordingError):
        memlab.record(reads_a_number)

    assert optimizers._foreach_supported_types == types
    assert "memlab" not in torch.autocast.__init__.__module__
    assert "memlab" not in torch.optim.Optimizer.add_param_group.__module__
    assert not torch.__future__.get_swap_module_params_on_conversion()
    assert (
        torch.autograd.is_multithreading_enabled()
        if hasattr(torch.autograd, "is_multithreading_enabled")
        else True
    )
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
