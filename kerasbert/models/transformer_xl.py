"""Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context (Dai et al., 2019).

A decoder as the Transformer's (norms after the sublayers, ReLU), with

- section 3.2, recurrence: a layer's keys and values are read from its own tokens and from what it read of the tokens before
  them, the memory, whose gradient is stopped. So a token of the last of L layers depends on L times M tokens before its own
  segment;
- section 3.3, relative positions: scores are (q + u) k + (q + v) W_r R, R the sinusoid of the distance; u and v are weights of
  each layer (`untie_r` of the released code; the paper writes one pair);
- section 4.1, WikiText-103: adaptive input and softmax (Grave et al., 2017) over 267,735 words, cut at 20,000, 40,000 and
  200,000; in the large model each cluster's vectors are a quarter as wide as those of the cluster before it. Output tables
  and the tails' projections are those of the input.

Of the released code (kimiyoung/transformer-xl): attention adds no bias; embeddings are multiplied by sqrt(H) and not normalised;
dropout in the feed-forward layers too, and on what the last layer gives; in evaluation longer memories, distances beyond
`memory.clamp` as one, and `memory.same_length`, by which every token sees equally many.

Sizes are those of the scripts (run_wt103_base.sh, run_wt103_large.sh). The base size has 151.1M parameters, as in table 1. The
large one has 285.2M, as the released checkpoint of 18 layers; table 1 says 257M, which 16 such layers would have.

There is no tokenizer of words here: pieces take their place, and where there are fewer of them fewer cutoffs.

Differs: a memory that is not full yet is not seen, where the released TensorFlow code begins with zeros that are; the memory
begins anew with each row (`objectives/segments.py`); sinusoids are not dropped.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from keras import ops

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.names import TORCH_LEAVES, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import relative, visibility
from kerasbert.layers.adaptive import Adaptive, AdaptiveEmbeddings, AdaptiveSoftmax
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.causal import CausalLM
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.feedforward import FeedForward
from kerasbert.layers.memory import Memory, Recurrence, remembered, within
from kerasbert.layers.random import Dropout
from kerasbert.layers.relative import Relative, RelativeAttention
from kerasbert.registry import Family, register
from kerasbert.spec import Attention, Blocks, Embeddings, Spec
from kerasbert.spec import FeedForward as FeedForwardSpec
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.layers.cache import Cache


@dataclasses.dataclass(frozen=True)
class TransformerXLSpec(Spec):
    """Transformer-XL's. `embeddings.positions` bounds a segment; there is no table of positions."""

    adaptive: Adaptive = dataclasses.field(default=Adaptive())
    memory: Recurrence = dataclasses.field(default=Recurrence())

    def validate(self) -> "TransformerXLSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        self.adaptive.check(self.embeddings.vocabulary, self.embeddings.width or self.hidden)
        self.memory.check()
        if self.hidden % 2:
            raise InputError(f"hidden must be even, half of a sinusoid are cosines. Received: {self.hidden}")
        return self


class UnbiasedAttention(RelativeAttention):
    """Relative attention whose maps add no bias, whatever the feed-forward layers do.

    Args: as RelativeAttention.
    """

    def __init__(self, *args: Any, use_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, use_bias=False, **kwargs)


class TransformerXLBlock(Block):
    """A layer with relative positions."""

    attention_class = UnbiasedAttention

    def feedforward_class(self, *sizes: Any, **kwargs: Any) -> Callable:
        return FeedForward(*sizes, dropout=self.settings["dropout"], **kwargs)


class PreNormTransformerXLBlock(PreNormBlock):
    """The same with the norms in front (pre_lnorm of the released code, which has no last norm)."""

    attention_class = UnbiasedAttention
    feedforward_class = TransformerXLBlock.feedforward_class


class TransformerXL(CausalLM):
    """A stack whose tokens see themselves, those before them and a memory.

    Args and call: as Encoder; position_ids are not read, the order of the tokens is. `read` takes and gives a memory.
    """

    embeddings_class = AdaptiveEmbeddings
    label_bias = False
    spec: TransformerXLSpec

    @property
    def block_class(self) -> Callable:
        """Blocks of the Spec's norm."""
        return PreNormTransformerXLBlock if self.spec.blocks.norm == "pre" else TransformerXLBlock

    def _build(self) -> None:
        super()._build()
        self.softmax = AdaptiveSoftmax(self.spec, name="output", dtype=self.dtype_policy)
        self.softmax.build()
        self.last_dropout = Dropout(self.spec.dropout, name="last_dropout", dtype=self.dtype_policy)
        self.last_dropout.build()

    # What is seen, and from where

    def visible(
        self, inputs: Mapping[str, Tensor], memory: Memory | None = None, about: Recurrence | None = None
    ) -> Tensor:
        """As its parent's, of M + S keys: all of the memory is seen, or with `same_length` the last tokens."""
        about = about or self.spec.memory
        own, length, places = super().visible(inputs), ops.shape(inputs["token_ids"])[1], 0
        if memory is not None:
            places = memory.places
            mask = ops.ones((1, places)) if memory.mask is None else memory.mask
            seen = ops.expand_dims(ops.cast(mask, "bool"), 1)
            own = ops.ones((1, 1, length), "bool") if own is None else own
            rows = max(own.shape[0] or 0, seen.shape[0] or 0) if None not in (own.shape[0], seen.shape[0]) else None
            rows = ops.shape(inputs["token_ids"])[0] if rows is None else rows
            parts = (ops.broadcast_to(each, (rows, length, ops.shape(each)[2])) for each in (seen, own))
            own = ops.concatenate(list(parts), axis=2)
        return visibility.both(own, within(ops.arange(places, places + length), places + length, about))

    def context(
        self, inputs: Mapping[str, Tensor], memory: Memory | None = None, about: Recurrence | None = None
    ) -> Context:
        about = about or self.spec.memory
        visible, length = self.visible(inputs, memory, about), ops.shape(inputs["token_ids"])[1]
        places = 0 if memory is None else memory.places
        last = 0 if self.spec.attention.causal else 1 - length
        vectors = self.sinusoids(places + length, last, about)
        positions = Relative(vectors, places + length, memory=places)
        layers = None if memory is None else memory.layers
        return Context(None if visible is None else visibility.bias(visible), memory=layers, scoring=positions)

    def sinusoids(self, keys: Tensor, last: Tensor, about: Recurrence) -> Tensor:
        """Vectors of the distances from `keys` down to `last`: float32 [R, H]."""
        return relative.sinusoids(relative.distances(keys, last, about.clamp), self.spec.hidden)

    def run(
        self, inputs: Tensor, context: Context, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        cache = cast("Cache | None", context.cache)
        if cache is not None and cache.column is not None:  # a step: one query a row, keys at the places of the cache
            column, about = ops.expand_dims(cache.column, 1), self.spec.memory
            vectors = self.sinusoids(cache.places, 0, about)
            positions = Relative(vectors, cache.places, ordered=False, places=column)
            near = within(ops.expand_dims(column, 2), cache.places, about)
            bias = context.bias if near is None else context.bias + visibility.bias(near)
            context = dataclasses.replace(context, scoring=positions, bias=bias)
        outputs = super().run(inputs, context, training, queries, attention)
        return outputs | {"sequence": self.last_dropout(outputs["sequence"], training=training)}

    def read(
        self,
        inputs: Mapping[str, Tensor],
        memory: Memory | None = None,
        about: Recurrence | None = None,
        *,
        training: bool = False,
        queries: Queries = None,
        remember: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], Memory | None]:
        """One segment after others: the outputs of `call`, and the memory for the next (section 3.2).

        Args:
            inputs: as in `call`, of the segment.
            memory: what was given for the segment before it; None where a text begins.
            about: how much is remembered; the Spec's `memory` by default.
            training: bool.
            queries: as in `call`.
            remember: bool or 0/1 [B, S], which tokens the memory shall show; all by default.
        """
        about = (about or self.spec.memory).check()
        self.check(inputs)
        outputs = self.run(inputs, self.context(inputs, memory, about), training, queries)
        return outputs, remembered(memory, outputs["hidden"][:-1], about.length, remember)

    # What comes next

    def logits(self, x: Tensor) -> Tensor:
        """Which token comes next: `sequence` [B, P, H] -> float32 [B, P, V], log probabilities where there are clusters."""
        return self.softmax(x, embeddings=self.embeddings)

    def output_clusters(self, x: Tensor) -> list[tuple[Tensor, Tensor]] | None:
        """What `objectives.lm_loss.cluster_sums` takes of `sequence`; None where one softmax is over all tokens."""
        return self.softmax.columns(x, self.embeddings) if self.softmax.clusters.tails else None

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with, where one softmax is over all tokens."""
        return self._column(x)[0]

    @property
    def output_rows(self) -> Tensor:
        """The table whose products are the logits, its last column the bias, where one softmax is over all tokens."""
        return self._column(ops.zeros((1, self.spec.hidden)))[1]

    def _column(self, x: Tensor) -> Tensor:
        if self.softmax.clusters.tails:
            raise InputError(
                f"an adaptive softmax of {self.softmax.clusters.tails + 1} clusters has no one table of tokens"
            )
        return self.softmax.columns(x, self.embeddings)[0]


def flops(spec: TransformerXLSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of an update, as `training.flops.update_flops` with the memory's keys and values.

    Assumptions: every segment has a memory of M tokens; of a tail's logits nothing, for few tokens are in one.
    """
    hidden, length = spec.hidden, tokens / sequences
    keys, per_token = length + spec.memory.length, 0.0
    for layer in range(spec.blocks.layers):
        inner = spec.per_layer(spec.attention.heads, layer) * spec.head_size
        per_token += (
            2 * hidden * inner * (2 + 2 * keys / length) + 2 * 3 * inner * keys
        )  # keys and values of the memory too
        per_token += 2 * 2 * hidden * spec.per_layer(spec.feedforward.width, layer)
    width, borders = spec.embeddings.width or hidden, spec.adaptive.borders(spec.embeddings.vocabulary)
    head = 2 * width * (borders[0][1] + len(borders) - 1) + (2 * hidden * width if spec.adaptive.div_val > 1 else 0)
    return 3.0 * (tokens * per_token + predictions * head)


def kept(spec: TransformerXLSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps, as `training.preflight.kept_numbers`: scores of two terms over S + M keys."""
    keys = length + spec.memory.length
    per_token = sum(
        9 * spec.hidden + spec.per_layer(spec.feedforward.width, i) + 2 * spec.per_layer(spec.attention.heads, i) * keys
        for i in range(spec.blocks.layers)
    )
    return rows * length * (per_token + predictions * spec.embeddings.vocabulary)


def _usual(config: JsonMap) -> list[int] | None:
    """The cutoffs that `Adaptive` has for their vocabulary."""
    size = config.get("vocab_size")
    return [begin for begin, _ in Adaptive().borders(size)[1:]] if isinstance(size, int) else None


_LAYER = "transformer.layers.{i}"
_ATTENTION, _FEEDFORWARD = f"{_LAYER}.dec_attn", f"{_LAYER}.pos_ff"
_CLUSTERS, _PROJECTION = range(10), "transformer.word_emb.emb_projs"


class TransformerXLDialect(Dialect):
    """Distances without a bound (any number below 0), and the cutoffs of the released models, which ours leaves out."""

    def read_config(self, config: Json) -> Json:
        """With None for what is usual."""
        clamp, cutoffs = config.get("clamp_len"), config.get("cutoffs")
        config = config | ({"clamp_len": -1} if type(clamp) is int and clamp < 0 else {})
        return config | ({"cutoffs": None} if cutoffs is not None and cutoffs == _usual(config) else {})

    def write_config(self, config: Json, spec: TransformerXLSpec) -> Json:
        """With the cutoffs, and what their classes ask for besides."""
        clusters = len(spec.adaptive.borders(spec.embeddings.vocabulary))
        about = {"adaptive": True, "sample_softmax": -1, "tie_projs": [i > 0 for i in range(clusters)]}
        return about | config | ({"cutoffs": _usual(config)} if config["cutoffs"] is None else {})


HF = TransformerXLDialect(
    rows=(
        ("embeddings/tokens", "transformer.word_emb.emb_layers.0"),
        ("embeddings/tokens_{j}", "transformer.word_emb.emb_layers.{j}"),
        ("embeddings/projection/kernel", "transformer.word_emb.emb_projs.0", "T"),
        ("embeddings/projection_{j}/kernel", "transformer.word_emb.emb_projs.{j}", "T"),
        *(
            (f"block_{{i}}/attention/{part}", f"{_ATTENTION}.qkv_net#{n}")
            for n, part in enumerate(("query", "key", "value"))
        ),
        ("block_{i}/attention/position", f"{_ATTENTION}.r_net"),
        ("block_{i}/attention/output", f"{_ATTENTION}.o_net"),
        ("block_{i}/attention/content_bias", f"{_ATTENTION}.r_w_bias"),
        ("block_{i}/attention/position_bias", f"{_ATTENTION}.r_r_bias"),
        ("block_{i}/attention_norm", f"{_ATTENTION}.layer_norm"),
        ("block_{i}/feedforward/inner", f"{_FEEDFORWARD}.CoreNet.0"),
        ("block_{i}/feedforward/outer", f"{_FEEDFORWARD}.CoreNet.3"),
        ("block_{i}/feedforward_norm", f"{_FEEDFORWARD}.layer_norm"),
        ("output/bias", "crit.out_layers.0.bias"),
        ("output/bias_{j}", "crit.out_layers.{j}.bias"),
        ("output/tail_kernel", "crit.cluster_weight"),
        ("output/tail_bias", "crit.cluster_bias"),
        ("output/projection/kernel", "crit.out_projs.0"),
        ("heads/classifier", "score"),
    ),
    leaves=TORCH_LEAVES,
    forms={"*.qkv_net.weight": Joined(3, axis=0)},
    heads={"classifier": {"kernel": "H L"}},
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.width", "d_embed"),
        ("embeddings.positions", "n_positions"),
        ("hidden", "d_model"),
        ("blocks.layers", "n_layer"),
        ("attention.heads", "n_head"),
        ("attention.head_size", "d_head"),
        ("feedforward.width", "d_inner"),
        ("dropout", "dropout"),
        ("attention.dropout", "dropatt"),
        ("initializer", "init_std"),
        ("epsilon", "layer_norm_epsilon"),
        ("adaptive.cutoffs", "cutoffs"),
        ("adaptive.div_val", "div_val"),
        ("memory.length", "mem_len"),
        ("memory.clamp", "clamp_len"),
        ("memory.same_length", "same_length"),
    ),
    # what a configuration of theirs leaves out is at their class's default; n_positions is ours alone
    silent={"n_positions": 1024, "dropout": 0.1, "dropatt": 0.0, "clamp_len": 1000, "same_length": True},
    values={"clamp_len": {-1: None}},
    unprojected=True,
    fixed={
        "model_type": "transfo-xl",
        "attn_type": 0,
        "pre_lnorm": False,
        "untie_r": True,
        "proj_share_all_but_first": True,
        "tie_word_embeddings": True,
        "tie_weight": True,
    },
    model_types=("transfo-xl",),
    special={"eos_token_id": "sep"},
    classes={
        "TransfoXLLMHeadModel": Class(),
        "TransfoXLModel": Class(),
        "TransfoXLForSequenceClassification": Class(("classifier",)),
    },
    tied={
        **{f"crit.out_layers.{i}.weight": f"transformer.word_emb.emb_layers.{i}.weight" for i in _CLUSTERS},
        **{f"crit.out_projs.{i}": (f"{_PROJECTION}.{i}", f"{_PROJECTION}.0") for i in _CLUSTERS[1:]},
    },
    ignored={"transformer.pos_emb.inv_freq": buffers.frequencies},
    unread={
        "tie_projs": "projections are compared",
        "init": "how a new model starts",
        "init_range": "how a new model starts",
        "proj_init_std": "how a new model starts",
        "tgt_len": "the length of its training's texts",
        "ext_len": "the length of its evaluation's texts",
        "adaptive": (True,),
        "sample_softmax": (-1,),
    },
)

TRANSFORMER_XL = register(
    Family(
        name="transformer-xl",
        spec=TransformerXLSpec(
            hidden=410,
            epsilon=1e-5,
            pooler=False,
            embeddings=Embeddings(vocabulary=267735, positions=1024, segments=0, kind="none"),
            attention=Attention(heads=10, dropout=0.0, causal=True),
            feedforward=FeedForwardSpec(width=2100, activation="relu"),
            blocks=Blocks(layers=16),
        ),
        sizes={
            "base": {},
            "large": {
                "hidden": 1024,
                "blocks.layers": 18,
                "attention.heads": 16,
                "feedforward.width": 4096,
                "dropout": 0.2,
                "attention.dropout": 0.2,
                "adaptive.div_val": 4,
                "memory.length": 384,
            },
        },
        encoder=TransformerXL,
        kind="decoder",
        tokenizer="unigram",
        objective="segment_lm",
        names={"hf": HF},
        readout="last",
        flops=flops,
        memory=kept,
        paper="Dai et al., 2019, Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
    )
)
