"""The book of live storages: who was born, who died, in which phase, and of which category."""

import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from memlab.trace import ARRAYS, CATEGORIES, PHASES, Trace

PARAMETERS, BUFFERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, COPIES, INPUTS, COMMUNICATION, TEMPORARIES = (
    range(len(CATEGORIES))
)
SETUP, FORWARD, BACKWARD, OPTIMIZER = range(len(PHASES))


_HERE = {"cpu": "is_cpu", "cuda": "is_cuda", "xpu": "is_xpu", "mps": "is_mps", "meta": "is_meta"}


class Storage(weakref.ref):
    """A weak reference to a live storage, with what the book says of it."""

    # A subclass with slots costs half of a reference and an entry beside it.
    __slots__ = ("category", "number", "size")


class Ledger:
    """Records births and deaths of storages of one kind of device; `close_step` turns them into a Trace."""

    def __init__(self, device_type: str, *, dataless: bool = False) -> None:
        """`dataless`: some of the tensors hold no data (FakeTensor)."""
        # One attribute of a tensor: `tensor.device.type` takes ten times as long.
        self.is_here = attrgetter(_HERE.get(device_type, f"is_{device_type}"))
        if dataless:  # whose attributes come by a dispatch
            self.is_here = partial(_is_fake_here, device_type, self.is_here)
        self.live: dict[int, Storage] = {}
        """By the storage's id; what died stays until another storage has the id, or the step ends."""
        self._emptied: dict[int, Storage] = {}  # resized to nothing, and not yet filled again
        self.born: list[Storage] = []
        """Storages born in this step, dead or alive."""
        self._old: list[Storage] = []  # alive when this step began
        self._start = np.zeros(len(CATEGORIES), np.int64)
        self._held: tuple[tuple[int, int], ...] = ()
        self._next_number = 0
        self._log: list[int | Storage] = []  # n: storage n was born; itself, or ~n: it died
        self._died = self._log.append  # the whole callback of a death, and no Python: a third of its time
        self._marks: list[list[int]] = [[0, SETUP, 0, 0]]  # from this change on: phase, micro-step, step
        self._places: list[tuple[int, int]] = [(0, 0)]  # from this change on: index of the module

    def __len__(self) -> int:
        """Changes since the step began."""
        return len(self._log)

    def begin(self, placed: Iterable[Tensor] = ()) -> None:
        """Take all that was entered so far as what lives before the first step.

        It counts as placed in memory in the order of `placed`, then of birth.
        """
        living = [*self.living()]
        categories, sizes = [entry.category for entry in living], [entry.size for entry in living]
        self._start = np.bincount(categories, sizes, len(CATEGORIES)).astype(np.int64)
        self._begin_step()
        first = [entry for tensor in plain(placed) if (entry := self.find(tensor)) is not None]
        self._held = tuple({entry.number: entry.size for entry in [*first, *self._old]}.items())

    def release(self) -> None:
        """Forget everything: no storage calls back any more."""
        self.live.clear()
        self._emptied.clear()
        self.born, self._old = [], []
        self._log.clear()

    def add(self, tensor: Tensor, category: int) -> None:
        """Enter `tensor`'s storage unless it is known, empty or elsewhere."""
        untyped = tensor.untyped_storage()
        if self._entry(untyped) is None and untyped.nbytes() and self.is_here(tensor):
            self.enter(untyped, category)

    def enter(self, untyped: torch.UntypedStorage, category: int) -> None:
        """Enter a storage that is neither known, nor empty, nor elsewhere."""
        entry = self.live[id(untyped)] = Storage(untyped, self._died)
        entry.size = untyped.nbytes()
        entry.category = category
        entry.number = number = self._next_number
        self._next_number = number + 1
        self.born.append(entry)
        self._log.append(number)

    def find(self, tensor: Tensor) -> Storage | None:
        """Return the entry of `tensor`'s storage."""
        return self._entry(tensor.untyped_storage())

    def _entry(self, untyped: torch.UntypedStorage) -> Storage | None:
        entry = self.live.get(id(untyped))  # torch keeps one Python object for the life of a storage
        return entry if entry is not None and entry() is untyped else None

    def living(self, first: int | None = None) -> Iterator[Storage]:
        """Yield the entries of all that is alive, or of what was born from birth number `first` of the step on."""
        for entry in [*self.live.values()] if first is None else self.born[first:]:
            untyped = entry()
            if untyped is not None and self.live.get(id(untyped)) is entry:
                yield entry

    def label(
        self, tensors: Iterable[Tensor], category: int, only: Collection[int] = range(len(CATEGORIES))
    ) -> None:
        """Give the storages of `tensors` a category if they have one of `only`; enter those not known."""
        for tensor in plain(tensors):
            entry = self.find(tensor)
            if entry is None:
                self.add(tensor, category)
            elif entry.category in only:
                entry.category = category

    def label_rest(self, category: int) -> None:
        """Give a category to what is alive and has none."""
        for entry in self.living():
            if entry.category == TEMPORARIES:
                entry.category = category

    def resized(self, tensor: Tensor, category: int) -> None:
        """Enter that an operation may have changed `tensor`'s storage or its size; `category` if it is new."""
        self.resized_storage(tensor.untyped_storage())
        self.add(tensor, category)

    def resized_storage(self, untyped: torch.UntypedStorage) -> None:
        """Enter that `untyped` has a new size; one that is emptied and filled again keeps its category."""
        entry = self._entry(untyped)
        if entry is not None and untyped.nbytes() != entry.size:
            self._renew(entry, untyped)
        elif entry is None and untyped.nbytes():
            empty = self._emptied.pop(id(untyped), None)
            if empty is not None and empty() is untyped:
                self.enter(untyped, empty.category)

    def _renew(self, entry: Storage, untyped: torch.UntypedStorage) -> None:
        """A resized storage is a death and a birth."""
        del self.live[id(untyped)]
        self._log.append(~entry.number)
        past = self._without_callback(entry, untyped)
        if untyped.nbytes():
            self.enter(untyped, entry.category)
        else:
            self._emptied[id(untyped)] = past

    def _without_callback(self, entry: Storage, untyped: torch.UntypedStorage) -> Storage:
        """Replace `entry` in the book by one that does not say a second time that the storage died."""
        past = Storage(untyped)
        past.category, past.number, past.size = entry.category, entry.number, entry.size
        book = self.born if self.born and self.born[0].number <= entry.number else self._old
        book[bisect_left(book, entry.number, key=_number)] = past
        return past

    def mark(self, phase: int, micro_step: int, step: int) -> None:
        """From here on, changes belong to this phase."""
        here = len(self._log)
        if self._marks[-1][0] == here:
            self._marks.pop()
        self._marks.append([here, phase, micro_step, step])

    def remark(self, phase: int, micro_step: int, step: int) -> None:
        """Say that the phase that began last was another one."""
        self._marks[-1][1:] = [phase, micro_step, step]

    def enter_module(self, index: int) -> None:
        """From here on, changes belong to module number `index`."""
        self._places.append((len(self._log), index))

    def close_step(self, module_names: tuple[str, ...]) -> Trace:
        """Return the changes since the last call, and begin a new step."""
        changes = [change if type(change) is int else ~change.number for change in self._log]
        log = np.array(changes, np.int64)
        known = self._old + self.born
        numbers = np.array([entry.number for entry in known], np.int64)
        number = np.where(log < 0, ~log, log)
        row = np.searchsorted(numbers, number)
        sizes = np.array([entry.size for entry in known], np.int64)
        category = np.array([entry.category for entry in known], np.uint8)[row]
        delta = np.where(log < 0, -sizes[row], sizes[row])
        mark = _in_force([start for start, *_ in self._marks], len(log))
        marks = np.array(self._marks, np.int32)[mark]
        place = _in_force([start for start, _ in self._places], len(log))
        module = np.array([index for _, index in self._places], np.int32)[place]
        columns = (delta, number, category, marks[:, 1], marks[:, 2], marks[:, 3], module)
        arrays = (column.astype(kind) for column, kind in zip(columns, ARRAYS.values(), strict=True))
        start = tuple(int(size) for size in self._start)
        trace = Trace(start, *arrays, module_names, self._held)
        self._start = np.array(trace.end, np.int64)
        self._begin_step()
        return trace

    def _begin_step(self) -> None:
        self._emptied = {key: entry for key, entry in self._emptied.items() if entry() is not None}
        self._old = sorted(self.living(), key=_number)
        self.live.clear()  # in place: the mode that sees operations holds it
        self.live.update((id(untyped), entry) for entry in self._old if (untyped := entry()) is not None)
        self.born = []
        self._log.clear()  # in place: the callback of dying storages holds it
        self._marks = [[0, *self._marks[-1][1:]]]
        self._places = [(0, 0)]


_number = attrgetter("number")


def _is_fake_here(device_type: str, is_here: Callable[[Tensor], bool], tensor: Tensor) -> bool:
    return tensor.fake_device.type == device_type if type(tensor) is FakeTensor else is_here(tensor)


def _in_force(starts: list[int], length: int) -> np.ndarray:
    """Return, for each of `length` changes, which of the marks at `starts` was the last before it."""
    return np.searchsorted(np.array(starts), np.arange(length), side="right") - 1


_PLAIN = (Tensor, torch.nn.Parameter)


def plain(tensors: Iterable[Any]) -> Iterable[Tensor]:
    """Yield the tensors that own plain storages: those within sparse tensors and wrapper subclasses too."""
    for tensor in tensors:
        if type(tensor) in _PLAIN and tensor.layout is torch.strided:
            yield tensor  # nearly all of them
        elif not isinstance(tensor, Tensor):
            continue
        elif tensor.layout is torch.sparse_coo:
            yield from (tensor._indices(), tensor._values())
        elif tensor.layout is not torch.strided:
            continue  # mkldnn's opaque layout shows no storage
        elif hasattr(tensor, "__tensor_flatten__"):
            names, _ = tensor.__tensor_flatten__()
            yield from plain(getattr(tensor, name) for name in names)
        else:
            yield tensor
