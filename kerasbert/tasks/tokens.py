"""Fill-mask: the tokens behind the masks of a text, by the masked-LM head that pretraining left in a directory."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasbert.answers.base import Text, TextOrParts
from kerasbert.answers.tokens import BLANKS, POSITIONS, SPELLINGS, Filling, FillMask, filling, pattern, spelled
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.lazy import Module
from kerasbert.options import checked
from kerasbert.storage.json_view import Json
from kerasbert.tasks import labels
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.classification import log_odds
from kerasbert.tasks.given import check_texts
from kerasbert.text import Tokenizer
from kerasbert.text.template import room
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.model import TaskModel
    from kerasbert.text.graph import GraphTokenizer


# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
tf = Module("tensorflow")
layers = Module("kerasbert.layers.heads")
backend = Module("kerasbert.layers.backend")
predict = Module("kerasbert.tasks.predict")
loading = Module("kerasbert.tasks.load")

TASK = "fill-mask"


class Tokens(TaskKind):
    """Logits [B, V] of the token at `positions` [B, 1]; what trains them is pretraining."""

    name = "tokens"
    taught = ()
    head = "mlm"
    metrics_known = ()

    def check_metric(self, task: "Task") -> None:
        raise InputError("fill-mask is what pretraining learns, and fine-tuning does not: kerasbert pretrain")

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        if not hasattr(encoder, "token_head"):
            raise InputError(f"{type(encoder).__name__} has no token_head: it predicts no tokens")
        head = layers.token_head(encoder.token_head, encoder.spec, dtype=encoder.dtype_policy)
        return {"mlm": head}, {"mlm": (None, None, encoder.spec.hidden)}

    def readout(self, task: Task, encoder: "Encoder") -> str | None:
        return None  # `logits` picks

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        picked = backend.pick(read, ops.expand_dims(inputs[POSITIONS.name][:, 0], 1))
        return ops.squeeze(model.heads["mlm"](picked, model.encoder.embeddings.tokens.table), 1)

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        labels.untargeted(self.name, target)
        best = 0 if logits is None else int(logits[0].argmax())
        return 0, "log-odds of the best token for the first mask", lambda values: log_odds(values, best)

    # Export, in the graph

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        return ops.softmax(outputs["logits"], axis=-1)

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        known = self.device(outputs, inputs)[..., : model.tokenizer.size]
        scores, ids = tf.math.top_k(known, min(self.options["top"], model.tokenizer.size))
        return {"scores": scores, "token_ids": ids}

    def pipeline_tag(self, task: "Task") -> str:
        return "fill-mask"

    def described(self) -> str:
        return (
            "for the P masks of a text, padded to the most that one has (`count` [B] int32), the best k `tokens` [B, P, k] "
            "string, their `scores` [B, P, k] float32 and `token_ids` [B, P, k] int32, `text` [B] string with the best "
            "filled in, and `truncated` [B] bool"
        )

    def longer(self, longest: int) -> str:
        return f"Of a longer text {longest} tokens around each mask are read."

    def probes(self, texts: Sequence[str], parts: int) -> list[TextOrParts]:
        first, *others = texts
        return [f"{first} [MASK]", *(f"<mask>{text}[MASK] a\u2003 [MASK]" for text in others)]

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        source, budget = tokenizer.source, room(tokenizer.source.single, length)
        pieces = _pieces(source, strings["text"])
        flat, splits = pieces.flat_values, pieces.row_splits
        rows = pieces.value_rowids()
        last = tf.concat([rows[1:] != rows[:-1], tf.fill([tf.minimum(1, tf.size(rows))], True)], 0)
        trimmed = tf.where(last, flat, tf.strings.regex_replace(flat, f"{BLANKS}+$", ""))
        whole = _with_masks(tokenizer.encode(trimmed), ~last, source.mask_id, splits)
        packed, lengths = _around(whole, tokenizer, budget), whole.row_lengths()
        found = run(packed)  # [M, k], of the masks of all texts
        vocabulary = range(source.size)
        best = found["token_ids"][:, 0]
        joined = tf.gather([source.continues(i) for i in vocabulary], best)
        at = tf.where(~last)
        before = tf.where(joined, tf.gather_nd(trimmed, at), tf.gather_nd(flat, at))
        filled = before + tf.gather([filling(source, i) for i in vocabulary], best)
        text = pieces.with_flat_values(tf.tensor_scatter_nd_update(flat, at, filled))
        count = tf.cast(pieces.row_lengths() - 1, tf.int32)
        found["tokens"] = tf.gather([spelled(source, i) for i in vocabulary], found["token_ids"])
        masks = {name: tf.RaggedTensor.from_row_lengths(each, count).to_tensor() for name, each in found.items()}
        truncated = (lengths > budget) & (count > 0)
        return masks | {"text": tf.strings.reduce_join(text.to_tensor(""), 1), "count": count, "truncated": truncated}

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        answers = []
        for i, count in enumerate(served["count"]):
            columns = [served[name][i, :count] for name in ("tokens", "scores", "token_ids")]
            masks = [
                tuple(Filling(token.decode(), float(score), int(number)) for token, score, number in zip(*mask))
                for mask in zip(*columns)
            ]
            answers.append(FillMask(served["text"][i].decode(), tuple(masks), bool(served["truncated"][i])).to_json())
        return answers


def _pieces(source: Tokenizer, strings: Tensor) -> Tensor:
    """What stands between the masks of texts [B]: [B, (masks + 1)]."""
    texts = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
    return tf.strings.split(tf.strings.regex_replace(texts, pattern(source), SPELLINGS[0]), SPELLINGS[0])


def _with_masks(ids: Tensor, masked: Tensor, mask_id: int | None, splits: Tensor) -> Tensor:
    """Ids of pieces [T, (tokens)], of which `masked` [T] have a mask behind them, those of a text joined: [B, (tokens)]."""
    count = tf.cast(masked, splits.dtype)
    masks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(count)], mask_id), count)
    joined = tf.concat([ids.with_row_splits_dtype(splits.dtype), masks], 1)
    return tf.RaggedTensor.from_row_splits(joined, splits).merge_dims(1, 2)


def _around(ids: Tensor, tokenizer: "GraphTokenizer", budget: int) -> dict[str, Tensor]:
    """A packed row for each mask, with the tokens [B, (tokens)] of its text around it, at most `budget`."""
    flat, splits = ids.flat_values, ids.row_splits
    at = tf.where(flat == tokenizer.source.mask_id)[:, 0]
    owners = tf.gather(ids.value_rowids(), at)
    begins, size = tf.gather(splits, owners), tf.gather(ids.row_lengths(), owners)
    place = at - begins
    start = tf.maximum(tf.minimum(place - budget // 2, size - budget), 0)
    window = tf.ragged.range(begins + start, begins + start + tf.minimum(size, budget))
    window = window.with_flat_values(tf.gather(flat, window.flat_values))
    packed, begins = tokenizer.join(window)
    first = next(begin for begin, item in zip(begins, tokenizer.single) if item.text)
    positions = (first + tf.cast(place - start, tf.int32))[:, None]
    return {**packed, POSITIONS.name: positions, "owners": tf.cast(owners, tf.int32)}


@checked
def fill_mask(
    model: "keras.Model",
    texts: Sequence[str],
    *,
    top: int = 5,
    length: int | None = None,
    batch: int = 64,
    language: str | None = None,
) -> list[FillMask]:
    """The best tokens for each mask of each text: `.tokens` and the filled `.text`.

    Args:
        model: a run of pretraining or an imported masked language model: its directory, or `kb.load(DIR, task="fill-mask")`.
        texts: with [MASK] or <mask> where a token is to be filled in; several masks are filled one by one.
        top: int, tokens for a mask.
        length: int, tokens of a row; all the model's positions by default. A longer text is read around its masks.
        batch: int, texts at once.
        language: str, of the texts, for a model that reads it (XLM).

    Raises:
        InputError: a text without a mask, or a model without a masked-LM head.
    """
    check_whole("top", top)
    check_whole("batch", batch)
    model = loading.load(model, task=TASK) if isinstance(model, str | os.PathLike) else model
    task = getattr(model, "task", None)
    if task is None or not isinstance(task.how, Tokens):
        raise InputError('the model fills no masks, expected the directory of one, or kb.load(DIR, task="fill-mask")')
    most, found = predict.longest(model, length), []
    checked = cast("list[Text]", check_texts(model, texts))  # one text each: no pairs
    kind = task.how.answers.configured({"top": top})
    for i in range(0, len(checked), batch):  # not all at once: the numbers of a batch are [B, P, V]
        encoded = predict.encoded_for(model, checked[i : i + batch], length, {"language": language})
        values = [kind.probabilities(row) for row in predict.outputs_of(model, encoded, most, batch)]
        found += [
            kind.decode((text,), encoded.rows[at], values[at], ())
            for text, at in zip(checked[i : i + batch], encoded.of())
        ]
    return found


KIND = Tokens()
