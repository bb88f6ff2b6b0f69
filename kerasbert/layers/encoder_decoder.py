"""Two stacks and one table of tokens: the encoder-decoders."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.inputs import PAD, Input, Shape, Tensor
from kerasbert.layers import visibility
from kerasbert.layers.block import Block, PreNormBlock, stack
from kerasbert.layers.cache import COVERAGE, FIXED, Cache, columns, empty, places_of
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.decoder_block import DecoderBlock, PreNormDecoderBlock
from kerasbert.layers.embeddings import Table, positions
from kerasbert.layers.encoder import SpecModel, serializable
from kerasbert.layers.heads import tied_logits
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout

SOURCE_AND_TARGET = (
    Input("token_ids", pad=PAD),
    Input("padding_mask"),
    Input("decoder_token_ids", axes="BT", pad=PAD, filled_by="objective"),
    Input("decoder_padding_mask", axes="BT", optional=True, filled_by="objective"),
)
"""What an encoder-decoder reads: the text, and what has been written so far."""


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The second stack, where it is not as the first.

    Args:
        layers: int, number of its layers, or None for as many as the encoder has (`blocks.layers`).
    """

    layers: int | None = None


@dataclasses.dataclass(frozen=True)
class ScaledEmbeddings(specs.Embeddings):
    """Embeddings of two stacks.

    Args:
        scaled: bool, whether tokens' vectors are multiplied by sqrt(hidden) before positions are added (Vaswani et al., 2017,
            section 3.4).
    """

    scaled: bool = True


@dataclasses.dataclass(frozen=True)
class EncoderDecoderSpec(specs.Spec):
    """A Spec of two stacks; what both have in common is said once."""

    pooler: bool = False
    decoder: Decoder = Decoder()

    def validate(self) -> "EncoderDecoderSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.decoder.layers is not None and self.decoder.layers < 1:
            raise InputError(f"decoder.layers must be at least 1 or None. Received: {self.decoder.layers}")
        for path in ("attention.heads", "feedforward.width"):
            if isinstance(specs.get(self, path), tuple):
                raise InputError(f"{path} must be one number for both stacks. Received: {specs.get(self, path)}")
        return self

    def of_decoder(self) -> specs.Spec:
        """The Spec whose blocks are the decoder's."""
        return self.derive({"blocks.layers": self.decoder.layers or self.blocks.layers})


@dataclasses.dataclass(frozen=True)
class ScaledSpec(EncoderDecoderSpec):
    """A Spec of two stacks whose tokens' vectors may be scaled."""

    embeddings: ScaledEmbeddings = ScaledEmbeddings()


class Stack(keras.layers.Layer):
    """The blocks of an encoder or of a decoder, what is added to their tokens, and the last norm.

    Args:
        spec: Spec of these blocks.
        kind: class of the blocks.
        norm_class: of the norms.
        embeddings_norm: bool, whether the sum of tokens and positions is normalised.
    Call: x [B, S, H], the tokens' vectors; context; position_ids [B, S] or None -> dict of sequence [B, Q, H], hidden
        (tuple of L+1), attention (tuple of L [B, N, Q, S]) and, of a decoder, cross_attention. `context.queries` is of
        the last block.
    """

    def __init__(
        self,
        spec: specs.Spec,
        kind: Callable,
        norm_class: type = LayerNorm,
        embeddings_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec, self.kind, self.norm_class, self.normalised = spec, kind, norm_class, embeddings_norm

    def build(self, shape: Shape | None = None) -> None:
        spec, kwargs, shape = self.spec, {"dtype": self.dtype_policy}, (None, None, self.spec.hidden)
        self.positions = positions(spec, spec.hidden, **kwargs)
        self.embeddings_norm = self.norm = None
        if self.normalised:
            self.embeddings_norm = self.norm_class(spec.epsilon, name="embeddings_norm", **kwargs)
            self.embeddings_norm.build(shape)
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)
        self.dropout.build()
        self.blocks = stack(spec, self.kind, **kwargs)
        if spec.blocks.norm == "pre":
            self.norm = self.norm_class(spec.epsilon, name="norm", **kwargs)
            self.norm.build(shape)

    def embed(self, x: Tensor, position_ids: Tensor | None = None, training: bool = False) -> Tensor:
        """What the first block reads: the tokens' vectors with their positions, normalised, after dropout."""
        offset = self.spec.embeddings.offset
        if self.positions is not None and position_ids is not None:
            x = x + self.positions(position_ids + offset)
        elif self.positions is not None:
            x = x + self.positions.table[offset : offset + ops.shape(x)[1]]
        if self.embeddings_norm is not None:
            return self.embeddings_norm(x, dropout=self.dropout, training=training)
        return self.dropout(x, training=training)

    def context(self, context: Context, length: Tensor) -> Context:
        """What these blocks are told beside; a paper adds what its scores read."""
        return context

    def call(
        self, x: Tensor, context: Context, position_ids: Tensor = None, training: bool = False
    ) -> dict[str, Tensor]:
        x = self.embed(x, position_ids, training)
        whole = dataclasses.replace(context, queries=None, position_ids=position_ids)
        whole = self.context(whole, ops.shape(x)[1])
        hidden, weights = [x], []
        for i, block in enumerate(self.blocks):
            at = whole if i + 1 < len(self.blocks) else whole.of(context.queries)
            x, *probabilities = block(x, context=at.of_layer(i), training=training)
            hidden.append(x)
            weights.append(probabilities)
        if self.norm is not None:
            hidden[-1] = x = self.finish(x, training)
        outputs = {"sequence": x, "hidden": tuple(hidden)}
        return outputs | dict(zip(("attention", "cross_attention"), zip(*weights)))

    def finish(self, x: Tensor, training: bool) -> Tensor:
        """The norm after the last block."""
        assert self.norm is not None
        return self.norm(x)


class EncoderDecoder(SpecModel):
    """Encoder-decoder (Vaswani et al., 2017, section 3.1) with one table of tokens for source, target and output.

    Args:
        spec: EncoderDecoderSpec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (bool or 0/1, True = a real token; all real by default),
        decoder_token_ids [B, T] (what has been written so far, from the start token on), decoder_padding_mask [B, T],
        position_ids [B, S] and decoder_position_ids [B, T] -> dict of sequence [B, T, H] and hidden (tuple of L+1
        [B, T, H]) of the decoder, encoder_sequence [B, S, H] and encoder_hidden. With `attention=True` attention and
        cross_attention (tuples of L [B, N, T, T] and [B, N, T, S]) and encoder_attention too. `queries` computes the
        decoder's last layer for these tokens alone, as those of an Encoder.

    A target's token sees itself and those before it. A row of a source without one real token reads the mean of what stands
    there, and so does a target's token that padding alone precedes: a softmax over equal numbers. Give such rows weight 0.
    """

    encoder_block: Callable | None = None  # a family's own blocks
    decoder_block: Callable | None = None
    stack_class: type = Stack
    norm_class: type = LayerNorm
    embeddings_norm: bool = False
    prompt = "decoder_"  # how the inputs begin that it goes on from
    first_token = "pad"  # what the decoder starts with: the tokenizer's `pad_id`
    spec: EncoderDecoderSpec

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def _build(self) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        pre = spec.blocks.norm == "pre"
        blocks = self.encoder_block or (PreNormBlock if pre else Block)
        more = {"norm_class": self.norm_class, "embeddings_norm": self.embeddings_norm, **kwargs}
        with keras.name_scope("embeddings"):
            self.tokens = Table(spec.embeddings.vocabulary, spec.hidden, spec.initializer, name="tokens", **kwargs)
            self.tokens.build()
        # not `encoder`: what a task's model calls so is the whole
        self.encoder_stack = self.stack_class(spec, blocks, name="encoder", **more)
        self.encoder_stack.build()
        blocks = self.decoder_block or (PreNormDecoderBlock if pre else DecoderBlock)
        self.decoder_stack = self.stack_class(spec.of_decoder(), blocks, name="decoder", **more)
        self.decoder_stack.build()

    def embed(self, token_ids: Tensor) -> Tensor:
        """Vectors of tokens, times sqrt(H) where the Spec says `embeddings.scaled`: [B, S] -> [B, S, H]."""
        x = self.tokens(token_ids)
        scaled = specs.maybe(self.spec, "embeddings.scaled", False)
        return x * ops.cast(math.sqrt(self.spec.hidden), x.dtype) if scaled else x

    def encode(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """What the encoder gives of the source: as `Stack.call`."""
        context = Context(_bias(inputs, "padding_mask"))
        x, position_ids = self.embed(inputs["token_ids"]), inputs.get("position_ids")
        return self.encoder_stack(x, context=context, position_ids=position_ids, training=training)

    def decode(
        self,
        inputs: Mapping[str, Tensor],
        source: Tensor,
        training: bool = False,
        queries: Queries = None,
        cache: Cache | None = None,
    ) -> dict[str, Tensor]:
        """What the decoder gives of the target [B, T] and the encoder's `sequence` [B, S, H]: as `Stack.call`."""
        token_ids, mask = inputs["decoder_token_ids"], inputs.get("decoder_padding_mask")
        real = None if mask is None else visibility.padding(mask)
        visible = visibility.both(real, visibility.causal(ops.shape(token_ids)[1]))
        context = Context(visibility.bias(visible), queries=queries, source=source, cache=cache)
        context = dataclasses.replace(context, source_bias=_bias(inputs, "padding_mask"))
        x, position_ids = self.embed(token_ids), inputs.get("decoder_position_ids")
        return self.decoder_stack(x, context=context, position_ids=position_ids, training=training)

    def start(self, inputs: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
        """The state before the first step: the encoder's work, and the cross-attentions' keys and values.

        Args:
            inputs: of the source as in `call`; where the decoder is given more than its start token, that is
                decoder_token_ids [B, P], each row's real tokens at its left: its last one is the first step's token.
            places: int T, tokens that are written at most, the start token and what else is given among them.

        Returns:
            state, see `layers.cache`.
        """
        source = self.encode(inputs)["sequence"]
        mask = inputs.get("padding_mask")
        mask = ops.ones(ops.shape(inputs["token_ids"]), "float32") if mask is None else ops.cast(mask, "float32")
        state, blocks = {f"{FIXED}mask": mask}, self.decoder_stack.blocks
        for i, block in enumerate(blocks):
            key, value = block.cross_attention.read(source, source)
            state |= {f"{FIXED}key_{i}": key, f"{FIXED}value_{i}": value}
        if "decoder_token_ids" not in inputs:
            return state | empty([block.attention for block in blocks], ops.shape(source)[0], places)
        cache = Cache(state, len(blocks), places)
        self.decode(inputs, source, cache=cache)
        return cache.state

    def step(self, token_ids: Tensor, column: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Which token follows, of the tokens at one place of each row.

        Args:
            token_ids: int [B].
            column: int32 [B] or one for all, the tokens' places: 0 for the start token.
            state: of `start` or of the step before.

        Returns:
            (logits float32 [B, V], the state with this column).
        """
        column = columns(column, token_ids)
        cache = Cache(state, len(self.decoder_stack.blocks), places_of(state), column)
        context = Context(visibility.bias(cache.visible), cache=cache)
        context = dataclasses.replace(context, source_bias=_bias(state, f"{FIXED}mask"))
        x = self.embed(ops.expand_dims(token_ids, 1))
        outputs = self.decoder_stack(x, context=context, position_ids=ops.expand_dims(column, 1))
        after = cache.state
        if COVERAGE in after:
            # differs: Wu et al. (2016, section 7) have one head; here it is the mean of the last layer's
            after[COVERAGE] += ops.mean(outputs["cross_attention"][-1], axis=(1, 2))
        return ops.squeeze(self.logits(outputs["sequence"]), 1), after

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        self.check(inputs)
        source = self.encode(inputs, training)
        outputs = self.decode(inputs, source["sequence"], training, queries)
        outputs |= {f"encoder_{name}": value for name, value in source.items()}
        return {name: value for name, value in outputs.items() if attention or not name.endswith("attention")}

    def logits(self, x: Tensor) -> Tensor:
        """Which token comes next, by the table of tokens: the decoder's `sequence` [B, P, H] -> float32 [B, P, V]."""
        return tied_logits(self.scaled(x), self.output_rows)

    def scaled(self, x: Tensor) -> Tensor:
        """What the output's table is compared with, made of the decoder's `sequence`."""
        return x

    @property
    def output_rows(self) -> Tensor:
        """The table [V, H] that the output is compared with: that of the tokens."""
        return self.tokens.table

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse what would fail later with a message about matrices."""
        if "decoder_token_ids" not in inputs:
            raise ValueError(
                "decoder_token_ids is missing, expected int [B, T], what the decoder has written so far, from its start "
                "token on"
            )
        longest = self.spec.longest if self.spec.embeddings.kind != "none" else None
        for name, positions_of in (("token_ids", "position_ids"), ("decoder_token_ids", "decoder_position_ids")):
            size = inputs[name].shape[1]
            if size and longest and size > longest and positions_of not in inputs:
                raise ValueError(
                    f"{name} has length {size}, expected at most {longest} (embeddings.positions): truncate"
                )


def _bias(inputs: Mapping[str, Tensor], name: str) -> Tensor:
    """The bias of a mask among the inputs, or None."""
    return None if inputs.get(name) is None else visibility.bias(visibility.padding(inputs[name]))
