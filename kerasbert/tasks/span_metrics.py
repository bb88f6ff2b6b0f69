"""How answers are compared with those of a file, by the rules of each benchmark's own script. Standard library and numpy."""

import functools
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kerasbert.errors import unknown
from kerasbert.tasks.metrics import between

_HAN = "[\u4e00-\u9fa5]"
_WORD = r"[^\W\u4e00-\u9fa5]"
_CMRC_MARKS = frozenset(
    "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
)  # the script's, its "……" is no single character
_CMRC_PIECE = re.compile(rf"{_HAN}|{_WORD}+(?:[.,'’]{_WORD}+)*|[^\w\s]")
_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": r"\sال^|ال",
    "hi": "",
    "zh": "",
}
Score = Callable[[str, Sequence[str]], tuple[float, float]]


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, one blank between words (SQuAD's scripts).

    >>> normalized(" The  U.S. has an 'A' ")
    'us has'
    """
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(_ARTICLES["en"], " ", text).split())


def squad(answer: str, gold: str) -> tuple[float, float]:
    """Exact match and F1 of SQuAD 1.1's script."""
    return _scored(normalized(answer), normalized(gold))


def squad2(answer: str, golds: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of SQuAD 2.0's script: golds without words do not count, no answer equals no answer."""
    found, wanted = normalized(answer), list(filter(None, map(normalized, golds)))
    if not wanted or not found:
        right = float(not wanted and not found)
        return right, right
    return _best([_scored(found, gold) for gold in wanted])


def mlqa(answer: str, gold: str, language: str) -> tuple[float, float]:
    """Exact match and F1 of MLQA's script: all Unicode punctuation, articles by language, Chinese characters as words."""
    return _scored(_mlqa_normalized(answer, language), _mlqa_normalized(gold, language))


def cmrc(answer: str, gold: str) -> tuple[float, float]:
    """Exact match and F1 of CMRC 2018's script: F1 is of the longest common run of characters and words.

    Differs: words of other alphabets are split by one expression; the script's nltk.word_tokenize also splits "don't".

    >>> cmrc("光荣和ω-force。", "光荣和ω-Force"), cmrc("光荣", "光荣和")
    ((1.0, 1.0), (0.0, 0.8))
    """
    one, other = ("".join(c for c in text.lower().strip() if c not in _CMRC_MARKS) for text in (answer, gold))
    pieces = _CMRC_PIECE.findall(one), _CMRC_PIECE.findall(other)
    return float(one == other), _f1(_longest_run(*pieces), *map(len, pieces))


def _best(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def _by_gold(score: Callable[[str, str], tuple[float, float]]) -> Score:
    """Of each gold, and the best of them; where there is none only an answer without words is right."""

    def scored(answer: str, golds: Sequence[str]) -> tuple[float, float]:
        return _best([score(answer, gold) for gold in golds]) if golds else squad2(answer, ())

    return scored


RULES: dict[str, Score] = {
    "squad": _by_gold(squad),
    "squad2": squad2,
    "cmrc": _by_gold(cmrc),
    **{f"mlqa/{language}": _by_gold(functools.partial(mlqa, language=language)) for language in _ARTICLES},
}
"""Name of the rules -> (answer, golds) -> (exact match, F1), each by the gold that is nearest."""


def compared(answers: Sequence[str], golds: Sequence[Sequence[str]], rules: str = "squad") -> np.ndarray:
    """Exact match and F1 of each answer: float64 [n, 2].

    Args:
        golds: of each question, none where it has no answer. rules: a name in RULES.

    Raises:
        InputError: no such rules.
    """
    if rules not in RULES:
        raise unknown("rules", rules, list(RULES), ", ".join(RULES))
    scored = [RULES[rules](answer, texts) for answer, texts in zip(answers, golds, strict=True)]
    return np.array(scored, "float64").reshape(-1, 2)


def best_threshold(scores: npt.ArrayLike, margins: npt.ArrayLike, has_answer: npt.ArrayLike) -> float:
    """The threshold above which the empty answer wins that gives the best mean (SQuAD 2.0's find_best_thresh).

    Args:
        scores: of each question's best answer that is not empty. margins: by how much the empty answer scores better.
        has_answer: whether the question has an answer.
    """
    order = np.argsort(margins, kind="stable")
    least, answerable = np.asarray(margins, "float64")[order], np.asarray(has_answer, bool)[order]
    # with each threshold the questions up to there get their answer, where there is none that costs a point
    gains = np.cumsum(np.where(answerable, np.asarray(scores, "float64")[order], -1.0))
    # questions with the same margin are answered together
    last = np.append(least[1:] != least[:-1], True) if len(least) else np.zeros(0, bool)
    gains, least = gains[last], least[last]
    if not len(gains):
        return 0.0
    best = int(gains.argmax())
    if gains[best] <= 0:
        return float(least[0] - 1.0)  # nothing is answered
    following = least[best + 1] if best + 1 < len(least) else least[best] + 1.0
    return between(float(least[best]), float(following), otherwise=float(least[best]))  # more than it, not as much


def _scored(one: str, other: str) -> tuple[float, float]:
    """Exact match and F1 of words, of two normalised texts."""
    words = one.split(), other.split()
    shared = sum((Counter(words[0]) & Counter(words[1])).values())
    return float(one == other), _f1(shared, *map(len, words))


def _f1(shared: int, answer: int, gold: int) -> float:
    if not shared:
        return 0.0
    precision, recall = shared / answer, shared / gold
    return 2 * precision * recall / (precision + recall)


def _longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest run of pieces that both have."""
    best, before = 0, [0] * (len(other) + 1)
    for piece in one:
        now = [0] * (len(other) + 1)
        for j, same in enumerate(other):
            if piece == same:
                now[j + 1] = before[j] + 1
        best, before = max(best, *now), now
    return best


@functools.cache
def _punctuation() -> frozenset[str]:
    marks = {chr(i) for i in range(sys.maxunicode) if unicodedata.category(chr(i)).startswith("P")}
    return frozenset(marks.union(string.punctuation))


def _mlqa_normalized(text: str, language: str) -> str:
    text = "".join(c for c in text.lower() if c not in _punctuation())
    if _ARTICLES[language]:
        text = re.sub(_ARTICLES[language], " ", text)
    if language == "zh":
        text = re.sub(f"({_HAN})", r" \1 ", text)
    return " ".join(text.split())
