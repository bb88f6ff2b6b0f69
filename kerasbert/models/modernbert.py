"""ModernBERT: Smarter, Better, Faster, Longer (Warner et al., 2024).

Differences from BERT, all of section 2.1:

- rotary positions in the place of learned ones; no segments;
- GeGLU feed-forward networks; no bias in linear maps and norms, but for those of the output tables;
- norms in front of the sublayers, one more behind the embeddings and therefore none in front of the first attention;
- every third layer attends to all tokens, the others to 64 on each side; the base of the rotation is 160,000 and 10,000.

Section 2.2: masked language modelling of 30% of the tokens, no next sentence prediction. Kernels in front of the residual sums
start smaller (appendix A.1, Megatron's). Sequence packing (section 2.1.2, unpadding) is the packing `best_fit`.

Of the released code: a layer with GELU and a norm stands in front of every task's labels and of the masked tokens; a text is
classified by the mean of its tokens or by the first (`readout`). Differs: its dropout of the feed-forward network is within,
here it is behind; the released rates are 0.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.names import GATED, TORCH_LEAVES, Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import visibility
from kerasbert.layers.block import PreNormBlock
from kerasbert.layers.context import Context, select
from kerasbert.layers.embeddings import Embeddings
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import LabelHead, MaskedLM
from kerasbert.layers.norms import BiasFreeLayerNorm
from kerasbert.layers.readout import Queries
from kerasbert.layers.rotary import RotaryAttention, check_head_size, with_places
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.poolings import READOUTS
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonMap


@dataclasses.dataclass(frozen=True)
class Local:
    """The layers that attend to near tokens alone.

    Args:
        window: int, tokens that such a layer sees around one: half of them on each side.
        every: int, layers 0, `every`, 2 * `every`, ... see all tokens; 1 for all layers.
        theta: float, base of the rotation in layers that see all tokens. theta_local: in the others.
    """

    window: int = 128
    every: int = 3
    theta: float = 160000.0
    theta_local: float = 10000.0


@dataclasses.dataclass(frozen=True)
class ModernBertSpec(Spec):
    """A Spec with local layers. `readout`: what a text is classified by, "first" or "mean" and the like."""

    local: Local = Local()
    readout: str = "first"

    def validate(self) -> "ModernBertSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.local.window < 2 or self.local.every < 1:
            raise InputError(
                f"local.window must be at least 2 and local.every at least 1. Received: {self.local.window}, {self.local.every}"
            )
        check_head_size(self.head_size)
        if min(self.local.theta, self.local.theta_local) <= 1:
            raise InputError(f"local.theta and local.theta_local must be above 1. Received: {self.local}")
        if self.readout not in READOUTS:
            raise InputError(f"readout must be one of {', '.join(READOUTS)}. Received: {self.readout!r}")
        return self

    def is_local(self, layer: int) -> bool:
        """Whether a layer attends to near tokens alone."""
        return layer % self.local.every != 0

    def seen(self, layer: int, length: float) -> float:
        """Tokens that one token of a sequence attends to, for the count of FLOPs."""
        return min(length, self.local.window + 1) if self.is_local(layer) else length


class LocalAttention(RotaryAttention):
    """Rotary attention to tokens at most half a window away.

    Args: as RotaryAttention; window: int, or 0 for all tokens.
    """

    def __init__(self, *args: Any, window: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.window = window

    def placed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        *,
        scoring: Tensor | None = None,
        queries: Queries = None,
        **at: object,
    ) -> tuple:
        if self.window:
            places = ops.expand_dims(scoring, -1)
            of_query = places if queries is None else select(places, queries)
            near = visibility.bias(ops.abs(of_query - ops.expand_dims(scoring, 1)) <= self.window // 2)
            bias = near if bias is None else ops.cast(bias, "float32") + near
        return super().placed(query, key, value, bias, scoring=scoring, queries=queries, **at)

    def get_config(self) -> Json:
        return {**super().get_config(), "window": self.window}


class ModernBertBlock(PreNormBlock):
    """A layer, local or not by its place in the stack; the first has no norm in front of its attention."""

    def __init__(self, *, local: Local, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.local = local

    def attention_class(self, *args: Any, **kwargs: Any) -> LocalAttention:
        """Of the layer's window and base."""
        local = self.layer % self.local.every != 0
        window, theta = (self.local.window, self.local.theta_local) if local else (0, self.local.theta)
        return LocalAttention(*args, window=window, theta=theta, **kwargs)

    def norm_class(self, epsilon: float, *, name: str, dtype: Any) -> keras.layers.Layer:
        """The identity in front of the first attention: the embeddings are normalised already."""
        if self.layer == 0 and name == "attention_norm":
            return keras.layers.Identity(name=name, dtype=dtype)
        return BiasFreeLayerNorm(epsilon, name=name, dtype=dtype)


class ModernBertEmbeddings(Embeddings):
    """Tokens, normalised."""

    norm_class = BiasFreeLayerNorm


class ModernBertMaskedLM(MaskedLM):
    """Predict tokens: the bias is the output's alone."""

    own_activation, norm_class, transform_bias = "gelu", BiasFreeLayerNorm, False


class ModernBertLabelHead(LabelHead):
    """Labels behind a layer like that of the masked tokens. Args: as LabelHead; epsilon: float, of its norm."""

    inner_bias = False

    def __init__(self, *args: Any, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epsilon = epsilon

    def inner_norm_class(self, **kwargs: Any) -> BiasFreeLayerNorm:
        """The norm behind the activation."""
        return BiasFreeLayerNorm(self.epsilon, **kwargs)


class ModernBert(Encoder):
    """The encoder."""

    open_lengths = True

    embeddings_class, norm_class = ModernBertEmbeddings, BiasFreeLayerNorm
    token_head = ModernBertMaskedLM
    label_activation = token_label_activation = "gelu"

    @property
    def readout(self) -> str:
        """What a text is classified by."""
        return self.spec.readout

    @property
    def label_head(self) -> Callable:
        """A head with the Spec's epsilon."""
        return functools.partial(ModernBertLabelHead, epsilon=self.spec.epsilon)

    @property
    def block_class(self) -> Callable:
        """Blocks with the Spec's windows and smaller initial kernels in front of the residual sums."""
        scaled = self.spec.initializer / math.sqrt(2 * self.spec.blocks.layers)
        return functools.partial(ModernBertBlock, local=self.spec.local, output_initializer=scaled)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return with_places(super().context(inputs), inputs)


# Checkpoints: a configuration says which layers are local, and the bases, in one of two ways

_LOCAL, _ALL = "sliding_attention", "full_attention"


def _types(config: JsonMap, every: int) -> list[str]:
    return [_LOCAL if layer % every else _ALL for layer in range(config.get("num_hidden_layers") or 0)]


def _every(config: JsonMap) -> int:
    """The distance of the layers that see all tokens; what `layer_types` says beyond it is compared with `_types`."""
    types = config.get("layer_types") or _types(config, 3)
    return next((layer for layer, kind in enumerate(types) if layer and kind == _ALL), max(1, len(types)))


def _theta(config: JsonMap, kind: str, usual: float) -> float:
    said = config.get("rope_parameters")
    return ((said or {}).get(kind) or {}).get("rope_theta", usual)


def _rotations(config: JsonMap) -> dict[str, Json]:
    """What `rope_parameters` says of the rotations that are computed here."""
    bases = {_ALL: ("global_rope_theta", 160000.0), _LOCAL: ("local_rope_theta", 10000.0)}
    thetas = {kind: config.get(key) or _theta(config, kind, usual) for kind, (key, usual) in bases.items()}
    return {kind: {"rope_theta": theta, "rope_type": "default"} for kind, theta in thetas.items()}


_L = "model.layers.{i}"


def _labelled(head: str, labels: str) -> Class:
    """A class whose labels stand behind the layer that masked tokens have."""
    rows = ((f"heads/{head}/inner", "head.dense"), (f"heads/{head}/inner_norm", "head.norm"))
    shapes = {"inner/kernel": "H H", "inner_norm/gamma": "H", "kernel": f"H {labels}", "bias": labels}
    return Class((head,), rows=rows, shapes={head: shapes})


HF = Dialect(
    rows=(
        ("embeddings/tokens", "model.embeddings.tok_embeddings"),
        ("embeddings/norm", "model.embeddings.norm"),
        *((f"block_{{i}}/attention/{name}", f"{_L}.attn.Wqkv#{i}") for i, name in enumerate(("query", "key", "value"))),
        ("block_{i}/attention/output", f"{_L}.attn.Wo"),
        ("block_{i}/attention_norm", f"{_L}.attn_norm"),
        ("block_{i}/feedforward/gate", f"{_L}.mlp.Wi#0"),
        ("block_{i}/feedforward/linear", f"{_L}.mlp.Wi#1"),
        ("block_{i}/feedforward/outer", f"{_L}.mlp.Wo"),
        ("block_{i}/feedforward_norm", f"{_L}.mlp_norm"),
        ("norm", "model.final_norm"),
        ("heads/mlm/transform", "head.dense"),
        ("heads/mlm/norm", "head.norm"),
        ("heads/mlm/bias", "decoder.bias"),
        ("heads/classifier", "classifier"),
        ("heads/span", "classifier"),
    ),
    leaves=TORCH_LEAVES,
    forms={"*.attn.Wqkv.weight": Joined(3, 0), "*.mlp.Wi.weight": Joined(2, 0)},
    heads={
        "mlm": {"transform/kernel": "H H", "norm/gamma": "H", "bias": "V"},
        "classifier": {"kernel": "H L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("hidden", "hidden_size"),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "num_attention_heads"),
        ("feedforward.width", "intermediate_size"),
        ("feedforward.activation", "hidden_activation"),
        ("dropout", "embedding_dropout"),
        ("dropout", "mlp_dropout"),
        ("attention.dropout", "attention_dropout"),
        ("initializer", "initializer_range"),
        ("epsilon", "norm_eps"),
        ("local.window", "local_attention"),
        ("local.every", "global_attn_every_n_layers"),
        ("local.theta", "global_rope_theta"),
        ("local.theta_local", "local_rope_theta"),
        ("readout", "classifier_pooling"),
    ),
    silent={
        "hidden_activation": "gelu",
        "classifier_pooling": "cls",
        "local_attention": 128,
        "global_attn_every_n_layers": _every,
        "global_rope_theta": functools.partial(_theta, kind=_ALL, usual=160000.0),
        "local_rope_theta": functools.partial(_theta, kind=_LOCAL, usual=10000.0),
        "norm_eps": 1e-5,
    },
    values={
        "hidden_activation": GATED,
        "classifier_pooling": {"cls": "first", "mean": "mean"},
    },
    fixed={
        "model_type": "modernbert",
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "classifier_bias": False,
        "classifier_activation": "gelu",
        "tie_word_embeddings": True,
        "layer_types": lambda config: _types(config, config.get("global_attn_every_n_layers") or _every(config)),
        "rope_parameters": _rotations,
    },
    classes={
        "ModernBertModel": Class(),
        "ModernBertForMaskedLM": Class(("mlm",)),
        "ModernBertForSequenceClassification": _labelled("classifier", "L"),
        "ModernBertForTokenClassification": _labelled("classifier", "L"),
        "ModernBertForQuestionAnswering": _labelled("span", "2"),
        "ModernBertForMultipleChoice": _labelled("classifier", "L"),
    },
    prefix="model.",
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    special={
        "pad_token_id": "pad",
        "cls_token_id": "cls",
        "sep_token_id": "sep",
        "bos_token_id": "cls",
        "eos_token_id": "sep",
    },
    unread={
        "initializer_cutoff_factor": (2.0,),
        "deterministic_flash_attn": "how a GPU computes",
        "reference_compile": "how torch compiles",
        "sparse_*": "what of a loss is computed",
    },
)


class ModernBertPretraining(MaskedLMPretraining):
    """Masked tokens alone, 30% of them (section 2.2)."""

    defaults = MappingProxyType({"rate": 0.3})


register_objective("modernbert", ModernBertPretraining)
MODERNBERT = register(
    Family(
        name="modernbert",
        spec=ModernBertSpec(dropout=0.0, epsilon=1e-5, pooler=False).derive(
            {
                "embeddings.vocabulary": 50368,
                "embeddings.positions": 8192,
                "embeddings.segments": 0,
                "embeddings.kind": "none",
                "embeddings.norm": True,
                "feedforward.width": 1152,
                "feedforward.activation": "gated_gelu",
                "blocks.layers": 22,
                "blocks.norm": "pre",
                "blocks.bias": False,
            }
        ),
        sizes={
            "base": {},
            "large": {"hidden": 1024, "blocks.layers": 28, "attention.heads": 16, "feedforward.width": 2624},
        },
        encoder=ModernBert,
        objective="modernbert",
        tokenizer="bpe",
        names={"hf": HF},
        paper="Warner et al., 2024, Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder",
    )
)
