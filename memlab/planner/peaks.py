"""A process that predicts: a plan and a card in on standard input, the peak out, one JSON line each.

The heat map asks it, so that a notebook's kernel neither loads torch nor waits.
"""

import json
import sys
from typing import TextIO

from memlab.engine.predict import predict
from memlab.memory.cards import CardError
from memlab.plan import Plan, PlanError


def answer(line: str) -> str:
    """Return the line that answers `line`: the allocator's peak reserve in bytes, or a sentence."""
    asked = json.loads(line)
    try:
        run = predict(Plan.from_dict(asked["plan"]), card=asked["card"])
    except (PlanError, CardError) as error:
        return json.dumps({"refused": str(error)})
    return json.dumps({"peak_reserved": run.peak_reserved})


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer until `questions` end."""
    for line in questions:
        print(answer(line), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
