"""Units that records bring along: which tokens belong to one word, phrase or entity of the raw text.

Chinese whole words (Cui et al., 2021, section 3.1) and ERNIE's phrases and entities (Sun et al., 2019, section 3.2) cannot be
told from the pieces: a lexicon or a segmenter finds them in the text, as spans of characters. A token that goes on with the
unit of the token before it is marked: two bits a token, one for each of LEVELS. The bits travel in the high bits of the ids
up to the shard, where a row gets them as the feature `joins`, eight tokens to a number. Another bit says where a segment
begins, which is a sentence then: the feature `sentence_borders`, sixteen tokens to a number.
"""

import dataclasses
import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kerasbert import registry
from kerasbert.errors import InputError, nearest
from kerasbert.text.lexicon import Lexicon, Spans

LEVELS = ("words", "entities")  # bit 0 (words or phrases) and bit 1
BITS = 28  # of an id; the marks stand above them
GROUP = 8  # tokens to a number of a row, two bits each
BORDERS = "sentence_borders"
BORDER = len(LEVELS)  # its bit, the third
BORDER_GROUP = 16  # tokens to a number of a row, one bit each


@dataclasses.dataclass(frozen=True)
class Segmenter:
    """What finds the units of one level.

    Args:
        name: str, as the manifest says it.
        sha256: of the lexicon, or of the file that holds the function.
        spans: text -> [(start, end)], characters; they ascend and do not overlap.
    """

    name: str
    sha256: str
    spans: Callable[[str], Spans]

    def __call__(self, text: str) -> np.ndarray:
        """Checked spans of a text: int64 [U, 2]."""
        found = np.asarray(list(self.spans(text)), np.int64).reshape(-1, 2)
        flat = found.ravel()
        if len(flat) and (flat[0] < 0 or flat[-1] > len(text) or (np.diff(flat) < 0).any()):
            raise InputError(
                f"segmenter {self.name} gave {found.tolist()[:8]} for a text of {len(text)} characters, expected "
                "(start, end) pairs that ascend and do not overlap"
            )
        return found


def find(source: str) -> Segmenter:
    """The segmenter of a SOURCE: a lexicon file, the name a plug-in registered, or `module:function`.

    Raises:
        InputError: none of these.
    """
    path = Path(source)
    if path.is_file():
        return Segmenter(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), Lexicon.read(path))
    known = registry.SEGMENTERS
    if source in known:
        return Segmenter(source, _source_digest(known[source]), known[source])
    module, colon, name = source.partition(":")
    if not colon:
        meant = nearest(source, known)
        near = f" Nearest registered: {meant!r}." if meant else ""
        raise InputError(f"no lexicon file or segmenter {source!r}.{near} Expected a file, or MODULE:FUNCTION")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import the segmenter {source}: {error}") from error
    return Segmenter(source, _source_digest(function), function)


def _source_digest(function: Callable[..., object]) -> str:
    """sha256 of the file that holds a function; of its name where there is none."""
    try:
        content = Path(inspect.getsourcefile(function) or "").read_bytes()
    except (TypeError, OSError):
        content = getattr(function, "__qualname__", repr(type(function))).encode()
    return hashlib.sha256(content).hexdigest()


def mark(
    ids: np.ndarray, counts: np.ndarray, starts: np.ndarray, texts: Sequence[str], units: Sequence[Segmenter | None]
) -> np.ndarray:
    """Ids with a bit set where a token goes on with the unit of the one before it.

    Args:
        ids: int32 [T], of all texts.
        counts: int [G], tokens of each.
        starts: int [T], each token's first character.
        texts: G strings.
        units: of each of LEVELS, or None.
    """
    offsets = np.cumsum([0, *(len(text) + 1 for text in texts)], dtype=np.int64)
    starts = starts + np.repeat(offsets[:-1], counts)  # characters of all texts counted through
    for level, segmenter in enumerate(units):
        if segmenter is None:
            continue
        spans = np.concatenate(
            [np.zeros((0, 2), np.int64), *(segmenter(text) + offset for text, offset in zip(texts, offsets))]
        )
        if len(spans):
            unit = np.searchsorted(spans[:, 0], starts, side="right") - 1
            inside = (unit >= 0) & (starts < spans[unit, 1])
            goes_on = inside[1:] & inside[:-1] & (unit[1:] == unit[:-1])
            ids[1:] |= goes_on.astype(ids.dtype) << (BITS + level)
    return ids


def mark_borders(ids: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Ids with a bit set where a segment begins; bounds int64 [G + 1]."""
    ids = ids.astype(np.int32)  # a copy
    ids[bounds[:-1]] |= 1 << (BITS + BORDER)
    return ids


def take_off(rows: np.ndarray, length: int, joined: bool, borders: bool) -> np.ndarray:
    """Rendered rows [N, C] whose first `length` columns are marked ids -> the rows without marks, and what marks say behind.

    Args:
        joined: bool, whether `joins` [N, ceil(S/8)] follow.
        borders: bool, whether `sentence_borders` [N, ceil(S/16)] follow.
    """
    marks = rows[:, :length].astype(np.int64) >> BITS
    rows[:, :length] &= (1 << BITS) - 1
    parts = [rows]
    if joined:
        parts.append(_grouped(marks & (1 << BORDER) - 1, GROUP, len(LEVELS)))
    if borders:
        parts.append(_grouped(marks >> BORDER, BORDER_GROUP, 1))
    return np.concatenate(parts, axis=1)


def _grouped(marks: np.ndarray, group: int, bits: int) -> np.ndarray:
    """[N, S] -> [N, ceil(S / group)], so many of so many bits to a number."""
    marks = np.pad(marks, [(0, 0), (0, -marks.shape[1] % group)])
    return (marks.reshape(len(marks), -1, group) << bits * np.arange(group)).sum(-1)


def columns(length: int, joined: bool, borders: bool) -> dict[str, list[int]]:
    """What these features of a row take: name -> shape."""
    found = {"joins": [-(-length // GROUP)]} if joined else {}
    return found | ({BORDERS: [-(-length // BORDER_GROUP)]} if borders else {})
