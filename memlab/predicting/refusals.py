"""Why a program cannot be recorded: one line that names its source line and says what to do."""

import linecache
import socket
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import PickleError
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

_NOT_THE_PROGRAM = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_READS = (DataDependentOutputException, DynamicOutputShapeException)
_WITHOUT_KERNEL = (UnsupportedOperatorException, UnsupportedFakeTensorException)


class RecordingError(RuntimeError):
    """Says in one sentence what of a program cannot be recorded, where, and the way out."""


class _Download(OSError):
    """Something wanted the network."""


class OtherDevice(RuntimeError):
    """An operation named a device that a recorded program has not been given."""


class SparseGradient(RuntimeError):
    """An embedding would give a sparse gradient, over which torch's shape functions end the process."""


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Turn what a recording cannot do into a RecordingError; other errors pass."""
    try:
        yield
    except RecordingError:
        raise
    except Exception as error:
        said = _said(error)
        if said is None:
            raise
        raise RecordingError(f"{_place(error)} {said}") from error


def _said(error: BaseException) -> str | None:
    """Return what is wrong and what to do, or None for an error of the program's own."""
    for cause in _chain(error):
        text = str(cause)
        if isinstance(cause, _READS):
            return (
                f"reads data of the device ({cause.func}), and a recording has none: leave that line out of the "
                "recorded iteration, or compute it on the host."
            )
        if how := _reads_in_python(cause):
            return (
                f"reads data of the device ({how}), and a recording has none: leave that line out of the "
                "recorded iteration, or compute it on the host."
            )
        if isinstance(cause, SparseGradient):
            return (
                "makes a sparse gradient, whose size depends on data that a recording lacks: set sparse=False to "
                "record the dense one."
            )
        if "PrivateUse1HooksInterface" in text:
            return (
                "makes a random generator of the device, and a recording draws no numbers: leave the generator out, "
                "which changes no size."
            )
        if isinstance(cause, _WITHOUT_KERNEL) or "no fake impl" in text:
            return (
                f"uses an operator that does not say what it returns ({_operator(cause)}): register a fake kernel "
                "for it with torch.library.register_fake."
            )
        if isinstance(cause, _Download):
            return (
                "opens a network connection, and a recording makes none: load the file before, or build the model "
                "from its configuration without weights."
            )
        if isinstance(cause, OtherDevice) or _names_a_gpu(cause):
            return (
                "names a device by itself: use the device that is handed to the set-up, as in "
                "torch.zeros(3, device=device) or torch.autocast(device.type)."
            )
    return None


def _reads_in_python(error: BaseException) -> str | None:
    """Say how Python itself wanted the values of a tensor, where it did."""
    text = str(error)
    if isinstance(error, (RuntimeError, TypeError)) and "numpy" in text:
        return "numpy"
    if isinstance(error, TypeError) and "format" in text and "FakeTensor" in text:
        return "a format string"
    if isinstance(error, (AttributeError, TypeError, PickleError)) and "pickle" in text:
        return "pickle, as torch.save does"
    return None


def _names_a_gpu(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, (AssertionError, RuntimeError)) and (
        "Torch not compiled with CUDA" in text or "No CUDA GPUs" in text or "NVIDIA driver" in text
    )


def _operator(error: BaseException) -> str:
    return str(getattr(error, "func", "") or (error.args[0] if error.args else "unknown")).splitlines()[0]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _place(error: BaseException) -> str:
    """Return file, line and text of the program's innermost line that led to `error`."""
    frames = [
        frame
        for cause in _chain(error)
        for frame in traceback.extract_tb(cause.__traceback__)
        if _is_of_the_program(frame.filename)
    ]
    if not frames:
        return "The program"
    frame = frames[-1]
    line = (linecache.getline(frame.filename, frame.lineno or 0) or frame.line or "").strip()
    return f"{Path(frame.filename).name}:{frame.lineno} `{line}`"


def _is_of_the_program(file: str) -> bool:
    if file.startswith(_NOT_THE_PROGRAM):
        return False
    return not file.startswith(_STANDARD_LIBRARY) or "site-packages" in file


@contextmanager
def own_autocast(device: torch.device) -> Iterator[None]:
    """Refuse autocast for a GPU named by itself: without one torch turns it off, and FP32 would be recorded."""
    begin = torch.autocast.__init__

    def checked(autocast: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type not in (device.type, "cpu"):
            raise OtherDevice(f"autocast on {device_type}")
        begin(autocast, device_type, *args, **kwargs)

    torch.autocast.__init__ = checked  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = begin  # type: ignore[method-assign]


@contextmanager
def no_network() -> Iterator[None]:
    """Refuse connections of this thread: a program that downloads would hang or differ from run to run."""
    thread = threading.get_ident()
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def refuse(wanted: Any) -> Any:
        def asked(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                raise _Download("a recording opens no network connection")
            return wanted(*args, **kwargs)

        return asked

    socket.socket.connect, socket.getaddrinfo = refuse(connect), refuse(resolve)
    try:
        yield
    finally:
        socket.socket.connect, socket.getaddrinfo = connect, resolve
