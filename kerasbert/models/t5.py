"""T5: Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (Raffel et al., 2020), and T5 v1.1.

The architecture is section 2.1's: the Transformer's encoder-decoder with

- layer norms in front of the sublayers that only rescale: no mean is taken off and no bias added (RMSNorm), one more after
  each stack; no linear map adds a bias;
- relative positions in place of position embeddings: each head adds one learned number to a score, by the distance between
  key and query. 32 numbers for ranges of distances that grow logarithmically up to 128, beyond which all are one; all layers
  of a stack share them. The decoder, which sees nothing ahead, has them all for what is behind;
- scores that are not divided by the root of the head's size: the initialisation of the queries has it instead (mesh
  tensorflow, transformer_layers.py; `T5Attention.deviations`);
- one table of tokens for source, target and output; what the decoder gives is divided by sqrt(d_model) before it;
- dropout on embeddings, attention probabilities, within the feed-forward layers, on sublayers and after the last norms.

T5 v1.1 (google-research/text-to-text-transfer-transformer, released_checkpoints.md; Shazeer, 2020): feed-forward layers with
a gate, GELU(x W) * x V (GEGLU, the tanh approximation), an output table of its own whose logits are not scaled, no dropout in
pretraining. A checkpoint that shares the table all the same is read as it is.

32,128 rows of the table: 32,000 pieces, the sentinels <extra_id_0> ... <extra_id_99> as ids 32,099 down to 32,000, and 28
that nothing uses. Padding (0) starts the decoder, </s> (1) ends a text.

A text is classified by the decoder's vector of its last token, and answers are found in it by those of all tokens, where the
decoder reads the text itself behind its start token: transformers' T5ForSequenceClassification and T5ForQuestionAnswering. In the
paper both are written (section 2.4).
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Self

import keras
from keras import ops

from kerasbert.checkpoints.keras_hub_t5 import KERAS_HUB
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.checkpoints.readers import equal
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.block import PreNormBlock
from kerasbert.layers.buckets import Buckets, DistanceTable, bucketed, by_head, with_distances
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.decoder_block import PreNormDecoderBlock
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, EncoderDecoder, EncoderDecoderSpec, Stack
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.norms import RMSNorm
from kerasbert.layers.random import Dropout
from kerasbert.registry import Family, register
from kerasbert.spec import Attention as AttentionSpec
from kerasbert.spec import Blocks, Embeddings
from kerasbert.spec import FeedForward as FeedForwardSpec
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Reader
    from kerasbert.models.t5_encoder import T5EncoderSpec


@dataclasses.dataclass(frozen=True)
class Output:
    """How tokens are predicted.

    Args:
        own: bool, whether the output has a table of its own (v1.1), not that of the tokens.
        scaled: bool, whether the decoder's vectors are divided by sqrt(hidden) before it.
    """

    own: bool = False
    scaled: bool = True


@dataclasses.dataclass(frozen=True)
class Spec(EncoderDecoderSpec):
    """T5's. `initializer` is a factor of the standard deviations, which follow from the sizes.

    `feedforward.activation` "gated_gelu_tanh" is v1.1's.
    """

    relative: Buckets = Buckets()
    output: Output = Output()

    @property
    def head_deviation(self) -> float:
        """Of a head's kernels (modeling_t5.py, T5ClassificationHead): `initializer` itself would saturate its tanh."""
        return self.initializer * self.hidden**-0.5


def distance_table(spec: "Spec | T5EncoderSpec", both_sides: bool = True, **kwargs: Any) -> DistanceTable:
    """The learned numbers [buckets, N] of a stack or of a layer."""
    assert isinstance(spec.attention.heads, int)  # `validate` refuses others
    return DistanceTable(
        spec.relative, spec.attention.heads, spec.initializer * spec.hidden**-0.5, both_sides, **kwargs
    )


class T5Attention(Attention):
    """Attention whose scores are plain products and the learned numbers of the distances (section 2.1).

    Call: as its parent's; `scoring` float32 [1, N, S, K] is added to the scores.
    """

    def deviations(self, shape: Shape) -> tuple[float, float, float, float]:
        inner = self.heads * self.head_size
        by_input = self.initializer * shape[-1] ** -0.5
        return by_input * self.head_size**-0.5, by_input, by_input, self.initializer * inner**-0.5

    def scores(
        self, query: Tensor, key: Tensor, *, scoring: Tensor | None = None, queries: Queries = None, **at: object
    ) -> Tensor:
        return with_distances(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), scoring, queries)


class T5FeedForward(FeedForward):
    """Feed-forward network whose kernels start by their sizes (mesh tensorflow, transformer_layers.py)."""

    def deviations(self, shape: Shape) -> tuple[float, float]:
        return self.initializer * shape[-1] ** -0.5, self.initializer * self.width**-0.5


class T5Block(PreNormBlock):
    """One layer of the encoder."""

    attention_class, norm_class = T5Attention, RMSNorm

    def feedforward_class(self, *sizes: Any, **kwargs: Any) -> keras.layers.Layer:  # its dropout is the block's
        return T5FeedForward(*sizes, dropout=self.settings["dropout"], **kwargs)


class T5DecoderBlock(PreNormDecoderBlock):
    """One layer of the decoder; distances count in its self-attention alone."""

    attention_class, cross_attention_class, norm_class = T5Attention, T5Attention, RMSNorm
    feedforward_class = T5Block.feedforward_class


class T5Stack(Stack):
    """A stack with the learned numbers of its distances: `relative/table` [buckets, N].

    Args:
        both_sides: bool, whether keys ahead of the query have numbers of their own (the encoder's).
    """

    spec: Spec

    def __init__(self, *args: Any, both_sides: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.both_sides = both_sides

    def build(self, shape: Shape | None = None) -> None:
        super().build(shape)
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.relative = self.table_of_distances()
        self.last_dropout = Dropout(spec.dropout, name="last_dropout", **kwargs)
        self.last_dropout.build()

    def table_of_distances(self) -> DistanceTable | None:
        """The numbers that all layers share."""
        made = distance_table(self.spec, self.both_sides, name="relative", dtype=self.dtype_policy)
        made.build()
        return made

    def bucketed(self, row: Tensor, keys: Tensor) -> Tensor:
        """Which bucket a distance is in: places of the queries int32 [B or 1, S], K -> int32 [B or 1, S, K]."""
        return bucketed(self.spec.relative, self.both_sides, row, ops.expand_dims(ops.arange(keys, dtype="int32"), 0))

    def context(self, context: Context, length: Tensor) -> Context:
        assert self.relative is not None
        found = self.bucketed(*context.places(length))
        return dataclasses.replace(context, scoring=by_head(self.relative.table, found))

    def finish(self, x: Tensor, training: bool) -> Tensor:
        assert self.norm is not None
        return self.norm(x, dropout=self.last_dropout, training=training)


class T5(EncoderDecoder):
    """T5 and T5 v1.1. Weights beside the stacks': `embeddings/tokens/table` and, of v1.1, `output/table`, [V, H] both.

    Call: as its parent's; without decoder_token_ids the decoder reads the source, its start token first.
    """

    encoder_block, decoder_block, norm_class = T5Block, T5DecoderBlock, RMSNorm
    label_activation = "tanh"
    spec: Spec

    def stack_class(self, *args: Any, name: str, **kwargs: Any) -> keras.layers.Layer:
        return T5Stack(*args, name=name, both_sides=name == "encoder", **kwargs)

    def _build(self) -> None:
        super()._build()
        spec, self.output_table = self.spec, None
        if spec.output.own:  # t5x starts it so that logits are of size 1
            deviation = spec.initializer * spec.hidden**-0.5
            rows = spec.embeddings.vocabulary
            self.output_table = Table(rows, spec.hidden, deviation, name="output", dtype=self.dtype_policy)
            self.output_table.build()

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        if "decoder_token_ids" not in inputs:
            inputs = {**inputs, "decoder_token_ids": self.begun(inputs["token_ids"])}
        return super().call(inputs, training, queries, attention)

    def begun(self, token_ids: Tensor) -> Tensor:
        """A text as its decoder reads it: the start token, then all but the last place, int [B, S] -> [B, S]."""
        start = 0 if self.tokenizer is None else self.tokenizer.pad_id
        return ops.concatenate([ops.full_like(token_ids[:, :1], start), token_ids[:, :-1]], axis=1)

    def scaled(self, x: Tensor) -> Tensor:
        return x * ops.cast(self.spec.hidden**-0.5, x.dtype) if self.spec.output.scaled else x

    @property
    def output_rows(self) -> Tensor:
        return self.tokens.table if self.output_table is None else self.output_table.table


def _size(layers: int, hidden: int, width: int, heads: int) -> dict[str, int | None]:
    """Section 3.4, "Baseline" and "scaling"; heads have 64 numbers where nothing else is said."""
    size = 64 if hidden != 64 * heads else None
    sizes = {"blocks.layers": layers, "hidden": hidden, "feedforward.width": width, "attention.heads": heads}
    return sizes | {"attention.head_size": size}


V1_1_SIZES = {
    "small": _size(8, 512, 1024, 6),
    "base": _size(12, 768, 2048, 12),
    "large": _size(24, 1024, 2816, 16),
    "xl": _size(24, 2048, 5120, 32),
    "xxl": _size(24, 4096, 10240, 64),
}
V1_1 = {"feedforward.activation": "gated_gelu_tanh", "output.own": True, "output.scaled": False}

_ATTENTION = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
_FEEDFORWARD = (("inner", "wi"), ("gate", "wi_0"), ("linear", "wi_1"), ("outer", "wo"))


def _rows(stack: str, *sublayers: tuple[str, str, tuple]) -> tuple[tuple[str, str], ...]:
    """Names of one stack; the number of a sublayer of theirs is its place."""
    block, rows = f"{stack}.block.{{i}}.layer", []
    for i, (ours, theirs, parts) in enumerate(sublayers):
        rows += [(f"{stack}/block_{{i}}/{ours}/{part}", f"{block}.{i}.{theirs}.{name}") for part, name in parts]
        rows += [(f"{stack}/block_{{i}}/{ours}_norm", f"{block}.{i}.layer_norm")]
    relative = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return (*rows, (f"{stack}/relative", relative), (f"{stack}/norm", f"{stack}.final_layer_norm"))


def feed_forward(config: JsonMap, usual: str) -> str:
    """The feed_forward_proj of a configuration, `usual` where it says nothing."""
    found = config.get("feed_forward_proj") or usual
    return found if isinstance(found, str) else ""


def activations(usual: str) -> Json:
    """What a file repeats of feed_forward_proj."""

    def plain(config: JsonMap) -> str:
        found = feed_forward(config, usual)
        return "gelu_new" if found == "gated-gelu" else found.removeprefix("gated-")

    return {"dense_act_fn": plain, "is_gated_act": lambda config: feed_forward(config, usual).startswith("gated-")}


class T5Dialect(Dialect):
    """A table of words to write that is another than that of words to read where the file's are not equal (v1.1).

    All but the head of a classifier of texts stands within `transformer.`.
    """

    by_file = ("output.own",)

    def of(self, architecture: str | None) -> Self:
        """The names in files of one class of theirs."""
        found = super().of(architecture)
        if not (architecture or "").endswith("ForSequenceClassification"):
            return found
        return found.derive(
            ("encoder.", "transformer.encoder."), ("decoder.", "transformer.decoder."), ("shared", "transformer.shared")
        )

    def in_file(self, spec: Spec, tensors: "Reader") -> Spec:
        """With a table of its own where the file's differs."""
        tables = ("lm_head.weight", "shared.weight")
        own = set(tables) <= set(tensors.names()) and not equal(tensors, *tables)
        return spec.derive({"output.own": True}) if own else spec

    def write_config(self, config: Json, spec: Spec) -> Json:
        """With the ids of the released vocabulary, and whether the tables are one."""
        ids = {"decoder_start_token_id": 0, "eos_token_id": 1}
        return {"tie_word_embeddings": not spec.output.own} | ids | config


HF = T5Dialect(
    rows=(
        ("embeddings/tokens", "shared"),
        ("output", "lm_head"),
        *_rows("encoder", ("attention", "SelfAttention", _ATTENTION), ("feedforward", "DenseReluDense", _FEEDFORWARD)),
        *_rows(
            "decoder",
            ("attention", "SelfAttention", _ATTENTION),
            ("cross_attention", "EncDecAttention", _ATTENTION),
            ("feedforward", "DenseReluDense", _FEEDFORWARD),
        ),
        ("heads/classifier/inner", "classification_head.dense"),
        ("heads/classifier", "classification_head.out_proj"),
        ("heads/span", "qa_outputs"),
    ),
    leaves={"kernel": (".weight", "T"), "bias": (".bias",), "gamma": (".weight",), "table": (".weight",)},
    heads={
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("hidden", "d_model"),
        ("attention.head_size", "d_kv"),
        ("attention.heads", "num_heads"),
        ("feedforward.width", "d_ff"),
        ("feedforward.activation", "feed_forward_proj"),
        ("blocks.layers", "num_layers"),
        ("decoder.layers", "num_decoder_layers"),
        ("relative.buckets", "relative_attention_num_buckets"),
        ("relative.distance", "relative_attention_max_distance"),
        ("dropout", "dropout_rate"),
        ("initializer", "initializer_factor"),
        ("epsilon", "layer_norm_epsilon"),
        ("output.scaled", "scale_decoder_outputs"),
    ),
    fixed={"model_type": "t5", "is_encoder_decoder": True, **activations("relu")},
    classes={
        "T5ForConditionalGeneration": Class(),
        "T5Model": Class(),
        "T5WithLMHeadModel": Class(),
        "T5ForSequenceClassification": Class(("classifier",)),
        "T5ForQuestionAnswering": Class(("span",)),
        "T5ForTokenClassification": Class(refused="has a head on the encoder alone"),  # t5-encoder's, as the next
        "T5EncoderModel": Class(refused="is an encoder without the decoder"),
    },
    silent={
        "feed_forward_proj": "relu",
        "num_decoder_layers": None,
        "relative_attention_max_distance": 128,
        # a configuration of before transformers 5 says that v1.1 is not tied, and means this too
        "scale_decoder_outputs": lambda config: config.get("tie_word_embeddings") is not False,
    },
    special={"decoder_start_token_id": "pad", "eos_token_id": "sep"},
    tied={f"{name}.weight": "shared.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
    # of the first conversions; no code adds distances where the decoder looks at the encoder
    ignored={"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": None},
    unread={"n_positions": "positions are relative", "num_hidden_layers": "num_layers by another name"},
)

T5_FAMILY = register(
    Family(
        name="t5",
        spec=Spec(
            epsilon=1e-6,
            initializer=1.0,
            embeddings=Embeddings(vocabulary=32128, segments=0, kind="none"),
            attention=AttentionSpec(heads=12),
            feedforward=FeedForwardSpec(activation="relu"),
            blocks=Blocks(norm="pre", bias=False),
        ),
        sizes={
            "base": {},
            "small": _size(6, 512, 2048, 8),
            "large": _size(24, 1024, 4096, 16),
            "3b": _size(24, 1024, 16384, 32) | {"attention.head_size": 128},
            "11b": _size(24, 1024, 65536, 128) | {"attention.head_size": 128},
            **{f"v1.1-{size}": sizes | V1_1 for size, sizes in V1_1_SIZES.items()},
        },
        encoder=T5,
        kind="seq2seq",
        tokenizer="unigram",
        objective="span_corruption",
        names={"hf": HF, "keras_hub": KERAS_HUB},
        inputs=SOURCE_AND_TARGET,
        of_text=SOURCE_AND_TARGET[:2],
        readout="last",
        longest=lambda spec: None,
        paper="Raffel et al., 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    )
)
