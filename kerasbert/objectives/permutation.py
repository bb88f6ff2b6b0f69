"""Permutation language modelling (Yang et al., 2019, sections 2.2 to 2.5): tokens in a random order of factorisation.

A segment is A <sep> B <sep> <cls>; A and B are one text, cut at a random place. One token in K is predicted, in spans of 1 to 5
tokens, a span of L tokens somewhere within K L of them (the released code's mask_alpha; its lengths, p(L) ~ 1/L). What is not
predicted is the context of all, and sees context alone. Those predicted, <sep> and <cls> stand in a random order: each sees
the context and what stands before it in the order. The second half of the batch's rows, by turns, is written backward (bi_data).

Rows of the records hold k segments; the later ones see the text of the earlier ones as memory (2.4, `objectives/segments.py`).

Differs: the released code numbers the order apart for the first half of its rows, which alone becomes memory, and takes half of
its B from elsewhere, though nothing asks about it. There, words have 1 to 5 pieces more; here spans are of tokens, as the paper
says, and their number is exact, where the released code adds single tokens up to it.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.heads import HeadedModel, token_head
from kerasbert.layers.memory import remembered
from kerasbert.objectives import render
from kerasbert.objectives.base import label_sums
from kerasbert.objectives.causal import LanguageModeling
from kerasbert.objectives.masked_lm import ordinary
from kerasbert.objectives.segments import Segmented
from kerasbert.registry import register_objective

SPECIALS = 3  # <sep>, <sep> and <cls> of a segment
LEARN = "take XLNet's tokenizer, or learn one with kerasbert vocab --kind unigram --layout xlnet"
ARRAYS = ("token_ids", "padding_mask", "segment_ids", "order", "target_positions", "labels", "weights")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of permutation language modelling.

    Args:
        one_in: int, one token of so many is predicted (the paper's K).
        longest: int, tokens of the longest span that is predicted together.
        predictions: int P, of a segment of S tokens; None for S // one_in.
        both_directions: bool, whether every second row is written backward (bi_data).
        segments: int k, of a row: records of k * S tokens are read S tokens at a time.
        memory: int M, tokens that each layer remembers of earlier segments (mem_len).
    """

    one_in: int = 6
    longest: int = 5
    predictions: int | None = None
    both_directions: bool = True
    segments: int = 2
    memory: int = 384

    def __post_init__(self) -> None:
        if self.one_in < 1:
            raise InputError(f"one_in {self.one_in}, expected at least 1: one token of so many is predicted")
        if self.longest < 1:
            raise InputError(f"longest {self.longest}, expected a span of at least 1 token")
        if self.predictions is not None and self.predictions < 1:
            raise InputError(f"predictions {self.predictions}, expected at least 1")
        if self.segments < 1:
            raise InputError(f"segments {self.segments}, expected at least 1 in a row")
        if self.memory < 0:
            raise InputError(f"memory {self.memory}, expected at least 0 tokens")

    def width(self, length: int) -> int:
        """P for segments of S tokens.

        Raises:
            InputError: more than there are, or none.
        """
        found, most = self.predictions or min(length // self.one_in, length - SPECIALS), length - SPECIALS
        if not 1 <= found <= most:
            asked = f"predictions {found}" if self.predictions else f"one token in {self.one_in}"
            raise InputError(
                f"{asked} of segments of {length} tokens, {SPECIALS} of which are <sep> and <cls>: expected 1 to {most} that are "
                "predicted. Make longer records (--length), or set objective.segments, objective.one_in or objective.predictions"
            )
        return found


class TwoStreamModel(HeadedModel):
    """Call: as the encoder's, with target_positions [B, P] -> its outputs and lm_logits float32 [B, P, V]."""

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = self.encoder(inputs, training=training)
        table = self.encoder.embeddings.tokens.table
        return outputs | {"lm_logits": self.heads["lm"](outputs["sequence"], table)}


class Permutation(Segmented, LanguageModeling):
    """XLNet's objective. Held-out rows are read as those of training: their memory begins empty."""

    settings_class = Settings
    model_class = TwoStreamModel
    opened = False
    targets = "predicted tokens"
    scales: Mapping[str, float] = MappingProxyType({"lm": 1.0})

    @property
    def cut(self) -> tuple[str, ...]:
        return (*ARRAYS, "backward") if self.settings.both_directions else ARRAYS

    @classmethod
    def lengths(cls, settings: Any, length: int) -> tuple[int, ...]:
        found = super().lengths(settings, length)
        settings.width(found[0])
        return found

    @classmethod
    def predictions(cls, settings: Settings, length: int, tokens: float | None = None) -> float:
        width = settings.segments * settings.width(length // settings.segments)
        return width if tokens is None else width * tokens / length

    def remarks(self, length: int) -> list[str]:
        size = length // self.settings.segments
        lines = [f"{SPECIALS} of every {size} tokens ({SPECIALS / size:.1%}) make room for <sep> and <cls>"]
        if self.tokenizer.single[-1].id == self.tokenizer.cls_id:
            return lines
        rows = f"the tokenizer packs texts as {self.tokenizer.template[0]!r}, where this model learns <cls> as the last token"
        return [*lines, f"{rows}: {LEARN}"]

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "visible_to_targets"):
            raise InputError(
                f"{type(encoder).__name__} has no query stream, which this objective predicts tokens with: choose another "
                "(--objective)"
            )
        if self.tokenizer.cls_id is None:
            raise InputError(f"the tokenizer has no <cls>, which ends a row: {LEARN}")
        head = token_head(encoder.token_head, encoder.spec, "lm", dtype=encoder.dtype_policy)
        return {"lm": head}, {"lm": (None, None, encoder.spec.hidden)}

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask, segment_ids, order [B, k * S]; target_positions, labels, weights [B, k * P]; backward [B, k].

        The last tokens of a row make room for <sep> and <cls>.
        """
        settings, row, count = self.settings, features["row"], self.settings.segments
        length = features["token_ids"].shape[1] // count
        room, width = length - SPECIALS, settings.width(length)
        total = tf.minimum(tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True), count * room)
        backward = tf.cast(settings.both_directions, tf.int32) * (row % 2)[:, None]
        column = tf.range(count * room)[None]
        column = tf.where(backward == 1, tf.maximum(total - 1 - column, 0), column)
        rows = tf.reshape(tf.gather(features["token_ids"], column, batch_dims=1), [-1, room])
        number = tf.range(count)[None]
        held = tf.reshape(tf.clip_by_value(total - number * room, 0, room), [-1, 1])
        # flat: of words of the shapes [B, 1] and [1, k] TensorFlow's optimizer of graphs makes a wrong sum
        step, flat = (tf.repeat(word, count) for word in (features["step"], row))
        keys = random.key(self.seed, "permutation", step, flat, tf.tile(tf.range(count), [tf.size(row)]))
        made = self._segment(rows, held, keys, length, width)
        batch = {name: tf.reshape(value, [-1, count * value.shape[1]]) for name, value in made.items()}
        if settings.both_directions:
            batch["backward"] = tf.tile(backward, [1, count])
        return batch | {"row": row}

    def _segment(self, rows: Tensor, held: Tensor, keys: Tensor, length: int, width: int) -> dict[str, Tensor]:
        """Segments of S tokens from `held` [R, 1] tokens of text [R, S - 3]."""
        tokenizer, place = self.tokenizer, tf.range(length)[None]
        named = {name: random.key(keys[:, 0], keys[:, 1], name) for name in ("border", "targets", "order")}
        border = random.uniform(named["border"], (1,)) * tf.cast(held - 1, tf.float32)
        border = tf.minimum(1 + tf.cast(border, tf.int32), held)  # tokens of A
        second, third = (tf.cast(place > end, tf.int32) for end in (border, held + 1))
        text = tf.gather(rows, tf.clip_by_value(place - second, 0, rows.shape[1] - 1), batch_dims=1)
        ids = tf.where((place == border) | (place == held + 1), tokenizer.sep_id, text)
        ids = tf.where(place == held + 2, tokenizer.cls_id, ids)
        real = (place < held + SPECIALS) & (held > 0)
        ids, placed = (
            tf.where(real, ids, tokenizer.pad_id),
            real & ((ids == tokenizer.sep_id) | (ids == tokenizer.cls_id)),
        )
        size = tf.reduce_sum(tf.cast(real, tf.int32), axis=1)
        count = tf.minimum(tf.maximum(size * width // length, 1), width)
        predicted = real & ordinary(ids, tokenizer)
        positions, chosen = targets(named["targets"], predicted, count, width, self.settings.longest)
        positions = tf.where(chosen, positions, 0)
        asked = render.add(tf.zeros_like(ids), positions, tf.cast(chosen, tf.int32)) > 0
        return {
            "token_ids": ids,
            "padding_mask": tf.cast(real, tf.int32),
            "segment_ids": tf.where(real, second + third, 0),
            "order": tf.where(asked | placed, ranks(named["order"], length), 0),
            "target_positions": positions,
            "labels": tf.where(chosen, render.take(ids, positions), 0),
            "weights": tf.cast(chosen, tf.float32),
        }

    def segment(self, part: Mapping[str, Tensor], memory: Tensor, training: bool) -> tuple[dict[str, Tensor], Tensor]:
        inputs = {name: part[name] for name in ARRAYS[:-2]}
        if "backward" in part:
            inputs["backward"] = part["backward"][:, 0]
        if memory is not None:
            inputs |= {"memory": memory.layers, "memory_mask": memory.mask}
        outputs = self.model(inputs, training=training)
        nats, right = label_sums(outputs["lm_logits"], part["labels"], part["weights"])
        # what follows goes on where the text ends, before <sep> <cls>
        text = [layer[:, :-2] for layer in outputs["memory"]]
        left = remembered(memory, text, self.settings.memory, part["padding_mask"][:, :-2])
        return {"lm": nats, "lm/accuracy": right}, left

    def losses_from(
        self, batch: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return self.losses(batch, training=False), dict(state)


def targets(key: Tensor, eligible: Tensor, count: Tensor, width: int, longest: int) -> tuple[Tensor, Tensor]:
    """The places that are predicted, in spans (Yang et al., 2019, appendix; create_pretraining_data of the released code).

    The eligible tokens of a row are divided into windows, in proportion to the lengths of the spans, and a span stands anywhere
    in its window: as many tokens as `count` are chosen, exactly.

    Args:
        key: uint32 [B, 2].
        eligible: bool [B, S].
        count: int32 [B], how many tokens; where fewer are eligible, all of them.
        width: int P.
        longest: int, tokens of the longest span; p(L) ~ 1/L.

    Returns:
        positions int32 [B, P], ascending and different where chosen; chosen bool [B, P].
    """
    size = tf.reduce_sum(tf.cast(eligible, tf.int32), axis=1, keepdims=True)
    count, place = tf.minimum(count[:, None], size), tf.range(width)[None]
    lengths = span_lengths(random.key(key[:, 0], key[:, 1], "lengths"), width, longest)
    ends = tf.minimum(tf.cumsum(lengths, axis=1), count)
    begins = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])
    # of each predicted token its span
    span = tf.searchsorted(ends, tf.broadcast_to(place, tf.shape(ends)), side="right")
    span = tf.minimum(span, width - 1)
    begin, end = (tf.gather(x, span, batch_dims=1) for x in (begins, ends))
    window, after = (x * size // tf.maximum(count, 1) for x in (begin, end))
    slack = tf.cast(after - window - (end - begin) + 1, tf.float32)
    free = tf.gather(random.uniform(random.key(key[:, 0], key[:, 1], "places"), (width,)), span, batch_dims=1)
    found = window + tf.cast(free * slack, tf.int32) + place - begin
    column = tf.range(eligible.shape[1])[None]
    columns = tf.sort(tf.where(eligible, column, eligible.shape[1] + column), axis=1)
    chosen = place < count
    return tf.gather(columns, tf.where(chosen, found, 0), batch_dims=1) % eligible.shape[1], chosen


def span_lengths(key: Tensor, width: int, longest: int) -> Tensor:
    """Lengths of spans, p(L) ~ 1/L for L of 1 to `longest`: uint32 [B, 2] -> int32 [B, P]."""
    law = 1 / np.arange(1, longest + 1)
    bounds = np.cumsum(law)[:-1] / law.sum()
    return 1 + tf.reduce_sum(
        tf.cast(random.uniform(key, (width,))[..., None] >= bounds.astype("float32"), tf.int32), -1
    )


def ranks(key: Tensor, length: int) -> Tensor:
    """Numbers in a random order, all different and at least 1: uint32 [B, 2] -> int32 [B, S]."""
    low, column = (1 << (length - 1).bit_length()) - 1, tf.range(length)
    draws = tf.bitcast(tf.bitwise.right_shift(random.bits(key, (length,)), tf.constant(2, tf.uint32)), tf.int32)
    return 1 + tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(draws, ~low), column)


register_objective("permutation", Permutation)
