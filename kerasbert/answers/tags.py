"""A label for every word, and the entities that the labels make: windows, words' first tokens, decoding.

Words are joined by blanks and tokenized as one text. A token belongs to the first word of which it covers a character that
is no blank; the first token of a word answers for it (Devlin et al., 2019, section 5.3).
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from kerasbert import inputs
from kerasbert.answers import crf, nearness
from kerasbert.answers.base import Answer, Kind, Outputs, Parts, truncated_json
from kerasbert.answers.schemes import OUTSIDE, entities_of, has_spans
from kerasbert.errors import InputError
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer
    from kerasbert.text.template import Item

NO_ENTITIES = "(no entities)"
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Entity:
    """A typed span: `text` is the characters `start` to `end` (exclusive) of the text; `score` that of its least sure word."""

    label: str
    start: int
    end: int
    text: str
    score: float = 0.0


@dataclasses.dataclass(frozen=True)
class Tags(Answer):
    """A label for every word.

    Attributes:
        words, labels: of each word; `O` for a word that no token stands for.
        starts, ends: the characters where each begins and ends, in the text, or in the words joined by blanks.
        entities: spans of labels in any scheme by the rules of conlleval, which mend sequences that are not legal.
        scores: probability of each label, under a CRF that of the word alone over all sequences (its marginal); 0 for a
            word that no token stands for.
        truncated: bool; never, for a long text is read in windows.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    entities: tuple[Entity, ...]
    scores: tuple[float, ...]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        lists = {name: list(getattr(self, name)) for name in ("words", "labels", "starts", "ends", "scores")}
        return lists | {"entities": [dataclasses.asdict(each) for each in self.entities]} | truncated_json(self)


class Sentence(NamedTuple):
    """An input: its words and where they are."""

    text: str
    words: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class About(NamedTuple):
    """What decoding needs of a row: the numbers of the words that it answers for, int [n], and their tokens in it, int [n]."""

    words: np.ndarray
    tokens: np.ndarray
    sentence: Sentence


class TagsKind(Kind):
    """Probabilities [S, C] of the labels at each token; under a CRF its emissions, logits [S, C].

    Of a tokenizer with a knowledge graph each window is a sentence tree. No word may be cut off, so that a quarter of each
    window's room is kept for branches. Their tokens are no words and have no labels.

    Under a CRF the emissions of an input's words are joined over its windows, and one best path goes through them all; words
    that no token stands for take no part.

    Options:
        stride: tokens from the beginning of a window to that of the next, 0 for half a window.
        crf: bool, whether the labels of neighbours depend on each other (`layers.crf`).
        legal: bool, under a CRF no answer breaks the scheme of the training tags.
        scheme: str, of `answers.schemes`; that which the training tags are in, where it is not given.
        transitions: the CRF's table (`answers.crf`); the model's weights say it (`TaskKind.settled`).
        lstm: int, units of each direction of bidirectional LSTMs between the vectors and the label scores
            (`layers.bidirectional`), 0 for none.
        lstm_layers: int, how many of them stand upon each other.
    """

    name, agrees_by = "tags", "words' labels"
    per_token = labelled = annotated = True
    columns = ("words", "labels", "entities")
    lists = (0,)
    learned = ("lstm", "lstm_layers")
    defaults = MappingProxyType(
        {"stride": 0, "crf": False, "legal": False, "scheme": "", "transitions": (), "lstm": 0, "lstm_layers": 1}
    )

    def ranking(self, top: int | None, threshold: float | None) -> Self:
        if top is not None:
            raise InputError(f"top is {top!r} and tags rank nothing: give a threshold, for entities, or leave it out")
        return super().ranking(top, threshold)

    def limited(self, answer: Tags, top: int | None, threshold: float | None) -> Tags:
        """Entities of which no word is less probable."""
        least = threshold or 0.0
        kept = tuple(
            each
            for each in answer.entities
            if all(
                score >= least
                for start, end, score in zip(answer.starts, answer.ends, answer.scores)
                if start < each.end and each.start < end
            )
        )
        return dataclasses.replace(answer, entities=kept)

    @property
    def output(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # it depends on an option
        return "emissions" if self.options["crf"] else "probabilities"

    def table(self, labels: int) -> np.ndarray | None:
        """The CRF's table, float64 [L + 2, L]; None without one.

        Raises:
            InputError: a table of another number of labels.
        """
        if not self.options["crf"]:
            return None
        table = np.array(self.options["transitions"], "float64")
        if table.shape != (labels + 2, labels):
            raise InputError(f"transitions of shape {table.shape}, expected {(labels + 2, labels)}: {labels} labels")
        return table

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return outputs if self.options["crf"] else super().probabilities(outputs)

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        """Windows of a text: a raw text, or a list of its words."""
        sentence, joined = sentence_of(tokenizer, parts[0])
        given = None if isinstance(parts[0], str | bytes) else tokenizer.of_words(*joined[1:])
        tokens = given or tokenizer.tokenize(joined.text)
        first = first_tokens(joined, tokens.starts, tokens.ends)
        lead, room = room_of(tokenizer.single, length, trees=tokenizer.knowledge is not None)
        count, stride = len(tokens.ids), self.options["stride"]
        begins, ends = windows(count, room, stride)
        words = np.flatnonzero(first >= 0)
        answering = window_of(first[words], count, room, stride)
        words = words[np.argsort(answering, kind="stable")]
        parted = np.split(words, np.cumsum(np.bincount(answering, minlength=len(begins)))[:-1])
        grow = None
        if tokenizer.knowledge is not None:
            raw = (sentence.text, sentence.starts) if isinstance(parts[0], str | bytes) else None
            grow = tokenizer.knowledge.windows(sentence.words, raw, tokens.starts, length)
        rows = []
        for begin, end, own in zip(begins.tolist(), ends.tolist(), parted):
            about = About(own, first[own] - begin + lead, sentence)
            token_ids, segment_ids, _ = tokenizer.join(tokens.ids[begin:end])
            if grow is None:
                rows.append(inputs.row(token_ids, segment_ids, about=about))
                continue
            row, places = grow(token_ids, segment_ids, lead, begin, end)
            row.about = about._replace(tokens=np.array(places)[about.tokens])
            rows.append(row)
        return rows

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Tags:
        sentence = rows[0].about.sentence
        numbers, scores = best_labels(rows, outputs, self.table(len(labels)))
        best: list[int] = numbers.tolist()
        names = tuple(labels[number] if number >= 0 else OUTSIDE for number in best)
        spans = entities_of(names) if has_spans(labels) else []
        text, starts, ends = sentence.text, sentence.starts, sentence.ends
        shares = tuple(scores.tolist())
        entities = [
            Entity(kind, starts[a], ends[b], text[starts[a] : ends[b]], min(shares[a : b + 1])) for kind, a, b in spans
        ]
        return Tags(sentence.words, names, starts, ends, tuple(entities), shares)

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        """Of the words alone, at their first tokens; without `rows` of all tokens. Under a CRF of each word's marginal."""
        if not len(rows):
            return super().signal(outputs)
        owners = np.arange(len(rows)) if owners is None else np.asarray(owners)
        texts = [at.tolist() for at in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(owners)) + 1)]
        words = [joined([rows[i] for i in at], [outputs[i] for i in at])[1] for at in texts]
        table = self.table(words[0].shape[-1]) if self.options["crf"] else None
        if table is not None:
            words = [crf.marginals(each.astype("float64"), table) for each in words if len(each)] or words[:1]
        return nearness.logs(np.concatenate(words))

    def text(self, answer: Json) -> str:
        """The entities with their labels; of labels that make none, such as parts of speech, the labels."""
        if found := answer["entities"]:
            return "; ".join(f"{_flat(each['text'])} ({each['label']})" for each in found)
        return NO_ENTITIES if {*answer["labels"]} <= {OUTSIDE} else " ".join(answer["labels"])

    def lines(self, answer: Json) -> list[str]:
        """Text, label and score of each entity, with tabs between them; of labels that make none, of each word."""
        found = [(each["text"], each["label"], each["score"]) for each in answer["entities"]]
        if not found and not {*answer["labels"]} <= {OUTSIDE}:
            found = list(zip(answer["words"], answer["labels"], answer["scores"]))
        return [f"{_flat(text)}\t{label}\t{score:.4f}" for text, label, score in found] or [NO_ENTITIES]


def _flat(text: str) -> str:
    return " ".join(text.split())


def sentence_of(tokenizer: "Tokenizer", part: str | bytes | Sequence[str | bytes]) -> tuple[Sentence, Sentence]:
    """A raw text or a list of words -> the sentence as it is answered, and as it is tokenized: words joined by blanks.

    In the second, white space at the edges of words is in none.
    """
    if isinstance(part, str | bytes):
        text = valid(part)
        split = tokenizer.words(text)
        words, starts, ends = zip(*split) if split else ((), (), ())
        edges = [(0, len(word)) for word in words]
    else:
        words = tuple(map(valid, part))
        edges = [(len(word) - len(word.lstrip()), len(word.rstrip())) for word in words]
    begins = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1].tolist()
    joined = " ".join(words)
    if not isinstance(part, str | bytes):
        text, starts, ends = joined, tuple(begins), tuple(at + len(word) for at, word in zip(begins, words))
    core = [(at + low, at + max(low, high)) for at, (low, high) in zip(begins, edges)]
    core_starts, core_ends = zip(*core) if core else ((), ())
    return Sentence(text, words, starts, ends), Sentence(joined, words, core_starts, core_ends)


def valid(text: str | bytes) -> str:
    """Text that UTF-8 can hold: invalid bytes and lone surrogates are U+FFFD."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def first_tokens(joined: Sentence, starts: Sequence[int] | np.ndarray, ends: Sequence[int] | np.ndarray) -> np.ndarray:
    """The first token of each word, int [W]; -1 where it has none.

    Args:
        joined: the text that was tokenized. starts, ends: characters of its tokens.
    """
    word_starts, word_ends = np.array(joined.starts, int), np.array(joined.ends, int)
    found = np.full(len(word_starts), -1)
    there = np.flatnonzero(word_ends > word_starts)
    if not len(there):
        return found
    starts, ends = np.array(starts, int), np.array(ends, int)
    word = np.searchsorted(word_ends[there], starts, side="right")  # the first that ends after the token's beginning
    known = np.minimum(word, len(there) - 1)
    belongs = np.flatnonzero((word < len(there)) & (np.maximum(word_starts[there[known]], starts) < ends))
    found[there[word[belongs[::-1]]]] = belongs[::-1]  # of several the last that is written: the first token
    return found


def room_of(items: "Iterable[Item]", length: int, trees: bool = False) -> tuple[int, int]:
    """How many special tokens stand before a text, and how many tokens of it a row holds.

    Args:
        items: of the tokenizer's template. trees: whether a quarter of the room is kept for the branches of a graph.
    """
    texts = [bool(item.text) for item in items]
    room = length - texts.count(False)
    if room < 1:
        raise InputError(
            f"length is {length}, expected at least {length - room + 1}: room for a token between the specials"
        )
    return texts.index(True), room - room // 4 if trees else room


def windows(count: int, room: int, stride: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Where windows of `room` tokens begin and end (exclusive) in `count` tokens, each `stride` after the one before.

    >>> [each.tolist() for each in windows(10, 4, 3)]
    [[0, 3, 6], [4, 7, 10]]
    """
    step = step_of(room, stride)
    begins = np.arange(1 + max(0, -(-(count - room) // step))) * step
    return begins, np.minimum(begins + room, count)


def step_of(room: int, stride: int) -> int:
    """Tokens from a window to the next: at most a window."""
    if stride < 0:
        raise InputError(f"stride is {stride}, expected a number of tokens, or 0 for half a window")
    return min(stride, room) or max(1, room // 2)


def window_of(tokens: np.ndarray, count: int, room: int, stride: int = 0) -> np.ndarray:
    """The window in which a token has most context on its poorer side, the first of equal ones: int [n].

    Args:
        tokens: int [n]. count, room, stride: as of `windows`.
    """
    step = step_of(room, stride)
    number = np.maximum(0, (tokens - room + step) // step)[:, None] + np.arange(-(-room // step))
    left = tokens[:, None] - number * step
    right = np.minimum(number * step + room, count) - 1 - tokens[:, None]
    last = max(0, -(-(count - room) // step))
    poorer = np.where((number <= last) & (left >= 0), np.minimum(left, right), -1)
    return number[:, 0] + poorer.argmax(1)


def joined(rows: Sequence[Row], outputs: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """The words of an input that have a token, int [W], ascending, and what its windows say of them, [W, L]."""
    words = np.concatenate([row.about.words for row in rows])
    values = np.concatenate([output[row.about.tokens] for row, output in zip(rows, outputs)])
    order = np.argsort(words)
    return words[order], values[order]


def best_labels(
    rows: Sequence[Row], outputs: Outputs, table: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The best label of each word of an input, int [W], and its score, float32 [W]; -1 and 0 without token.

    Args:
        table: of a CRF, which decides over all words at once; the score is a marginal then, else the label's output.
    """
    count = len(rows[0].about.sentence.words)
    numbers, scores = np.full(count, -1), np.zeros(count, "float32")
    words, values = joined(rows, outputs)
    if len(words):
        numbers[words] = values.argmax(-1) if table is None else crf.best_path(values, table)
        known = values if table is None else crf.marginals(values.astype("float64"), table)
        scores[words] = known[np.arange(len(words)), numbers[words]]
    return numbers, scores


KIND = TagsKind()
