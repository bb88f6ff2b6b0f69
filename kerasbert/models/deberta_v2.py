"""DeBERTaV2 (He et al., 2021, section 5 and the released code).

Differences from DeBERTa:

- Distances beyond half of the table fall into buckets that grow with their logarithm; 256 buckets of each sign up to 512 tokens.
- The maps of contents project positions too (`relative.share_key`), and the table is normalised (`relative.norm`).
- nGiE: a convolution over what the first layer reads, of 3 tokens, is added to what it gives (`conv`; v2's xlarge and xxlarge).
- A SentencePiece vocabulary of 128K pieces in the place of GPT-2's.

Of the released code: dropout of the convolution's result is in front of its activation. The convolution is computed as a product
with the neighbours side by side; those of another text of the row, and padding, count as 0.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.checkpoints.names import Class, of_family
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project
from kerasbert.layers.context import Context
from kerasbert.layers.disentangled import rows_of_distances
from kerasbert.layers.feedforward import ACTIVATIONS
from kerasbert.layers.initial import Normal
from kerasbert.layers.mask_decoder import Decoding
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.models.deberta import DEBERTA, HF, NAMES, SELF, Deberta, DebertaBlock, DebertaSpec, Relative
from kerasbert.registry import register


@dataclasses.dataclass(frozen=True)
class Buckets(Relative):
    """How distances enter the scores, with buckets.

    Args:
        buckets: int, of each sign, an even number; half of them are of one distance. 0 for none.
        share_key: bool, whether the maps of the contents project positions.
        norm: bool, whether the table is normalised.
    """

    buckets: int = 256
    share_key: bool = True
    norm: bool = True

    @property
    def rows(self) -> np.ndarray:
        """Rows of the table by distance: `rows_of_distances`."""
        return rows_of_distances(self.span, self.distance if self.buckets else 0)

    @property
    def span(self) -> int:
        """Half of the rows of the table."""
        return self.buckets or self.distance


@dataclasses.dataclass(frozen=True)
class Conv:
    """The convolution beside the first layer.

    Args:
        kernel: int, tokens that it reads, an odd number; 0 for no convolution.
        groups: int, in which the numbers of a token are cut.
        activation: str.
    """

    kernel: int = 0
    groups: int = 1
    activation: str = "tanh"


@dataclasses.dataclass(frozen=True)
class DebertaV2Spec(DebertaSpec):
    """A Spec with buckets and a convolution."""

    relative: Buckets = Buckets()
    conv: Conv = Conv()

    def validate(self) -> "DebertaV2Spec":
        """Check what no single field can tell; returns self."""
        super().validate()
        relative, conv = self.relative, self.conv
        if relative.buckets and (relative.buckets < 2 or relative.buckets % 2):
            raise InputError(f"relative.buckets must be an even number or 0. Received: {relative.buckets}")
        if relative.buckets and relative.distance - 1 <= relative.buckets // 2:
            raise InputError(
                f"relative.distance must be above relative.buckets / 2 + 1, which single distances have. "
                f"Received: {relative.distance}, {relative.buckets}"
            )
        if conv.kernel and (conv.kernel < 1 or not conv.kernel % 2):
            raise InputError(f"conv.kernel must be an odd number or 0. Received: {conv.kernel}")
        if conv.groups < 1 or self.hidden % conv.groups:
            raise InputError(f"conv.groups must divide hidden {self.hidden}. Received: {conv.groups}")
        if conv.activation not in ACTIVATIONS:
            raise InputError(f"conv.activation must be one of {', '.join(ACTIVATIONS)}. Received: {conv.activation!r}")
        if conv.kernel and self.blocks.share == "all":
            raise InputError(
                "conv.kernel is of the first layer alone, which blocks.share all has in common: change one"
            )
        return self


class Convolution(keras.layers.Layer):
    """Convolution over tokens of one text, then dropout and an activation.

    Args:
        conv: Conv. dropout, initializer: float.
    Call: x [B, S, H], pieces int32 [B, S] (0 is padding) or None -> [B, S, H]. Trainable weights: kernel * H * H / groups + H.
    """

    def __init__(self, conv: Conv, dropout: float = 0.0, initializer: float = 0.02, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conv, self.initializer = conv, initializer
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, shape: Shape) -> None:
        width, normal = shape[-1], Normal(stddev=self.initializer)
        shape = (self.conv.kernel, width // self.conv.groups, width)
        self.kernel = self.add_weight(shape=shape, initializer=normal, name="kernel")
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")
        self.dropout.build()

    def call(self, x: Tensor, pieces: Tensor = None, training: bool = False) -> Tensor:
        taps, read, out = self.kernel.shape
        near = [self.moved(x, tap - taps // 2) for tap in range(taps)]
        if pieces is not None:
            near = [
                of_text * ops.expand_dims(ops.cast(self.same(pieces, tap - taps // 2), x.dtype), -1)
                for tap, of_text in enumerate(near)
            ]
        matrix, groups, found = ops.reshape(self.kernel, (taps * read, out)), self.conv.groups, []
        for group in range(groups):
            own, to = slice(group * read, (group + 1) * read), slice(group * out // groups, (group + 1) * out // groups)
            found.append(project(ops.concatenate([each[..., own] for each in near], axis=-1), matrix[:, to]))
        y = (found[0] if groups == 1 else ops.concatenate(found, axis=-1)) + self.bias
        return ACTIVATIONS[self.conv.activation](self.dropout(y, training=training))

    def moved(self, x: Tensor, by: int) -> Tensor:
        """Row i + `by` in the place of row i, zeros beyond the ends: [B, S, ...] -> [B, S, ...]."""
        rest = [[0, 0]] * (len(x.shape) - 2)
        if by < 0:
            return ops.pad(x, [[0, 0], [-by, 0], *rest])[:, :by]
        return ops.pad(x, [[0, 0], [0, by], *rest])[:, by:]

    def same(self, pieces: Tensor, by: int) -> Tensor:
        """Whether a token's neighbour is of its text: int32 [B, S] -> bool [B, S]."""
        return ops.logical_and(ops.equal(pieces, self.moved(pieces, by)), pieces > 0)


class DebertaV2Block(DebertaBlock):
    """A layer; the first may have a convolution beside it."""

    key_bias = True
    spec: DebertaV2Spec

    def build(self, shape: Shape) -> None:
        super().build(shape)
        self.conv, at, conv = None, self.settings, self.spec.conv
        if self.layer == 0 and conv.kernel:
            kwargs = {"dtype": self.dtype_policy}
            self.conv = Convolution(conv, at["dropout"], at["initializer"], name="conv", **kwargs)
            self.conv_norm = LayerNorm(at["epsilon"], name="conv_norm", **kwargs)
            self.conv.build(shape)
            self.conv_norm.build(shape)

    def call(self, x: Tensor, context: Context | None = None, training: bool = False) -> tuple[Tensor, Tensor]:
        context = context or Context()
        y, probabilities = super().call(x, context, training)
        if self.conv is None or isinstance(context, Decoding):  # which has no neighbours
            return y, probabilities
        pieces = None if context.scoring is None else context.scoring.pieces
        return self.conv_norm(y, context.rows(self.conv(x, pieces, training=training))), probabilities


class DebertaV2(Deberta):
    """The encoder."""

    blocks_of = DebertaV2Block

    def _build(self) -> None:
        super()._build()
        spec = self.spec
        if spec.relative.terms and spec.relative.norm:
            self.relative_norm = LayerNorm(spec.epsilon, name="relative_norm", dtype=self.dtype_policy)
            self.relative_norm.build((None, spec.hidden))

    @property
    def distances(self) -> Tensor:
        """The vectors of distances that all layers read: [2 k, H]."""
        return self.relative_norm(self.relative.table) if self.spec.relative.norm else self.relative.table


# Checkpoints

V2_HF = HF.derive(
    rows=(
        *((f"block_{{i}}/attention/{name}", f"{SELF}.{name}_proj") for name in ("query", "key", "value")),
        ("block_{i}/attention/position_key", f"{SELF}.pos_key_proj"),
        ("block_{i}/attention/position_query", f"{SELF}.pos_query_proj"),
        ("relative_norm", "deberta.encoder.LayerNorm"),
        ("block_0/conv", "deberta.encoder.conv.conv"),
        ("block_0/conv_norm", "deberta.encoder.conv.LayerNorm"),
    ),
    forms={},
    heads={**HF.heads, **dict.fromkeys(("gdes", "generator", "rtd"))},  # of DeBERTaV3's pretraining alone
    config=(
        *HF.config,
        ("relative.buckets", "position_buckets"),
        ("relative.share_key", "share_att_key"),
        ("relative.norm", "norm_rel_ebd"),
        ("conv.kernel", "conv_kernel_size"),
        ("conv.groups", "conv_groups"),
        ("conv.activation", "conv_act"),
    ),
    silent={
        **HF.silent,
        "position_buckets": -1,
        "share_att_key": False,
        "norm_rel_ebd": "none",
        "conv_kernel_size": 0,
        "conv_groups": 1,
        "conv_act": "tanh",
    },
    values={
        **HF.values,
        "position_buckets": {-1: 0},
        "norm_rel_ebd": {"none": False, "layer_norm": True},
        "conv_act": NAMES,
    },
    fixed={
        **{key: value for key, value in HF.fixed.items() if key != "talking_head"},
        "model_type": "deberta-v2",
        "attention_head_size": lambda config: (
            config.get("hidden_size", 0) // max(1, config.get("num_attention_heads", 1))
        ),
    },
    classes={
        **of_family(HF.classes, "Deberta", "DebertaV2"),
        "DebertaV2ForMultipleChoice": Class(("classifier",)),
    },
)


def size_of(layers: int, hidden: int, heads: int) -> dict[str, int]:
    """F = 4 H."""
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": heads, "feedforward.width": 4 * hidden}


_CONV = {"conv.kernel": 3, "conv.activation": "gelu"}
DEBERTA_V2 = register(
    dataclasses.replace(
        DEBERTA,
        name="deberta-v2",
        spec=DebertaV2Spec(epsilon=1e-7, pooler=False).derive(
            {"embeddings.vocabulary": 128100, "embeddings.segments": 0, "embeddings.kind": "none"}
            | size_of(24, 1536, 24)
            | _CONV
        ),
        sizes={"xlarge": {}, "xxlarge": {"blocks.layers": 48}},
        encoder=DebertaV2,
        tokenizer="unigram",
        names={"hf": V2_HF},
    )
)
