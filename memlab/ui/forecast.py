"""The lines below the list of cards: what is predicted, what is being predicted, and why not."""

from memlab.memory.cards import CARDS, Card
from memlab.ui.foresight import Foresight
from memlab.ui.panel import Panel
from memlab.ui.words import forecast_words, predicting_words, waiting_words

SHOWN_AFTER = 1.0
"""Seconds from which on a prediction that is being made is told."""
CANCELLED_AFTER = 3.0
"""Seconds from which on it can be given up."""


def say_forecast(panel: Panel, foresight: Foresight, card: Card | None) -> None:
    """Write what `foresight` knows; `card` is the one that is set now."""
    seconds = foresight.waiting_seconds
    notes: tuple[str, ...] = ()
    if seconds is not None and seconds >= SHOWN_AFTER:
        words = waiting_words(seconds)
    elif foresight.cancelled:
        words = "The prediction of this setting was cancelled; move a control to ask for one again."
    elif foresight.shown is not None:
        question, prediction = foresight.shown
        words = forecast_words(prediction.run, CARDS[question.card] if question.card else None)
        notes = prediction.run.notices if question.card else ()  # those of this device come with the run
    else:
        words = ""
    panel.say_forecast(predicting_words(card, foresight.device), words, list(notes), foresight.problem)
    panel.offer_cancel(seconds is not None and seconds >= CANCELLED_AFTER)
