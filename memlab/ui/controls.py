"""All settings of the bench: widgets on one side, a Plan on the other."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from ipywidgets import HTML, HBox, VBox

from memlab.catalog import MODELS, ModelCard
from memlab.memory.cards import CARDS, Card
from memlab.plan import SEVERAL_RANKS, Plan, PlanError
from memlab.ui import fields
from memlab.ui.choices import CHECKPOINTING, DIVISIONS, OPTIMIZERS, PRECISIONS, SYNCS, most_ranks
from memlab.ui.fields import Field
from memlab.ui.html import error_html, product_html
from memlab.units import format_count

FILE = "file:"
OF_SEVERAL_RANKS = ("gradient_sync", "data_parallel")
NOT_OF_THE_PLAN = ("path", "card")
THIS_DEVICE = "this device"
OF_THE_MODEL = ("data", "norm", "sequence_length")
"""What one model allows and another may not."""
SEQUENCE_LENGTHS = (32, 64, 128, 256, 512)


class Controls:
    """One control for each setting that a learner turns; the rest of the plan stays as it was given."""

    def __init__(self, **plan_fields: Any) -> None:
        plan = Plan(**plan_fields)
        self._given = plan_fields
        self._watchers: list[Callable[[], None]] = []
        self._offering = False
        self._fitted: ModelCard | None = None
        self.fields: dict[str, Field] = {field.name: field for field in _build(plan)}
        self.product = HTML()
        self.error = HTML()
        self.problem = ""
        """Why the settings make no plan; "" where they do."""
        self.widget = self._laid_out()
        self._fit_model()
        self._show()
        for field in self.fields.values():
            field.widget.observe(self._changed, "value")

    def plan(self, **instead: Any) -> Plan:
        """Return the plan that is set, with `instead` in its place; raise PlanError where impossible."""
        values = {**self._given, **self._values()}
        if instead.get("model", values["model"]) != values["model"]:
            values = {name: value for name, value in values.items() if name not in OF_THE_MODEL}
        if instead.get("world_size", values["world_size"]) == 1:
            values = {name: value for name, value in values.items() if name not in SEVERAL_RANKS}
        return Plan(**{**values, **instead})

    @property
    def card(self) -> Card | None:
        """The card that is predicted for; None: this device."""
        name = self.fields["card"].value
        return CARDS[name] if name else None

    def name_device(self, device: str) -> None:
        """Say in the list of cards what this device is."""
        self._offering = True
        self.fields["card"].offer(_cards(f"{THIS_DEVICE} ({'CPU' if device == 'cpu' else device})"))
        self._offering = False

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each change of a setting."""
        self._watchers.append(watcher)

    @property
    def names(self) -> dict[str, str]:
        """Accessible name of each control, by its class."""
        return {fields.name_class(field.name): field.label for field in self.fields.values()}

    def _values(self) -> dict[str, Any]:
        values = {name: field.value for name, field in self.fields.items() if name not in NOT_OF_THE_PLAN}
        if values["data"] == FILE:
            values["data"] = FILE + self.fields["path"].value.strip()
        if MODELS[values["model"]].sequence_length is None:
            values["sequence_length"] = None
        return values

    def _changed(self, change: dict[str, Any]) -> None:
        if self._offering:
            return
        if change["owner"] is self.fields["model"].widget:
            self._fit_model()
        if change["owner"] is self.fields["card"].widget:
            self._offer_models()
        self._show()
        for watcher in self._watchers:
            watcher()

    def _offer_models(self) -> None:
        """Offer the large models too where a card is chosen: they can be predicted."""
        field = self.fields["model"]
        self._offering = True  # a list that changes is for a moment at its first entry
        field.offer(_models(field.value, every=self.card is not None))
        self._offering = False

    def _fit_model(self) -> None:
        """Offer only what goes with the model."""
        card, before = MODELS[self.fields["model"].value], self._fitted
        self._fitted = card
        self.fields["data"].offer([(_data_label(name), name) for name in card.data])
        norm = self.fields["norm"]
        was_first = before is not None and norm.value == before.norms[0]
        norm.offer([(name, name) for name in card.norms])
        if was_first:  # nobody chose it
            norm.widget.value = card.norms[0]
        self.fields["sequence_length"].show(card.sequence_length is not None)
        if card.sequence_length is not None:
            self.fields["sequence_length"].offer(_lengths(card, self._given.get("sequence_length")))

    def _show(self) -> None:
        values = self._values()
        self.fields["path"].show(self.fields["data"].value == FILE)
        sizes = ("micro_batch_size", "gradient_accumulation_steps", "world_size")
        self.product.value = product_html(*(values[name] for name in sizes))
        several = most_ranks(self._given.get("device", "auto")) > 1
        self.fields["world_size"].show(several or values["world_size"] > 1)
        for name in OF_SEVERAL_RANKS:
            self.fields[name].show(values["world_size"] > 1)
        try:
            self.plan()
            self.problem = ""
        except PlanError as error:
            self.problem = str(error)
        self._say(self.problem)

    def _say(self, sentence: str) -> None:
        """Show `sentence` beside the control that it names first, or below all where it names none."""
        place = _named_first(sentence, self.fields)
        for field in self.fields.values():
            field.say(sentence if field is place else "")
        self.error.value = error_html("" if place else sentence)

    def _laid_out(self) -> VBox:
        field = self.fields
        source = HBox([field["data"].block, field["sequence_length"].block])
        source.add_class("memlab-pair")
        ranks = HBox([field[name].block for name in OF_SEVERAL_RANKS])
        ranks.add_class("memlab-pair")
        ranks.add_class("memlab-sync")
        box = VBox([
            fields.heading("Model and data"),
            field["model"].block,
            source,
            field["path"].block,
            fields.heading("Batch"),
            field["micro_batch_size"].block,
            field["gradient_accumulation_steps"].block,
            field["world_size"].block,
            self.product,
            ranks,
            *(field[name].block for name in ("precision", "activation_checkpointing", "optimizer", "norm")),
            field["learning_rate"].block,
            field["steps"].block,
            self.error,
            fields.heading("Predict for a card"),
            field["card"].block,
        ])  # fmt: skip
        box.add_class("memlab-controls")
        return box


def _build(plan: Plan) -> list[Field]:
    card = _card(plan)
    path = plan.data.removeprefix(FILE) if plan.data.startswith(FILE) else ""
    checkpointing = _with(CHECKPOINTING, plan.activation_checkpointing)
    return [
        fields.choice("model", "model", plan.model, _models(plan.model)),
        fields.choice(
            "data",
            "data",
            FILE if path else plan.data,
            [(_data_label(name), name) for name in card.data],
        ),
        fields.choice(
            "sequence_length",
            "sequence length in bytes",
            plan.sequence_length or SEQUENCE_LENGTHS[0],
            _lengths(card, plan.sequence_length),
        ),
        fields.text("path", "path of your text file", path, "path of a text file, then Enter"),
        fields.whole_number("micro_batch_size", "micro-batch size", plan.micro_batch_size, 64),
        fields.whole_number(
            "gradient_accumulation_steps", "accumulation steps K", plan.gradient_accumulation_steps, 32
        ),
        fields.whole_number(
            "world_size", "ranks (processes)", plan.world_size, max(2, most_ranks(plan.device))
        ),
        fields.choice("gradient_sync", "gradient sync", plan.gradient_sync, SYNCS),
        fields.choice("data_parallel", "data parallel", plan.data_parallel, DIVISIONS),
        fields.buttons("precision", "Precision", plan.precision, PRECISIONS),
        fields.buttons(
            "activation_checkpointing",
            "Activation checkpointing",
            plan.activation_checkpointing,
            checkpointing,
        ),
        fields.buttons("optimizer", "Optimizer, norm", plan.optimizer, OPTIMIZERS),
        fields.buttons("norm", "norm", plan.norm, [(name, name) for name in card.norms], head=False),
        fields.log_number("learning_rate", "learning rate", plan.learning_rate, -5, 0),
        fields.whole_number("steps", "optimizer steps", plan.steps, 200),
        fields.choice("card", "card to predict for", "", _cards(THIS_DEVICE)),
    ]


def _card(plan: Plan) -> ModelCard:
    if plan.model not in MODELS:
        raise PlanError(
            f"model={plan.model!r} has no controls; choose one of {', '.join(map(repr, MODELS))} for the "
            "bench, and use memlab.measure for a Workload of your own."
        )
    return MODELS[plan.model]


def _with(options: Sequence[tuple[str, str]], value: str) -> list[tuple[str, str]]:
    """Add `value` where the plan was given one that the buttons lack."""
    known = value in [known for _, known in options]
    return [*options] if known else [*options, (value.replace("-", " "), value)]


def _lengths(card: ModelCard, given: int | None) -> list[tuple[str, int]]:
    lengths = {*SEQUENCE_LENGTHS, card.sequence_length, given} - {None}
    return [(f"{length} bytes", length) for length in sorted(lengths)]


def _models(chosen: str, *, every: bool = False) -> list[tuple[str, str]]:
    """Offer the small models, which any machine can train, and the one that the plan names; or all."""
    names = [name for name, card in MODELS.items() if every or card.small or name == chosen]
    return [(_model_label(name), name) for name in names]


def _cards(this_device: str) -> list[tuple[str, str]]:
    return [(this_device, ""), *((card.title, name) for name, card in CARDS.items())]


def _model_label(name: str) -> str:
    card = MODELS[name]
    size = f", {format_count(card.parameters)} weights" if not card.small else ""
    return f"{name}: {card.layers} layers of {card.width}{size}"


def _data_label(name: str) -> str:
    return "a file of yours" if name == FILE else name


def _named_first(sentence: str, fields: dict[str, Field]) -> Field | None:
    """Return the control that `sentence` names first as NAME=..., None where it names none."""
    places = {name: re.search(rf"\b{name}=", sentence) for name in fields}
    found = {name: match.start() for name, match in places.items() if match}
    return fields[min(found, key=found.get)] if found else None
