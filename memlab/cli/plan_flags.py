"""One flag for each field of a Plan, with the field's own words as help."""

import argparse
import ast
import inspect
import re
from collections.abc import Collection
from dataclasses import MISSING, Field, fields
from typing import Any

from memlab.cli.parser import Parser, UsageError
from memlab.plan import Plan
from memlab.plan_rules import CHOICES

SWITCHES = (
    "master_weights",
    "foreach",
    "fused",
    "gradient_as_bucket_view",
    "find_unused_parameters",
    "sync_batch_norm",
)


def add_plan_flags(parser: Parser, without: Collection[str] = ()) -> None:
    """Add a flag for each field of a Plan but those in `without`, and --global-batch-size."""
    group = parser.add_argument_group("plan")
    words = field_docs()
    for field in fields(Plan):
        if field.name in without:
            continue
        switch = (
            {"action": argparse.BooleanOptionalAction}
            if field.name in SWITCHES
            else {"metavar": metavar(field)}
        )
        group.add_argument(
            flag(field.name), dest=field.name, default=MISSING, help=_help(field, words), **switch
        )
    group.add_argument(
        "--global-batch-size",
        default=MISSING,
        metavar="N",
        help="Samples per optimizer step, over all ranks: says --gradient-accumulation-steps by itself.",
    )


def plan_from(options: argparse.Namespace) -> Plan:
    """Return the Plan that the flags describe; raise PlanError where one is impossible."""
    values = given_fields(options)
    if options.global_batch_size is MISSING:
        return Plan(**values)
    if "gradient_accumulation_steps" in values:
        raise UsageError(
            "--global-batch-size and --gradient-accumulation-steps say the same thing twice; leave one out."
        )
    return Plan.for_global_batch(parsed(options.global_batch_size), **values)


def given_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a Plan that the command line names."""
    given = {name: value for name, value in vars(options).items() if value is not MISSING}
    names = [field.name for field in fields(Plan)]
    return {name: given[name] if name in SWITCHES else parsed(given[name]) for name in names if name in given}


def parsed(text: str) -> Any:
    """Return `text` as the number or None that it says, else as it is; Plan's rules judge it.

    >>> parsed("8"), parsed("3e-4"), parsed("none-such"), parsed("None")
    (8, 0.0003, 'none-such', None)
    """
    if text == "None":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def in_flags(sentence: str) -> str:
    """Return `sentence` with the fields that it names written as flags.

    >>> in_flags("micro_batch_size=0 must be at least 1.")
    '--micro-batch-size=0 must be at least 1.'
    >>> in_flags("no multiple of micro_batch_size x world_size = 3 x 1")
    'no multiple of --micro-batch-size x --world-size = 3 x 1'
    >>> in_flags("predict it: memlab.predict(plan, card='t4')")  # Python stays Python
    "predict it: memlab.predict(plan, card='t4')"
    """
    names = [*(field.name for field in fields(Plan)), "global_batch_size", "card"]
    known = "|".join(sorted(names, key=len, reverse=True))
    name_or_call = rf"\w\([^)]*\)|(?<![\w-])({known})(?==| = | x )"
    return re.sub(name_or_call, lambda match: flag(match[1]) if match[1] else match[0], sentence)


def flag(name: str) -> str:
    """Return the flag of the field `name`."""
    return "--" + name.replace("_", "-")


def metavar(field: Field) -> str:
    """Return what stands for the value in the help."""
    if field.name in CHOICES:
        return "|".join(CHOICES[field.name])
    kinds = {"int": "N", "int | None": "N", "float": "X", "float | None": "X"}
    return kinds.get(str(getattr(field.type, "__name__", field.type)), "NAME")


def field_docs() -> dict[str, str]:
    """Return the sentence beneath each field of Plan, by the field's name."""
    body = ast.parse(inspect.getsource(Plan)).body[0].body  # type: ignore[attr-defined]
    pairs = zip(body[:-1], body[1:], strict=True)
    return {
        first.target.id: " ".join(second.value.value.split())
        for first, second in pairs
        if isinstance(first, ast.AnnAssign) and isinstance(second, ast.Expr)
    }


def _help(field: Field, words: dict[str, str]) -> str:
    default = "" if field.default is None else f" [{field.default}]"
    return (words.get(field.name, "") + default).replace("%", "%%")
