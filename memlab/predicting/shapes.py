"""What operations give, by what they take: torch's shape functions are asked once for each kind of call.

Asking them costs some 100 us an operation, and a model's blocks ask the same again and again.
"""

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

MOST_REMEMBERED = 50_000
"""Kinds of calls; some 500 bytes each."""

_empty_strided = torch._C._VariableFunctions.empty_strided  # without Python in between
_make_subclass = Tensor._make_subclass
_META = torch.device("meta")
# Since torch 2.12 one is a property over the other, which takes a call in Python.
_device_of = attrgetter("_fake_device" if hasattr(FakeTensor, "fake_device") else "fake_device")
_ARGUMENT, _VIEW, _NEW, _NOTHING = range(4)
_IMMUTABLE = (type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, str)
aten = torch.ops.aten
KERNELS = frozenset({
    aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.sum.dim_IntList,
    aten.mm.default, aten.addmm.default, aten.bmm.default,
    aten.view.default, aten._unsafe_view.default, aten.t.default, aten.permute.default, aten.transpose.int,
    aten.gelu.default, aten.gelu_backward.default, aten.silu.default, aten.silu_backward.default,
    aten._softmax_backward_data.default,
    aten._log_softmax.default, aten._log_softmax_backward_data.default,
    aten.nll_loss_forward.default, aten.nll_loss_backward.default,
})  # fmt: skip
"""Operators whose kernels on every device share one shape function in C++ (structured kernels), and views.

FakeTensorMode goes through a decomposition in Python instead, which takes ten times as long.
"""
Made = tuple[int, Any, Any, Any, Any, Any]
"""One result: how it comes about, of which tensor argument; shape, strides, offset and (type, device)."""
Results = tuple[type | None, tuple[Made, ...]]
"""What holds the results, None for one alone, and each of them."""

_known: dict[Any, Results | None] = {}
"""None: such a call has to be asked for each time."""
_operators: dict[int, tuple[Any, bool]] = {}
"""By id, for torch hashes operators in Python; held, so that no other takes an id. Whether calls may be remembered."""


class _Unknown(Exception):
    """A call holds something that its results may depend on in ways not known here."""


class Shapes:
    """Answers operations on tensors without data: from memory, else by `mode`."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._attributes: dict[torch.device, dict[str, Any]] = {}

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what `func` gives, without data."""
        operator = _operators.get(id(func))
        if operator is None:
            operator = _operators[id(func)] = func, _is_a_function(func)
        if not operator[1]:
            return self._dispatched(func, args, kwargs)
        tensors: list[FakeTensor] = []
        try:
            key = _key(func, args, kwargs, tensors)
            results = _known.get(key, _known)
        except (_Unknown, TypeError):  # TypeError: not hashable
            return self._dispatched(func, args, kwargs)
        if results is _known:
            return self._asked(key, func, args, kwargs, tensors)
        if results is None:
            return self._dispatched(func, args, kwargs)
        holder, made = results
        if holder is None:
            return self._make(made[0], tensors)
        all_made = [self._make(one, tensors) for one in made]
        return all_made if holder is list else tuple(all_made)

    def _dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = self._mode.dispatch(func, (), args, kwargs)
        return (
            tuple(out) if isinstance(out, tuple) else out
        )  # some of torch's shape functions name its fields

    def _by_kernel(self, func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
        with in_kernel_invocation_manager(self._mode):
            out = func(*args, **kwargs)
        if isinstance(out, Tensor):
            return self._dataless(out, device)
        return tuple(self._dataless(one, device) for one in out)

    def _asked(self, key: Any, func: Any, args: Any, kwargs: Any, tensors: list[FakeTensor]) -> Any:
        devices = {tensor.fake_device for tensor in tensors}
        all_dataless = all(type(arg) is FakeTensor for arg in args if isinstance(arg, Tensor))
        if func in KERNELS and all_dataless and len(devices) == 1:
            out = self._by_kernel(func, args, kwargs, *devices)
        else:
            out = self._dispatched(func, args, kwargs)
        if any(tensor.fake_mode is not self._mode for tensor in tensors):
            return out  # it was answered for copies of them, which no result is a view of
        if len(_known) >= MOST_REMEMBERED:
            _known.clear()
        _known[key] = _described(out, tensors)
        for one in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(one, FakeTensor):
                self._attributes.setdefault(one.fake_device, dict(one.__dict__))
        return out

    def _make(self, made: Made, tensors: list[FakeTensor]) -> Any:
        how, which, shape, strides, offset, kind = made
        if how == _ARGUMENT:
            return tensors[which]
        if how == _NOTHING:
            return None
        dtype, device = kind
        if how == _NEW:
            elements = _empty_strided(shape, strides, dtype=dtype, device=_META)
        else:
            elements = _empty_strided((0,), (1,), dtype=dtype, device=_META)
            elements.set_(tensors[which].untyped_storage(), offset, shape, strides)
        return self._dataless(elements, device)

    def _dataless(self, elements: Tensor, device: torch.device) -> FakeTensor:
        """Return FakeTensor(mode, elements, device), whose constructor takes five times as long."""
        attributes = self._attributes.get(device)
        if attributes is None:
            out = FakeTensor(self._mode, elements, device)
            self._attributes[device] = dict(out.__dict__)
            return out
        out = _make_subclass(
            FakeTensor, elements, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(out)
        out.__dict__ = attributes.copy()
        return out


def _is_a_function(func: Any) -> bool:
    """Say whether an operator writes to none of its arguments."""
    schema = getattr(func, "_schema", None)
    return schema is not None and not any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments
    )


def _key(func: Any, args: Any, kwargs: Any, tensors: list[FakeTensor]) -> Any:
    """Return what decides the shapes of a call's results; add its tensors to `tensors`, in order."""
    parts: list[Any] = [id(func), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    _describe(args, parts, tensors)
    if kwargs:
        parts.extend(kwargs)
        _describe(kwargs.values(), parts, tensors)
    return tuple(parts)


def _describe(values: Any, parts: list[Any], tensors: list[FakeTensor]) -> None:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            tensors.append(value)
            parts += (
                value.shape,
                value.stride(),
                value.dtype,
                value.storage_offset(),
                _device_of(value),
            )
        elif kind is int or kind is float or kind is bool:
            parts += (kind, value)  # 1, 1.0 and True are equal
        elif kind is list or kind is tuple or kind is torch.Size:
            parts += (kind, len(value))
            _describe(value, parts, tensors)
        elif kind in _IMMUTABLE:
            parts.append(value)
        elif kind is Tensor and value.layout is torch.strided:  # of the host, beside some of the device
            parts += (kind, value.shape, value.stride(), value.dtype, value.device)
        else:
            raise _Unknown


def _described(out: Any, tensors: list[FakeTensor]) -> Results | None:
    holder = type(out) if type(out) in (list, tuple) else None
    results = (out,) if holder is None else out
    seen = {id(tensor.untyped_storage()) for tensor in tensors}
    made = []
    for one in results:
        described = _result(one, tensors, seen)
        if described is None:
            return None
        made.append(described)
    return holder, tuple(made)


def _result(one: Any, tensors: list[FakeTensor], seen: set[int]) -> Made | None:
    """Describe one result; None where it cannot be made from a description."""
    if one is None:
        return _NOTHING, None, None, None, None, None
    if type(one) is not FakeTensor or one.layout is not torch.strided or one.is_conj() or one.is_neg():
        return None
    facts = (tuple(one.shape), one.stride(), one.storage_offset(), (one.dtype, one.fake_device))
    storage = one.untyped_storage()
    for which, tensor in enumerate(tensors):
        if tensor is one:
            return _ARGUMENT, which, None, None, None, None
        if tensor.untyped_storage() is storage:
            return _VIEW, which, *facts
    if id(storage) in seen or one.storage_offset():
        return None  # two results share memory
    seen.add(id(storage))
    plain = _empty_strided(facts[0], facts[1], dtype=one.dtype, device=_META)
    return (_NEW, None, *facts) if plain.untyped_storage().nbytes() == storage.nbytes() else None
