"""An encoder that writes, each token at a [MASK] (Dong et al., 2019; Bao et al., 2021, s2s-ft).

A row is source and target. The source sees the source; a token of the target sees the source, the target before it and itself
(Dong et al., 2019, section 2.3, the sequence-to-sequence LM). What is predicted is a [MASK] at the place of each token of the
target, which sees what stands before that place, and itself (Bao et al., 2021, the pseudo-masked fine-tuning of s2s-ft):

    a row           [CLS] s s s [SEP] | t1 t2 [SEP]
    behind it, read                     [M] [M] [M]      at the places of t1, t2 and the end

so that an update learns all tokens of a target, each of what will stand before it when it is written. A step of generation reads
two tokens: the one that was written last, whose keys and values are kept, and the [MASK] behind it.

Differs: s2s-ft lets a tenth of the [MASK]s be the token itself and a tenth a random one; here all are [MASK], as in generation.
"""

import dataclasses
from collections.abc import Mapping

import keras
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers import visibility
from kerasbert.layers.attention import Attention
from kerasbert.layers.cache import Cache, Column, LayerCache, columns, places_of
from kerasbert.layers.context import Queries
from kerasbert.layers.encoder import Encoder
from kerasbert.spec import Spec

SOURCE, TARGET = 4, 5
"""Their segments among UniLM's six; an encoder of fewer has them modulo the number: 0 and 1 of BERT's two."""

OF_SOURCE = "of_source"
"""An array [B, 1, T, 1] of the state beside keys and values: 1.0 at the places of the source."""


def writes_at_masks(kind: object) -> bool:
    """Whether a class of encoders can: its tokens enter by themselves, and who sees whom is a bias alone."""
    own = ("visible", "embed", "context", "run", "call")
    return (
        isinstance(kind, type)
        and issubclass(kind, Encoder)
        and all(getattr(kind, name) is getattr(Encoder, name) for name in own)
    )


def segment_ids(ids: Tensor, segments: int) -> Tensor:
    """UniLM's segments as those of an encoder that has so many: int, of any shape -> the same."""
    return ids if segments >= TARGET + 1 else ids % max(1, segments)


class MaskedWriter:
    """An encoder and its head of tokens as a model that writes.

    Args:
        encoder: an Encoder of which `writes_at_masks` holds, with its tokenizer once it generates.
        head: what predicts tokens, called on (x [B, P, H], table).
    Call: dict of token_ids, padding_mask [B, S], source and target, decoder_token_ids [B, T], the [MASK]s of the target's places,
        and target_place [B], where the target begins -> as the encoder, `sequence` [B, T, H] at the [MASK]s.
    """

    prompt = ""  # how the inputs that it goes on from begin

    def __init__(self, encoder: Encoder, head: keras.layers.Layer) -> None:
        self.encoder, self.head = encoder, head

    @property
    def spec(self) -> Spec:
        """The encoder's Spec."""
        return self.encoder.spec

    def __call__(
        self, inputs: Mapping[str, Tensor], training: bool = False, queries: Queries = None
    ) -> dict[str, Tensor]:
        ids, masks, begin = (inputs[name] for name in ("token_ids", "decoder_token_ids", "target_place"))
        begin, (rows, length), count = ops.expand_dims(begin, 1), ops.shape(ids), ops.shape(masks)[1]
        place, at_mask = ops.expand_dims(ops.arange(length, dtype="int32"), 0), ops.arange(count, dtype="int32")
        at_mask = ops.expand_dims(at_mask, 0)
        where = ops.concatenate([ops.broadcast_to(place, (rows, length)), begin + at_mask], axis=1)
        of_target = ops.concatenate([place >= begin, ops.ones_like(masks, dtype="bool")], axis=1)
        row = {
            "token_ids": ops.concatenate([ids, ops.cast(masks, ids.dtype)], axis=1),
            "position_ids": where,
            "segment_ids": self.segments(of_target),
            "visible_matrix": visible(begin, place, at_mask, inputs.get("padding_mask")),
        }
        at = ops.broadcast_to(length + at_mask, ops.shape(masks))
        return self.encoder(row, training=training, queries=at)

    def segments(self, of_target: Tensor) -> Tensor:
        """bool [B, S] -> the numbers of the segments."""
        return segment_ids(ops.where(of_target, TARGET, SOURCE), self.spec.embeddings.segments)

    def logits(self, x: Tensor) -> Tensor:
        """Which token stands there: `sequence` [B, P, H] -> float32 [B, P, V]."""
        return self.head(x, self.encoder.embeddings.tokens.table)

    def start(self, inputs: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
        """The state before the first step, in which the sources have been read: as `CausalLM.start`."""
        ids = inputs["token_ids"]
        given = {**inputs, "segment_ids": self.segments(ops.zeros_like(ids, dtype="bool"))}
        self.encoder.check(given)
        cache = Cache({}, len(self.encoder.blocks), places)
        context = dataclasses.replace(self.encoder.context(given), cache=cache)
        self.encoder.run(given, context, queries="first")  # of the last layer nothing but keys and values is read
        mask = inputs.get("padding_mask")
        real = ops.ones_like(ids, dtype="float32") if mask is None else ops.cast(mask, "float32")
        real = ops.pad(real, [[0, 0], [0, places - ops.shape(ids)[1]]])
        return cache.state | {OF_SOURCE: ops.expand_dims(ops.expand_dims(real, 1), 3)}

    def step(self, token_ids: Tensor, column: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Which token follows, of the tokens at one place of each row: as `CausalLM.step`."""
        column = ops.expand_dims(columns(column, token_ids), 1)
        cache = _PairCache(state, len(self.encoder.blocks), places_of(state), column[:, 0])
        there = ops.equal(ops.arange(places_of(state), dtype="int32"), column)
        of_source = ops.sum(ops.where(there, state[OF_SOURCE][:, 0, :, 0], 0.0), axis=1, keepdims=True)
        of_target = ops.concatenate([of_source < 0.5, ops.ones_like(of_source, dtype="bool")], axis=1)
        mask = ops.full_like(ops.expand_dims(token_ids, 1), self.encoder.tokenizer.mask_id)
        row = {
            "token_ids": ops.concatenate([ops.expand_dims(token_ids, 1), mask], axis=1),
            "position_ids": ops.concatenate([column, column + 1], axis=1),
            "segment_ids": self.segments(of_target),
        }
        context = dataclasses.replace(self.encoder.context(row), bias=visibility.bias(cache.visible), cache=cache)
        x = self.encoder.run(row, context)["sequence"][:, 1:]
        # written as keys are: litert's CompiledModel leaves an output that is an input as it finds it
        here = ops.reshape(there, (-1, 1, places_of(state), 1))
        kept = ops.where(here, ops.reshape(of_source, (-1, 1, 1, 1)), state[OF_SOURCE])
        return ops.squeeze(self.logits(x), 1), cache.state | {OF_SOURCE: kept}


def visible(begin: Tensor, place: Tensor, at_mask: Tensor, real: Tensor | None) -> Tensor:
    """Who sees whom in a row with its [MASK]s behind it: bool [B, S + T, S + T].

    Args:
        begin: int [B, 1], where the target begins.
        place: int [1, S]. at_mask: int [1, T], the places of the target.
        real: bool or 0/1 [B, S], or None.
    """
    last = visibility.last_seen(place, begin)  # of a token, [B, S]
    last = ops.expand_dims(ops.concatenate([last, begin + at_mask - 1], axis=1), 2)  # of a [MASK] what stands before it
    row = ops.expand_dims(place, 1) <= last
    row = row if real is None else ops.logical_and(row, visibility.padding(real))
    count, length = ops.shape(at_mask)[1], ops.shape(place)[1]
    itself = ops.equal(ops.arange(length + count)[:, None], length + ops.arange(count)[None])
    itself = ops.broadcast_to(ops.expand_dims(itself, 0), (ops.shape(begin)[0], length + count, count))
    return ops.concatenate([row, itself], axis=2)


class _Beside(Column):
    """Keys and values of all places and, behind them, those of the [MASK] of this step, which are not kept."""

    def read(self, attention: Attention, source: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        key, value = attention.read(source, value)
        self.key = ops.where(self.here, key[:, :, :1], self.key)
        self.value = ops.where(self.here, value[:, :, :1], self.value)
        return tuple(ops.concatenate([x, own[:, :, 1:]], axis=2) for x, own in ((self.key, key), (self.value, value)))


class _PairCache(Cache):
    """A cache whose steps read a token and a [MASK] behind it."""

    def __init__(self, state: Mapping[str, Tensor], layers: int, places: int, column: Tensor) -> None:
        super().__init__(state, layers, places, column)
        own = (each.own for each in self.layers)
        self.layers = [LayerCache(_Beside(each.key, each.value, each.here), None) for each in own]

    @property
    def visible(self) -> Tensor:
        """What the token and the [MASK] see: bool [B, 2, T + 1]."""
        before = super().visible  # [B, 1, T]
        both = ops.concatenate([before, before], axis=1)
        itself = ops.reshape(ops.arange(2, dtype="int32") > 0, (1, 2, 1))
        return ops.concatenate([both, ops.broadcast_to(itself, (ops.shape(both)[0], 2, 1))], axis=2)
