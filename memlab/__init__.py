"""See where GPU memory goes when you train with PyTorch. This file is the table of contents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memlab.interrupts import kept

if TYPE_CHECKING:
    from memlab.engine.measure import measure
    from memlab.engine.predict import predict
    from memlab.engine.train import train
    from memlab.memory.meter import Meter
    from memlab.plan import Plan, PlanError
    from memlab.planner import feasible_plans
    from memlab.predicting.recording import record
    from memlab.predicting.replaying import replay
    from memlab.run import Run
    from memlab.trace import Breakdown, Trace
    from memlab.ui.bench import Bench
    from memlab.ui.comparison import compare
    from memlab.ui.heat_map import HeatMap
    from memlab.workload import Workload

__version__ = "0.1.0"

# Looked up on first use: importing memlab loads neither torch nor a widget.
_PLACES = {
    "Plan": "memlab.plan",
    "PlanError": "memlab.plan",
    "Run": "memlab.run",
    "Breakdown": "memlab.trace",
    "Trace": "memlab.trace",
    "Workload": "memlab.workload",
    "train": "memlab.engine.train",
    "Meter": "memlab.memory.meter",
    "measure": "memlab.engine.measure",
    "predict": "memlab.engine.predict",
    "record": "memlab.predicting.recording",
    "replay": "memlab.predicting.replaying",
    "feasible_plans": "memlab.planner",
    "compare": "memlab.ui.comparison",
    "Bench": "memlab.ui.bench",
    "HeatMap": "memlab.ui.heat_map",
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'memlab' has no attribute {name!r}")
    with kept():  # torch, half imported, could not be imported again
        module = import_module(_PLACES[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
