"""TSDAE (Wang, Reimers and Gurevych, 2021): a decoder writes a sentence, and all that it knows of it is one vector.

Section 3: tokens are deleted from the sentence, 60% of them (section 5); the encoder's vector of what is left is the only key
and value of the decoder's cross-attention, in every layer, so that the vector has to hold the whole sentence. "Tying the
encoder and decoder parameters": all that both have is the encoder's; the cross-attentions are the decoder's own.

An encoder is pretrained further with it on sentences alone, and gives vectors by the same pooling behind it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import random, visibility
from kerasbert.layers.block import Block
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import token_head
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import readout
from kerasbert.objectives import seq2seq
from kerasbert.objectives.base import label_sums
from kerasbert.objectives.infilling import chosen
from kerasbert.poolings import readouts_of
from kerasbert.registry import register_objective


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of TSDAE.

    Args:
        deletion: share of a row's tokens that the encoder does not see.
        pooling: the vector of a row, as of `encode`: "mean", "first" ([CLS], the paper's), "max", ...
    """

    deletion: float = 0.6
    pooling: str = "mean"

    def __post_init__(self) -> None:
        if not 0 <= self.deletion < 1:
            raise InputError(f"deletion {self.deletion}, expected a share of at least 0 and below 1, such as 0.6")
        if len(readouts_of(self.pooling)) > 1 or self.pooling in ("none", "concat"):
            raise InputError(f"pooling {self.pooling!r}, expected one vector of a row, such as mean or first")


class Crosses(keras.layers.Layer):
    """The attention of each layer of the decoder to one vector, with its norm.

    A softmax over one key is 1: queries and keys tell nothing, and the attention is the map of the values and that of the output.

    Args:
        settings: of the encoder's blocks (`Block.settings`).
    Call: x [B, T, H], source [B, 1, H], number of the layer -> [B, T, H].
    """

    def __init__(self, settings: Sequence[Mapping[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings

    def build(self, shape: Shape) -> None:
        kwargs = {"dtype": self.dtype_policy}
        self.layers = []
        for layer, at in enumerate(self.settings):
            width, deviations = at["heads"] * at["head_size"], (at["initializer"], at["output_initializer"])
            value = Linear(width, deviations[0], at["use_bias"], name="value", **kwargs)
            output = Linear(shape[-1], deviations[1], at["use_bias"], name="output", **kwargs)
            norm = LayerNorm(at["epsilon"], name="norm", **kwargs)
            dropout = Dropout(at["dropout"], name="dropout", **kwargs)
            with keras.name_scope(f"block_{layer}"):
                for part in (value, norm, dropout):
                    part.build(shape)
                output.build((*shape[:-1], width))
            self.layers.append((value, output, norm, dropout))

    def call(self, x: Tensor, source: Tensor, number: int = 0, training: bool = False) -> Tensor:
        value, output, norm, dropout = self.layers[number]
        y = ops.broadcast_to(output(value(source)), ops.shape(x))
        return norm(x, y, dropout=dropout, training=training)


class Tsdae(seq2seq.TextToText):
    """TSDAE's objective, for encoders of BERT's blocks.

    Differs: tokens are deleted, not words as in sentence-transformers; [CLS] and [SEP] stay. The one probability of a
    cross-attention is not dropped.
    """

    settings_class = Settings
    packing = "doc"
    start = "cls"
    opened = True
    targets = "tokens of the sentence"

    @classmethod
    def lengths(cls, settings: object, length: int) -> tuple[int, ...]:
        return length, length - 1

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        spec, kwargs = encoder.spec, {"dtype": encoder.dtype_policy}
        blocks = getattr(encoder, "blocks", ())
        if not blocks or any(type(block).call is not Block.call for block in blocks) or spec.attention.causal:
            raise InputError(
                f"{type(encoder).__name__} has other blocks than BERT's, whose weights the decoder of tsdae is to have: choose "
                "another objective (--objective)"
            )
        shape = (None, None, spec.hidden)
        crosses = Crosses([block.settings for block in blocks], name="decoder", **kwargs)
        heads = {"mlm": token_head(encoder.token_head, spec, **kwargs), "decoder": crosses}
        return heads, dict.fromkeys(heads, shape)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids, padding_mask [B, S]; decoder_token_ids, labels, weights [B, S - 1]; row [B]."""
        ids, row, settings, tokenizer = features["token_ids"], features["row"], self.settings, self.tokenizer
        length, total = ids.shape[1], tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        key, kept = random.key(self.seed, "tsdae", features["step"], row), total
        source = ids
        if settings.deletion:
            begins, ends = chosen(key, total, length, settings.deletion)
            rows, none = seq2seq.extended(ids, [tokenizer.pad_id]), tf.zeros_like(begins)
            source, kept = seq2seq.left_out(rows, begins, ends, total, none, none, length)
        mask = tf.cast(tf.range(length)[None] < kept, tf.int32)
        written = self.decoded(ids[:, 1:], total - 1)
        return {"token_ids": source, "padding_mask": mask, "row": row, **written}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        encoder, head = self.model.body, self.model.heads["mlm"]
        found = encoder(batch, training=training)["sequence"]
        vectors = readout(found, batch["padding_mask"], self.settings.pooling)
        x = self.written(batch["decoder_token_ids"], vectors, training)
        logits = head(x, encoder.embeddings.tokens.table)
        nats, right = label_sums(logits, batch["labels"], batch["weights"])
        return {"lm": nats, "lm/accuracy": right}

    def written(self, token_ids: Tensor, vectors: Tensor, training: bool = False) -> Tensor:
        """What the decoder gives of the tokens before each place and the vectors of their rows: [B, T], [B, H] -> [B, T, H]."""
        encoder, crosses = self.model.body, self.model.heads["decoder"]
        x, source = encoder.embed({"token_ids": token_ids}, training), ops.expand_dims(vectors, 1)
        bias = visibility.bias(visibility.causal(ops.shape(token_ids)[1]))
        for number, block in enumerate(encoder.blocks):
            y, _ = block.attention(x, bias, x, training=training)
            x = block.attention_norm(x, y, dropout=block.attention_dropout, training=training)
            x = crosses(x, source, number=number, training=training)
            x = block.feedforward_norm(x, block.feedforward(x), dropout=block.feedforward_dropout, training=training)
        return x


register_objective("tsdae", Tsdae)
