"""Real data that needs no download. Samples are numbered from 0 and always the same.

Batches are made by numpy, on the host: no tensor operation runs that a meter would count.
"""

from memlab.data.digits import Digits, EnlargedDigits
from memlab.data.pairs import TextPairs
from memlab.data.samples import Batch, Samples
from memlab.data.text import Paragraphs, TextWindows, manual, read_text

__all__ = [
    "Batch",
    "Digits",
    "EnlargedDigits",
    "Paragraphs",
    "Samples",
    "TextPairs",
    "TextWindows",
    "manual",
    "read_text",
]
