"""Funnel-Transformer: Filtering out Sequential Redundancy for Efficient Language Processing (Dai et al., 2020).

- Section 2.2: layers stand in blocks, between which the sequence is halved by a mean of two tokens. The first layer of a block
  reads pooled queries and unpooled keys and values (pool-query-only). [CLS] is never pooled; the last token is left out there,
  so that halves stay whole (`truncate`).
- Section 2.3: a decoder for tasks that need every token: the last block's vectors, each as often as it has tokens, and the
  first block's added to them, go through some more layers. A text is classified by [CLS] of the last block, without it.
- Appendix A.2: relative attention of Transformer-XL with u, v and W_r of each layer, computed by a shift of all distances
  (A.2.1, "relative_shift") or by products of sines and cosines (A.2.2, "factorized", what the paper takes on TPU): the same
  numbers. Whether two tokens are of one segment adds to a score as in XLNet. Neither counts for [CLS].
- Of the released code: queries have no bias; GELU by tanh; a block's layers may be repeated with the same weights.

Pretraining (section 3.1) is BERT's masked LM without a question about pairs, or ELECTRA's (`models.funnel_electra`).
Differs: the released code pools a row with its padding, so that what a text gives depends on the texts beside it; here a row
gives what theirs gives of it alone. No dropout on the sines. Kernels start as BERT's, not by their fan.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.checkpoints.forms import ByHead
from kerasbert.checkpoints.names import TORCH_LEAVES, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.block import Block, stack
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.pooled import Distances, Level, PooledAttention
from kerasbert.models.bert import BERT, ONE_MAP
from kerasbert.models.xlnet import XLNetLM
from kerasbert.registry import register
from kerasbert.spec import Embeddings, Spec
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.answers import Kind

POOLINGS, FORMS = ("mean", "max"), ("relative_shift", "factorized")


@dataclasses.dataclass(frozen=True)
class Funnel:
    """How layers stand in blocks.

    Args:
        blocks: int, of about as many layers each, the sequence halved between them.
        sizes: layers of each block, where they differ; None for `blocks` of them.
        repeats: how often the layers of each block run, with the same weights; None for once.
        decoder: int, layers of the decoder; 0 for none: each token then has its last vector.
        pooling: "mean" or "max".
        attention: "relative_shift" or "factorized", two ways to one result.
        separate: bool, whether [CLS] is apart. truncate: bool, whether the last token is then left out of what is pooled.
        query_only: bool, whether keys and values of a block's first layer are not pooled.
    """

    blocks: int = 3
    sizes: tuple[int, ...] | None = None
    repeats: tuple[int, ...] | None = None
    decoder: int = 2
    pooling: str = "mean"
    attention: str = "relative_shift"
    separate: bool = True
    truncate: bool = True
    query_only: bool = True


@dataclasses.dataclass(frozen=True)
class FunnelSpec(Spec):
    """A Spec whose layers stand in blocks; any length may be read."""

    funnel: Funnel = Funnel()

    def validate(self) -> "FunnelSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        parts, layers = self.funnel, self.blocks.layers
        for name, known in (("pooling", POOLINGS), ("attention", FORMS)):
            if getattr(parts, name) not in known:
                raise InputError(f"funnel.{name} must be one of {', '.join(known)}. Received: {getattr(parts, name)!r}")
        if parts.blocks < 1 or parts.decoder < 0 or min(parts.sizes or (1,)) < 1 or min(parts.repeats or (1,)) < 1:
            raise InputError(
                f"funnel.blocks, sizes and repeats must be at least 1, decoder at least 0. Received: {parts}"
            )
        if parts.sizes and sum(parts.sizes) != layers:
            raise InputError(f"funnel.sizes must add up to blocks.layers, {layers}. Received: {parts.sizes}")
        if parts.repeats and len(parts.repeats) != len(self.sizes):
            raise InputError(f"funnel.repeats must be one number a block, {len(self.sizes)}. Received: {parts.repeats}")
        if self.hidden % 2 or self.blocks.norm != "post" or self.attention.causal or self.blocks.share != "none":
            raise InputError(
                "a funnel needs an even hidden, blocks.norm post, blocks.share none and attention.causal false. Received: "
                f"{self.hidden}, {self.blocks.norm}, {self.blocks.share}, {self.attention.causal}"
            )
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Layers of each block."""
        return tuple(self.funnel.sizes) if self.funnel.sizes else self.alike

    @property
    def alike(self) -> tuple[int, ...]:
        """The same of `funnel.blocks` blocks of about as many layers."""
        count = min(self.funnel.blocks, self.blocks.layers)
        return tuple((self.blocks.layers + i) // count for i in reversed(range(count)))

    @property
    def repeats(self) -> tuple[int, ...]:
        """How often the layers of each block run."""
        return tuple(self.funnel.repeats or (1,) * len(self.sizes))


class FunnelBlock(Block):
    """A layer; `context.source` are unpooled keys and values of pooled queries."""

    def __init__(self, *, factorized: bool, name: str, **kwargs: Any) -> None:
        super().__init__(name=name.replace("block_", "layer_"), **kwargs)
        self.factorized = factorized

    def attention_class(self, *args: Any, **kwargs: Any) -> PooledAttention:
        """Of the Spec's form."""
        return PooledAttention(*args, factorized=self.factorized, **kwargs)

    def call(self, x: Tensor, context: Context, training: bool = False) -> tuple[Tensor, Tensor]:
        told, source, x = x, context.keys(x) if context.source is None else context.source, context.rows(x)
        y, probabilities = self.attention(x, context.bias, source, training=training, **context.at)
        y = self.adapted("attention", y, told, context, training)
        x = self.attention_norm(x, y, dropout=self.attention_dropout, training=training)
        y = self.adapted("feedforward", self.feedforward(x), told, context, training)
        return self.feedforward_norm(x, y, dropout=self.feedforward_dropout, training=training), probabilities


class FunnelTransformer(Encoder):
    """Blocks of ever shorter sequences, and a decoder of all tokens.

    Call: as Encoder, and `hidden` are of several lengths: the embeddings, every layer of the blocks, what the decoder begins
        with and its layers. position_ids and visible_matrix are not read.
    Weights: `block_0/layer_1/...` and `decoder/layer_0/...`.
    """

    token_head = XLNetLM
    label_activation = "tanh"
    spec: "FunnelSpec"

    def _build(self) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.embeddings = self.embeddings_class(spec, name="embeddings", **kwargs)
        self.embeddings.build()
        self.norm = self.pooler = None
        self._build_layers()

    def _build_layers(self) -> None:
        spec = self.spec
        self.parts = [self.layers_of(f"block_{number}", size) for number, size in enumerate(spec.sizes)]
        self.decoder = self.layers_of("decoder", spec.funnel.decoder)

    def layers_of(self, name: str, count: int) -> list[Block]:
        """Built layers of a block or of the decoder."""

        def kind(**kwargs: Any) -> FunnelBlock:
            return FunnelBlock(factorized=self.spec.funnel.attention == "factorized", **kwargs)

        with keras.name_scope(name):
            spec = self.spec.derive({"blocks.layers": max(count, 1), "funnel.sizes": None, "funnel.repeats": None})
            return stack(spec, kind, dtype=self.dtype_policy) if count else []

    @property
    def longest(self) -> None:
        """There is none."""
        return None

    def level(self, inputs: Mapping[str, Tensor]) -> Level:
        """The tokens before any pooling."""
        parts, packed, mask = self.spec.funnel, inputs.get("packed_ids"), inputs.get("padding_mask")
        ids = (
            ops.ones_like(inputs["token_ids"])
            if packed is None and mask is None
            else mask
            if packed is None
            else packed
        )
        segments = inputs.get("segment_ids")
        return Level(
            ops.cast(ids, "int32"),
            None if segments is None else ops.cast(segments, "int32"),
            apart=parts.separate,
            cut=parts.truncate,
            masked=mask is not None or packed is not None,
            packed=packed is not None,
        )

    def told(self, level: Level, keys: Level, source: Tensor | None = None) -> Context:
        """What a layer is told of queries of a level on keys of another or of the same."""
        same = None
        if level.segments is not None:
            one, other = ops.expand_dims(level.segments, 2), ops.expand_dims(keys.segments, 1)
            # of their tokenizer [CLS] has the segment 2, which is like all
            same = ops.logical_or(ops.equal(one, other), ops.logical_or(ops.equal(one, 2), ops.equal(other, 2)))
        rows, columns = ops.shape(level.ids)[1], ops.shape(keys.ids)[1]
        stride = level.step // keys.step
        scoring = Distances(rows, columns, keys.step, stride, level.apart, self.spec.hidden, same)
        return Context(level.bias(keys), scoring=scoring, source=source)

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        self.check(inputs)
        level = text = self.level(inputs)
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        hidden, weights, context = [x], [], self.told(level, level)
        for number, (layers, repeats) in enumerate(zip(self.parts, self.spec.repeats)):
            for layer in [layer for layer in layers for _ in range(repeats)]:
                if number and layer is layers[0] and len(hidden) == self.begins(number) and not level.short:
                    below, level = level, level.pooled()
                    unpooled, x = x, below.pool(x, self.spec.funnel.pooling)
                    if self.spec.funnel.query_only:
                        first = self.told(level, below, unpooled)
                        context = self.told(level, level)
                    else:
                        first = context = self.told(level, level)
                    x, probabilities = layer(x, context=first, training=training)
                else:
                    x, probabilities = layer(x, context=context, training=training)
                hidden.append(x)
                weights.append(probabilities)
        x = dataclasses.replace(level, step=2 ** (len(self.parts) - 1)).unpooled(x, ops.shape(text.ids)[1])
        return self.decoded(x, hidden, weights, text, (training, queries, attention))

    def begins(self, number: int) -> int:
        """How many hidden states there are before a block's first layer runs for the first time."""
        return 1 + sum(size * repeat for size, repeat in zip(self.spec.sizes[:number], self.spec.repeats))

    def decoded(self, x: Tensor, hidden: list, weights: list, text: Level, at: tuple) -> dict[str, Tensor]:
        """The outputs, of the last block's vectors at every token."""
        training, queries, attention = at
        context = self.told(text, text)
        if self.decoder:
            x = x + hidden[self.spec.sizes[0]]
            hidden.append(x)
        elif queries is not None:
            x = context.of(queries).rows(x)
        for layer in self.decoder:
            of = context.of(queries) if layer is self.decoder[-1] else context
            x, probabilities = layer(x, context=of, training=training)
            hidden.append(x)
            weights.append(probabilities)
        outputs = {"sequence": x, "hidden": tuple(hidden)}
        return outputs | ({"attention": tuple(weights)} if attention else {})


class FunnelDialect(Dialect):
    """Blocks by their sizes; classes that classify a text, and the base model, have no decoder."""

    by_call = ("funnel.blocks", "funnel.sizes")  # two ways to say one thing

    def read_config(self, config: Json) -> Json:
        """With the number of layers, and no decoder in classes without one."""
        sizes, (kind, *_) = config.get("block_sizes"), config.get("architectures") or [None]
        if isinstance(sizes, list | tuple) and all(type(size) is int for size in sizes):
            config = config | {"num_hidden_layers": sum(sizes)}
        if kind in BASES:
            return config | {"num_decoder_layers": 0}
        if kind and config.get("num_decoder_layers") == 0:
            raise InputError(f"{kind} has no decoder layers (num_decoder_layers 0), expected some, or FunnelBaseModel")
        return config

    def write_config(self, config: Json, spec: Spec) -> Json:
        """Without what their class refuses to be told, and without a padding id, whose row it would set to zero."""
        return {"pad_token_id": None} | {key: value for key, value in config.items() if key != "num_hidden_layers"}

    def computes(self, kind: str, spec: "FunnelSpec") -> bool:
        """Whether a class is one without a decoder, as the model is, or both have one."""
        return (kind in BASES) == (spec.funnel.decoder == 0)

    def written(self, spec: "FunnelSpec") -> Json:
        """The sizes of blocks that are alike, and that none is repeated."""
        found = {"funnel.sizes": spec.sizes} if spec.sizes == spec.alike else {}
        return found | ({"funnel.repeats": spec.repeats} if set(spec.repeats) == {1} else {})


def _layers(ours: str, theirs: str) -> tuple[tuple[str, str], ...]:
    """Names in a layer."""
    parts = (
        *(("query", "q_head"), ("key", "k_head"), ("value", "v_head"), ("output", "post_proj")),
        *(("content_bias", "r_w_bias"), ("position_bias", "r_r_bias"), ("position/kernel", "r_kernel")),
        *(("segment_bias", "r_s_bias"), ("segments", "seg_embed")),
    )
    return (
        *((f"{ours}/attention/{one}", f"{theirs}.attention.{other}") for one, other in parts),
        (f"{ours}/attention_norm", f"{theirs}.attention.layer_norm"),
        (f"{ours}/feedforward/inner", f"{theirs}.ffn.linear_1"),
        (f"{ours}/feedforward/outer", f"{theirs}.ffn.linear_2"),
        (f"{ours}/feedforward_norm", f"{theirs}.ffn.layer_norm"),
    )


BASES = ("FunnelBaseModel", "FunnelForSequenceClassification", "FunnelForMultipleChoice")
HF = FunnelDialect(
    rows=(
        ("embeddings/tokens", "funnel.embeddings.word_embeddings"),
        ("embeddings/norm", "funnel.embeddings.layer_norm"),
        *_layers("block_{i}/layer_{j}", "funnel.encoder.blocks.{i}.{j}"),
        *_layers("decoder/layer_{i}", "funnel.decoder.layers.{i}"),
        ("heads/mlm/bias", "lm_head.bias"),
        ("heads/rtd/inner", "discriminator_predictions.dense"),
        ("heads/rtd", "discriminator_predictions.dense_prediction"),
        ("heads/classifier/inner", "classifier.linear_hidden"),
        ("heads/classifier", "classifier.linear_out"),
        ("heads/span", "qa_outputs"),
    ),
    leaves=TORCH_LEAVES,
    forms={"*.r_kernel": ByHead()},
    heads={
        "mlm": {"bias": "V"},
        "generator": None,
        "rtd": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H 1", "bias": "1"},
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("hidden", "d_model"),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "n_head"),
        ("attention.head_size", "d_head"),
        ("feedforward.width", "d_inner"),
        ("feedforward.activation", "hidden_act"),
        ("dropout", "hidden_dropout"),
        ("attention.dropout", "attention_dropout"),
        ("epsilon", "layer_norm_eps"),
        ("funnel.sizes", "block_sizes"),
        ("funnel.repeats", "block_repeats"),
        ("funnel.decoder", "num_decoder_layers"),
        ("funnel.pooling", "pooling_type"),
        ("funnel.attention", "attention_type"),
        ("funnel.separate", "separate_cls"),
        ("funnel.truncate", "truncate_seq"),
        ("funnel.query_only", "pool_q_only"),
    ),
    silent={"block_repeats": None, "attention_type": "relative_shift", "pooling_type": "mean"}
    | dict.fromkeys(("separate_cls", "truncate_seq", "pool_q_only"), True),
    fixed={"model_type": "funnel", "tie_word_embeddings": True},
    classes={
        "FunnelBaseModel": Class(),
        "FunnelModel": Class(),
        "FunnelForMaskedLM": Class(("mlm",)),
        "FunnelForPreTraining": Class(("rtd",)),
        "FunnelForSequenceClassification": Class(("classifier",)),
        "FunnelForTokenClassification": ONE_MAP,
        "FunnelForQuestionAnswering": Class(("span",)),
        "FunnelForMultipleChoice": Class(("classifier",)),
    },
    prefix="funnel.",
    tied={"lm_head.weight": "funnel.embeddings.word_embeddings.weight"},
    unread={
        "activation_dropout": (0.0,),
        "initializer_*": "what new weights start with",
        "max_position_embeddings": "distances have no end",
        "type_vocab_size": "segments are compared with each other",
    },
)


def for_kind(spec: FunnelSpec, kind: "Kind") -> Json:
    """No decoder where one answer is given for a text (section 2.3)."""
    return {} if kind.per_token else {"funnel.decoder": 0}


def _blocks(*sizes: int, repeats: tuple[int, ...] | None = None) -> Json:
    return {"blocks.layers": sum(sizes), "funnel.sizes": sizes, "funnel.repeats": repeats}


_LARGE = {"hidden": 1024, "attention.heads": 16, "feedforward.width": 4096}
FUNNEL = register(
    dataclasses.replace(
        BERT,
        name="funnel",
        spec=FunnelSpec(epsilon=1e-9, pooler=False, embeddings=Embeddings(segments=0, kind="none", norm=True)).derive(
            {"feedforward.activation": "gelu_tanh"}
        ),
        sizes={  # table 2 and the released models
            "small": {},
            "medium": _blocks(6, 3, 3, repeats=(1, 2, 2)),
            "intermediate": {"blocks.layers": 18},
            "large": {"blocks.layers": 24} | _LARGE,
            "xlarge": {"blocks.layers": 30} | _LARGE,
        },
        aliases={},
        encoder=FunnelTransformer,
        names={"hf": HF},
        objective="masked_lm",
        has=(),
        for_kind=for_kind,
        longest=lambda spec: None,
        paper="Dai et al., 2020, Funnel-Transformer: Filtering out Sequential Redundancy for Efficient Language Processing",
    )
)
