"""Train a plan without metering it, on as many ranks as it says."""

from collections.abc import Iterator
from contextlib import closing

from memlab.engine.control import Control
from memlab.engine.launch import launched
from memlab.engine.verdict import as_error
from memlab.events import Failed, Finished, Notice, Started, StepCommunication, StepFinished, StepMemory
from memlab.plan import Plan
from memlab.training import loop
from memlab.training.metering import NULL_METER, StepMeter
from memlab.training.ranks import place
from memlab.workload import Workload


def train(
    plan: Plan, workload: Workload | None = None, *, meter: StepMeter = NULL_METER
) -> Iterator[Started | Notice | StepFinished | StepCommunication]:
    """Train `plan` and yield what happens: Started first, then a StepFinished for each optimizer step.

    `workload` goes with model="custom" alone. One rank trains in this process, and torch's random state
    is as the program left it at each event. Several are processes of their own, started by torchrun, which
    `meter` does not see: rank 0's events, and every rank's StepCommunication. Raises RankFailed where one breaks.
    """
    if plan.world_size == 1 or place() is not None:
        yield from loop.train(plan, workload, meter=meter)
        return
    with closing(launched(plan, workload, Control())) as events:
        for event in events:
            match event:
                case Failed():
                    raise as_error(event)
                case Finished() | StepMemory():
                    pass  # `measure` asks for them
                case _:
                    yield event
