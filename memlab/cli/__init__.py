"""The command `memlab`. Exit 0; 2 with one line that says what is wrong; 130 after Ctrl-C."""

import sys
from collections.abc import Sequence

import memlab
from memlab.cli import doctor, lab, plan, predict, train
from memlab.cli.output import drop_output, standard_error
from memlab.cli.parser import Parser, UsageError
from memlab.cli.plan_flags import in_flags
from memlab.engine.protocol import RankFailed
from memlab.memory.cards import CardError
from memlab.plan import PlanError

COMMANDS = {"train": train, "predict": predict, "plan": plan, "doctor": doctor, "lab": lab}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments` (default: those of this process) and return its exit status."""
    with standard_error():
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        options = command_parser().parse(arguments)
        return COMMANDS[options.command].run(options)
    except (UsageError, PlanError, CardError, MemoryError, RankFailed) as error:
        print(f"memlab: {in_flags(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of standard output, such as `head`, has seen enough
        drop_output()
        return 0
    except KeyboardInterrupt:
        print("memlab: interrupted.", file=sys.stderr)
        return 130


def command_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="memlab", description="See where memory goes when you train with PyTorch.")
    parser.add_argument("--version", action="version", version=f"memlab {memlab.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    return parser
