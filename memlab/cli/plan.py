"""`memlab plan`: every plan that fits a card for one global batch, ranked."""

import argparse
import json
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

from memlab.cli.output import add_json_flag, check_writable, put
from memlab.cli.parser import Parser, UsageError
from memlab.cli.plan_flags import add_plan_flags, given_fields, parsed
from memlab.cli.plan_report import plan_report
from memlab.late_bar import LateBar
from memlab.plan import Plan

if TYPE_CHECKING:
    from memlab.planner import Proposal

HELP = "find the plans that fit a card and make one global batch, ranked by speed"
FOLLOWS = "--gradient-accumulation-steps"
QUIET_SECONDS = 3.0
"""A search that takes longer shows its progress."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of this command."""
    parser.add_argument("--card", metavar="NAME", help="the GPU, such as a100-80gb, t4 or colab")
    add_json_flag(parser, "the proposals")
    parser.add_argument(
        "--largest-only",
        action="store_true",
        help="of each precision, checkpointing and optimizer the largest micro-batch alone: fewer predictions",
    )
    add_plan_flags(parser, without=("gradient_accumulation_steps",))
    # Known, to be refused in words of its own.
    parser.add_argument(FOLLOWS, dest="follows", default=MISSING, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Search, then print the table or the JSON."""
    fields = given_fields(options)
    asked = _asked(options, fields)
    check_writable(options.json)
    proposals = _searched(options, asked, fields)
    as_json = {**asked, "proposals": [proposal.to_dict() for proposal in proposals]}
    put(options.json, json.dumps(as_json), lambda: plan_report(proposals))
    return 0


def _asked(options: argparse.Namespace, fields: dict[str, Any]) -> dict[str, Any]:
    """Take the search's own arguments out of the fields; raise UsageError where one is missing."""
    if options.follows is not MISSING:
        raise UsageError(
            f"{FOLLOWS}={options.follows} is what `memlab plan` finds: leave it out; --micro-batch-size settles it, as "
            "--global-batch-size / (--micro-batch-size x --world-size)."
        )
    if options.card is None:
        raise UsageError("--card is missing: name the GPU to plan for, such as --card=a100-80gb.")
    if options.global_batch_size is MISSING:
        raise UsageError(
            "--global-batch-size is missing: say how many samples an optimizer step has, such as --global-batch-size=64."
        )
    return {
        "model": fields.pop("model", Plan.model),
        "card": options.card,
        "global_batch_size": parsed(options.global_batch_size),
        "world_size": fields.pop("world_size", 1),
    }


def _searched(options: argparse.Namespace, asked: dict[str, Any], fields: dict[str, Any]) -> "list[Proposal]":
    """Return the proposals, with a progress bar on standard error where they take long."""
    from memlab.planner import feasible_plans

    with LateBar(QUIET_SECONDS, unit="combination") as bar:
        return feasible_plans(
            **asked,
            largest_only=options.largest_only,
            progress=lambda done, total, plan: bar.draw(done, total, _in_short(plan)),
            **fields,
        )


def _in_short(plan: Plan) -> str:
    return f"{plan.precision}, {plan.activation_checkpointing}, micro-batch {plan.micro_batch_size}"
