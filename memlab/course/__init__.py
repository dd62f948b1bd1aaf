"""The lessons' side of memlab: guesses that are kept, and checks that name misconceptions."""

from memlab.course.checks import Verdict, check
from memlab.course.guesses import Guess, predict

__all__ = ["Guess", "Verdict", "check", "predict"]
