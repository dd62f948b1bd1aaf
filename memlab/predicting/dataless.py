"""Tensors without data: every operation on the device gives shapes alone, those on the host are real."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode

from memlab.memory.ledger import TEMPORARIES, Ledger
from memlab.memory.storage_mode import PLAIN
from memlab.predicting.refusals import OtherDevice, no_network
from memlab.predicting.shapes import Shapes

aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_TO_COPY = aten._to_copy.default
_READ = aten._local_scalar_dense.default
_HOST = ("cpu", "meta")
_OPTIMIZERS = str(Path(optimizers.__file__).parent)
BETWEEN = (torch._ops.__file__, str(Path(__file__).parents[1] / "memory"), __file__)
"""Files of the frames between a program's line and the mode."""

Rule = Callable[["DatalessMode", Any, Any, Any], Any]
"""Stands in for an operator: called with the mode, the operator, its arguments and keywords."""

SHAPED, IN_PLACE, LISTS_IN_PLACE, FACTORY, LIFT = range(5)


class DatalessMode(TorchDispatchMode):
    """Runs operations on `device` without data, and all others as they are.

    On "cpu" everything that is made is without data but what Python numbers become
    (`torch.tensor(1.0)`): optimizers count their steps in such tensors and read them.
    """

    def __init__(self, device: torch.device, rules: Mapping[Any, Rule] | None = None) -> None:
        super().__init__()
        self.ledger: Ledger | None = None
        """Gets what kernels make for themselves."""
        self.calls: list[tuple[int, Any]] | None = None
        """Where wanted: each operator that may make tensors, with the number of changes in the ledger before it."""
        self.wanted = False
        """Whether `attend` is to be called before the next operation."""
        self.attend: Callable[[], None] | None = None
        self.device = device
        self.on_host = device.type == "cpu"
        # By id, for torch hashes operators in Python; they are held here, so that no other takes an id.
        self._rules = {id(func): rule for func, rule in (rules or {}).items()}
        self._kinds: dict[int, int] = {}
        self._held = [*(rules or {})]
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        # Each kind of call is asked for once here, and what it asks in turn seldom comes again.
        self._mode.cache_enabled = False
        self._shapes = Shapes(self._mode)
        # Its memo leaves weak references on tensors, and `Module.to` cannot swap a tensor that has one.
        self._mode.fake_tensor_converter.set_tensor_memo = lambda tensor, fake: None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in a guard of torch.compile's: 5 us for each operation.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and not PLAIN.issuperset(types):
            return NotImplemented  # FSDP2's DTensor: what it does inside comes by again
        return self.answer(func, types, args, kwargs)

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Within, operations come by `answer`: a meter's mode asks it itself, which spares a dispatch."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def answer(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return what an operation gives; no other mode sees how."""
        if func is _DEVICE_OF:
            return args[0].fake_device if type(args[0]) is FakeTensor else args[0].device
        if self.wanted:
            self.wanted = False
            if self.attend is not None:
                self.attend()
        kwargs = kwargs or {}
        kind = self._kinds.get(id(func))
        if kind is None:
            kind = self._kinds[id(func)] = _kind(func)
            self._held.append(func)
        if FakeTensor in types:
            if kind == IN_PLACE and isinstance(args[0], FakeTensor):
                return args[0]  # nothing is made, and there is nothing to compute
            if kind == LISTS_IN_PLACE:
                return None
            if self.calls is not None and self.ledger is not None:
                self.calls.append((len(self.ledger), func))
            if func is _READ and _asked_by_an_optimizer():
                return 1.0
            rule = self._rules.get(id(func))
            return self._shapes(func, args, kwargs) if rule is None else rule(self, func, args, kwargs)
        if not self._makes_dataless(func, kind, kwargs):
            return func(*args, **kwargs)
        if func is _TO_COPY:
            return self._copied(args[0], kwargs)
        return self.run(func, args, kwargs)

    def _makes_dataless(self, func: Any, kind: int, kwargs: Any) -> bool:
        """Say whether an operation without any dataless argument has a dataless result."""
        place = kwargs.get("device")
        wanted = "cpu" if place is None else torch.device(place).type
        if wanted != self.device.type and wanted not in _HOST:
            raise OtherDevice(f"{func} on {place}")
        if self.on_host:
            return wanted == "cpu" and (kind == FACTORY or func is _TO_COPY)
        return wanted == self.device.type

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what `func` gives, without data; no other mode sees it."""
        return self._shapes(func, args, kwargs)

    def empty(self, size: Any, dtype: torch.dtype, stride: Any = None) -> Tensor:
        """Return a tensor of the device; no other mode sees it made."""
        layout = {"dtype": dtype, "device": self.device}
        if stride is None:
            return self.run(aten.empty.memory_format, (list(size),), layout)
        return self.run(aten.empty_strided.default, (list(size), list(stride)), layout)

    def like(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return a contiguous tensor of the same shape."""
        return self.empty(tensor.shape, dtype or tensor.dtype)

    def temporary(self, size: Any, dtype: torch.dtype) -> Tensor:
        """Return what a kernel makes for itself; it counts while it lives."""
        made = self.empty(size, dtype)
        if self.ledger is not None:
            self.ledger.add(made, TEMPORARIES)
        return made

    def entered(self, made: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """Count a kernel's results as made here, before what it makes for itself."""
        if self.ledger is not None:
            for tensor in made:
                if tensor is not None:
                    self.ledger.add(tensor, TEMPORARIES)
        return made

    def _copied(self, host: Tensor, kwargs: Any) -> Tensor:
        """Return a dataless copy of a host tensor."""
        shape = aten._to_copy.default(
            torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device="meta"),
            dtype=kwargs.get("dtype"),
            memory_format=kwargs.get("memory_format"),
        )
        return self.empty(shape.size(), shape.dtype, shape.stride())


def _asked_by_an_optimizer() -> bool:
    """Say whether torch's own optimizer reads a number: it scales updates by it (Adafactor), no more.

    L-BFGS decides by such numbers how often it evaluates, so it is refused.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    return file.startswith(_OPTIMIZERS) and not file.endswith("lbfgs.py")


def _kind(func: Any) -> int:
    """Sort an operator by what it can give; from its schema, so that new ones need no list."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return SHAPED  # a higher-order operator
    name = schema.name.removeprefix("aten::")
    if name.startswith(("set_", "resize_")) or torch.Tag.inplace_view in func.tags:
        return SHAPED
    if name.startswith("lift"):
        return LIFT
    arguments, returns = schema.arguments, schema.returns
    written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write and not a.is_out]
    if written and not returns:
        return LISTS_IN_PLACE
    writes_first = [a.name for a in written] == [a.name for a in arguments[:1]]
    if len(returns) == 1 and writes_first and returns[0].alias_info is not None:
        return IN_PLACE
    return SHAPED if any("Tensor" in str(a.type) for a in arguments) else FACTORY


@contextmanager
def without_data(mode: DatalessMode) -> Iterator[None]:
    """Let the program within see `mode`'s device as torch would show a real one."""
    with ExitStack() as stack:
        stack.enter_context(no_network())
        stack.enter_context(_counted_as_plain())
        stack.enter_context(_swapping_parameters())
        stack.enter_context(_numbers_made_on_host())
        # In this thread: on a machine without GPUs autograd has no thread for any device but the CPU.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(mode)
        yield


@contextmanager
def _counted_as_plain() -> Iterator[None]:
    """Let optimizers and clipping choose foreach kernels as they do for plain tensors."""
    lists = (optimizers._foreach_supported_types, _foreach_utils._foreach_supported_types)
    for known in lists:
        known.append(FakeTensor)
    try:
        yield
    finally:
        for known in lists:
            known.remove(FakeTensor)


@contextmanager
def _swapping_parameters() -> Iterator[None]:
    """Let `Module.to` keep its parameters' identity: an optimizer may hold them already."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


@contextmanager
def _numbers_made_on_host() -> Iterator[None]:
    """Let `torch.tensor(1.0, device=...)` copy from the host by an operation, which a mode can see."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
