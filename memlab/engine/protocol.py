"""What client and worker say to each other, beside the events. No torch."""

import json

from memlab.plan import Plan


class RankFailed(RuntimeError):
    """One of several ranks broke a run off; says which, and why."""


READY = "ready"
"""The worker's first line: it is warm. Every later line is an event."""


def run_command(plan: Plan) -> str:
    """Return the line that starts a run."""
    return json.dumps({"command": "run", "plan": plan.to_dict()}) + "\n"


def command(name: str) -> str:
    """Return the line for "pause", "resume" or "stop"."""
    return json.dumps({"command": name}) + "\n"
