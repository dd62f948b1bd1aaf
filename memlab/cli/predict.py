"""`memlab predict`: what one plan would need, without training it."""

import argparse

from memlab.cli.output import add_json_flag, check_writable, put
from memlab.cli.parser import Parser
from memlab.cli.plan_flags import add_plan_flags, plan_from
from memlab.cli.prediction_report import prediction_report

HELP = "predict the memory of one plan, on a GPU that need not be here"


def add_arguments(parser: Parser) -> None:
    """Add the flags of this command."""
    parser.add_argument(
        "--card", metavar="NAME", help="the GPU, such as a100-80gb, t4 or colab [the plan's own device]"
    )
    add_json_flag(parser, "the Run")
    add_plan_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Predict, then print the table or the JSON."""
    plan = plan_from(options)
    check_writable(options.json)
    from memlab.engine.predict import predict

    result = predict(plan, card=options.card)
    put(options.json, result.to_json(), lambda: prediction_report(result))
    return 0
