"""A question and a text -> the part of the text that answers it (Devlin et al., 2019, sections 4.2 and 4.3)."""

import dataclasses
import functools
import re
import weakref
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar, cast

import numpy as np

from kerasbert import inputs
from kerasbert.answers import nearness, span_overlap
from kerasbert.answers.base import Kind, Outputs, Parts, Text, truncated_json
from kerasbert.errors import InputError
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer
    from kerasbert.text.template import Item

T = TypeVar("T")
BLANKS = (
    *(*range(0x9, 0xE), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680),
    *(*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)
"""The code points that str.strip() takes away; the graph has the same."""

_SURROGATE = re.compile("[\ud800-\udfff]")  # no file can hold one

RANKED = 20  # answers among which one that differs is looked for
RARE = -20.0  # logits below the best, farther than which no error is told apart
# of a token where no answer begins or ends; a sum below half of it is no answer's, in span.c too
IMPOSSIBLE = -3e4

# tokenizer -> the context that it tokenized last: files ask several questions about one context after the other
_last: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Span:
    """A part of a context.

    Args:
        text: str, context[start:end] without blanks around it; empty where the context holds no answer.
        start, end: int, in characters (code points) of the context; 0, 0 of the empty answer.
        score: float, its probability among all spans that were considered; 0 where there was none.
        alternatives: the next best, best first, at most `n_best` - 1 of them.
        truncated: bool, whether the question lost tokens; a context never does.
    """

    text: str
    start: int
    end: int
    score: float
    alternatives: tuple["Span", ...] = ()
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict; `alternatives` only where there are any."""
        own = {"text": self.text, "start": int(self.start), "end": int(self.end), "score": float(self.score)}
        others = {"alternatives": [each.to_json() for each in self.alternatives]} if self.alternatives else {}
        return own | others | truncated_json(self)


class Context(NamedTuple):
    """A tokenized context.

    Args:
        text: str. ids: of its N tokens.
        starts, ends: int64 [N], characters of each token without the blanks around it, `ends` exclusive; starts >= ends
            of a token that is empty or blank.
    """

    text: str
    ids: list[int]
    starts: np.ndarray
    ends: np.ndarray

    def covering(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last token of those that cover some characters; first > last where none does.

        Several tokens may be of one character (byte-level BPE), and a token may reach beyond the characters.
        """
        return int(np.searchsorted(self.ends, start, "right")), int(np.searchsorted(self.starts, end, "left")) - 1


class Window(NamedTuple):
    """The part of a context that stands in a row.

    Args:
        context: Context. begin: int, its first token in the context. count: int, tokens.
        place: int, of its first token in the row. null: int, place of the token that stands for no answer.
        own: slice, tokens of the context of which no other window has more context.
        asked: bool, whether there is a question.
    """

    context: Context
    begin: int
    count: int
    place: int
    null: int
    own: slice
    asked: bool


class SpanKind(Kind):
    """Logits [S, 2] of where an answer begins and ends, over windows of the context; [S, 2K] of K starts, each with its ends.

    Options:
        starts: int, K of the likeliest starts, of which each has its own logits of ends (`layers.beam_span`); 0 where an end
            does not ask for its start. The best pair of a span counts.
        context_first: bool, whether the context stands in front of the question, as in XLNet's released code.
        stride: int, tokens that a window moves on (BERT's doc_stride; in Hugging Face's run_qa it is the overlap).
            Differs: at most so many that two windows share twice `max_answer` tokens, or half a window where that is
            less, so that no answer is lost between short windows.
        question: int, most tokens of the question, which never has more than half of the room.
        max_answer: int, most tokens of an answer.
        unanswerable: bool, whether the empty answer is one (SQuAD 2.0).
        null_threshold: float, the empty answer wins by more than that, in logits; found on the dev rows.
        n_best: int, answers that are told, the best one among them.
        rules: str, by which answers are compared with those of a file: a name in `tasks.span_metrics.RULES`.
    """

    name = "span"
    trees = False
    focus = "first_text"
    output = "logits"
    per_token = True
    agrees_by = "overlap"
    learned = ("starts", "context_first")
    columns = ("text", "start", "end", "score")
    defaults = MappingProxyType(
        {
            "starts": 0,
            "context_first": False,
            "stride": 128,
            "question": 64,
            "max_answer": 30,
            "unanswerable": False,
            "null_threshold": 0.0,
            "n_best": 5,
            "rules": "squad",
        }
    )

    def configured(self, options: JsonMap | None) -> Self:
        kind = super().configured(options)
        for name in ("starts", "stride", "question", "max_answer", "n_best"):
            least = int(name != "starts")
            if kind.options[name] < least:
                raise InputError(f"{name} is {kind.options[name]}, expected at least {least}")
        if kind.options["context_first"]:
            kind.focus = ""
        return kind

    @property
    def letter(self) -> str:
        """Which of the two texts of a template the context is: "A" or "B"."""
        return "A" if self.options["context_first"] else "B"

    def ordered(self, question: T, context: T) -> tuple[T, T]:
        """The question and the context as they stand in a row."""
        return (context, question) if self.options["context_first"] else (question, context)

    def cut(self, count: int, texts: int, longest: int, tense: str = "are") -> str:
        most, share = self.options["question"], f"{count} of {texts} questions ({count / max(1, texts):.1%})"
        return f"{share} have more than {most} tokens, or than half a row, and {tense} truncated (finetune --set task.question=N)"

    def width(self, labels: Sequence[str]) -> int | None:
        return 2 * max(1, self.options["starts"])

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        question, text = (_SURROGATE.sub("\ufffd", tokenizer.to_text(part)) for part in cast(tuple[Text, ...], parts))
        at, null = text_item(tokenizer.pair, self.letter), null_item(tokenizer.pair, tokenizer.cls_id)
        asked, room = tokenizer.encode(question), self.room(tokenizer, length)
        kept = asked[: min(self.options["question"], room // 2)]
        context, room = tokenized(tokenizer, text), room - len(kept)
        begins = windows(len(context.ids), room, self.step(room))
        rows = []
        for begin, own in zip(begins, owned(len(context.ids), room, begins)):
            ids = context.ids[begin : begin + room]
            token_ids, segment_ids, places = tokenizer.join(*self.ordered(kept, ids))
            about = Window(context, begin, len(ids), places[at], places[null], own, bool(question.strip()))
            rows.append(inputs.row(token_ids, segment_ids, len(kept) < len(asked), about))
        return rows

    def room(self, tokenizer: "Tokenizer", length: int) -> int:
        """Tokens that the question and a window share.

        Raises:
            InputError: no room for one of each.
        """
        specials = sum(not item.text for item in tokenizer.pair)
        if length < specials + 2:
            raise InputError(
                f"length is {length}, expected at least {specials + 2}: the special tokens, a token of the question and "
                "one of the context"
            )
        return length - specials

    def step(self, room: int) -> int:
        """Tokens that a window of so many tokens moves on."""
        return min(self.options["stride"], max(room - 2 * self.options["max_answer"], (room + 1) // 2))

    def scores(self, rows: Sequence[inputs.Row], outputs: Outputs) -> tuple[np.ndarray, float]:
        """What each span of a context scores, and the empty answer: the least over the windows.

        Args:
            rows: of one input. outputs: of each, [S, 2K]: first and last token of each pair, one pair after the other.

        Returns:
            float32 [N, A]: of the spans that begin at token n and have a + 1 tokens, the sum of both logits in the window
            where token n has most context; -inf where it is no answer. float.
        """
        context = rows[0].about.context
        most = max(1, min(self.options["max_answer"], len(context.ids)))
        result = np.full((len(context.ids), most), -np.inf, "float32")
        after = _following(context.ends, most, 0)
        for row, output in zip(rows, outputs):
            window = row.about
            begin, own = window.begin, window.own
            at = slice(window.place, window.place + window.count)
            local = slice(own.start - begin, own.stop - begin)
            for pair in range(0, output.shape[1], 2):
                starts, ends = output[at, pair], _following(output[at, pair + 1].astype("float32"), most, -np.inf)
                result[own] = np.maximum(result[own], starts[local, None] + ends[local])
        result[result < IMPOSSIBLE / 2] = -np.inf
        result[after <= context.starts[:, None]] = -np.inf
        if not rows[0].about.asked:
            result[:] = -np.inf
        null = min(float(output[row.about.null].sum()) for row, output in zip(rows, outputs))
        return result, null

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Span:
        scores, null = self.scores(rows, outputs)
        context, truncated = rows[0].about.context, rows[0].truncated
        best = _best(scores, context, self.options["n_best"])
        if not best:
            return Span("", 0, 0, 0.0, (), truncated)
        top = best[0][0]
        chosen = 0
        if self.options["unanswerable"]:
            place = sum(score >= null for score, _, _ in best)
            best.insert(place, (null, 0, 0))
            chosen = place if null - top > self.options["null_threshold"] else int(place == 0)
            top = max(top, null)
        total = np.exp(scores[np.isfinite(scores)].astype("float64") - top).sum()
        total += np.exp(null - top) if self.options["unanswerable"] else 0.0
        spans = [Span(context.text[a:b], a, b, float(np.exp(score - top) / total)) for score, a, b in best]
        answer = spans.pop(chosen)
        others = tuple(spans[: self.options["n_best"] - 1])
        return dataclasses.replace(answer, alternatives=others, truncated=truncated)

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        """Log-probabilities of each token to be the first and the last, among those of its row: [tokens, 2]."""
        found = [nearness.log_softmax(_both(np.asarray(output, "float64")), axis=0) for output in outputs]
        return np.concatenate(found) if found else np.zeros((0, 2))

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        """How far the answers overlap: the mean F1 of their characters, 1.0 where they are the same."""
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        owners, kind = (
            np.arange(len(rows)) if owners is None else np.asarray(owners),
            self.configured({"n_best": RANKED}),
        )
        pairs = []
        for owner in np.unique(owners):
            places = np.flatnonzero(owners == owner).tolist()
            packed = [rows[i] for i in places]
            pairs.append([kind.decode((), packed, [each[i] for i in places], ()) for each in (expected, received)])
        shares = np.array([span_overlap.overlap(*pair) for pair in pairs])
        if ties and (shares < 1).any():
            null = self.options["null_threshold"]
            margins = np.array([span_overlap.margin(own, other, null) for own, other in pairs])
            errors = [error for pair in pairs if (error := span_overlap.error(*pair)) is not None]
            if errors:
                shares[margins <= nearness.rounding(np.array(errors), self.signal(expected))] = 1.0
        return float(shares.mean()) if len(shares) else 1.0

    def ranking(self, top: int | None, threshold: float | None) -> Self:
        kind = super().ranking(top, threshold)
        return kind if top is None else kind.configured({"n_best": top})

    def limited(self, answer: Span, top: int | None, threshold: float | None) -> Span:
        others = tuple(each for each in answer.alternatives if threshold is None or each.score >= threshold)
        return dataclasses.replace(answer, alternatives=others)

    def text(self, answer: Json) -> str:
        return f"{' '.join(answer['text'].split())}\t{answer['score']:.4f}"


def tokenized(tokenizer: "Tokenizer", text: str) -> Context:
    """A context's tokens; the last one of a tokenizer is remembered."""
    context = _last.get(tokenizer)
    if context is None or context.text != text:
        tokens = tokenizer.tokenize(text)
        filled = np.flatnonzero(~np.isin(np.frombuffer(text.encode("utf-32-le"), "<u4"), BLANKS))
        filled = np.concatenate([[-1], filled, [len(text)]])
        # the first character at or after a token's start that is no blank, and the last before its end
        starts = filled[np.searchsorted(filled, tokens.starts, "left")].astype("int64")
        ends = filled[np.searchsorted(filled, tokens.ends, "left") - 1].astype("int64") + 1
        context = _last[tokenizer] = Context(text, tokens.ids, starts, ends)
    return context


@functools.lru_cache(maxsize=64)
def windows(count: int, room: int, step: int) -> tuple[int, ...]:
    """The first token of each window of `room` tokens; there is one of an empty context too.

    >>> windows(10, 4, 3), windows(4, 4, 3), windows(0, 4, 3)
    ((0, 3, 6), (0,), (0,))
    """
    return tuple(range(0, max(0, count - room) + step, step)) if count > room else (0,)


@functools.lru_cache(maxsize=64)
def owned(count: int, room: int, begins: tuple[int, ...]) -> tuple[slice, ...]:
    """The tokens of which each window has most context: the smaller number of tokens beside them, as BERT counts.

    A full window is worth 0.01 a token more than the short one at the end; of equal ones the first counts.

    >>> owned(10, 4, (0, 3, 6))
    (slice(0, 4, None), slice(4, 7, None), slice(7, 10, None))
    """
    best, number = np.full(count, -1), np.zeros(count, int)
    for i, begin in enumerate(begins):
        size = min(room, count - begin)
        place = np.arange(size)
        context = 100 * np.minimum(place, size - 1 - place) + size
        better = np.flatnonzero(context > best[begin : begin + size]) + begin
        best[better], number[better] = context[better - begin], i
    ends = np.searchsorted(number, np.arange(len(begins)), "right").tolist()
    return tuple(slice(low, high) for low, high in zip([0, *ends], ends))


def text_item(items: "Sequence[Item]", text: str) -> int:
    """Which item of a template is a text: "A" or "B"."""
    return next(i for i, item in enumerate(items) if item.text == text)


def null_item(items: "Sequence[Item]", cls_id: int | None) -> int:
    """Which item of a template stands for no answer: its cls token, else its first special token."""
    specials = [i for i, item in enumerate(items) if not item.text]
    return next((i for i in specials if items[i].id == cls_id), specials[0] if specials else 0)


def _both(pairs: np.ndarray) -> np.ndarray:
    """Logits of first and last tokens, [S, 2], of pairs [S, 2K]: an end counts with the start that it belongs to."""
    starts, ends = pairs[:, ::2], pairs[:, 1::2]
    if starts.shape[1] == 1:
        return pairs
    both = np.stack([starts.max(1), (starts.max(0) + ends).max(1)], axis=1)
    return np.maximum(both, both.max(0) + RARE)


def _following(values: np.ndarray, count: int, filling: float) -> np.ndarray:
    """[n] -> [n, count]: each value and those after it."""
    padded = np.concatenate([values, np.full(count - 1, filling, values.dtype)])
    return (
        np.lib.stride_tricks.sliding_window_view(padded, count) if len(values) else np.zeros((0, count), values.dtype)
    )


def _best(scores: np.ndarray, context: Context, count: int) -> list[tuple[float, int, int]]:
    """(score, start, end) of the best spans of different characters, best first; of equal scores the first in the text."""
    flat, width = scores.ravel(), scores.shape[1]
    most = 8 * count
    least = flat[np.argpartition(-flat, most - 1)[most - 1]] if len(flat) > most else -np.inf
    order = np.flatnonzero(
        (flat >= least) & np.isfinite(flat)
    )  # all equals of the last, of which a partition keeps any
    spans: dict[tuple[int, int], float] = {}
    for i in order[np.argsort(-flat[order], kind="stable")].tolist():
        if len(spans) < count:
            first, more = divmod(i, width)
            spans.setdefault((int(context.starts[first]), int(context.ends[first + more])), float(flat[i]))
    return [(score, *place) for place, score in spans.items()]


KIND = SpanKind()
