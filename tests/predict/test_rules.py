"""Each of CUDA's rules, on the smallest program that shows it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import memlab
from memlab.predicting.rules.attention import attention_kernel, gemm_alignment
from memlab.trace import Trace

HALF, SINGLE = 2, 4
N = 64


def recorded(make: Callable[[torch.device], Callable[[], object]]) -> Trace:
    """Return one iteration of a program."""
    return memlab.record(make, iterations=1)


def leaf(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, device=device, dtype=dtype, requires_grad=True)


def kept_for_backward(trace: Trace) -> list[int]:
    """Return the sizes of activations in order of birth, without single numbers."""
    is_activation = (trace.category == memlab.trace.CATEGORIES.index("activations")) & (trace.delta_bytes > 8)
    return trace.delta_bytes[is_activation].tolist()


def births_in_backward(trace: Trace) -> list[int]:
    backward = trace.phase == memlab.trace.PHASES.index("backward")
    return [size for size in trace.delta_bytes[backward].tolist() if size > 8]


def test_dropout_keeps_a_boolean_mask() -> None:
    def make(device: torch.device) -> Callable[[], None]:
        x = leaf(device, N)
        return lambda: functional.dropout(x, 0.1).sum().backward()

    assert N in kept_for_backward(recorded(make)) and N * SINGLE not in kept_for_backward(recorded(make))


def meets(paths: int) -> Callable[[torch.device], Callable[[], None]]:
    def make(device: torch.device) -> Callable[[], None]:
        x = leaf(device, N)

        def iteration() -> None:
            hidden = x * 2
            sum(hidden.sin() for _ in range(paths)).sum().backward()

        return iteration

    return make


def test_gradients_that_meet_are_added_in_place() -> None:
    one_path, two_paths, three_paths = (len(births_in_backward(recorded(meets(n)))) for n in (1, 2, 3))

    # A path of its own makes cos and a product; the sum of the paths makes nothing.
    assert two_paths - one_path == three_paths - two_paths == 2


def test_a_gradient_that_somebody_holds_is_not_added_to_in_place() -> None:
    def make(device: torch.device) -> Callable[[], None]:
        x, start = leaf(device, N), torch.empty(N, device=device)

        def iteration() -> None:
            hidden = x * 2
            (hidden + hidden).backward(start)

        return iteration

    assert births_in_backward(recorded(make)) == [N * SINGLE] * 2, "the sum, and the product with 2"


def projections(dtype: torch.dtype, width: int = 64, length: int = 128, **others: object) -> Callable:
    def make(device: torch.device) -> Callable[[], None]:
        q, k, v = (leaf(device, 2, 4, length, width, dtype=dtype) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, **others).sum().backward()

    return make


def test_fp32_attention_keeps_the_output_and_a_padded_logsumexp() -> None:
    kept = kept_for_backward(recorded(projections(torch.float32, length=100)))

    assert kept == [2 * 4 * 100 * 64 * SINGLE, 2 * 4 * 128 * SINGLE]


def test_half_precision_attention_keeps_logsumexp_and_the_random_state() -> None:
    kept = kept_for_backward(recorded(projections(torch.bfloat16, is_causal=True)))

    assert kept == [2 * 4 * 128 * 64 * HALF, 2 * 4 * 128 * SINGLE, 2 * 8]


def test_flash_sums_the_gradient_of_queries_in_fp32() -> None:
    births = births_in_backward(recorded(projections(torch.bfloat16)))

    assert births.count(2 * 4 * 128 * 64 * SINGLE) == 1


def test_flash_pads_heads_to_a_multiple_of_eight() -> None:
    kept = kept_for_backward(recorded(projections(torch.bfloat16, width=60)))

    assert kept[:4] == [2 * 4 * 128 * 64 * HALF] * 4, "queries, keys, values and output"


def tensors(dtype: torch.dtype, width: int, key_heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.empty(1, 4, 8, width, dtype=dtype, device="meta")
    key = torch.empty(1, key_heads, 8, width, dtype=dtype, device="meta")
    return query, key, key


@pytest.mark.parametrize(
    ("dtype", "width", "masked", "capability", "kernel"),
    [
        (torch.float32, 64, False, (8, 0), "efficient"),
        (torch.float32, 66, False, (8, 0), "math"),
        (torch.float32, 66, False, (7, 5), "efficient"),
        (torch.float16, 64, False, (8, 6), "flash"),
        (torch.float16, 64, False, (7, 5), "efficient"),
        (torch.float16, 64, True, (8, 6), "efficient"),
        (torch.bfloat16, 64, False, (9, 0), "flash"),
        (torch.bfloat16, 64, False, (7, 5), "math"),
        (torch.bfloat16, 264, False, (8, 0), "efficient"),
        (torch.float64, 64, False, (8, 0), "math"),
    ],
)
def test_attention_takes_the_kernel_that_torch_takes(
    dtype: torch.dtype, width: int, masked: bool, capability: tuple[int, int], kernel: str
) -> None:
    mask = torch.empty(8, 8, dtype=torch.bool, device="meta") if masked else None

    assert attention_kernel(*tensors(dtype, width), mask, capability) == kernel


def test_the_alignment_of_the_memory_efficient_kernel() -> None:
    found = [
        gemm_alignment(dtype, sm)
        for dtype in (torch.float16, torch.float32)
        for sm in ((6, 0), (7, 5), (8, 0))
    ]

    assert found == [1, 8, 8, 1, 1, 4]


def test_layer_norm_copies_what_is_not_contiguous() -> None:
    def make(device: torch.device, turned: bool) -> Callable[[], object]:
        x = torch.empty(N, N, device=device)
        norm = nn.LayerNorm(N).to(device)
        return lambda: norm(x.T if turned else x)

    straight, turned = (
        recorded(lambda device, turned=turned: make(device, turned)) for turned in (False, True)
    )

    assert turned.peak.total - straight.peak.total == N * N * SINGLE


def test_rms_norm_is_one_kernel_that_keeps_one_number_a_row() -> None:
    def make(device: torch.device) -> Callable[[], None]:
        x, norm = leaf(device, 8, N), nn.RMSNorm(N).to(device)
        return lambda: norm(x).square().sum().backward()

    assert kept_for_backward(recorded(make)) == [8 * N * SINGLE, 8 * SINGLE]


def test_channels_last_stays_in_results_and_gradients() -> None:
    seen: list[bool] = []

    def make(device: torch.device) -> Callable[[], None]:
        convolution = nn.Conv2d(8, 16, 3).to(device)
        images = leaf(device, 2, 8, 9, 9)

        def iteration() -> None:
            hidden = images.to(memory_format=torch.channels_last)
            hidden.register_hook(
                lambda grad: seen.append(grad.is_contiguous(memory_format=torch.channels_last))
            )
            out = convolution(hidden)
            seen.append(out.is_contiguous(memory_format=torch.channels_last))
            out.sum().backward()
            seen.append(convolution.weight.grad.is_contiguous())  # as the weight itself

        return iteration

    recorded(make)
    assert seen == [True, True, True]


def autocast(body: Callable[[torch.device], Tensor], dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    seen: list[Tensor] = []

    def make(device: torch.device) -> Callable[[], None]:
        def iteration() -> None:
            with torch.autocast(device.type, dtype):
                seen.append(body(device))

        return iteration

    recorded(make)
    return seen


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        (lambda d: torch.empty(2, 2, device=d) @ torch.empty(2, 2, device=d), torch.bfloat16),
        (lambda d: functional.softmax(torch.empty(2, device=d, dtype=torch.bfloat16), 0), torch.float32),
        (lambda d: torch.empty(2, device=d, dtype=torch.bfloat16).exp(), torch.float32),
        (lambda d: torch.empty(2, device=d, dtype=torch.bfloat16).sum(dim=0), torch.float32),
        (lambda d: torch.empty(2, device=d, dtype=torch.bfloat16) * 2, torch.bfloat16),
        (
            lambda d: torch.empty(2, device=d, dtype=torch.bfloat16).dot(torch.empty(2, device=d)),
            torch.float32,
        ),
        (
            lambda d: torch.empty(2, 2, device=d, dtype=torch.float64) @ torch.empty(2, 2, device=d).double(),
            torch.float64,
        ),
    ],
    ids=["matmul", "softmax", "exp", "sum", "mul", "dot", "double"],
)
def test_autocast_follows_cudas_lists(body: Callable, dtype: torch.dtype) -> None:
    assert autocast(body)[0].dtype == dtype


def test_autocast_casts_a_weight_once_until_the_outermost_ends() -> None:
    def make(device: torch.device) -> Callable[[], None]:
        layer = nn.Linear(N, N, bias=False).to(device)

        def iteration() -> None:
            for _ in range(2):
                with (
                    torch.autocast(device.type, torch.bfloat16),
                    torch.no_grad(),
                    torch.autocast(device.type, torch.bfloat16),
                ):
                    layer(torch.empty(1, N, device=device))
                    layer(torch.empty(1, N, device=device))

        return iteration

    trace = recorded(make)
    copies = trace.delta_bytes[trace.category == memlab.trace.CATEGORIES.index("low_precision_copies")]
    assert copies.tolist() == [N * N * HALF, -N * N * HALF] * 2


def test_fp16_logits_become_an_fp32_loss_in_one_kernel() -> None:
    def make(device: torch.device) -> Callable[[], None]:
        logits = leaf(device, 8, N, dtype=torch.float16)
        return lambda: functional.log_softmax(logits, 1, dtype=torch.float32)

    births = [size for size in recorded(make).delta_bytes.tolist() if size > 0]
    assert births == [8 * N * SINGLE]
