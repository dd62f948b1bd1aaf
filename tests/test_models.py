"""The models: their sizes, their normalisations, and that they read no values."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from memlab import optimizers
from memlab.catalog import MODELS
from memlab.models import GPT, GPTConfig, build_model
from memlab.plan import Norm, Plan
from memlab.workload import workload_for

VARIANTS = [
    (model, norm)
    for model, card in MODELS.items()
    if card.small and model != "gpt-small"
    for norm in card.norms
]
SMALL = GPTConfig(layers=2, d_model=16, heads=2, sequence_length=8, vocabulary_size=11)


def built(plan: Plan) -> nn.Module:
    torch.manual_seed(plan.seed)
    return build_model(plan)


def loss_of(plan: Plan, model: nn.Module, samples: int = 4) -> Tensor:
    workload = workload_for(plan)
    return workload.loss_sum(model, workload.batch(range(samples)))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Build in `dtype`: on tensors without data a module's `to` fails."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def sizes(model: nn.Module) -> tuple[int, int]:
    """Return the number of weights, and of those that are trained."""
    weights = list(model.parameters())
    return sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)


@pytest.mark.parametrize(
    ("model", "norm", "weights"),
    [
        ("mlp", "none", 65 * 256 + 4 * 257 * 256 + 257 * 10),
        ("mlp", "batch", 65 * 256 + 4 * (257 + 2) * 256 + 257 * 10),
        ("convnet", "none", 10 * 32 + 4 * 2 * (9 * 32 + 1) * 32 + 33 * 10),
        ("convnet", "batch", 10 * 32 + 4 * 2 * (9 * 32 + 2) * 32 + 33 * 10),
        # per block: 12 d^2 for the matrices, 9 d for their biases, 4 d for two norms
        ("gpt-tiny", "layer", (256 + 128 + 256) * 192 + 6 * (12 * 192**2 + 13 * 192) + 2 * 192),
        ("gpt-tiny", "rms", (256 + 128 + 256) * 192 + 6 * (12 * 192**2 + 11 * 192) + 192),
        ("gpt-small", "layer", (256 + 256 + 256) * 384 + 8 * (12 * 384**2 + 13 * 384) + 2 * 384),
    ],
)
def test_a_model_has_as_many_weights_as_its_formula_says(model: str, norm: Norm, weights: int) -> None:
    assert sizes(built(Plan(model=model, norm=norm))) == (weights, weights)


@pytest.mark.parametrize(("model", "norm"), VARIANTS)
def test_every_model_starts_near_the_loss_of_guessing_and_learns(model: str, norm: Norm) -> None:
    plan = Plan(model=model, norm=norm, sequence_length=16 if "gpt" in model else None)
    network, samples = built(plan), 8
    terms = samples * (plan.sequence_length or 1)
    classes = 256 if "gpt" in model else 10
    optimizer = optimizers.build(network.parameters(), plan)

    losses = []
    for _ in range(5):
        loss = loss_of(plan, network, samples)
        losses.append(loss.item() / terms)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert abs(losses[0] - math.log(classes)) < 1.5, losses
    assert losses[-1] < losses[0], losses


@pytest.mark.parametrize(("model", "norm"), VARIANTS)
@pytest.mark.parametrize("precision", ["fp32", "autocast", "bf16"])
def test_a_step_runs_on_tensors_without_data(model: str, norm: Norm, precision: str) -> None:
    plan = Plan(model=model, norm=norm, dropout=0.1)
    workload = workload_for(plan)
    batch = workload.batch(range(3))

    with FakeTensorMode() as mode:
        with default_dtype(torch.bfloat16 if precision == "bf16" else torch.float32):
            network = build_model(plan)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            loss = workload.loss_sum(network, tuple(mode.from_tensor(tensor) for tensor in batch))
        loss.backward()

    assert loss.dtype == torch.float32 and loss.shape == ()
    assert all(weight.grad is not None for weight in network.parameters())


@pytest.mark.parametrize(("model", "norm"), [v for v in VARIANTS if v[1] != "batch"])
def test_without_batch_norm_no_sample_depends_on_another(model: str, norm: Norm) -> None:
    plan = Plan(model=model, norm=norm, sequence_length=16 if "gpt" in model else None)
    network, workload = built(plan).double(), workload_for(plan)
    inputs, _ = workload.batch(range(4))

    together, alone = network(inputs), torch.cat([network(row) for row in inputs.split(1)])

    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)  # equal up to FP64 rounding


@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_with_batch_norm_a_sample_depends_on_the_others(model: str) -> None:
    plan = Plan(model=model, norm="batch")
    network = built(plan)
    images, _ = workload_for(plan).batch(range(4))

    assert (network(images)[:2] - network(images[:2])).abs().max() > 1e-3


def test_a_lone_sample_is_normalised_by_the_running_statistics() -> None:
    plan = Plan(model="mlp", norm="batch")
    network = built(plan)
    images, _ = workload_for(plan).batch(range(9))
    network(images)

    lone = network(images[:1])

    assert torch.equal(lone, network.eval()(images[:1]))


@pytest.mark.parametrize(("model", "norm"), VARIANTS)
def test_the_seed_decides_the_weights(model: str, norm: Norm) -> None:
    first, again, other = (built(Plan(model=model, norm=norm, seed=seed)) for seed in (3, 3, 4))

    pairs = list(zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_as_many_blocks_as_the_catalog_says(model: str) -> None:
    with torch.device("meta"):
        network = built(Plan(model=model))

    assert isinstance(network.blocks, nn.ModuleList)
    assert len(network.blocks) == MODELS[model].layers


@pytest.mark.parametrize("model", ["mlp", "convnet", "gpt-tiny"])
def test_dropout_acts_in_training_alone(model: str) -> None:
    plan = Plan(model=model, dropout=0.5, norm="layer")
    network = built(plan)
    inputs, _ = workload_for(plan).batch(range(2))

    assert not torch.equal(network(inputs), network(inputs))
    network.eval()
    assert torch.equal(network(inputs), network(inputs))


def test_a_token_does_not_see_those_after_it() -> None:
    torch.manual_seed(0)
    model = GPT(SMALL)
    tokens = torch.arange(8).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 5] = 10

    moved = (model(tokens) - model(changed)).abs().amax(dim=-1)[0]

    assert (moved[:5] == 0).all() and (moved[5:] > 0).all(), moved


def test_gpt_draws_its_weights_as_gpt_2_does() -> None:
    torch.manual_seed(0)
    model = build_model(Plan())

    def spread(name: str) -> float:
        return model.get_parameter(name).std().item()

    assert spread("token_embedding.weight") == pytest.approx(0.02, rel=0.02)
    assert spread("blocks.0.attention.query_key_value.weight") == pytest.approx(0.02, rel=0.02)
    narrow = 0.02 / math.sqrt(2 * 6)
    assert spread("blocks.5.feed_forward.residual_projection.weight") == pytest.approx(narrow, rel=0.02)
    assert (model.get_parameter("blocks.0.attention.query_key_value.bias") == 0).all()
    assert (model.get_parameter("norm.weight") == 1).all()


def test_too_long_an_input_says_what_fits() -> None:
    with pytest.raises(ValueError) as caught:
        GPT(SMALL)(torch.zeros(1, 9, dtype=torch.int64))

    assert str(caught.value) == (
        "the input has 9 tokens and this model positions for 8; "
        "shorten the input or build the model with a larger sequence_length."
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("model", "norm"), VARIANTS)
def test_a_step_runs_on_the_gpu(model: str, norm: Norm) -> None:
    plan = Plan(model=model, norm=norm, dropout=0.1, fused=True)
    workload = workload_for(plan)
    with torch.device("cuda"):
        network = built(plan)
    batch = tuple(tensor.cuda() for tensor in workload.batch(range(4)))

    with torch.autocast("cuda", torch.bfloat16):
        loss = workload.loss_sum(network, batch)
    loss.backward()
    workload.build_optimizer(network.parameters(), plan).step()

    assert loss.isfinite() and loss.dtype == torch.float32
