"""What a task's model read in a text: integrated gradients of its words (Sundararajan et al., 2017) and its attention."""

import bisect
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from kerasbert import registry
from kerasbert.answers.base import Answered, Parts
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.options import checked
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.graph_values import run
from kerasbert.text import Tokenizer

if TYPE_CHECKING:
    import os

    from kerasbert.tasks.ensemble import Ensemble


STEPS = 64
AT_ONCE = 2048  # tokens of the points that are differentiated at once
Place = tuple[int, int, int, int]  # of a token: which of the texts, which word of it, and its characters


@dataclasses.dataclass(frozen=True)
class Word:
    """A word of a row, or one of its special tokens.

    Args:
        text: str, as it stands in the text; decoded where the row's tokens are not found in the text; a special token's piece.
        attribution: float, the sum over its tokens.
        tokens: range, its tokens in the row.
        part: int, which of the input's parts it is of; None of a special token, and where it is not found.
        special: bool, whether the model's template put it there, or it is a mask.
        start, end: int, its characters (code points) in that text, `end` exclusive.
    """

    text: str
    attribution: float
    tokens: range
    part: int | None = None
    start: int = 0
    end: int = 0
    special: bool = False


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What the words of an input add to a number that the model gives.

    Args:
        answer: as `predict` gives it.
        what: str, what the number is.
        score: float, the number for the input.
        baseline: float, the number where every token is the mask (the padding, where the tokenizer has no mask).
        words: of the row, in their order, the special tokens among them.
        pieces: tokens of the row, S of them. attributions: float64 [S]. They sum up to score - baseline + error.
        error: float, of the integral over `steps` points.
        row, rows: int, which of the input's rows is explained, from 0, and how many there are.
        attention: float32 [layers, heads, S, S], of each token (row) to each (column); None of a family without it.
        truncated: bool, whether the row lacks tokens of the input.
    """

    answer: Answered
    what: str
    score: float
    baseline: float
    words: tuple[Word, ...]
    pieces: tuple[str, ...]
    attributions: np.ndarray
    error: float
    steps: int
    row: int = 0
    rows: int = 1
    attention: np.ndarray | None = None
    truncated: bool = False


@checked
def explain(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: Sequence[object],
    *,
    target: object = None,
    steps: int = STEPS,
    length: int | None = None,
    language: str | None = None,
) -> list[Explanation]:
    """What each word of some texts adds to the answer of a fine-tuned model.

    Integrated gradients (Sundararajan et al., 2017, section 3): the path goes from the text with every token masked to the
    text, in what the embeddings give the first block. Positions, segments and special tokens are the same along it. The
    integral is by Gauss and Legendre. The number that is taken apart is the kind's: the log-odds of a label, the value of
    a regression, the logits of an answer's ends.

    Args:
        model: a run's directory or a loaded model.
        texts: as of `predict`.
        target: another label than the answered one, by name; of tags the number of a word, from 0.
        steps: int, points of the integral.
        length: int, tokens a text may have. language: str, of the texts, for a model that reads it.

    Raises:
        InputError: no task, a kind without such a number, a family without embeddings to go along, a target.
    """
    model = predict.as_model(model)
    predict.check_one(model)
    return list(explained(model, texts, target=target, steps=steps, length=length, language=language))


def explained(
    model: keras.Model,
    texts: Sequence[object],
    *,
    target: object = None,
    steps: int = STEPS,
    length: int | None = None,
    language: str | None = None,
) -> Iterator[Explanation]:
    """`explain` of a loaded model, text after text: attention takes layers * heads * 4 * S^2 bytes of each."""
    predict.check_task(model)
    kind, settings = kind_of(model), {"language": language}
    if type(steps) is not int or not 1 <= steps <= 1000:
        raise InputError(f"steps must be a whole number from 1 to 1000. Received: {steps!r}")
    if not hasattr(model.body, "embed"):
        raise InputError(f"{type(model.body).__name__} has no `embed` to go along: its texts cannot be explained")
    family = registry.family_of(model.body)
    if family.reads_tree or not getattr(model.body, "smooth", True):
        why = (
            "has tokens that are not in the text"
            if family.reads_tree
            else "changes by leaps along a path (its buckets)"
        )
        raise InputError(f"{family.name} {why}: its texts cannot be explained")
    kind.explained(model.task, None, None, target)  # refuses the kind or the target before anything is computed
    answers, encoded = predict.answered(model, texts, length, settings=settings)
    most = predict.longest(model, length)
    for answer, at, parts in zip(answers, encoded.of(), encoded.parts):
        yield _one(model, encoded, at, parts, answer, most, steps, target)


def _one(
    model: Any, encoded: Encoded, at: slice, parts: Parts, answer: Any, most: int, steps: int, target: Any
) -> Explanation:
    kind, tokenizer, rows = kind_of(model), model.tokenizer, encoded.rows[at]
    own = dataclasses.replace(encoded, rows=rows, owners=np.zeros(len(rows), int), parts=(parts,))
    function = predict.graph(model, "logits", predict.task_logits, encoded.settings)
    logits = run(function, own, most, per_token=kind.per_token)
    number, what, score = kind.explained(model.task, rows, logits, target)
    row, batch = rows[number], own.arrays([number], most)
    values, ends, special = integrated(model, batch, score, steps)
    values, special = values[: row.length], special[: row.length]
    ids = [int(i) for i in row.token_ids]
    texts = _texts(tokenizer, parts)
    # a window of a text says where it begins: text may repeat itself
    places = _places(tokenizer, texts, ids, special, getattr(row.about, "begin", 0))
    words = tuple(_words(tokenizer, texts, places, ids, special, values))
    attention = attention_of(model.body, batch, row.length)
    pieces = tuple(tokenizer.vocabulary[i] for i in ids)
    error = float(values.sum()) - (ends[1] - ends[0])
    about: Json = {"row": number, "rows": len(rows), "attention": attention, "truncated": row.truncated}
    return Explanation(answer, what, ends[1], ends[0], words, pieces, values, error, steps, **about)


def integrated(
    model: keras.Model, batch: Mapping[str, np.ndarray], score: Callable[[Tensor], Tensor], steps: int
) -> tuple[np.ndarray, tuple[float, float], np.ndarray]:
    """Integrated gradients of one row.

    Args:
        batch: inputs [1, S]. score: logits [B, ...] -> [B].

    Returns:
        float64 [S]; the score at the baseline and of the row; bool [S], the tokens that are the same in both.
    """
    import tensorflow as tf

    tokenizer = model.tokenizer
    tensors = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    # an unknown piece stands for a word of the text
    special = np.isin(batch["token_ids"][0], [i for i in tokenizer.special_ids if i != tokenizer.unk_id])
    hidden = tokenizer.pad_id if tokenizer.mask_id is None else tokenizer.mask_id
    masked = np.where(special, batch["token_ids"], hidden).astype(batch["token_ids"].dtype)
    others = {"token_ids": masked, **tokenizer.others(masked)}
    start = tensors | {name: tf.convert_to_tensor(value) for name, value in others.items()}
    start = tf.cast(model.body.embed(start, training=False), "float32")
    way = tf.cast(model.body.embed(tensors, training=False), "float32") - start

    def scores(embedded: Tensor) -> Tensor:
        count = embedded.shape[0]
        repeated = {name: tf.repeat(value, count, axis=0) for name, value in tensors.items()}
        return tf.cast(score(predict.task_logits(model, {**repeated, "embedded": embedded})), "float32")

    ends = scores(tf.concat([start, start + way], 0)).numpy().tolist()
    places, weights = np.polynomial.legendre.leggauss(steps)  # of [-1, 1]
    places, weights = ((places + 1) / 2).astype("float32"), (weights / 2).astype("float32")
    total, count = np.zeros(way.shape[1:]), max(1, AT_ONCE // way.shape[1])
    for first in range(0, steps, count):
        some, each = places[first : first + count], weights[first : first + count]
        points = start + tf.reshape(some, (-1, 1, 1)) * way
        with tf.GradientTape() as tape:
            tape.watch(points)
            found = scores(points)
        gradients = tf.cast(tape.gradient(found, points), "float32").numpy()
        total += np.tensordot(each.astype("float64"), gradients, 1)
    return (total * way[0].numpy()).sum(-1), (ends[0], ends[1]), special


def attention_of(encoder: keras.Model, batch: Mapping[str, np.ndarray], length: int) -> np.ndarray | None:
    """Attention of one row: float32 [layers, heads, length, length]; None where the encoder tells none."""
    import tensorflow as tf

    if "attention" not in inspect.signature(type(encoder).call).parameters:
        return None
    outputs = encoder({name: tf.convert_to_tensor(value) for name, value in batch.items()}, attention=True)
    weights = [tf.cast(layer, "float32").numpy()[0, :, :length, :length] for layer in outputs["attention"]]
    return np.stack(weights) if len({layer.shape for layer in weights}) == 1 else None


def _words(
    tokenizer: Tokenizer,
    texts: list[tuple[int, str]],
    places: list[Place | None],
    ids: list[int],
    special: np.ndarray,
    values: np.ndarray,
) -> Iterator[Word]:
    """The words of a row: tokens that begin in the same word of a text (`Tokenizer.words`), and the special ones."""
    first = 0
    while first < len(ids):
        last, at = first + 1, places[first]
        if at is None:
            while last < len(ids) and not special[[first, last]].any() and tokenizer.continues(ids[last]):
                last += 1
        else:
            while last < len(ids) and (other := places[last]) is not None and other[:2] == at[:2]:
                last += 1
        value, tokens = float(values[first:last].sum()), range(first, last)
        if at is None:
            text = "" if special[first] else tokenizer.decode(ids[first:last]).strip()
            yield Word(
                text or "".join(tokenizer.vocabulary[i] for i in ids[first:last]),
                value,
                tokens,
                special=bool(special[first]),
            )
        else:
            part, _, start, _ = at
            end = max(place[3] for place in places[first:last] if place is not None)
            yield Word(texts[part][1][start:end], value, tokens, texts[part][0], start, end)
        first = last


def _texts(tokenizer: Tokenizer, parts: Parts) -> list[tuple[int, str]]:
    """The texts that may stand in a row, each with the number of its part: of a list joined by blanks, then one by one."""
    found = []
    for number, part in enumerate(parts):
        several = (part,) if isinstance(part, str | bytes) else tuple(part)
        each = [tokenizer.to_text(one) for one in several]
        found += [(number, text) for text in ([" ".join(each)] if len(each) > 1 else []) + each]
    return found


def _places(
    tokenizer: Tokenizer, texts: list[tuple[int, str]], ids: list[int], special: np.ndarray, window: int
) -> list[Place | None]:
    """Of each token its place; None of special ones, and of what is found in no text, such as the pieces between masks.

    Args:
        window: of the last text, the token that the row begins with.
    """
    places: list[Place | None] = [None] * len(ids)
    number, begin = 0, 0  # texts stand in a row in their order
    for first, last in _runs(special):
        for i in range(number, len(texts)):
            tokens = tokenizer.tokenize(texts[i][1])
            low = begin if i == number else 0
            at = _find(tokens.ids, ids[first:last], max(low, window if i == len(texts) - 1 else 0))
            at = _find(tokens.ids, ids[first:last], low) if at < 0 else at
            if at < 0:
                continue
            for place in range(first, last):
                start, end = tokens.starts[at + place - first], tokens.ends[at + place - first]
                places[place] = (i, *_word(tokenizer, texts[i][1], start, end))
            number, begin = i, at + last - first
            break
    return places


def _word(tokenizer: Tokenizer, text: str, start: int, end: int) -> tuple[int, int, int]:
    """The word of a token, from 0, and the token's characters without the blanks in front."""
    while start < end and text[start].isspace():
        start += 1
    starts = [begin for _, begin, _ in tokenizer.words(text)]
    return bisect.bisect_right(starts, start), start, end


def _runs(special: np.ndarray) -> Iterator[tuple[int, int]]:
    """Where tokens that are not special begin and end (exclusive), one after the other."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], ~special, [0]]).astype(int)))
    return zip(edges[::2].tolist(), edges[1::2].tolist())


def _find(ids: list[int], some: list[int], begin: int) -> int:
    """Where some ids stand among others, from `begin` on; -1 where they do not."""
    return next((i for i in range(begin, len(ids) - len(some) + 1) if ids[i : i + len(some)] == some), -1)
