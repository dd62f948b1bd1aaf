"""What the presets are made of, built small: rotary positions, grouped attention, encoders, residual networks."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from memlab.models import GPT, Bert, GPTConfig, ResNet, ViT
from memlab.models.attention import Attention, GroupedAttention
from memlab.models.rotary import RotaryPositions, rotate
from memlab.training.checkpointing import EveryNth, KeepMatrixProducts

LLAMA = GPTConfig(
    layers=2,
    d_model=32,
    heads=4,
    key_value_heads=2,
    sequence_length=8,
    vocabulary_size=50,
    norm="rms",
    feed_forward="swiglu",
    feed_forward_width=24,
    rotary_base=100.0,
    biases=False,
)
TOKENS = torch.arange(36).reshape(3, 12)
BERT = {"positions": 12, "vocabulary_size": 50, "layers": 2, "d_model": 32, "heads": 4}
VIT = {"image_size": 32, "layers": 2, "d_model": 32, "heads": 4}
SMALL: dict[str, tuple[Callable[..., nn.Module], tuple[Tensor, ...]]] = {
    "llama": (lambda dropout: GPT(replace(LLAMA, dropout=dropout)), (TOKENS,)),
    "bert": (lambda dropout: Bert(classes=5, dropout=dropout, **BERT), (TOKENS, TOKENS % 2)),
    "vit": (
        lambda dropout: ViT(classes=5, dropout=dropout, **VIT),
        (torch.linspace(0, 1, 3 * 3 * 32 * 32).sin().reshape(3, 3, 32, 32),),
    ),
    "resnet": (
        lambda dropout: ResNet(channels=8, classes=5, norm="group", dropout=dropout),
        (torch.linspace(0, 1, 3 * 3 * 32 * 32).sin().reshape(3, 3, 32, 32),),
    ),
}


def built(name: str, dropout: float = 0.0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    build, inputs = SMALL[name]
    return build(dropout), inputs


@pytest.mark.parametrize("name", SMALL)
def test_a_small_one_starts_near_the_loss_of_guessing_and_learns(name: str) -> None:
    model, inputs = built(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    losses = []
    for _ in range(5):
        logits = model(*inputs).flatten(0, -2)
        loss = functional.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[-1])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert abs(losses[0] - math.log(logits.shape[-1])) < 1.5, losses
    assert losses[-1] < losses[0], losses
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_no_sample_depends_on_another(name: str) -> None:
    model, inputs = built(name)
    inputs = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)
    model = model.double()

    together = model(*inputs)
    alone = torch.cat([model(*(tensor[[row]] for tensor in inputs)) for row in range(3)])

    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)  # equal up to FP64 rounding


@pytest.mark.parametrize("name", SMALL)
def test_dropout_acts_in_training_alone(name: str) -> None:
    model, inputs = built(name, dropout=0.5)

    assert not torch.equal(model(*inputs), model(*inputs))
    model.eval()
    assert torch.equal(model(*inputs), model(*inputs))


@pytest.mark.parametrize("name", SMALL)
def test_bf16_weights_run_forward_and_backward(name: str) -> None:
    model, inputs = built(name)
    model = model.bfloat16()
    inputs = tuple(tensor.bfloat16() if tensor.is_floating_point() else tensor for tensor in inputs)

    logits = model(*inputs)
    logits.float().square().sum().backward()

    assert logits.dtype == torch.bfloat16
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def moved(name: str, changed: tuple[Tensor, ...]) -> Tensor:
    """Return how far each output of the first sample moves where its inputs do."""
    model, inputs = built(name)
    return (model(*inputs) - model(*changed)).abs()[0]


def test_a_llama_does_not_see_the_tokens_after() -> None:
    changed = TOKENS.clone()
    changed[0, 5] = 49

    by_position = moved("llama", (changed,)).amax(dim=-1)

    assert (by_position[:5] == 0).all() and (by_position[5:] > 0).all(), by_position


def test_a_bert_sees_every_token_and_segment() -> None:
    for column in range(12):
        tokens, segments = TOKENS.clone(), TOKENS % 2
        tokens[0, column] = 49
        assert (moved("bert", (tokens, TOKENS % 2)) > 0).all(), column
        segments[0, column] = 1 - segments[0, column]
        assert (moved("bert", (TOKENS, segments)) > 0).all(), column


def test_turned_queries_and_keys_meet_by_their_distance_alone() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 16, dtype=torch.float64)
    cosines, sines = RotaryPositions(16, 10_000.0)(torch.empty(1, 40, 16, dtype=torch.float64))

    def turned(x: Tensor, position: int) -> Tensor:
        return rotate(x.view(1, 1, 1, 16), (cosines[[position]], sines[[position]])).flatten()

    scores = [turned(query, place + 7) @ turned(key, place) for place in range(30)]
    far = turned(query, 20) @ turned(key, 0)

    # the angles are FP32: 30 radians are known to 2e-6
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(30), rtol=0, atol=1e-4)
    assert abs(far - scores[0]) > 1e-2
    assert torch.equal(turned(query, 0), query)


def test_the_angles_stay_exact_where_the_weights_become_bf16() -> None:
    exact = RotaryPositions(64, 10_000.0)
    cast = RotaryPositions(64, 10_000.0).to(torch.bfloat16)
    x = torch.empty(1, 2048, 64)

    assert cast.inverse_frequencies.dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(exact(x), cast(x), strict=True))
    assert not list(exact.parameters()) and not exact.state_dict()


def kept(forward: Callable[[], object]) -> list[Tensor]:
    """Return what autograd keeps for backward while `forward` runs."""
    tensors: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensors.append(tensor) or tensor, lambda x: x
    ):
        forward()
    return tensors


def test_rotary_positions_keep_their_tables_and_no_query() -> None:
    tables = RotaryPositions(16, 100.0)(torch.empty(1, 6, 16))
    query = torch.randn(1, 2, 6, 16, requires_grad=True)

    pointers = {tensor.untyped_storage().data_ptr() for tensor in kept(lambda: rotate(query, tables))}

    assert pointers == {table.untyped_storage().data_ptr() for table in tables}


def test_with_as_many_key_heads_as_heads_grouped_attention_is_plain() -> None:
    torch.manual_seed(0)
    common = {"d_model": 24, "heads": 4, "biases": True, "dropout": 0.0, "causal": True}
    plain, grouped = Attention(**common).double(), GroupedAttention(key_value_heads=4, **common).double()
    parts = [grouped.query, grouped.key, grouped.value]
    plain.query_key_value.weight.data = torch.cat([part.weight for part in parts]).detach()
    plain.query_key_value.bias.data = torch.cat([part.bias for part in parts]).detach()
    plain.residual_projection = grouped.residual_projection
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    rotation = RotaryPositions(6, 100.0)(x)

    torch.testing.assert_close(grouped(x), plain(x))
    torch.testing.assert_close(grouped(x, rotation), plain(x, rotation))


def grouped_and_repeated(groups: int) -> tuple[GroupedAttention, GroupedAttention]:
    """Return an attention that shares heads, and one with a copy of each for every query head."""
    torch.manual_seed(0)
    common = {"d_model": 32, "heads": 4, "biases": False, "dropout": 0.0, "causal": True}
    grouped = GroupedAttention(key_value_heads=4 // groups, **common)
    whole = GroupedAttention(key_value_heads=4, **common)
    for name in ("key", "value"):
        heads = grouped.get_submodule(name).weight.detach().view(-1, 8, 32)
        whole.get_submodule(name).weight.data = heads.repeat_interleave(groups, dim=0).flatten(0, 1)
    whole.query, whole.residual_projection = grouped.query, grouped.residual_projection
    return grouped, whole


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_heads_answer_as_copies_of_them_would(groups: int, dtype: torch.dtype) -> None:
    grouped, whole = grouped_and_repeated(groups)
    x = torch.randn(2, 6, 32, dtype=dtype)

    torch.testing.assert_close(grouped.to(dtype)(x), whole.to(dtype)(x))


@pytest.mark.parametrize(("dtype", "heads"), [(torch.float32, {4}), (torch.bfloat16, {4, 2})])
def test_half_precision_keeps_shared_heads_once_and_fp32_copies_them(
    dtype: torch.dtype, heads: set[int]
) -> None:
    grouped = grouped_and_repeated(2)[0].to(dtype)
    x = torch.randn(2, 6, 32, dtype=dtype)

    of_heads = {tensor.shape[1] for tensor in kept(lambda: grouped(x)) if tensor.shape[2:] == (6, 8)}

    assert of_heads == heads


@pytest.mark.parametrize("policy", [EveryNth(1, "full"), KeepMatrixProducts()])
@pytest.mark.parametrize("name", SMALL)
def test_recomputed_blocks_have_the_gradients_of_kept_ones(
    name: str, policy: EveryNth | KeepMatrixProducts
) -> None:
    plain, inputs = built(name)
    recomputing, _ = built(name)
    policy.apply(recomputing.blocks, [str(number) for number in range(len(recomputing.blocks))])

    for model in (plain, recomputing):
        model(*inputs).square().sum().backward()

    pairs = zip(plain.parameters(), recomputing.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
