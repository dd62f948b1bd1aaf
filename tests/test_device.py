"""Which device "auto" is, and what is said where there is none."""

import pytest
import torch

from memlab.device import resolve_device, supports_bf16
from memlab.plan import PlanError


@pytest.mark.parametrize(("variable", "device"), [("cpu", "cpu"), ("", None), ("auto", None)])
def test_auto_is_what_the_variable_says_else_what_is_there(
    monkeypatch: pytest.MonkeyPatch, variable: str, device: str | None
) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", variable)

    there = "cuda" if torch.cuda.is_available() else "cpu"

    assert resolve_device("auto") == torch.device(device or there)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", "gpu")
    with pytest.raises(PlanError) as caught:
        resolve_device("auto")

    assert str(caught.value) == (
        "the environment variable MEMLAB_DEVICE='gpu' must be 'auto', 'cpu', 'cuda' or 'cuda:N' "
        "with N from 0 to 127; set one of these or unset it."
    )
    assert resolve_device("cpu") == torch.device("cpu")  # a plan that names its device does not ask


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("variable", [None, "cuda:1"])
def test_a_gpu_that_is_not_there_says_so(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", variable or "cpu")
    with pytest.raises(PlanError) as caught:
        resolve_device("auto" if variable else "cuda")

    said = "the environment variable MEMLAB_DEVICE='cuda:1'" if variable else "device='cuda'"
    assert str(caught.value) == (
        f"{said} needs a GPU that this torch ({torch.__version__}) can use, and finds none; "
        "choose 'cpu' or 'auto'."
    )


@pytest.mark.parametrize("name", ["cuda:128", "cuda:99999999999999999999", "cuda:01", "cuda:\u0663", "xpu"])
def test_a_device_that_no_machine_has_is_refused_before_torch_sees_it(name: str) -> None:
    with pytest.raises(PlanError) as caught:
        resolve_device(name)

    assert str(caught.value) == (
        f"device={name!r} must be 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0 to 127."
    )


@pytest.mark.gpu
def test_a_gpu_beyond_the_last_says_which_there_are() -> None:
    last = torch.cuda.device_count() - 1
    with pytest.raises(PlanError) as caught:
        resolve_device("cuda:99")

    assert str(caught.value) == (
        f"device='cuda:99' does not exist: the GPUs here are cuda:0 to cuda:{last}; choose one of them."
    )
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")


def test_the_cpu_computes_in_bf16() -> None:
    assert supports_bf16(torch.device("cpu"))


@pytest.mark.gpu
def test_a_gpu_computes_in_bf16_from_capability_8() -> None:
    device = torch.device("cuda")

    assert supports_bf16(device) == (torch.cuda.get_device_capability(device)[0] >= 8)
