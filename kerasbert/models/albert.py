"""ALBERT: A Lite BERT for Self-supervised Learning of Language Representations (Lan et al., 2020).

Differences from BERT: embeddings of E = 128 are projected to H, and all layers share their weights (section 3.1); the
order of two segments is asked for instead of the next sentence (3.1); n-grams are masked (4.1); a SentencePiece
vocabulary of 30,000 (4.1); no dropout in xxlarge (4.8; the released version 2 has none in any size: `--set dropout=0`).

Differs: tables 1 and 2 give 60M and 235M parameters for xlarge and xxlarge, the released models have 58.7M and 222.6M, and
so have these. Google's code computes GELU by tanh and so do these, the Hugging Face configurations of version 1 say "gelu",
the exact one. N-grams are drawn otherwise than in the released code, and the ends of a row a little more often than its
middle (`objectives.select.ngrams`, with numbers).
"""

import dataclasses
from collections.abc import Mapping

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.keras_hub_tasks import with_tasks
from kerasbert.checkpoints.names import Class
from kerasbert.models.bert import BERT
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.models.bert import TF1 as BERT_TF1
from kerasbert.objectives.bert import BertPretraining
from kerasbert.registry import register, register_objective
from kerasbert.spec import Embeddings as EmbeddingsSpec
from kerasbert.spec import Spec as BertSpec


@dataclasses.dataclass(frozen=True)
class FactorisedEmbeddings(EmbeddingsSpec):
    """BERT's embeddings of width E.

    Args:
        projected: bool, whether they are projected to H where E = H too, as transformers' and KerasHub's are (the released
            code's are not); None is no.
    """

    projected: bool | None = None


@dataclasses.dataclass(frozen=True)
class Spec(BertSpec):
    """BERT's Spec with such embeddings."""

    embeddings: FactorisedEmbeddings = FactorisedEmbeddings()


class AlbertPretraining(BertPretraining):
    """Masked LM over n-grams + sentence order."""

    packing = "order"
    defaults: Mapping[str, object] = {"select": "ngrams"}


def _size(layers: int, hidden: int, heads: int) -> dict[str, int]:
    """Table 1: F = 4H."""
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": heads, "feedforward.width": 4 * hidden}


# Checkpoint names: the one block has no number
_BLOCK = {
    "attention/query": ("attention.query", "attention_1/self/query"),
    "attention/key": ("attention.key", "attention_1/self/key"),
    "attention/value": ("attention.value", "attention_1/self/value"),
    "attention/output": ("attention.dense", "attention_1/output/dense"),
    "attention_norm": ("attention.LayerNorm", "LayerNorm"),
    "feedforward/inner": ("ffn", "ffn_1/intermediate/dense"),
    "feedforward/outer": ("ffn_output", "ffn_1/intermediate/output/dense"),
    "feedforward_norm": ("full_layer_layer_norm", "LayerNorm_1"),
}
_HEADS = {
    "mlm": BERT_HF.heads["mlm"],
    "sop": {"kernel": "H 2", "bias": "2"},
    "classifier": BERT_HF.heads["classifier"],
    "span": BERT_HF.heads["span"],
}
_CONFIG = (*BERT_HF.config, ("embeddings.width", "embedding_size"))
HF = dataclasses.replace(
    BERT_HF,
    rows=(
        ("embeddings/tokens/table", "albert.embeddings.word_embeddings.weight"),
        ("embeddings/positions/table", "albert.embeddings.position_embeddings.weight"),
        ("embeddings/segments/table", "albert.embeddings.token_type_embeddings.weight"),
        ("embeddings/norm", "albert.embeddings.LayerNorm"),
        ("embeddings/projection", "albert.encoder.embedding_hidden_mapping_in"),
        *(
            (f"block_0/{ours}", f"albert.encoder.albert_layer_groups.0.albert_layers.0.{theirs}")
            for ours, (theirs, _) in _BLOCK.items()
        ),
        ("pooler", "albert.pooler"),
        ("heads/mlm/transform", "predictions.dense"),
        ("heads/mlm/norm", "predictions.LayerNorm"),
        ("heads/mlm/bias", "predictions.bias"),
        ("heads/sop", "sop_classifier.classifier"),
        ("heads/classifier", "classifier"),
        ("heads/span", "qa_outputs"),
    ),
    heads=_HEADS,
    config=_CONFIG,
    fixed={"model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1},
    classes={
        "AlbertModel": Class(),
        "AlbertForMaskedLM": Class(("mlm",), pooler=False),
        "AlbertForPreTraining": Class(("mlm", "sop")),
        "AlbertForSequenceClassification": Class(("classifier",)),
        "AlbertForTokenClassification": Class(("classifier",), pooler=False),
        "AlbertForQuestionAnswering": Class(("span",), pooler=False),
        "AlbertForMultipleChoice": Class(("classifier",)),
    },
    prefix="albert.",
    # of the released albert_config.json; the released code reads none of them
    unread={"net_structure_type": (0,), "num_memory_blocks": (0,), "gap_size": (0,), "down_scale_factor": (1,)},
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
TF1 = dataclasses.replace(
    BERT_TF1,
    rows=(
        ("embeddings/projection", "bert/encoder/embedding_hidden_mapping_in"),
        *(
            (f"block_0/{ours}", f"bert/encoder/transformer/group_0/inner_group_0/{theirs}")
            for ours, (_, theirs) in _BLOCK.items()
        ),
        ("heads/sop/kernel", "cls/seq_relationship/output_weights", "T"),
        ("heads/sop/bias", "cls/seq_relationship/output_bias"),
        *(row for row in BERT_TF1.rows if not row[0].startswith(("block_", "heads/nsp"))),
    ),
    heads=_HEADS,
    config=_CONFIG,
    unprojected=True,
    unread={**BERT_TF1.unread, **HF.unread},
)

register_objective("albert", AlbertPretraining)
KERAS_HUB = with_tasks(
    keras_hub.dialect(
        "AlbertBackbone",
        ("embeddings/projection", "layers/dense"),
        ("pooler", "layers/dense_1"),
        config=(("embeddings.segments", "num_segments"), ("embeddings.width", "embedding_dim")),
    )
).derive(fixed={"class_name": "AlbertBackbone", "num_groups": 1, "num_inner_repetitions": 1})

ALBERT = register(
    dataclasses.replace(BERT, spec=Spec()).derive(
        "albert",
        spec={
            "embeddings.vocabulary": 30000,
            "embeddings.width": 128,
            "blocks.share": "all",
            "feedforward.activation": "gelu_tanh",
        },
        sizes={
            "base": {},
            "large": _size(24, 1024, 16),
            "xlarge": _size(24, 2048, 16),
            "xxlarge": _size(12, 4096, 64) | {"dropout": 0.0},
        },
        aliases={},
        tokenizer="unigram",
        objective="albert",
        names={"hf": HF, "tf1": TF1, "keras_hub": KERAS_HUB},
        paper="Lan et al., 2020, ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
    )
)
