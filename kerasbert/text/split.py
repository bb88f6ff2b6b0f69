"""Lines -> words, for word vectors: by BERT's rule or by a regular expression. Standard library only."""

import re
from collections.abc import Callable

from kerasbert.errors import unknown
from kerasbert.text.base import Cache
from kerasbert.text.normalize import Normalizer

RULES = ("bert", "regex", "blanks")
WORD = re.compile(r"[\w']+", re.ASCII)  # what MediaPipe's delimiter [^\w\']+ leaves


def splitter(rule: str = "bert", lowercase: bool = True) -> Callable[[str], list[str]]:
    """What splits a line into words.

    Args:
        rule: "bert" (blanks and punctuation, ideographs alone; a WordPiece of whole words reads such vectors), "regex"
            (runs of ASCII letters, digits, _ and ', as MediaPipe's tokenizer finds them) or "blanks" (text that is split).
        lowercase: bool, lower-case the words; "bert" drops accents too.

    Raises:
        InputError: no such rule.

    >>> splitter("bert")("Don't stop: café"), splitter("regex", False)("Don't stop: café")
    (['don', "'", 't', 'stop', ':', 'cafe'], ["Don't", 'stop', 'caf'])
    """
    if rule not in RULES:
        raise unknown("rule of words", rule, RULES, ", ".join(RULES))
    if rule == "bert":
        normalizer = Normalizer(lowercase, lowercase, True)
        chunks = Cache(lambda chunk: tuple(word for word, _ in normalizer.words(chunk)))
        return lambda line: [word for chunk in line.split(" ") for word in chunks[chunk]]
    split = WORD.findall if rule == "regex" else str.split
    return (lambda line: split(line.lower())) if lowercase else split
