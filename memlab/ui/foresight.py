"""What the bench expects of the setting that is shown, and of its runs: asked of another process."""

import threading
import weakref
from dataclasses import replace
from typing import ClassVar

from memlab.engine.predictor import Prediction, Predictor, Question, Refusal
from memlab.events import StepMemory
from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import CARDS, Card
from memlab.plan import Plan
from memlab.ui.ghost import Ghost
from memlab.ui.ledger import Ledger
from memlab.ui.records import Record, describe


class Foresight:
    """Keeps the last good prediction while the next is made. No widget here, and nothing that waits."""

    _all: ClassVar[weakref.WeakSet["Foresight"]] = weakref.WeakSet()
    _turn: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        self.predictor = Predictor()
        self.question: Question | None = None
        """About the setting that is shown."""
        self.shown: tuple[Question, Prediction] | None = None
        """The last good prediction, and what it answers."""
        self.problem = ""
        """Why there is no prediction of what is set now."""
        self.device = ""
        """What this device is, once something was predicted for it."""
        self._begun = False
        self._cancelled: Question | None = None
        Foresight._all.add(self)

    def begin(self) -> bool:
        """Start to predict, and end the processes that wait for other benches; tell whether there is news."""
        with Foresight._turn:
            for other in list(Foresight._all):
                if other is not self:
                    other.predictor.close()
            self._begun = True
            self.predictor.start()
        return self.question is not None and self.wish(self.question)

    def wish(self, question: Question) -> bool:
        """Have `question` answered in the place of what was asked before; tell whether it is answered."""
        self.question, self._cancelled, self.problem = question, None, ""
        if self._begun:
            self.predictor.ask(question, "shown")
        return self.take()

    def expect(self, plan: Plan) -> None:
        """Have predicted what a run that begins will take on this device."""
        if self._begun:
            self.predictor.ask(Question(plan), "run")

    def take(self) -> bool:
        """Take in an answer about the setting that is shown; tell whether anything is new."""
        answer = self.predictor.answer(self.question) if self.question is not None else None
        before = (self.shown, self.problem)
        match answer:
            case Refusal():
                self.problem = answer.sentence
            case Prediction():
                self.problem = ""
                if self.shown is None or self.shown[1] is not answer:
                    self.shown = (self.question, answer)
                    if self.question.card is None:
                        self.device = answer.run.environment["device"]
        return (self.shown, self.problem) != before

    def tell(self, ledger: Ledger) -> bool:
        """Give the shown runs of `ledger` what was predicted for them; tell whether any got it now."""
        told = False
        for record in ledger.shown:
            answer = self.predictor.answer(Question(record.plan)) if record.prediction is None else None
            if isinstance(answer, Prediction):
                record.prediction, told = answer.run, True
        return told

    @property
    def waiting_seconds(self) -> float | None:
        """For how long the setting that is shown has been waiting for its prediction; None: it is not."""
        return None if self.question is None else self.predictor.waits_for(self.question)

    def cancel(self) -> None:
        """Give up the prediction that is being made; the last good one stays."""
        self._cancelled = self.question
        self.predictor.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the prediction of what is set now was given up."""
        return self._cancelled is not None and self._cancelled == self.question

    def close(self) -> None:
        """End the process; what was predicted stays."""
        self._begun = False
        self.predictor.close()

    def ghost(self, record: Record | None, memory: StepMemory | None) -> Ghost | None:
        """Return what is to be laid over `memory`, the step of `record` that is drawn; None: nothing."""
        if self.shown is None:
            return None
        question, prediction = self.shown
        card = CARDS[question.card] if question.card is not None else None
        of_this_run = card is None and record is not None and alike(record.plan, question.plan)
        last = len(prediction.memories) - 1
        return Ghost(
            memory=prediction.memory(memory.step if memory is not None and of_this_run else last),
            name=describe(question.plan) + (f" on {card.title}" if card is not None else ""),
            of_this_run=of_this_run,
            budget_bytes=budget_bytes(card),
            card=card.title if card is not None else "",
        )


def budget_bytes(card: Card | None) -> int | None:
    """Return what `card` leaves for tensors beside the smallest context; None without a card."""
    return None if card is None else card.memory_bytes - beyond_allocator(card)["cuda_context_low"]


def alike(one: Plan, other: Plan) -> bool:
    """Tell whether two plans take the same memory: they differ at most in what does not change it."""
    same = {"steps": 2, "learning_rate": 1e-3, "seed": 0}
    return replace(one, **same) == replace(other, **same)
