"""Where a command puts its result: a file, standard output as JSON alone, or a table."""

from collections.abc import Callable
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
    """Raise UsageError where --json names a file that cannot be written, before anything is computed."""
    if file in (None, "-"):
        return
    try:
        with Path(file).open("a"):
            pass
    except OSError as error:
        raise UsageError(
            f"--json={file} cannot be written ({error.strerror}); name a file in a folder that exists."
        ) from None


def put(file: str | None, as_json: str, table: Callable[[], str]) -> None:
    """Print the table, and write the JSON where --json says."""
    if file == "-":
        print(as_json)
        return
    if file is not None:
        Path(file).write_text(as_json + "\n", encoding="utf-8")
    print(table())
