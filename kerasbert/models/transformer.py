"""The Transformer: Attention Is All You Need (Vaswani et al., 2017).

What the layers here have in common with every other family is this paper's: attention (section 3.2), feed-forward layers (3.3),
norms after the residual sums, two stacks of six layers (3.1). Its own are

- embeddings times sqrt(d_model), sums with sines and cosines as positions (3.4, 3.5): no position is learned, so that
  `embeddings.positions` only says how many are made;
- one table for source, target and output (3.4), no bias and no layer before the output;
- ReLU between the two maps of a feed-forward layer, dropout on the sublayers and on the embeddings alone (5.4);
- values of another size than keys in two rows of table 3 (`attention.value_size`).

Sizes are the rows of table 3, which are named by what they change: `base-n2` has N = 2 layers, `base-k16` d_k = 16. The text
says "about 37,000 tokens" of a shared vocabulary (5.1); the parameters of the table are those of 41,000, as here. `big` has 218
million, the table says 213.

Training (5.3, 5.4) in options of ours: `optimizer_options: {beta_1: 0.9, beta_2: 0.98, epsilon: 1e-9}`, `weight_decay: 0`,
`schedule: inverse_square_root`, `warmup: 4000` and its peak (d_model * warmup)^-0.5 as the `learning_rate`: 6.99e-4 for base,
4.94e-4 for big; label smoothing 0.1; 25,000 tokens of each language a batch, 100,000 updates, 300,000 of big, dropout 0.1, 0.3
of big (0.1 for English-French).

Differs: sines and cosines are halves of a vector, as in the released code (tensor2tensor), and not in turn (3.5): the columns are
in another order. Kernels start from a normal distribution of deviation d_model^-0.5, which is that of the released code for the
table and the attention; its feed-forward kernels start a little smaller. Epsilon of the norms is 1e-5, that of Marian in
transformers (tensor2tensor: 1e-6). The decoder starts with the vector of the padding, the released code with zeros. All maps
add a bias, as Marian's and fairseq's do; the released code's four of an attention have none.

Checkpoints are Marian's in transformers (Junczys-Dowmunt et al., 2018; the OPUS-MT models): a post-norm Transformer with swish
for ReLU in the released ones, and a number that is added to each logit, trained there (`output.bias`). Its tokenizer is two
SentencePiece models over one vocab.json, which is not read here: import with `--tokenizer none`, or with another of the same ids.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasbert import spec as specs
from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.checkpoints.readers import Reader
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.attention import Attention
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.decoder_block import DecoderBlock, PreNormDecoderBlock
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, EncoderDecoder, ScaledEmbeddings, ScaledSpec
from kerasbert.layers.heads import tied_logits
from kerasbert.models.bart import HF as BART_HF
from kerasbert.registry import Family, register
from kerasbert.spec import Blocks, FeedForward
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class HeadSizes(specs.Attention):
    """Attention whose values may be of another size than its keys.

    Args:
        value_size: int d_v, of a head; None for that of the keys, `head_size`.
    """

    value_size: int | None = None


@dataclasses.dataclass(frozen=True)
class Output:
    """How tokens are predicted.

    Args:
        bias: bool, whether a learned number is added to each logit (Marian's).
    """

    bias: bool = False


@dataclasses.dataclass(frozen=True)
class Spec(ScaledSpec):
    """The Transformer's."""

    output: Output = Output()
    attention: HeadSizes = HeadSizes()

    def validate(self) -> "Spec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.attention.value_size is not None and self.attention.value_size < 1:
            raise InputError(f"attention.value_size must be at least 1 or None. Received: {self.attention.value_size}")
        return self


class SizedAttention(Attention):
    """Attention whose values are `value_size` numbers a head (table 3, rows B)."""

    def __init__(self, *sizes: Any, value_size: int, **kwargs: Any) -> None:
        super().__init__(*sizes, **kwargs)
        self.value_size = value_size


class Bias(keras.layers.Layer):
    """A number for each logit: float32 [..., V] -> the same. Trainable weights: V."""

    def build(self, shape: Shape) -> None:
        self.bias = self.add_weight(shape=shape[-1:], initializer="zeros", name="bias")

    def call(self, logits: Tensor) -> Tensor:
        return logits + ops.cast(self.bias, logits.dtype)


class Transformer(EncoderDecoder):
    """Two stacks; tokens times sqrt(hidden) before positions are added. Of `output.bias` the weight is `output/bias` [V]."""

    label_smoothing = 0.1  # section 5.4
    spec: Spec

    def _build(self) -> None:
        super()._build()
        self.output_bias = None
        if self.spec.output.bias:
            self.output_bias = Bias(name="output", dtype="float32")
            self.output_bias.build((None, None, self.spec.embeddings.vocabulary))

    def logits(self, x: Tensor) -> Tensor:
        logits = tied_logits(x, self.tokens.table)
        return logits if self.output_bias is None else self.output_bias(logits)

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with: a bias is one column more."""
        return x if self.output_bias is None else ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)

    @property
    def output_rows(self) -> Tensor:
        """The table [V, H] whose products are the logits, with the bias as its last column where there is one."""
        if self.output_bias is None:
            return self.tokens.table
        return ops.concatenate([self.tokens.table, ops.expand_dims(self.output_bias.bias, 1)], axis=1)

    @property
    def encoder_block(self) -> Callable:
        return self._sized(PreNormBlock if self.spec.blocks.norm == "pre" else Block)

    @property
    def decoder_block(self) -> Callable:
        return self._sized(PreNormDecoderBlock if self.spec.blocks.norm == "pre" else DecoderBlock)

    def _sized(self, kind: type[Block]) -> Callable[..., Block]:
        """Blocks of a kind, their values of the Spec's size."""
        size = self.spec.attention.value_size
        if size is None:
            return kind
        attention = functools.partial(SizedAttention, value_size=size)

        def make(**settings: Any) -> Block:
            made = kind(**settings)
            for name in ("attention_class", "cross_attention_class"):
                setattr(made, name, attention)
            return made

        return make


def _size(hidden: int, **changes: int) -> Json:
    """A width with what follows from it; the others are changes by their last names."""
    paths = {"heads": "attention.heads", "layers": "blocks.layers", "width": "feedforward.width"}
    return {"hidden": hidden, "initializer": hidden**-0.5} | {paths[name]: value for name, value in changes.items()}


SIZES: dict[str, Json] = {  # table 3; row A: as many numbers in other heads
    "base": {},
    "big": _size(1024, heads=16, width=4096) | {"dropout": 0.3},
    **{f"base-h{heads}": {"attention.heads": heads} for heads in (1, 4, 16, 32)},
    **{f"base-k{size}": {"attention.head_size": size, "attention.value_size": 64} for size in (16, 32)},
    **{f"base-n{layers}": {"blocks.layers": layers} for layers in (2, 4, 8)},
    "base-d256": _size(256) | {"attention.head_size": 32},
    "base-d1024": _size(1024) | {"attention.head_size": 128},
    **{f"base-f{width}": {"feedforward.width": width} for width in (1024, 4096)},
}

_BART_ALONE = ("/embeddings_norm", "/positions", "heads/")
_ROWS = tuple(row for row in BART_HF.rows if not any(part in row[0] for part in _BART_ALONE))


class MarianDialect(Dialect):
    """A bias of the words to write where the file holds one."""

    by_file = ("output.bias",)

    def in_file(self, spec: Spec, tensors: Reader) -> Spec:
        """With the bias that it holds."""
        return spec.derive({"output.bias": True}) if "final_logits_bias" in tensors.names() else spec

    def write_config(self, config: Json, spec: Spec) -> Json:
        """With the ids of a vocabulary like the released ones', whose padding is the last piece."""
        last = spec.embeddings.vocabulary - 1
        ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "forced_eos_token_id": 0}
        return ids | config


HF = MarianDialect(
    leaves=BART_HF.leaves,
    forms=BART_HF.forms,
    prefix=BART_HF.prefix,
    tied=BART_HF.tied,
    unread=BART_HF.unread,
    rows=(*_ROWS, ("output/bias", "final_logits_bias")),
    heads={},
    config=(
        *BART_HF.config,
        ("embeddings.scaled", "scale_embedding"),
        ("embeddings.vocabulary", "decoder_vocab_size"),
    ),
    silent={
        "scale_embedding": False,
        "decoder_vocab_size": lambda config: config.get("vocab_size"),
    },
    fixed={
        "model_type": "marian",
        "is_encoder_decoder": True,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    },
    model_types=("marian",),
    special={"eos_token_id": "sep", "decoder_start_token_id": "pad", "forced_eos_token_id": "sep"},
    classes={"MarianMTModel": Class(), "MarianModel": Class()},
    ignored={"*.embed_positions.weight": buffers.sines},  # in older files
)

TRANSFORMER = register(
    Family(
        name="transformer",
        spec=Spec(
            hidden=512,
            epsilon=1e-5,
            initializer=512**-0.5,
            embeddings=ScaledEmbeddings(vocabulary=41000, segments=0, kind="sinusoidal"),
            attention=HeadSizes(heads=8, dropout=0.0),
            feedforward=FeedForward(width=2048, activation="relu"),
            blocks=Blocks(layers=6),
        ),
        sizes=SIZES,
        encoder=Transformer,
        kind="seq2seq",
        tokenizer="bpe",
        objective="",
        names={"hf": HF},
        inputs=SOURCE_AND_TARGET,
        readout="none",
        paper="Vaswani et al., 2017, Attention Is All You Need",
    )
)
