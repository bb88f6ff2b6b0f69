"""DeBERTa: Decoding-enhanced BERT with Disentangled Attention (He et al., 2021).

Differences from BERT:

- Section 3.1: contents and relative positions are scored apart (`layers/disentangled.py`). All layers share a table of 2 k
  vectors of distances, k = 512; each projects it by two maps of its own. Distances of k and more are alike.
- Section 3.2 (enhanced mask decoder): positions of the text are not added to what the first layer reads, but to the queries of
  the last one, which is applied twice to predict masked tokens (the objective `deberta`; section 4.2: n = 2 layers, which share
  the weights of the last one). The table of positions is of pretraining alone.
- No segments, no pooler, no next sentence prediction; byte-level BPE of GPT-2 (section 5.1).

Of the released code: maps of keys and of the positions that are keys add no bias; epsilon is 1e-7; labels of a text are behind a
layer with GELU on the first token (ContextPooler), without a dropout of its own.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.config import ACTIVATIONS as THEIRS
from kerasbert.checkpoints.directory import head_names, named_weights
from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.names import LIST, TORCH_LEAVES, Class, Dialect
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.disentangled import TERMS, DisentangledAttention, Distances, rows_of_distances
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import ACTIVATIONS
from kerasbert.layers.mask_decoder import check_places, decoded
from kerasbert.layers.readout import Queries
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.models.bert import ONE_MAP
from kerasbert.objectives.bert import MaskedLMPretraining, PretrainingModel
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonMap


@dataclasses.dataclass(frozen=True)
class Relative:
    """How distances enter the scores.

    Args:
        terms: what is scored beside the contents, of "c2p" (content to position) and "p2c"; none for no relative positions.
        distance: int k: distances of that many tokens and more are alike.
    """

    terms: tuple[str, ...] = TERMS
    distance: int = 512

    @property
    def rows(self) -> np.ndarray:
        """Rows of the table by distance: `rows_of_distances`."""
        return rows_of_distances(self.span)

    @property
    def span(self) -> int:
        """Half of the rows of the table."""
        return self.distance


@dataclasses.dataclass(frozen=True)
class DebertaSpec(Spec):
    """A Spec with a table of distances. `pooled_activation`: of the layer in front of a text's labels."""

    relative: Relative = Relative()
    pooled_activation: str = "gelu"

    def validate(self) -> "DebertaSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        terms = self.relative.terms
        if set(terms) - set(TERMS) or len(set(terms)) != len(terms):
            raise InputError(
                f"relative.terms must be some of {', '.join(TERMS)}, each once. Received: {', '.join(terms)}"
            )
        if self.relative.distance < 1:
            raise InputError(f"relative.distance must be at least 1. Received: {self.relative.distance}")
        if self.pooled_activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise InputError(f"pooled_activation must be one of {known}. Received: {self.pooled_activation!r}")
        if self.blocks.norm != "post":
            raise InputError(f"DeBERTa has blocks.norm post. Received: {self.blocks.norm}")
        return self

    def seen(self, layer: int, length: float) -> float:
        """Keys of a token, for the count of FLOPs; each further term is a product with twice as many distances."""
        return length * (1 + len(self.relative.terms))


def longest(spec: DebertaSpec) -> int | None:
    """Tokens of the longest sequence: as many as there are places in a table that is added to the tokens, else there is none."""
    return spec.longest if spec.embeddings.kind == "learned" else None


class DebertaBlock(Block):
    """A layer with disentangled attention. Args: as Block; spec: DebertaSpec."""

    key_bias = False

    def __init__(self, *, spec: DebertaSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec

    def attention_class(self, *sizes: Any, **kwargs: Any) -> DisentangledAttention:
        """Of the Spec's terms."""
        relative = self.spec.relative
        how = {"terms": relative.terms, "shared": getattr(relative, "share_key", False), "key_bias": self.key_bias}
        return DisentangledAttention(*sizes, table_dropout=self.settings["dropout"], **how, **kwargs)


class Deberta(Encoder):
    """The encoder: `relative` is the table of distances.

    Attributes:
        decoder: Table, positions of the enhanced mask decoder, whose states are then the `sequence` of a call;
            None but in a model that fills masks (`token_model`).
    """

    blocks_of: type[DebertaBlock] = DebertaBlock
    decoder: Table | None = None
    decoder_rows = 0

    def _build(self) -> None:
        super()._build()
        spec = self.spec
        if spec.relative.terms:
            rows, kwargs = 2 * spec.relative.span, {"dtype": self.dtype_policy}
            self.relative = Table(rows, spec.hidden, spec.initializer, name="relative", **kwargs)
            self.relative.build()
        if self.decoder_rows:
            decoder = self.decoder = Table(self.decoder_rows, spec.hidden, name="decoder", dtype=self.dtype_policy)
            decoder.build()

    @property
    def block_class(self) -> Callable:
        """Blocks with the Spec's terms."""
        return functools.partial(self.blocks_of, spec=self.spec)

    @property
    def label_activation(self) -> str:
        """Of the layer in front of a text's labels."""
        return self.spec.pooled_activation

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence."""
        return longest(self.spec)

    @property
    def distances(self) -> Tensor:
        """The vectors of distances that all layers read: [2 k, H]."""
        return self.relative.table

    def token_model(self, tensors: Safetensors) -> tuple["Deberta", str] | None:
        """An encoder with the decoder that a run was pretrained with; None where the run's directory holds none."""
        if "emd" not in head_names(tensors):
            return None
        made = type(self)(self.spec, name=self.name, dtype=self.dtype_policy)
        made.decoder_rows = tensors.shape("heads/emd/table")[0]
        made.build()
        made.tokenizer = self.tokenizer
        for name, variable in named_weights(made).items():
            variable.assign(tensors.read("heads/emd/table" if name == "decoder/table" else name))
        return made, "heads/"

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        outputs = super().call(inputs, training, queries, attention)
        if self.decoder is None or isinstance(queries, str):
            return outputs
        check_places(inputs, self.spec)
        if queries is None:
            queries = ops.arange(ops.shape(inputs["token_ids"])[1], dtype="int32")
            queries = ops.broadcast_to(queries, ops.shape(inputs["token_ids"]))
        told = {**inputs, "mlm_positions": queries}
        states = decoded(self.blocks[-1], self.decoder, outputs["hidden"][-2], told, self.context(inputs), training)
        return outputs | {"sequence": states}

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        relative, length = self.spec.relative, ops.shape(inputs["token_ids"])[1]
        table, rows = (self.distances, relative.rows) if relative.terms else (None, None)
        pieces = inputs.get("packed_ids", inputs.get("padding_mask"))
        scoring = Distances(table, rows, length, None if pieces is None else ops.cast(pieces, "int32"))
        return dataclasses.replace(super().context(inputs), scoring=scoring)


class EnhancedMaskDecoder(PretrainingModel):
    """Encoder, the last layer again with positions in its queries, and the masked-LM head (sections 3.2 and 4.2).

    Call: as PretrainingModel. mlm_logits are those of the decoder where there is a table of positions.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        if "emd" not in self.heads:
            return super().call(inputs, training)
        encoder = self.body
        encoder.check(inputs)
        context = encoder.context(inputs)
        check_places(inputs, encoder.spec)
        outputs = encoder.run(inputs, context, training)
        last = encoder.blocks[-1], self.heads["emd"], outputs["hidden"][-2]
        states = decoded(*last, inputs, context, training)
        return outputs | {"mlm_logits": self.heads["mlm"](states, encoder.embeddings.tokens.table)}


class DebertaPretraining(MaskedLMPretraining):
    """Masked LM with the enhanced mask decoder; without it where positions are added to the tokens, as in the released code."""

    model_class = EnhancedMaskDecoder

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # a table, which predicts nothing
        self.scales = {name: scale for name, scale in self.scales.items() if name != "emd"}

    def heads(self, encoder: Encoder) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        parts, shapes = super().heads(encoder)
        spec = encoder.spec
        if not isinstance(spec, DebertaSpec):
            raise InputError(
                "the objective deberta applies a last layer to queries of its own, which this model has not: pretrain a deberta"
            )
        if spec.embeddings.kind == "none":
            rows = spec.embeddings.positions
            parts["emd"] = Table(rows, spec.hidden, spec.initializer, name="emd", dtype=encoder.dtype_policy)
            shapes["emd"] = (None, None)
        return parts, shapes


register_objective("deberta", DebertaPretraining)

# Checkpoints


def terms_of(config: JsonMap) -> tuple[str, ...]:
    """The terms that a configuration says, by a list or by "p2c|c2p"."""
    said = config.get("pos_att_type") or ()
    said = [name.strip() for name in said.lower().split("|")] if isinstance(said, str) else list(said)
    return (*(term for term in TERMS if term in said), *(name for name in said if name not in TERMS))


class DebertaDialect(Dialect):
    """The names of a DeBERTa, and what its configuration leaves to other keys.

    Their files hold a table of positions where the encoder adds none: their enhanced mask decoder's, whose classes are not in
    transformers. It is left out, as if it were a copy of something.
    """

    spare = ("deberta.embeddings.position_embeddings.weight",)

    def read_config(self, config: Json) -> Json:
        said = config["max_relative_positions"]
        farthest = said if isinstance(said, int) and said > 0 else config.get("max_position_embeddings")
        return config | {"pos_att_type": list(terms_of(config)), "max_relative_positions": farthest}


NAMES = {name: ours for name, ours in THEIRS.items() if ours in ACTIVATIONS}
L, SELF = "deberta.encoder.layer.{i}", "deberta.encoder.layer.{i}.attention.self"
ROWS = (
    ("embeddings/tokens", "deberta.embeddings.word_embeddings"),
    ("embeddings/positions", "deberta.embeddings.position_embeddings"),
    ("embeddings/segments", "deberta.embeddings.token_type_embeddings"),
    ("embeddings/norm", "deberta.embeddings.LayerNorm"),
    ("relative", "deberta.encoder.rel_embeddings"),
    ("block_{i}/attention/output", f"{L}.attention.output.dense"),
    ("block_{i}/attention_norm", f"{L}.attention.output.LayerNorm"),
    ("block_{i}/feedforward/inner", f"{L}.intermediate.dense"),
    ("block_{i}/feedforward/outer", f"{L}.output.dense"),
    ("block_{i}/feedforward_norm", f"{L}.output.LayerNorm"),
    ("heads/mlm/transform", "cls.predictions.transform.dense"),
    ("heads/mlm/norm", "cls.predictions.transform.LayerNorm"),
    ("heads/mlm/bias", "cls.predictions.bias"),
    ("heads/classifier/inner", "pooler.dense"),
    ("heads/classifier", "classifier"),
    ("heads/span", "qa_outputs"),
)
HF = DebertaDialect(
    rows=(
        *(
            (f"block_{{i}}/attention/{name}/kernel", f"{SELF}.in_proj#{i}.weight", "T")
            for i, name in enumerate(("query", "key", "value"))
        ),
        ("block_{i}/attention/query/bias", f"{SELF}.q_bias"),
        ("block_{i}/attention/value/bias", f"{SELF}.v_bias"),
        ("block_{i}/attention/position_key", f"{SELF}.pos_proj"),
        ("block_{i}/attention/position_query", f"{SELF}.pos_q_proj"),
        *ROWS,
    ),
    leaves=TORCH_LEAVES,
    forms={"*.attention.self.in_proj.weight": Joined(3, 0, by_head=True)},
    heads={
        "mlm": BERT_HF.heads["mlm"],
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
        "span": BERT_HF.heads["span"],
        "emd": None,
    },
    config=(
        *BERT_HF.config,
        ("embeddings.kind", "position_biased_input"),
        ("relative.terms", "pos_att_type", LIST),
        ("relative.distance", "max_relative_positions"),
        ("pooled_activation", "pooler_hidden_act"),
    ),
    silent={
        "type_vocab_size": 0,
        "position_biased_input": True,
        "max_relative_positions": -1,
        "pooler_hidden_act": "gelu",
        "layer_norm_eps": 1e-7,
    },
    values={"position_biased_input": {True: "learned", False: "none"}, "pooler_hidden_act": NAMES},
    fixed={
        "model_type": "deberta",
        "relative_attention": lambda config: bool(terms_of(config)),
        "talking_head": False,
        "embedding_size": lambda config: config.get("hidden_size"),
        "pooler_hidden_size": lambda config: config.get("hidden_size"),
    },
    classes={
        "DebertaModel": Class(),
        "DebertaForMaskedLM": Class(("mlm",)),
        "DebertaForSequenceClassification": Class(("classifier",)),
        "DebertaForTokenClassification": ONE_MAP,
        "DebertaForQuestionAnswering": Class(("span",)),
    },
    prefix="deberta.",
    renames=(  # the head of `legacy` false, which computes the same
        (r"^lm_predictions\.lm_head\.(dense|LayerNorm)\.", r"cls.predictions.transform.\1."),
        (r"^lm_predictions\.lm_head\.bias$", "cls.predictions.bias"),
    ),
    tied={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        # no copy, and written by the row above where the encoder adds positions
        "deberta.embeddings.position_embeddings.weight": ("", "deberta.embeddings.word_embeddings.weight"),
    },
    # of replaced token detection, by another head than is pretrained here
    ignored={"mask_predictions.*": None, "*embeddings.position_ids": buffers.counted},
    special={"pad_token_id": "pad"},
    unread={
        "legacy": "which of two names the head has that predicts tokens; both are read",
        "pooler_dropout": (0, 0.0),
        "cls_dropout": (0.0, 0.1),
    },
)

DEBERTA = register(
    Family(
        name="deberta",
        spec=DebertaSpec(epsilon=1e-7, pooler=False).derive(
            {"embeddings.vocabulary": 50265, "embeddings.segments": 0, "embeddings.kind": "none"}
        ),
        sizes={
            "base": {},
            "large": {"hidden": 1024, "blocks.layers": 24, "attention.heads": 16, "feedforward.width": 4096},
            "xlarge": {"hidden": 1024, "blocks.layers": 48, "attention.heads": 16, "feedforward.width": 4096},
        },
        encoder=Deberta,
        objective="deberta",
        tokenizer="bpe",
        names={"hf": HF},
        longest=longest,
        paper="He et al., 2021, DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
    )
)
