"""`memlab train`: train one plan, metered."""

import argparse
import os
import sys
from itertools import chain

from memlab.cli.machines import add_machine_flags, machines_command
from memlab.cli.output import add_json_flag, check_writable, put, say
from memlab.cli.parser import Parser
from memlab.cli.plan_flags import add_plan_flags, plan_from
from memlab.cli.report import report
from memlab.plan import Plan
from memlab.run import Run

HELP = "train one plan on real data and measure its memory"


def add_arguments(parser: Parser) -> None:
    """Add the flags of this command."""
    add_json_flag(parser, "the Run")
    add_machine_flags(parser)
    add_plan_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Train, then print the table or the JSON."""
    plan = plan_from(options)
    if (command := machines_command(options, plan)) is not None:
        say(command)
        return 0
    speaks = os.environ.get("RANK", "0") == "0"  # of the ranks that torchrun started, the first
    if speaks:
        check_writable(options.json)
    result = trained(plan, quiet=not speaks)
    if speaks:
        put(options.json, result.to_json(), lambda: report(result))
    return 0


def trained(plan: Plan, *, quiet: bool = False) -> Run:
    """Return the Run of `plan`, with a progress bar on standard error; raise OutOfMemory or RankFailed."""
    from tqdm import tqdm

    from memlab.engine.measure import measure_events
    from memlab.engine.verdict import as_error
    from memlab.events import Failed, Finished, Notice, StepFinished

    events = measure_events(plan)
    first = next(events)  # raises what makes the plan impossible here, before a bar is drawn
    with tqdm(total=plan.steps, unit="step", file=sys.stderr, disable=quiet) as bar:
        for event in chain([first], events):
            match event:
                case StepFinished():
                    bar.update()
                    bar.set_postfix(loss=f"{event.loss:.3f}")
                case Notice():
                    bar.write(f"note: {event.message}", file=sys.stderr)
                case Failed():
                    bar.leave = bar.n > 0  # a plan refused before its first step has no progress to show
                    raise as_error(event)
                case Finished():
                    return event.run
    raise AssertionError("a run ends with Finished or Failed")
