"""`memlab train`: train one plan, metered."""

import argparse
import sys
from itertools import chain
from pathlib import Path

from memlab.cli.parser import Parser, UsageError
from memlab.cli.plan_flags import add_plan_flags, plan_from
from memlab.cli.report import report
from memlab.plan import Plan
from memlab.run import Run

HELP = "train one plan on real data and measure its memory"


def add_arguments(parser: Parser) -> None:
    """Add the flags of this command."""
    parser.add_argument(
        "--json", metavar="FILE", help="write the Run to FILE; with -, standard output holds the JSON alone"
    )
    add_plan_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Train, then print the table or the JSON."""
    plan = plan_from(options)
    if options.json not in (None, "-"):
        check_writable(Path(options.json))
    result = trained(plan)
    if options.json == "-":
        print(result.to_json())
        return 0
    if options.json is not None:
        Path(options.json).write_text(result.to_json() + "\n", encoding="utf-8")
    print(report(result))
    return 0


def check_writable(path: Path) -> None:
    """Raise UsageError where `path` cannot be written, before anything is trained."""
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise UsageError(
            f"--json={path} cannot be written ({error.strerror}); name a file in a folder that exists."
        ) from None


def trained(plan: Plan) -> Run:
    """Return the Run of `plan`, with a progress bar on standard error; raise OutOfMemory."""
    from tqdm import tqdm

    from memlab.engine.measure import measure_events
    from memlab.engine.out_of_memory import OutOfMemory
    from memlab.events import Failed, Finished, Notice, StepFinished

    events = measure_events(plan)
    first = next(events)  # raises what makes the plan impossible here, before a bar is drawn
    with tqdm(total=plan.steps, unit="step", file=sys.stderr) as bar:
        for event in chain([first], events):
            match event:
                case StepFinished():
                    bar.update()
                    bar.set_postfix(loss=f"{event.loss:.3f}")
                case Notice():
                    bar.write(f"note: {event.message}", file=sys.stderr)
                case Failed():
                    raise OutOfMemory(event.message)
                case Finished():
                    return event.run
    raise AssertionError("a run ends with Finished or Failed")
