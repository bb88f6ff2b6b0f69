"""XLNet: Generalized Autoregressive Pretraining for Language Understanding (Yang et al., 2019).

- Tokens are predicted one after another in a random order of factorisation, each from those before it in that order (2.2);
  the order of the text stays as it is, for positions enter by who sees whom alone. `objectives/permutation.py` draws it.
- Two streams (2.3): h holds a token, g its place alone: what is predicted there must not see itself. Both have the same
  weights; keys and values are h's. g stands at the predicted places only, and begins as one learned vector (`mask`). Here it
  is computed as further rows behind those of h, in the same products; fine-tuning has h alone.
- Relative attention of Transformer-XL and its memory (2.4, `layers/relative.py`): distances from K down to -Q + 1.
- Relative segments (2.5): whether two tokens are of one segment or of two adds (q + s) e to their score, e of two learned
  vectors of each layer and head. All three terms of a score are divided by sqrt(D).
- Blocks are BERT's: post-norm; the four maps of the attention add no bias. No norm and no positions in the embeddings. Of the
  released code: dropout within the feed-forward layers, after the last one and on the sinusoids.
- Rows end with <sep> <cls>, and the last token's vector stands for the row (3.1).

What the papers leave open: GELU is exact, as in transformers, where checkpoints come from. Differs: the released code has the
tanh approximation (`feedforward.activation=gelu_tanh`). A query that sees nothing gets zeros; theirs averages all there is.
Differs: the dropout of the sinusoids is one mask for all rows of an update, as in Transformer-XL's code, so that W_r R is
computed once; XLNet's draws one a row.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasbert.checkpoints import beam_span, keras_hub
from kerasbert.checkpoints.forms import ByHead, Leading
from kerasbert.checkpoints.names import TORCH_LEAVES, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import TEXT, Input, Shape, Tensor, Values
from kerasbert.layers import visibility
from kerasbert.layers.backend import choose
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context, Queries, select
from kerasbert.layers.embeddings import Embeddings as TokenEmbeddings
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.heads import tied_logits
from kerasbert.layers.random import Dropout
from kerasbert.layers.relative import Relative, RelativeAttention, distances, sinusoids
from kerasbert.layers.two_streams import TwoStreams
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.models.bert import ONE_MAP
from kerasbert.registry import Family, register
from kerasbert.spec import Embeddings
from kerasbert.spec import Spec as BaseSpec


@dataclasses.dataclass(frozen=True)
class Distances:
    """How far apart tokens may stand.

    Args:
        clamp: int, farther ones count as that far (clamp_len); 0 for no bound.
    """

    clamp: int = 0


@dataclasses.dataclass(frozen=True)
class Spec(BaseSpec):
    """XLNet's; any length may be read, `embeddings.positions` is not."""

    distances: Distances = Distances()

    def validate(self) -> "Spec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.hidden % 2:
            raise InputError(f"hidden must be even, half sines and half cosines. Received: {self.hidden}")
        if self.distances.clamp < 0:
            raise InputError(f"distances.clamp must be at least 0, no bound. Received: {self.distances.clamp}")
        if (self.blocks.norm, self.embeddings.kind) != ("post", "none"):
            raise InputError(
                f"XLNet has blocks.norm post and embeddings.kind none. Received: {self.blocks.norm}, {self.embeddings.kind}"
            )
        return self


class XLNetAttention(RelativeAttention):
    """Relative attention with a term for the segments (section 2.5): s is `segment_bias` [N, D], e is `segments` [2, N, D]."""

    def __init__(self, *args: Any, use_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, use_bias=use_bias, **kwargs)

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.segment_bias, self.segments = self.head_weight("segment_bias"), self.head_weight("segments", 2)

    def further(self, query: Tensor, positions: Relative) -> Tensor:
        if positions.other is None:
            return None
        # (q + s) e_same is left out: the softmax does not see what all keys of a query have in common
        apart = ops.cast(self.segments, query.dtype)
        of_other = ops.sum(self.biased(query, self.segment_bias) * ops.expand_dims(apart[1] - apart[0], 1), axis=-1)
        return ops.expand_dims(positions.other, 1) * ops.cast(ops.expand_dims(of_other, -1), "float32")


class XLNetBlock(Block):
    """One layer, of one stream or of both."""

    attention_class = XLNetAttention

    def feedforward_class(self, *sizes: Any, **kwargs: Any) -> Callable:  # its dropout is the block's
        return FeedForward(*sizes, dropout=self.settings["dropout"], **kwargs)


class XLNetStreams(TwoStreams):
    """Two streams whose scores read distances and segments."""

    def scoring_of_last(self) -> Relative:
        own = {name: getattr(self.scoring, name) for name in ("other", "seen")}
        own = {name: None if value is None else value[:, self.length :] for name, value in own.items()}
        return dataclasses.replace(self.scoring, ordered=False, **own)


class XLNetLM(keras.layers.Layer):
    """Predict tokens with the table of tokens and a bias: x [B, P, H], table [V, H] -> float32 [B, P, V]."""

    def __init__(self, vocabulary: int, *_: Any, **kwargs: Any) -> None:  # no other layer of its own
        super().__init__(**kwargs)
        self.vocabulary = vocabulary

    def build(self, shape: Shape) -> None:
        self.bias = self.add_weight(shape=(self.vocabulary,), initializer="zeros", name="bias")

    def call(self, x: Tensor, table: Tensor) -> Tensor:
        return tied_logits(x, table) + ops.cast(self.bias, "float32")


class XLNet(Encoder):
    """XLNet's stack.

    Args:
        spec: Spec.
    Call: as Encoder, and order [B, S] int (a token sees itself and what has a smaller number, and 0 is seen by all),
        target_positions [B, P] int: then `sequence` [B, P, H] is the query stream's, which sees what the order or
        visible_matrix says, not itself. backward [B] bool, rows whose text is written backward. memory: tuple of L
        [B, M, H], what all tokens see in front of the row, of segment 0; memory_mask [B, M], where some of it is nothing.
        -> as Encoder, and memory: tuple of L [B, S, H], what the layers read, without gradient.
        position_ids are not read: distances are those of the row's places.
    """

    block_class = XLNetBlock
    embeddings_class = TokenEmbeddings
    token_head = XLNetLM
    label_activation = "tanh"  # the sequence summary

    def _build(self) -> None:
        super()._build()
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.mask = Table(1, spec.hidden, spec.initializer, name="mask", **kwargs)
        self.mask_dropout = Dropout(spec.dropout, name="mask_dropout", **kwargs)
        self.distance_dropout = Dropout(spec.dropout, shared=True, name="distance_dropout", **kwargs)
        self.last_dropout = Dropout(spec.dropout, name="last_dropout", **kwargs)
        for layer in (self.mask, self.mask_dropout, self.distance_dropout, self.last_dropout):
            layer.build()

    @property
    def longest(self) -> int | None:
        """There is none."""
        return None

    def embed(self, inputs: Values, training: bool = False) -> Tensor:
        x, targets = super().embed(inputs, training), inputs.get("target_positions")
        if targets is None:
            return x
        g = self.mask(ops.zeros_like(targets))  # [B, P, H]
        return ops.concatenate([x, self.mask_dropout(g, training=training)], axis=1)

    def visible(self, inputs: Values) -> Tensor:
        real, masks = self._limits(inputs), self._orders(inputs, inputs.get("order"))
        if masks:  # h sees itself whatever the order
            size = ops.shape(inputs["token_ids"])[1]
            masks = [ops.logical_or(visibility.both(*masks), ops.cast(ops.expand_dims(ops.eye(size), 0), "bool"))]
        return visibility.both(real, self._causal(inputs), *masks)

    def visible_to_targets(self, inputs: Values) -> Tensor:
        """What the query stream sees: bool [B, P or 1, S], or None for everything."""
        targets, order = inputs["target_positions"], inputs.get("order")
        masks = [] if order is None else [visibility.earlier(choose(order, targets), order)]
        limits = [self._limits(inputs), self._causal(inputs), *self._orders(inputs, None)]
        for mask in limits:
            if mask is not None:
                masks.append(mask if mask.shape[1] == 1 else select(ops.cast(mask, "float32"), targets) > 0.5)
        return visibility.both(*masks)

    def _limits(self, inputs: Tensor) -> Tensor | None:
        if "packed_ids" in inputs:
            return visibility.packed(inputs["packed_ids"])
        return visibility.padding(inputs["padding_mask"]) if "padding_mask" in inputs else None

    def _causal(self, inputs: Tensor) -> Tensor | None:
        return visibility.causal(ops.shape(inputs["token_ids"])[1]) if self.spec.attention.causal else None

    def _orders(self, inputs: Tensor, order: Tensor) -> list[Tensor]:
        masks = [] if order is None else [visibility.earlier(order, order)]
        return [*masks, *([ops.cast(inputs["visible_matrix"], "bool")] if "visible_matrix" in inputs else [])]

    def context(self, inputs: Values) -> Context:
        memory, targets = inputs.get("memory"), inputs.get("target_positions")
        rows, size = ops.shape(inputs["token_ids"])[:2]
        behind = 0 if memory is None else ops.shape(memory[0])[1]
        past = None if memory is None else inputs.get("memory_mask")
        seen = [visibility.with_memory(self.visible(inputs), past, size, behind)]
        positions = self.relative(inputs, size, behind)
        if targets is None:
            bias = None if seen[0] is None else visibility.bias(seen[0])
            return Context(bias, memory=memory, scoring=positions)
        seen.append(visibility.with_memory(self.visible_to_targets(inputs), past, size, behind))
        bias = None
        if seen[0] is not None or seen[1] is not None:
            shapes = [(rows, count, size + behind) for count in (size, ops.shape(targets)[1])]
            h, g = (
                ops.broadcast_to(ops.ones((1, 1, 1), "bool") if mask is None else mask, shape)
                for mask, shape in zip(seen, shapes)
            )
            bias = visibility.bias(ops.concatenate([h, g], axis=1))
            something = ops.cast(ops.any(g, axis=-1, keepdims=True), "float32")
            something = ops.concatenate([ops.ones((rows, size, 1)), something], axis=1)
            positions = dataclasses.replace(positions, seen=something)
        return XLNetStreams(bias, memory=memory, scoring=positions, length=size)

    def relative(self, inputs: Values, size: int | Tensor, behind: Tensor) -> Relative:
        """Distances and segments: of S tokens with M of memory in front."""
        targets, segments, keys = inputs.get("target_positions"), inputs.get("segment_ids"), size + behind
        apart = distances(keys, 0 if self.spec.attention.causal else 1 - size, self.spec.distances.clamp or None)
        vectors = sinusoids(apart, self.spec.hidden)
        if "backward" in inputs:
            vectors = ops.stack([vectors, sinusoids(-apart, self.spec.hidden)])
        other = None
        if segments is not None:
            of_query = segments if targets is None else ops.concatenate([segments, choose(segments, targets)], axis=1)
            before = [ops.zeros((ops.shape(segments)[0], behind), segments.dtype)] if "memory" in inputs else []
            of_key = ops.concatenate([*before, segments], axis=1) if before else segments
            other = ops.cast(ops.not_equal(ops.expand_dims(of_query, 2), ops.expand_dims(of_key, 1)), "float32")
        places = None if targets is None else ops.cast(targets, "int32") + behind
        return Relative(vectors, keys, behind, places=places, backward=inputs.get("backward"), other=other)

    def run(
        self, inputs: Values, context: Context, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> Values:
        vectors = self.distance_dropout(ops.expand_dims(context.scoring.vectors, 0), training=training)
        positions = dataclasses.replace(context.scoring, vectors=ops.squeeze(vectors, 0))
        context = dataclasses.replace(context, scoring=positions)
        outputs = super().run(inputs, context, training, queries, attention)
        outputs["sequence"] = self.last_dropout(outputs["sequence"], training=training)
        size = ops.shape(inputs["token_ids"])[1]
        outputs["memory"] = tuple(ops.stop_gradient(x[:, :size]) for x in outputs["hidden"][:-1])
        return outputs


def flops(spec: Spec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops`: of both streams, and of scores of two terms.

    Of memory and of W_r R, which all rows share, nothing.
    """
    hidden, length, total = spec.hidden, tokens / sequences, 0.0
    for layer in range(spec.blocks.layers):
        inner = spec.per_layer(spec.attention.heads, layer) * spec.head_size
        width = spec.per_layer(spec.feedforward.width, layer)
        last = bool(predictions) and layer + 1 == spec.blocks.layers  # computed for the predictions alone
        # content scores and values over S keys, positions over 2 S distances
        each = 2 * 2 * hidden * inner + 2 * 4 * inner * length + 2 * 2 * hidden * width
        total += (
            each * (predictions if last else tokens + predictions) + 2 * 2 * hidden * inner * tokens
        )  # keys, values
    return 3.0 * (total + predictions * 2 * hidden * spec.embeddings.vocabulary)


def kept(spec: Spec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`: of both streams."""
    layers = sum(
        8 * spec.hidden
        + 2 * spec.per_layer(spec.feedforward.width, i)
        + spec.per_layer(spec.attention.heads, i) * length
        for i in range(spec.blocks.layers)
    )
    return rows * length * ((1 + predictions) * layers + predictions * spec.embeddings.vocabulary)


_LAYER = "transformer.layer.{i}"
_ATTENTION = {"query": "q", "key": "k", "value": "v", "position": "r"}
_BIASES = {"content_bias": "r_w_bias", "position_bias": "r_r_bias", "segment_bias": "r_s_bias", "segments": "seg_embed"}
_SUMMARY = {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"}
HF = Dialect(
    rows=(
        ("embeddings/tokens", "transformer.word_embedding"),
        ("mask/table", "transformer.mask_emb"),
        *((f"block_{{i}}/attention/{ours}/kernel", f"{_LAYER}.rel_attn.{x}") for ours, x in _ATTENTION.items()),
        ("block_{i}/attention/output/kernel", f"{_LAYER}.rel_attn.o", "T"),
        *((f"block_{{i}}/attention/{ours}", f"{_LAYER}.rel_attn.{theirs}") for ours, theirs in _BIASES.items()),
        ("block_{i}/attention_norm", f"{_LAYER}.rel_attn.layer_norm"),
        ("block_{i}/feedforward/inner", f"{_LAYER}.ff.layer_1"),
        ("block_{i}/feedforward/outer", f"{_LAYER}.ff.layer_2"),
        ("block_{i}/feedforward_norm", f"{_LAYER}.ff.layer_norm"),
        ("heads/lm/bias", "lm_loss.bias"),
        ("heads/classifier/inner", "sequence_summary.summary"),
        ("heads/classifier", "logits_proj"),
        ("heads/span", "qa_outputs"),
        *beam_span.rows(),
    ),
    leaves=TORCH_LEAVES,
    forms={"*mask_emb": Leading(), "*layer.*.rel_attn.[qkvor]": ByHead(), **beam_span.FORMS},
    heads={"lm": {"bias": "V"}, "classifier": _SUMMARY, "span": BERT_HF.heads["span"], **beam_span.HEADS},
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("hidden", "d_model"),
        ("blocks.layers", "n_layer"),
        ("attention.heads", "n_head"),
        ("attention.head_size", "d_head"),
        ("attention.causal", "attn_type"),
        ("feedforward.width", "d_inner"),
        ("feedforward.activation", "ff_activation"),
        ("distances.clamp", "clamp_len"),
        ("dropout", "dropout"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_eps"),
    ),
    values={"attn_type": {"bi": False, "uni": True}, "clamp_len": {-1: 0}},
    silent={"d_head": lambda config: None, "attn_type": "bi", "clamp_len": -1},
    fixed={
        "model_type": "xlnet",
        "same_length": False,
        "untie_r": True,
        "tie_word_embeddings": True,
        "summary_type": "last",
        "summary_use_proj": True,
        "summary_activation": "tanh",
    },
    classes={
        "XLNetModel": Class(),
        "XLNetLMHeadModel": Class(("lm",)),
        "XLNetForSequenceClassification": Class(("classifier",)),
        "XLNetForTokenClassification": ONE_MAP,
        "XLNetForQuestionAnsweringSimple": Class(("span",)),
        "XLNetForMultipleChoice": Class(("classifier",)),
        "XLNetForQuestionAnswering": Class((beam_span.HEAD,)),
    },
    prefix="transformer.",
    unread={
        **beam_span.UNREAD,
        "bi_data": (False,),  # the second half of a batch is backward: here a row says it of itself
        **dict.fromkeys(("mem_len", "reuse_len", "use_mems_*"), "what a text leaves for the next; none does here"),
    },
    tied={"lm_loss.weight": "transformer.word_embedding.weight"},
)

_INSIDE, _RELATIVE = "layers/xl_net_encoder_{i}", "layers/xl_net_encoder_{i}/relative_attention"
_HUB_ATTENTION = {"query": "query", "key": "key", "value": "value", "position": "_encoding"}
KERAS_HUB = keras_hub.dialect(
    "XLNetBackbone",
    ("embeddings/tokens/table", "layers/content_and_query_embedding/word_embed/vars/0"),
    ("mask/table", "layers/xl_net_attention_mask_layer/vars/0"),
    *((f"block_{{i}}/attention/{ours}", f"{_RELATIVE}/{theirs}_dense") for ours, theirs in _HUB_ATTENTION.items()),
    ("block_{i}/attention/output/kernel", f"{_RELATIVE}/output_dense/vars/0", "T"),
    *((f"block_{{i}}/attention/{ours}", f"{_INSIDE}/vars/{n}") for n, ours in enumerate(_BIASES)),
    ("block_{i}/attention_norm", f"{_INSIDE}/layer_norm"),
    ("block_{i}/feedforward/inner", f"{_INSIDE}/feedforward_intermediate_dense"),
    ("block_{i}/feedforward/outer", f"{_INSIDE}/feedforward_output_dense"),
    ("block_{i}/feedforward_norm", f"{_INSIDE}/layer_norm_ff"),
    config=(("feedforward.activation", "activation"), ("initializer", "kernel_initializer_range")),
    without=("embeddings.positions",),
).derive(
    forms={"*mask_layer/vars/0": Leading(), "*relative_attention/*_dense/vars/0": ByHead()},
    unread={**keras_hub.UNREAD, "bias_initializer": ("zeros",)},
    values={"activation": keras_hub.ACTIVATIONS},
)

XLNET = register(
    Family(
        name="xlnet",
        spec=Spec(pooler=False, embeddings=Embeddings(vocabulary=32000, segments=0, kind="none", norm=False)),
        sizes={
            "base": {},
            "large": {"blocks.layers": 24, "hidden": 1024, "attention.heads": 16, "feedforward.width": 4096},
        },
        encoder=XLNet,
        tokenizer="unigram",
        layout="xlnet",
        objective="permutation",
        names={"hf": HF, "keras_hub": KERAS_HUB},
        inputs=(
            *TEXT,
            Input("order", filled_by="objective", optional=True),
            Input("target_positions", axes="BP", filled_by="objective", optional=True),
            Input("backward", axes="B", filled_by="objective", optional=True),
        ),
        readout="last",
        longest=lambda spec: None,
        flops=flops,
        memory=kept,
        paper="Yang et al., 2019, XLNet: Generalized Autoregressive Pretraining for Language Understanding",
    )
)
