"""EuroBERT: Scaling Multilingual Encoders for European Languages (Boizard et al., 2025): 210m, 610m, 2.1B.

Differences from BERT, section 2.1 and table 1: Llama's layer with bidirectional attention. Rotary positions of the base 250,000;
grouped-query attention; SwiGLU feed-forward networks; RMSNorm in front of the sublayers and behind the last; no bias, no dropout,
no segments. Section 2.2: masked tokens alone, 50% of them and in the last phase 10% (`phases` of a recipe).

Of the released code: the masked tokens have a table of their own, without a layer in front; labels stand behind a layer with
GELU, which reads every token, and their logits are averaged (`readout` "late"), or the mean of the tokens, or the first.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from kerasbert.checkpoints.names import GATED, TORCH_LEAVES, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import project
from kerasbert.layers.block import PreNormBlock
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.grouped import GroupedAttention
from kerasbert.layers.initial import Normal
from kerasbert.layers.norms import RMSNorm
from kerasbert.layers.rotary import RotaryAttention, check_head_size, with_places
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.poolings import LATE
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonMap


@dataclasses.dataclass(frozen=True)
class EuroBertSpec(Spec):
    """A Spec with rotary positions and grouped heads.

    Args:
        theta: float, base of the rotation.
        key_heads: int, heads of keys and values; None for as many as of queries.
        readout: what a text is classified by: "late" (the labels of every token, averaged), "mean" or "first".
    """

    theta: float = 250000.0
    key_heads: int | None = None
    readout: str = LATE

    def validate(self) -> "EuroBertSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        check_head_size(self.head_size)
        if self.theta <= 1:
            raise InputError(f"theta must be above 1. Received: {self.theta}")
        if self.readout not in (LATE, "mean", "first"):
            raise InputError(f"readout must be one of late, mean, first. Received: {self.readout!r}")
        for heads in {self.per_layer(self.attention.heads, layer) for layer in range(self.blocks.layers)}:
            if self.key_heads is not None and (self.key_heads < 1 or heads % self.key_heads):
                raise InputError(f"key_heads must divide attention.heads, {heads}. Received: {self.key_heads}")
        return self

    def attention_maps(self, layer: int) -> float:
        heads = self.per_layer(self.attention.heads, layer)
        return 2 + 2 * (self.key_heads or heads) / heads


class EuroBertAttention(RotaryAttention, GroupedAttention):
    """Rotary attention of grouped heads. Args: as of both."""


class EuroBertBlock(PreNormBlock):
    """Llama's layer, which sees both ways. Args: as PreNormBlock; theta: float; key_heads: int or None."""

    norm_class = RMSNorm

    def __init__(self, *, theta: float, key_heads: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.theta, self.key_heads = theta, key_heads

    def attention_class(self, heads: int, *args: Any, **kwargs: Any) -> EuroBertAttention:
        """Of the layer's groups and base."""
        return EuroBertAttention(heads, *args, theta=self.theta, groups=self.key_heads or heads, **kwargs)

    def get_config(self) -> Json:
        return {**super().get_config(), "theta": self.theta, "key_heads": self.key_heads}


class EuroBertMaskedLM(keras.layers.Layer):
    """Predict tokens by a table of its own: x [B, P, H] -> logits [B, P, V] float32. Trainable weights: H*V."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        activation: str = "silu",
        epsilon: float = 1e-5,
        initializer: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary, self.initializer = vocabulary, initializer

    def build(self, shape: Shape) -> None:
        normal = Normal(stddev=self.initializer)
        self.table = self.add_weight(shape=(self.vocabulary, shape[-1]), initializer=normal, name="table")

    def call(self, x: Tensor, table: Tensor = None) -> Tensor:
        return ops.cast(project(x, ops.transpose(ops.cast(self.table, x.dtype))), "float32")


class EuroBert(Encoder):
    """The encoder."""

    open_lengths = True

    norm_class, token_head = RMSNorm, EuroBertMaskedLM
    label_activation = "gelu"

    @property
    def readout(self) -> str:
        """What a text is classified by."""
        return self.spec.readout

    @property
    def block_class(self) -> Callable:
        """Blocks with the Spec's base and groups."""
        return functools.partial(EuroBertBlock, theta=self.spec.theta, key_heads=self.spec.key_heads)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return with_places(super().context(inputs), inputs)


def _theta(config: JsonMap) -> float:
    return (config.get("rope_parameters") or {}).get("rope_theta", 10000.0)


def _rotation(config: JsonMap) -> Json:
    """What `rope_parameters` says of the rotation that is computed here."""
    return {"rope_theta": config.get("rope_theta") or _theta(config), "rope_type": "default"}


_L = "model.layers.{i}"
HF = Dialect(
    rows=(
        ("embeddings/tokens", "model.embed_tokens"),
        *(
            (f"block_{{i}}/attention/{name}", f"{_L}.self_attn.{name[0]}_proj")
            for name in ("query", "key", "value", "output")
        ),
        ("block_{i}/attention_norm", f"{_L}.input_layernorm"),
        ("block_{i}/feedforward/gate", f"{_L}.mlp.gate_proj"),
        ("block_{i}/feedforward/linear", f"{_L}.mlp.up_proj"),
        ("block_{i}/feedforward/outer", f"{_L}.mlp.down_proj"),
        ("block_{i}/feedforward_norm", f"{_L}.post_attention_layernorm"),
        ("norm", "model.norm"),
        ("heads/mlm/table", "lm_head.weight"),
        ("heads/classifier/inner", "dense"),
        ("heads/classifier", "classifier"),
    ),
    leaves=TORCH_LEAVES,
    heads={
        "mlm": {"table": "V H"},
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("hidden", "hidden_size"),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "num_attention_heads"),
        ("attention.head_size", "head_dim"),
        ("attention.dropout", "attention_dropout"),
        ("key_heads", "num_key_value_heads"),
        ("feedforward.width", "intermediate_size"),
        ("feedforward.activation", "hidden_act"),
        ("initializer", "initializer_range"),
        ("epsilon", "rms_norm_eps"),
        ("theta", "rope_theta"),
        ("readout", "classifier_pooling"),
    ),
    silent={
        "hidden_act": "silu",
        "head_dim": None,
        "num_key_value_heads": None,
        "rms_norm_eps": 1e-5,
        "rope_theta": _theta,
        "classifier_pooling": lambda config: config.get("clf_pooling", LATE),
        "attention_dropout": 0.0,
        "max_position_embeddings": 8192,
        "initializer_range": 0.02,
    },
    values={
        "hidden_act": GATED,
        "classifier_pooling": {"late": LATE, "mean": "mean", "bos": "first"},
    },
    fixed={
        "model_type": "eurobert",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "rope_parameters": _rotation,
    },
    classes={
        "EuroBertModel": Class(),
        "EuroBertForMaskedLM": Class(("mlm",)),
        "EuroBertForSequenceClassification": Class(("classifier",)),
        "EuroBertForTokenClassification": Class(("classifier",), shapes={"classifier": {"kernel": "H L", "bias": "L"}}),
    },
    prefix="model.",
    special={
        "pad_token_id": "pad",
        "mask_token_id": "mask",
        "bos_token_id": "cls",
        "eos_token_id": "sep",
    },
    unread={
        "auto_map": "EuroBERT's own code, of before transformers had the class, computes the same",
        "pretraining_tp": "how many machines trained it",
        "clf_pooling": "read where classifier_pooling is not said: its name in the first releases",
    },
)


class EuroBertPretraining(MaskedLMPretraining):
    """Masked tokens alone, half of them; 10% in the last phase (section 2.2)."""

    defaults = MappingProxyType({"rate": 0.5})


register_objective("eurobert", EuroBertPretraining)
EUROBERT = register(
    Family(
        name="eurobert",
        spec=EuroBertSpec(dropout=0.0, epsilon=1e-5, pooler=False).derive(
            {
                "embeddings.vocabulary": 128256,
                "embeddings.positions": 8192,
                "embeddings.segments": 0,
                "embeddings.kind": "none",
                "embeddings.norm": False,
                "feedforward.activation": "gated_swish",
                "blocks.norm": "pre",
                "blocks.bias": False,
            }
        ),
        sizes={
            "210m": {},
            "610m": {
                "hidden": 1152,
                "blocks.layers": 26,
                "attention.heads": 18,
                "key_heads": 6,
                "feedforward.width": 4096,
            },
            "2.1b": {
                "hidden": 2304,
                "blocks.layers": 32,
                "attention.heads": 18,
                "key_heads": 6,
                "feedforward.width": 6144,
            },
        },
        encoder=EuroBert,
        objective="eurobert",
        tokenizer="bpe",
        names={"hf": HF},
        paper="Boizard et al., 2025, EuroBERT: Scaling Multilingual Encoders for European Languages",
    )
)
