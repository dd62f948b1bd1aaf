"""What the heat map lets a learner choose: all of a plan but its micro-batch and sequence length."""

from collections.abc import Callable, Mapping
from typing import Any

from ipywidgets import HBox

from memlab.catalog import MODELS
from memlab.plan import Plan, PlanError
from memlab.ui import fields
from memlab.ui.fields import Field

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32, 16 B a parameter": {"precision": "fp32"},
    "bf16-mixed, 16 B and copies": {"precision": "bf16-mixed"},
    "fp16-mixed, 16 B and copies": {"precision": "fp16-mixed"},
    "bf16-true, 8 B a parameter": {"precision": "bf16-true"},
    "bf16-true, FP32 moments, 12 B": {"precision": "bf16-true", "optimizer_state_precision": "fp32"},
    "bf16-true, FP32 master, 16 B": {"precision": "bf16-true", "master_weights": True},
}
"""With AdamW: weights, gradients, moments and master copy."""
CHECKPOINTING = {
    "no checkpointing": "none",
    "selective checkpointing": "selective",
    "full checkpointing": "full",
}
ADAPTERS = {"all weights train": 0, "LoRA, rank 16": 16}
LOSSES = {"loss of all tokens at once": 1, "loss in 8 chunks": 8}
DECIDED = ("micro_batch_size", "sequence_length", "world_size", "device")
"""Fields that the map itself decides."""
SHORT = {"steps": 2, "gradient_accumulation_steps": 2}
"""From the second of each on everything repeats."""


class Choices:
    """Drop-down lists, and the fields that were given and have none."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Start from `given` fields of a Plan; raise PlanError where they are impossible."""
        texts = [name for name, card in MODELS.items() if card.family == "gpt"]
        self._lists: dict[str, dict[str, Any]] = {
            "model": {name: {"model": name} for name in texts},
            "precision": dict(PRECISIONS),
            "activation_checkpointing": _each("activation_checkpointing", CHECKPOINTING),
            "lora_rank": _each("lora_rank", ADAPTERS),
            "loss_chunks": _each("loss_chunks", LOSSES),
        }
        self._others: dict[str, Any] = dict(SHORT)
        self._fields = {name: _list(name, options) for name, options in self._lists.items()}
        self.widget = HBox([field.block for field in self._fields.values()])
        self.widget.add_class("memlab-choices")
        self.names = {fields.name_class(name): field.label for name, field in self._fields.items()}
        self.set({"model": "gpt2", **given})

    def set(self, given: Mapping[str, Any]) -> None:
        """Choose what `given` says; raise PlanError for a field that the map decides, and for what no Plan takes."""
        for name in given:
            if name in DECIDED:
                raise PlanError(
                    f"{name}={given[name]!r} does not go with a heat map, which decides it: name micro_batch_sizes, "
                    "sequence_lengths and cards."
                )
        Plan(**{**self._fixed(), **given})  # what is impossible raises here
        if given.get("model", self.model) not in self._lists["model"]:
            raise PlanError(f"model={given['model']!r} reads no text, so it has no sequence length to map.")
        rest = dict(given)
        for name, options in self._lists.items():
            self._choose(name, options, rest)
        self._others.update(rest)

    def _choose(self, name: str, options: dict[str, Any], rest: dict[str, Any]) -> None:
        """Take from `rest` what the list `name` can say, and turn the list to it."""
        keys = {key for option in options.values() for key in option}
        wanted = {key: rest.pop(key) for key in keys & rest.keys()}
        if not wanted:
            return
        words = next((words for words, option in options.items() if option == wanted), None)
        if words is None:
            words = ", ".join(f"{key} {value}" for key, value in sorted(wanted.items()))
            options[words] = wanted
            self._fields[name].offer([(known, known) for known in options])
        self._fields[name].widget.value = words

    @property
    def model(self) -> str:
        """The model that is chosen."""
        return self._fixed()["model"]

    @property
    def words(self) -> str:
        """Say what is chosen."""
        return ", ".join(field.value for field in self._fields.values())

    def plan(self, micro_batch_size: int, sequence_length: int) -> Plan:
        """Return the plan of one cell; raise PlanError where it is impossible."""
        return Plan(
            **self._fixed(), micro_batch_size=micro_batch_size, sequence_length=sequence_length, device="cpu"
        )

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a list is turned."""
        for field in self._fields.values():
            field.widget.observe(lambda _change: changed(), "value")

    def _fixed(self) -> dict[str, Any]:
        chosen: dict[str, Any] = dict(self._others)
        for name, field in self._fields.items():
            chosen.update(self._lists[name][field.value])
        return chosen


def _each(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {words: {name: value} for words, value in values.items()}


def _list(name: str, options: Mapping[str, Any]) -> Field:
    label = name.replace("_", " ").replace("lora rank", "trained weights")
    return fields.choice(name, label, next(iter(options)), [(words, words) for words in options])
