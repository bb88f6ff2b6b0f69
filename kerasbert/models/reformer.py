"""Reformer: The Efficient Transformer (Kitaev, Kaiser and Levskaya, 2020).

Differences from a pre-norm Transformer, for sequences of up to a million tokens:

- Section 2: attention by locality-sensitive hashing, in layers that share queries and keys; in the released models every
  second layer, or nine of twelve, attends to its neighbourhood instead (`reversible.kinds`, `layers/lsh.py`).
- Section 3: reversible layers (`layers/reversible.py`), so that activations do not grow with their number, and feed-forward
  layers that are computed in chunks (`reversible.chunk`), which changes no number.
- Section 5 and the released code: axial positions, a * b of them from a + b vectors; ReLU with dropout in front of it; no
  biases in attention; the two streams side by side, normalised over 2 H, are what an untied head reads.

`hidden` is the width of what heads read, 2 H; `embeddings.width` is H, transformers' hidden_size. The released models are causal;
`--set attention.causal=false` makes one of both sides. A text is classified by its first token, a causal model's by its last.

A new model's tokens start as its axial positions (`axial.initializer`), as in trax's `Embedding` of 2020.

Differs: texts of any length up to a * b are trained; transformers asks for a * b tokens exactly. Buckets that a configuration
leaves open follow from the longest sequence, there from the first batch. transformers 5 stores the bias of the head and
adds it to nothing; here, as in the released code, it counts. Writing a token at a time is not here: who shares a chunk
depends on all tokens, so that the family is an encoder, which `generation` refuses.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import keras
from keras import ops

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.names import LIST, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.axial import Axial, ReformerEmbeddings
from kerasbert.layers.chunks import Chunks, Local, Lsh, Visible
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import Queries
from kerasbert.layers.reversible import KINDS, Reversible, run
from kerasbert.layers.reversible_block import ReformerBlock, TokenHead, Told
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import Family, register
from kerasbert.spec import Attention, Blocks, Embeddings, FeedForward, Spec
from kerasbert.storage.json_view import JsonMap


@dataclasses.dataclass(frozen=True)
class ReformerSpec(Spec):
    """A Reformer as data."""

    lsh: Lsh = Lsh()
    local: Local = Local()
    axial: Axial = Axial()
    reversible: Reversible = Reversible()

    attended = "embeddings.width"

    def validate(self) -> Spec:
        super().validate()
        width = self.embeddings.width
        if width is None or self.hidden != 2 * width:
            raise InputError(
                f"hidden {self.hidden} must be twice embeddings.width {width}: heads read two streams side by side"
            )
        strange = sorted(set(self.reversible.kinds) - set(KINDS))
        if strange or not self.reversible.kinds:
            raise InputError(f"reversible.kinds must be of {', '.join(KINDS)}. Received: {list(self.reversible.kinds)}")
        if self.blocks.norm != "pre" or self.blocks.share != "none":
            raise InputError(
                f"blocks.norm {self.blocks.norm!r}, blocks.share {self.blocks.share!r}: a reversible stack has 'pre', 'none'"
            )
        if self.pals.width:
            raise InputError(f"pals.width {self.pals.width}: projected attention layers read one stream, leave it 0")
        self._check_layers()
        self._check_axes()
        return self

    def _check_layers(self) -> None:
        if self.reversible.chunk < 0:
            raise InputError(f"reversible.chunk must be at least 0. Received: {self.reversible.chunk}")
        for name in KINDS:
            getattr(self, name).check(name, self.attention.causal and name in self.reversible.kinds)

    def _check_axes(self) -> None:
        axial, width = self.axial, self.embeddings.width
        if not axial.factored:
            return
        if len(axial.shape) != 2 or min(axial.shape) < 1:
            raise InputError(f"axial.shape must be two sizes of at least 1. Received: {list(axial.shape)}")
        if len(self.axial_widths) != 2 or min(self.axial_widths) < 1 or sum(self.axial_widths) != width:
            raise InputError(
                f"axial.widths {list(self.axial_widths)} must be two that make embeddings.width {width}: change one of them"
            )

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that has positions."""
        places = super().longest
        return min(places, math.prod(self.axial.shape)) if self.axial.factored else places

    @property
    def axial_widths(self) -> tuple[int, ...]:
        """What row and column give of a position's vector."""
        width = self.embeddings.width or 0
        return (width // 4, width - width // 4) if self.axial.widths is None else self.axial.widths

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer."""
        kinds = self.reversible.kinds
        return tuple(kinds[i % len(kinds)] for i in range(self.blocks.layers))

    @property
    def lsh_dropout(self) -> float:
        """Of the layers that hash."""
        found = self.attention.dropout if self.lsh.dropout is None else self.lsh.dropout
        return self.dropout if found is None else found

    @property
    def buckets(self) -> tuple[int, ...]:
        """Factors of the number of buckets."""
        return self.lsh.factors(self.longest)

    def chunks(self, kind: str) -> Chunks:
        """How the layers of a kind cut a sequence."""
        part, sizes = getattr(self, kind), [getattr(self, each).chunk for each in set(self.layer_kinds)]
        return Chunks(part.chunk, part.before, part.after, math.lcm(*sizes), min(sizes))


class Reformer(Encoder):
    """Embeddings, a reversible stack, a norm over both streams.

    Args:
        spec: ReformerSpec.
    Call: as Encoder; segment_ids are not read. `sequence` is [B, S, 2 H]; the last half of each of `hidden`, but for the last
        one, is transformers' hidden state. In training the stack keeps no hidden states, unless `keeps_hidden` is set.
    """

    embeddings_class = ReformerEmbeddings
    token_head = TokenHead
    label_activation = "tanh"
    spec: ReformerSpec

    smooth = False  # a token falls into another bucket at once

    @property
    def block_class(self) -> Callable:
        """Blocks of this Spec."""
        return functools.partial(ReformerBlock, spec=self.spec)

    @property
    def label_width(self) -> int:
        """Of the hidden layer in the head of a classification (ReformerClassificationHead)."""
        return self.spec.hidden // 2

    @property
    def readout(self) -> str:
        """What stands for a text: a causal model's first token has seen nothing but itself."""
        return "last" if self.spec.attention.causal else "first"

    def _build(self) -> None:
        super()._build()
        self.last_dropout = Dropout(self.spec.dropout, name="last_dropout", dtype=self.dtype_policy)
        self.last_dropout.build()
        self.seeds = keras.random.SeedGenerator()

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        pieces = inputs.get("packed_ids")
        real = inputs.get("padding_mask") if pieces is None else None
        matrix = inputs.get("visible_matrix")
        return Told(visible=Visible(real, pieces, matrix, self.spec.attention.causal))

    def run(
        self, inputs: Tensor, context: Context, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        if not training or random.scoped():
            return self._run(inputs, context, training, queries, attention)
        words = self.seeds.next()  # in a user's own `fit`: all that is drawn in this pass follows from it
        rows = ops.arange(ops.shape(inputs["token_ids"])[0], dtype="int32")
        with random.scope(random.key(words[0], words[1]), rows):
            return self._run(inputs, context, training, queries, attention)

    def _run(
        self, inputs: Mapping[str, Tensor], context: Context, training: bool, queries: Queries, attention: bool
    ) -> dict[str, Tensor]:
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        x = ops.cast(x, "float32")
        x = ops.concatenate([x, x], axis=-1)
        hidden, weights, rest = [x], [], self.blocks
        context = dataclasses.replace(context, attention=attention)
        forgetful = training and not (attention or self.keeps_hidden or self.quantized)
        if forgetful:
            rest = [] if queries is None else self.blocks[-1:]
            halves = [
                half for block in self.blocks[: len(self.blocks) - len(rest)] for half in block.halves(context, True)
            ]
            x = ops.concatenate(run(halves, *ops.split(x, 2, axis=-1)), axis=-1)
        for i, block in enumerate(rest):
            at = context if i + 1 < len(rest) else context.of(queries)
            x, probabilities = block(x, context=at, training=training)
            hidden.append(x)
            weights.append(probabilities)
        x = self.norm(x, dropout=self.last_dropout, training=training)
        outputs = {"sequence": x} if forgetful else {"sequence": x, "hidden": (*hidden[:-1], x)}
        return outputs | ({"attention": tuple(weights)} if attention else {})

    @property
    def quantized(self) -> bool:
        """Whether it is trained for int8: what its layers then note of their numbers is noted once."""
        return any(getattr(layer, "quantizer", None) is not None for layer in self._flatten_layers())

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        size, longest, axial = inputs["token_ids"].shape[1], self.spec.longest, self.spec.axial
        if axial.factored and size and size > longest and "position_ids" not in inputs:
            raise InputError(
                f"token_ids has length {size}, expected at most {longest}: embeddings.positions is "
                f"{self.spec.embeddings.positions}, axial.shape {' x '.join(map(str, axial.shape))}"
            )
        super().check(inputs)


_LAYER = "reformer.encoder.layers.{i}"
_ATTENTION = f"{_LAYER}.attention.self_attention"


class ReformerDialect(Dialect):
    """What ours may leave to the rest is written out; a second bias is stored and added to nothing."""

    spare = ("lm_head.bias",)

    def written(self, spec: ReformerSpec) -> JsonMap:
        """The kinds of layers, the widths of the axes, a rate of dropout."""
        return {
            "reversible.kinds": spec.layer_kinds,
            "axial.widths": spec.axial_widths,
            "lsh.dropout": spec.lsh_dropout,
        }


HF = ReformerDialect(
    rows=(
        ("embeddings/tokens", "reformer.embeddings.word_embeddings"),
        ("embeddings/positions/row_table", "reformer.embeddings.position_embeddings.weights.0"),
        ("embeddings/positions/column_table", "reformer.embeddings.position_embeddings.weights.1"),
        ("embeddings/positions", "reformer.embeddings.position_embeddings.embedding"),
        ("block_{i}/attention_norm", f"{_LAYER}.attention.layer_norm"),
        *((f"block_{{i}}/attention/{part}", f"{_ATTENTION}.{part}") for part in ("query_key", "query", "key", "value")),
        ("block_{i}/attention/output", f"{_LAYER}.attention.output.dense"),
        ("block_{i}/feedforward_norm", f"{_LAYER}.feed_forward.layer_norm"),
        ("block_{i}/feedforward/inner", f"{_LAYER}.feed_forward.dense.dense"),
        ("block_{i}/feedforward/outer", f"{_LAYER}.feed_forward.output.dense"),
        ("norm", "reformer.encoder.layer_norm"),
        ("heads/mlm/table", "lm_head.decoder.weight"),
        ("heads/mlm/bias", "lm_head.decoder.bias"),
        ("heads/classifier/inner", "classifier.dense"),
        ("heads/classifier", "classifier.out_proj"),
        ("heads/span", "qa_outputs"),
    ),
    leaves={**BERT_HF.leaves, "table": (".weight",)},
    heads={
        "mlm": {"table": "V H", "bias": "V"},
        "classifier": {"inner/kernel": "H E", "inner/bias": "E", "kernel": "E L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("embeddings.width", "hidden_size"),
        ("hidden", "hidden_size", 2),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "num_attention_heads"),
        ("attention.head_size", "attention_head_size"),
        ("attention.causal", "is_decoder"),
        ("attention.dropout", "local_attention_probs_dropout_prob"),
        ("feedforward.width", "feed_forward_size"),
        ("feedforward.activation", "hidden_act"),
        ("dropout", "hidden_dropout_prob"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_eps"),
        ("lsh.chunk", "lsh_attn_chunk_length"),
        ("lsh.before", "lsh_num_chunks_before"),
        ("lsh.after", "lsh_num_chunks_after"),
        ("lsh.rounds", "num_hashes"),
        ("lsh.buckets", "num_buckets", LIST),
        ("lsh.dropout", "lsh_attention_probs_dropout_prob"),
        ("local.chunk", "local_attn_chunk_length"),
        ("local.before", "local_num_chunks_before"),
        ("local.after", "local_num_chunks_after"),
        ("axial.factored", "axial_pos_embds"),
        ("axial.shape", "axial_pos_shape", LIST),
        ("axial.widths", "axial_pos_embds_dim", LIST),
        ("axial.initializer", "axial_norm_std"),
        ("reversible.kinds", "attn_layers", LIST),
        ("reversible.chunk", "chunk_size_feed_forward"),
    ),
    silent={
        "num_hidden_layers": lambda config: len(config.get("attn_layers") or KINDS * 3),
        "is_decoder": False,
        "chunk_size_feed_forward": 0,
        "num_hashes": 1,
        **{f"{kind}_num_chunks_{side}": int(side == "before") for kind in KINDS for side in ("before", "after")},
    },
    fixed={"model_type": "reformer", "tie_word_embeddings": False},
    classes={
        "ReformerModel": Class(),
        "ReformerModelWithLMHead": Class(("mlm",), fixed={"is_decoder": True}),
        "ReformerForMaskedLM": Class(("mlm",), fixed={"is_decoder": False}),
        # theirs reads the first token of a causal model too, which has seen nothing
        "ReformerForSequenceClassification": Class(("classifier",), fixed={"is_decoder": False}),
        "ReformerForQuestionAnswering": Class(("span",)),
    },
    # transformers before 5 tied both, 5.0 to 5.23 stored the bias alone and added it to nothing, 5.24 has two and adds the first
    tied={"lm_head.bias": "lm_head.decoder.bias"},
    prefix="reformer.",
    unread={"chunk_size_lm_head": "computed in parts; the same sum"},
    special={"eos_token_id": "sep"},
    ignored={"*.mask_value_float*": buffers.hidden, "*.self_mask_value_float*": buffers.hidden},
)


def update_flops(spec: ReformerSpec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of one update, as `training.flops.update_flops` counts, and one forward pass more: it is computed twice."""
    width, length = spec.embeddings.width or 0, tokens / sequences
    per_token = 0.0
    for layer, kind in enumerate(spec.layer_kinds):
        inner = spec.per_layer(spec.attention.heads, layer) * spec.head_size
        part, rounds = getattr(spec, kind), spec.lsh.rounds if kind == "lsh" else 1
        seen = min(length, (1 + part.before + part.after) * part.chunk)
        maps = 4 if kind == "local" else 3
        hashed = 2 * inner * rounds * sum(spec.buckets) / 2 if kind == "lsh" else 0.0
        per_token += 2 * maps * width * inner + 2 * 2 * inner * seen * rounds + hashed
        per_token += 2 * 2 * width * spec.per_layer(spec.feedforward.width, layer)
    return 4.0 * tokens * per_token + 3.0 * predictions * 2 * spec.hidden * spec.embeddings.vocabulary


def kept_numbers(spec: ReformerSpec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass keeps: those of one layer, however many there are, the streams and the logits."""
    of_layers, buckets = [], 0
    for layer, kind in enumerate(spec.layer_kinds):
        heads = spec.per_layer(spec.attention.heads, layer)
        part, rounds = getattr(spec, kind), spec.lsh.rounds if kind == "lsh" else 1
        seen = (1 + part.before + part.after) * part.chunk
        of_layers += [rounds * heads * (seen + 4 * spec.head_size), spec.per_layer(spec.feedforward.width, layer)]
        buckets += heads * rounds if kind == "lsh" else 0
    width = 6 * spec.hidden + max(of_layers) + buckets
    return rows * length * (width + predictions * spec.embeddings.vocabulary)


_ENWIK8 = ("local", "local", "lsh", "local", "local", "local", "lsh", "local", "local", "local", "lsh", "local")

REFORMER = register(
    Family(
        name="reformer",
        has=(),  # its two streams and shared maps are not cut, and its layers are not imitated
        spec=ReformerSpec(
            hidden=512,
            dropout=0.05,
            epsilon=1e-12,
            pooler=False,
            embeddings=Embeddings(vocabulary=320, width=256, positions=524288, segments=0),
            attention=Attention(heads=2, head_size=64, causal=True),
            feedforward=FeedForward(width=512, activation="relu"),
            blocks=Blocks(layers=6, norm="pre"),
            lsh=Lsh(buckets=(64, 128), dropout=0.0),
            axial=Axial(shape=(512, 1024)),
        ),
        sizes={
            "crime-and-punishment": {},
            "enwik8": {
                "hidden": 2048,
                "dropout": 0.2,
                "embeddings.vocabulary": 258,
                "embeddings.width": 1024,
                "embeddings.positions": 65536,
                "attention.heads": 8,
                "attention.head_size": None,
                "feedforward.width": 4096,
                "blocks.layers": 12,
                "lsh.chunk": 256,
                "lsh.rounds": 4,
                "lsh.buckets": 512,
                "lsh.dropout": 0.1,
                "local.chunk": 128,
                "axial.shape": (128, 512),
                "reversible.kinds": _ENWIK8,
            },
        },
        encoder=Reformer,
        tokenizer="unigram",
        objective="causal_lm",
        names={"hf": HF},
        readout="last",
        flops=update_flops,
        memory=kept_numbers,
        paper="Kitaev et al., 2020, Reformer: The Efficient Transformer",
    )
)
