"""The dispatch mode that sees every operation: the meter's hot path.

An operation costs about 20 us under any Python dispatch mode; what is written here may add little to
that (benchmarks/meter.py). So: one dictionary look-up sorts operators into kinds, views and in-place
operators end there, and a birth is one weak reference whose callback is the death.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import Self

from memlab.memory.ledger import COPIES, INPUTS, PARAMETERS, TEMPORARIES, Ledger, plain

_in_backward = torch._C._current_graph_task_id  # -1 outside of a backward pass
_grad_enabled = torch.is_grad_enabled

ALIAS, FRESH, LIFT, CAST, RESIZE = range(5)
_RESIZING = ("resize_", "resize_as_", "set_", "resize_output_")
_DEVICE_OF = torch.ops.prim.device.default
_CASTS = (torch.ops.aten._to_copy.default, torch.ops.aten._to_copy.out)
PLAIN = {Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor}
_LOW_PRECISION = (torch.bfloat16, torch.float16)


class Dataless(Protocol):
    """Another mode, which gives results without data."""

    def answer(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return what the operator `func` gives."""
        ...

    def set_aside(self) -> AbstractContextManager[None]:
        """Let operations pass the mode by."""
        ...


class StorageMode(TorchDispatchMode):
    """Enters what each operation allocates into a Ledger; says when backward or a recomputation begins."""

    def __init__(
        self,
        ledger: Ledger,
        turn: Callable[[bool, bool], None],
        begins: Callable[[], None],
        dataless: Dataless | None = None,
    ) -> None:
        """`dataless` replaces the operators themselves: one dispatch instead of two."""
        super().__init__()
        self._dataless = dataless
        self._answer = None if dataless is None else dataless.answer
        self._aside = ExitStack()
        self.ledger = ledger
        self._live = ledger.live
        self._turn = turn  # called with (in backward, recomputing) when either changes
        self._begins = begins  # called before anything is entered, where that may begin a step
        self.may_begin_step = False
        self._kinds: dict[int, int] = {}  # by id, for torch hashes operators in Python
        self._held: list[Any] = []  # the operators, so that no other takes an id
        self.in_backward = False
        self._recomputing = False
        self.in_forward = True
        self.inside_module = False

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in a guard of torch.compile's: 5 us for each operation.
        return False

    def __enter__(self) -> Self:
        if self._dataless is not None:
            self._aside.enter_context(self._dataless.set_aside())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._aside.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = self._answer
        if types:
            if not PLAIN.issuperset(types):
                return NotImplemented  # a wrapper subclass (DTensor): count what it does inside
            if func is _DEVICE_OF and answer is not None:
                return answer(func, types, args, kwargs)  # half of all calls, and nothing is made
        backward = _in_backward() != -1
        if backward or self.in_backward:
            self._follow_backward(backward)
        kind = self._kinds.get(id(func))
        if kind is None:
            kind = self._kinds[id(func)] = _kind(func)
            self._held.append(func)
        live = self._live
        if kind < LIFT and not backward:  # in backward nothing turns up that was not seen before
            try:
                for arg in args:  # as `_adopt`, without its call
                    if isinstance(arg, Tensor):
                        untyped = arg.untyped_storage()
                        known = live.get(id(untyped))
                        if known is None or known() is not untyped:
                            self._enter_found(arg, untyped)
                    elif type(arg) is list:
                        self._adopt(arg)
            except NotImplementedError:  # sparse: its parts have storages
                self._adopt(args)
            if kwargs:
                self._adopt(kwargs.values())
        if answer is not None:
            out = answer(func, types, args, kwargs)
        else:
            out = func(*args, **kwargs) if kwargs else func(*args)
        if kind == ALIAS:
            return out
        if kind == FRESH or kind == LIFT:
            if isinstance(out, Tensor):
                self._enter(out, args)
            elif type(out) is tuple or type(out) is list:
                for item in out:
                    if isinstance(item, Tensor):
                        self._enter(item, args)
        elif kind == CAST:
            self._enter_cast(out, args)
        else:
            self._begins()
            category = INPUTS if self.in_forward and not self.inside_module else TEMPORARIES
            for tensor in plain([out, *args, *(kwargs or {}).values()]):
                self.ledger.resized(tensor, category)
        return out

    def _follow_backward(self, backward: bool) -> None:
        recomputing = backward and _grad_enabled()
        if backward != self.in_backward or recomputing != self._recomputing:
            self.in_backward, self._recomputing = backward, recomputing
            self._turn(backward, recomputing)

    def _adopt(self, args: Any) -> None:
        """Enter tensors that were made before the meter began, or by other means than operations."""
        live = self._live
        for arg in args:
            if isinstance(arg, Tensor):
                try:
                    untyped = arg.untyped_storage()
                    known = live.get(id(untyped))
                    if known is None or known() is not untyped:
                        self._enter_found(arg, untyped)
                except NotImplementedError:  # sparse: its parts have storages
                    self._adopt(list(plain([arg])))
            elif type(arg) is list:
                self._adopt(arg)

    def _enter_found(self, tensor: Tensor, untyped: torch.UntypedStorage) -> None:
        # Often: a Python number in an operation becomes a tensor first.
        ledger = self.ledger
        if ledger.is_here(tensor) and untyped.nbytes():
            if self.may_begin_step:
                self._begins()
            if type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter):
                ledger.enter(untyped, PARAMETERS)
            else:
                ledger.enter(untyped, INPUTS if self.in_forward else TEMPORARIES)

    def _enter(self, out: Tensor, args: Any) -> None:
        try:
            untyped = out.untyped_storage()
        except NotImplementedError:
            for part in plain([out]):
                self._enter(part, args)
            return
        known = self._live.get(id(untyped))
        if known is None or known() is not untyped:
            ledger = self.ledger
            if untyped.nbytes() and ledger.is_here(out):
                if self.may_begin_step:
                    self._begins()
                is_input = self.in_forward and not self.inside_module and not _tracked(args)
                ledger.enter(untyped, INPUTS if is_input else TEMPORARIES)

    def _enter_cast(self, out: Tensor, args: Any) -> None:
        """Autocast casts a weight by a copy of its type; a batch moves to the device by one."""
        source = self.ledger.find(args[0]) if args[0].layout is torch.strided else None
        if source is not None and source.category == PARAMETERS and out.dtype in _LOW_PRECISION:
            self._begins()
            self.ledger.add(out, COPIES)
        else:
            self._enter(out, args)


def _tracked(args: Any) -> bool:
    """Say whether autograd follows any of an operation's tensors."""
    for arg in args:
        if isinstance(arg, Tensor):
            if arg.requires_grad:
                return True
        elif type(arg) is list and _tracked(arg):
            return True
    return False


def _kind(func: Any) -> int:
    """Sort an operator by what it can do to storages; from its schema, so that new ones need no list."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return FRESH  # a higher-order operator
    if func in _CASTS:
        return CAST
    if schema.name.removeprefix("aten::") in _RESIZING or any(
        argument.is_out for argument in schema.arguments
    ):
        return RESIZE
    if schema.name == "aten::lift_fresh":
        return LIFT  # torch.tensor(...): its storage was made without an operation, just now
    aliases = all(value.alias_info is not None for value in schema.returns)
    return ALIAS if aliases else FRESH
