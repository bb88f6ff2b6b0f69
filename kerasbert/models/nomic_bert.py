"""Nomic Embed: Training a Reproducible Long Context Text Embedder (Nussbaum et al., 2024): nomic-bert, and nomic-embed-text.

Differences from BERT, section 4.1: rotary positions in the place of learned ones; SwiGLU feed-forward networks; no dropout; a
vocabulary that is a multiple of 64. Masked tokens alone (4.2). Of the released code: no bias in attention and feed-forward; the
base of the rotation is 1,000; no pooler but in front of labels of texts, where a tanh layer over the first token stands.

Differs: some releases stretch the rotation of texts beyond the 2,048 tokens that they were trained on (rotary_scaling_factor);
here, as in transformers, 2,048 tokens are the most.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.names import GATED, Class
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.rotary import RotaryAttention, check_head_size, with_places
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.models.bert import ONE_MAP
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Blocks, Embeddings, FeedForward, Spec
from kerasbert.storage.json_view import Json, JsonMap


@dataclasses.dataclass(frozen=True)
class Rotary:
    """How queries and keys are rotated.

    Args:
        theta: float, the base.
    """

    theta: float = 1000.0


@dataclasses.dataclass(frozen=True)
class NomicBertSpec(Spec):
    """A Spec with rotary positions."""

    rotary: Rotary = Rotary()

    def validate(self) -> "NomicBertSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        check_head_size(self.head_size)
        if self.rotary.theta <= 1:
            raise InputError(f"rotary.theta must be above 1. Received: {self.rotary.theta}")
        if self.embeddings.kind != "none":
            raise InputError(f"NomicBERT has embeddings.kind none. Received: {self.embeddings.kind}")
        return self


class NomicBertBlock(Block):
    """BERT's layer with rotary attention. Args: as Block; theta: float."""

    def __init__(self, *, theta: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.theta = theta

    def attention_class(self, *args: Any, **kwargs: Any) -> RotaryAttention:
        """That of the Spec."""
        return RotaryAttention(*args, theta=self.theta, **kwargs)

    def get_config(self) -> Json:
        return {**super().get_config(), "theta": self.theta}


class NomicBert(Encoder):
    """The encoder."""

    open_lengths = True

    label_activation = "tanh"  # their pooler

    @property
    def block_class(self) -> Callable:
        """Blocks with the Spec's base."""
        return functools.partial(NomicBertBlock, theta=self.spec.rotary.theta)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return with_places(super().context(inputs), inputs)


# Checkpoints: a configuration speaks BERT's words, those of the first releases (GPT-2's), or both

_FIRST = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "max_trained_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
_USUAL = {"max_position_embeddings": 2048, "layer_norm_eps": 1e-12}
_GATES = {"silu": "swiglu", "gelu": "geglu", "gelu_new": "geglu"}


def _first(config: JsonMap, key: str) -> object:
    """A size in the words of the first releases."""
    found = config.get(_FIRST[key])
    return _USUAL.get(key) if found is None else found


def _activation(config: JsonMap) -> str:
    return "gelu" if config.get("activation_function") == "geglu" else "silu"


def _gate(config: JsonMap) -> object:
    """What `activation_function` says beside hidden_act."""
    said = config.get("activation_function")
    return _GATES.get(config.get("hidden_act") or _activation(config), said)


def _theta(config: JsonMap) -> float:
    return (config.get("rope_parameters") or {}).get("rope_theta", 1000.0)


def _rotation(config: JsonMap) -> Json:
    """What `rope_parameters` says of the rotation that is computed here."""
    return {"rope_theta": config.get("rotary_emb_base") or _theta(config), "rope_type": "default"}


_L = "nomic_bert.encoder.layers.{i}"
HF = BERT_HF.derive(
    ("bert.embeddings.LayerNorm", "nomic_bert.emb_ln"),
    ("cls.predictions.transform.LayerNorm", "cls.predictions.transform.layer_norm"),
    rows=(
        *(("block_{i}/attention/" + name, f"{_L}.attn.Wqkv#{i}") for i, name in enumerate(("query", "key", "value"))),
        ("block_{i}/attention/output", f"{_L}.attn.out_proj"),
        ("block_{i}/attention_norm", f"{_L}.norm1"),
        ("block_{i}/feedforward/linear", f"{_L}.mlp.fc11"),
        ("block_{i}/feedforward/gate", f"{_L}.mlp.fc12"),
        ("block_{i}/feedforward/outer", f"{_L}.mlp.fc2"),
        ("block_{i}/feedforward_norm", f"{_L}.norm2"),
        ("embeddings/tokens/table", "nomic_bert.embeddings.word_embeddings.weight"),
        ("embeddings/segments/table", "nomic_bert.embeddings.token_type_embeddings.weight"),
        ("heads/classifier/inner", "nomic_bert.pooler.dense"),
    ),
    forms={"*.attn.Wqkv.weight": Joined(3, 0)},
    heads={
        "mlm": BERT_HF.heads["mlm"],
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
    },
    config=(*BERT_HF.config, ("attention.head_size", "head_dim"), ("rotary.theta", "rotary_emb_base")),
    values={"hidden_act": GATED},
    silent={
        **{key: functools.partial(_first, key=key) for key in _FIRST},
        "hidden_act": _activation,
        "head_dim": None,
        "rotary_emb_base": _theta,
    },
    fixed={
        "model_type": "nomic_bert",
        "activation_function": _gate,
        "rope_parameters": _rotation,
        **dict.fromkeys(("prenorm", "parallel_block", "causal", "rotary_emb_interleaved", "use_rms_norm"), False),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False),
        **dict.fromkeys(("rotary_scaling_factor", "rotary_emb_scale_base")),
        "rotary_emb_fraction": 1.0,
    },
    classes={
        "NomicBertModel": Class(),
        "NomicBertForMaskedLM": Class(("mlm",)),
        "NomicBertForSequenceClassification": Class(("classifier",)),
        "NomicBertForTokenClassification": ONE_MAP,
    },
    model_types=("nomic_bert",),
    prefix="nomic_bert.",
    tied={
        "cls.predictions.decoder.weight": "nomic_bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored={},
    unread={
        **BERT_HF.unread,
        "auto_map": "nomic's own code, of before transformers had the class, computes the same",
        "n_positions": "up to where their code stretches the rotation; texts are truncated before",
        "pad_vocab_size_multiple": "the table has its rows",
        **dict.fromkeys(("use_flash_attn", "use_xentropy", "fused_*", "dense_seq_output"), "how a GPU computes"),
        **dict.fromkeys(("last_layer_subset", "reorder_and_upcast_attn"), "how a GPU computes"),
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), (0.0,)),
        "summary_*": "of GPT-2's classes, which their code has not",
    },
)


class NomicBertPretraining(MaskedLMPretraining):
    """Masked tokens alone, 30% of them (section 4.2)."""

    defaults = MappingProxyType({"rate": 0.3})


register_objective("nomic_bert", NomicBertPretraining)
NOMIC_BERT = register(
    Family(
        name="nomic-bert",
        spec=NomicBertSpec(
            dropout=0.0,
            pooler=False,
            embeddings=Embeddings(vocabulary=30528, positions=2048, kind="none"),
            feedforward=FeedForward(activation="gated_swish"),
            blocks=Blocks(bias=False),
        ),
        sizes={"base": {}},
        encoder=NomicBert,
        objective="nomic_bert",
        names={"hf": HF},
        paper="Nussbaum et al., 2024, Nomic Embed: Training a Reproducible Long Context Text Embedder",
    )
)
