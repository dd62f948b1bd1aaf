"""Where a command puts its result: a file, standard output as JSON alone, or a table."""

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memlab.cli.parser import Parser, UsageError


def add_json_flag(parser: Parser, what: str) -> None:
    """Add --json, which writes `what`."""
    parser.add_argument(
        "--json",
        metavar="FILE",
        help=f"write {what} to FILE; with -, standard output holds the JSON alone",
    )


def check_writable(file: str | None) -> None:
    """Raise UsageError where the result would find no place, before anything is computed; leave no file behind."""
    if file in (None, "-"):
        _check_standard_output()
        return
    path = Path(file)
    try:
        if path.is_fifo():  # opened and closed, it would tell its reader that this is the end
            return
        existed = path.exists()
        with path.open("ab", buffering=0) as stream:
            _check_device(stream.fileno())
        if not existed:
            path.unlink()
    except OSError as error:
        raise _unwritable(file, error) from None


def put(file: str | None, as_json: str, table: Callable[[], str]) -> None:
    """Print the table, and write the JSON where --json says; raise UsageError where that fails."""
    if file == "-":
        say(as_json)
        return
    failed = None
    if file is not None:
        try:
            Path(file).write_text(as_json + "\n", encoding="utf-8")
        except OSError as error:
            failed = _unwritable(file, error)
    say(table())
    if failed is not None:  # after the table, so that not all is lost
        raise failed


def say(text: str) -> None:
    """Print `text`, characters that standard output's encoding lacks as escapes; raise UsageError where that fails."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise _lost(error) from None


def drop_output() -> None:
    """Let what standard output still holds go nowhere: else Python complains about it as it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def standard_error() -> Iterator[None]:
    """Open standard error on nothing where it was closed: else errors would go to standard output."""
    if sys.stderr is not None:
        yield
        return
    with Path(os.devnull).open("w") as nothing:
        os.set_inheritable(nothing.fileno(), True)  # it takes the number that was free, often 2
        sys.stderr = nothing
        try:
            yield
        finally:
            sys.stderr = None


def _check_standard_output() -> None:
    if sys.stdout is None:
        raise UsageError(
            "standard output is closed, and the result would be lost; write it to a file with --json=FILE."
        )
    with suppress(io.UnsupportedOperation):  # a notebook's has no number
        number = sys.stdout.fileno()
        try:
            _check_device(number)
        except OSError as error:
            raise _lost(error) from None


def _check_device(number: int) -> None:
    """Raise OSError where a device such as /dev/full takes nothing; opening it does not tell."""
    if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
        os.write(number, b"\n")


def _unwritable(file: str, error: OSError) -> UsageError:
    where = "with room left" if error.errno == errno.ENOSPC else "in a folder that exists"
    return UsageError(f"--json={file} cannot be written ({error.strerror}); name a file {where}.")


def _lost(error: OSError) -> UsageError:
    return UsageError(
        f"standard output cannot be written ({error.strerror}); write the result to a file with --json=FILE."
    )
