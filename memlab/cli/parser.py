"""An argument parser whose errors are one sentence with a way out."""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from typing_extensions import override


class UsageError(Exception):
    """Says in one sentence what is wrong with a command line, and what would be right."""


class Parser(argparse.ArgumentParser):
    """argparse, with errors raised as UsageError and no guessing of shortened flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the options in `arguments`; raise UsageError for what nothing knows."""
        options, unknown = self.parse_known_args(arguments)
        if options.command is None:
            raise UsageError(f"a command is missing: {self._commands()}.")
        if unknown:
            chosen = self._chosen(options.command)
            raise UsageError(chosen.unknown_sentence(unknown[0]))
        return options

    def unknown_sentence(self, word: str) -> str:
        """Say that `word` is no argument of this command, and which one is close."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return f"{word!r} is one word too many for `{self.prog}`; `{self.prog} --help` lists its flags."
        close = difflib.get_close_matches(name, self._option_string_actions, 1)
        meant = f"did you mean {close[0]}?" if close else f"`{self.prog} --help` lists them all."
        return f"{name} is no flag of `{self.prog}`; {meant}"

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_plain(message)}; `{self.prog} --help` shows what is possible.")

    def _commands(self) -> str:
        assert self._subparsers is not None
        *first, last = (f"`{self.prog} {name}`" for name in self._subparsers._group_actions[0].choices)
        return f"{', '.join(first)} or {last}"

    def _chosen(self, command: str) -> "Parser":
        assert self._subparsers is not None
        return self._subparsers._group_actions[0].choices[command]  # type: ignore[index,return-value]


def _plain(message: str) -> str:
    """Return argparse's `message` as the middle of a sentence of ours.

    >>> _plain("argument --steps: expected one argument")
    '--steps needs one value'
    """
    text = message.removeprefix("argument ").replace(": expected one argument", " needs one value")
    return text.replace("COMMAND: invalid choice: ", "no such command: ").rstrip(".")
