"""What the training loop makes a card do: each operation's arithmetic and memory traffic, from its shapes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from memlab.memory.cards import NumberFormat

aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
Part = str
"""Of an optimizer step: one of PARTS."""
PARTS = ("first", "later", "update")
"""The first micro-step, each later one (which adds to gradients that are there), and the update."""

_LOOKED_UP = {aten.embedding.default, aten.index_select.default, aten.gather.default}
"""They read of their first argument only as much as they give."""
_ATTENTION = {
    # Two products forward; backward, which makes the scores again, has five.
    aten._scaled_dot_product_flash_attention.default: (2, 0),
    aten._scaled_dot_product_efficient_attention.default: (2, 0),
    aten._scaled_dot_product_flash_attention_backward.default: (5, 1),
    aten._scaled_dot_product_efficient_attention_backward.default: (5, 1),
}
"""Matrix products of seq x seq x width, and the place of the query among the arguments."""


@dataclass(frozen=True)
class Operation:
    """One kernel, or a group of them that is launched as one."""

    name: str
    number_format: NumberFormat
    """That its arithmetic runs in."""
    flops: int
    """Floating-point operations of matrix products, convolutions and attention; others count none."""
    moved_bytes: int
    """Read and written: each argument and each result once."""


class OperationCounter(TorchDispatchMode):
    """Lists the operations on dataless tensors, by part of the step; a StepMeter for the training loop."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.operations: dict[Part, list[Operation]] = {}
        self._device_type = device.type
        self._into: list[Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in a guard of torch.compile's: 5 us for each operation.
        return False

    supports_higher_order_operators = True

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Need to know nothing of them."""

    def recording(self) -> "OperationCounter":
        """Begin the list anew: the last step counts."""
        self.operations = {part: [] for part in PARTS}
        return self

    def mark(self, phase: str, micro_step: int = 0) -> None:
        """Say which part begins."""
        part = "update" if phase == "optimizer" else "first" if micro_step == 0 else "later"
        self._into = self.operations[part]

    def close(self) -> None:
        """Hold nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if getattr(func, "is_view", True) or func is _DEVICE_OF:
            return out  # no kernel
        read = [*self._tensors((*args, *kwargs.values()))]
        written = [*self._tensors((out,) if func._schema.returns else written_arguments(func, args))]
        if func in _LOOKED_UP:
            read = written
        moved_bytes = sum(tensor.numel() * tensor.itemsize for tensor in (*read, *written))
        if moved_bytes:
            number_format = _number_format(func, [*read, *written])
            self._into.append(
                Operation(str(func), number_format, flops(func, args, kwargs, out), moved_bytes)
            )
        return out

    def _tensors(self, values: Any) -> Iterator[FakeTensor]:
        for value in values:
            if isinstance(value, FakeTensor):
                if value.fake_device.type == self._device_type:
                    yield value
            elif isinstance(value, (list, tuple)):
                yield from self._tensors(value)


def written_arguments(func: Any, args: Any) -> list[Any]:
    """Return the arguments that an operation without results writes into: those of lists, in place."""
    return [
        value
        for argument, value in zip(func._schema.arguments, args)  # noqa: B905
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return the floating-point operations of one call, an addition and a product counted as two.

    A causal mask is not taken off: kernels skip what it hides only in part.
    """
    if func in _ATTENTION:
        products, first = _ATTENTION[func]
        query, key = args[first : first + 2]
        batch, heads, seq, width = query.shape
        return 2 * products * batch * heads * seq * key.shape[2] * width
    formula: Callable[..., int] | None = flop_registry.get(getattr(func, "_overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _number_format(func: Any, tensors: list[Tensor]) -> NumberFormat:
    dtypes = {tensor.dtype for tensor in tensors}
    if torch.float32 not in dtypes:
        return "bf16" if torch.bfloat16 in dtypes else "fp16" if torch.float16 in dtypes else "fp32"
    # torch lets cuDNN round FP32 convolutions to TF32 and cuBLAS not (backends.cudnn.allow_tf32 is True,
    # backends.cuda.matmul.allow_tf32 False).
    return "tf32" if func in (aten.convolution.default, aten.convolution_backward.default) else "fp32"
