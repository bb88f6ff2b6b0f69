"""BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding (Devlin et al., 2019).

The small sizes are of "Well-Read Students Learn Better" (Turc et al., 2019, table 1).
"""

from kerasbert.checkpoints import buffers, keras_hub
from kerasbert.checkpoints.keras_hub_tasks import with_tasks
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.layers.encoder import Encoder
from kerasbert.registry import Family, register
from kerasbert.spec import Spec


def _size(layers: int, hidden: int) -> dict[str, int]:
    """Turc et al., 2019: F = 4H and heads of 64."""
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": hidden // 64, "feedforward.width": 4 * hidden}


# Checkpoint names: ours, theirs
_ROWS = (
    ("embeddings/norm", "bert.embeddings.LayerNorm"),
    ("block_{i}/attention/query", "bert.encoder.layer.{i}.attention.self.query"),
    ("block_{i}/attention/key", "bert.encoder.layer.{i}.attention.self.key"),
    ("block_{i}/attention/value", "bert.encoder.layer.{i}.attention.self.value"),
    ("block_{i}/attention/output", "bert.encoder.layer.{i}.attention.output.dense"),
    ("block_{i}/attention_norm", "bert.encoder.layer.{i}.attention.output.LayerNorm"),
    ("block_{i}/feedforward/inner", "bert.encoder.layer.{i}.intermediate.dense"),
    ("block_{i}/feedforward/outer", "bert.encoder.layer.{i}.output.dense"),
    ("block_{i}/feedforward_norm", "bert.encoder.layer.{i}.output.LayerNorm"),
    ("pooler", "bert.pooler.dense"),
    ("heads/mlm/transform", "cls.predictions.transform.dense"),
    ("heads/mlm/norm", "cls.predictions.transform.LayerNorm"),
)
_SHARED = {
    "heads": {
        "mlm": {"transform/kernel": "H E", "transform/bias": "E", "norm/gamma": "E", "norm/beta": "E", "bias": "V"},
        "nsp": {"kernel": "H 2", "bias": "2"},
        "classifier": {"kernel": "H L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    "config": (
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("embeddings.segments", "type_vocab_size"),
        ("hidden", "hidden_size"),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "num_attention_heads"),
        ("feedforward.width", "intermediate_size"),
        ("feedforward.activation", "hidden_act"),
        ("dropout", "hidden_dropout_prob"),
        ("attention.dropout", "attention_probs_dropout_prob"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_eps"),
    ),
    # of the released bert_config.json for Chinese and many languages; no code reads them
    "unread": {"directionality": "unread by the released code too", "pooler_*": "unread by the released code too"},
}
HF = Dialect(
    rows=(
        *_ROWS,
        ("embeddings/tokens/table", "bert.embeddings.word_embeddings.weight"),
        ("embeddings/positions/table", "bert.embeddings.position_embeddings.weight"),
        ("embeddings/segments/table", "bert.embeddings.token_type_embeddings.weight"),
        ("heads/mlm/bias", "cls.predictions.bias"),
        ("heads/nsp", "cls.seq_relationship"),
        ("heads/classifier", "classifier"),
        ("heads/span", "qa_outputs"),
    ),
    # torch keeps a matrix as [out, in]
    leaves={"kernel": (".weight", "T"), "bias": (".bias",), "gamma": (".weight",), "beta": (".bias",)},
    fixed={
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    classes={
        "BertModel": Class(),
        "BertForMaskedLM": Class(("mlm",), pooler=False),
        "BertForPreTraining": Class(("mlm", "nsp")),
        "BertForNextSentencePrediction": Class(("nsp",)),
        "BertForSequenceClassification": Class(("classifier",)),
        "BertForTokenClassification": Class(("classifier",), pooler=False),
        "BertForQuestionAnswering": Class(("span",), pooler=False),
        "BertForMultipleChoice": Class(("classifier",)),
    },
    prefix="bert.",
    renames=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored={"*embeddings.position_ids": buffers.counted, "*embeddings.token_type_ids": buffers.zeros},
    **_SHARED,
)
# the classifier of tokens in families whose classifier of texts has a layer of its own before the labels
ONE_MAP = Class(
    ("classifier",), rows=(("heads/classifier", "classifier"),), shapes={"classifier": HF.shapes("classifier")}
)
TF1 = Dialect(
    rows=(
        *((ours, theirs.replace(".", "/").replace("layer/{i}", "layer_{i}")) for ours, theirs in _ROWS),
        ("embeddings/tokens/table", "bert/embeddings/word_embeddings"),
        ("embeddings/positions/table", "bert/embeddings/position_embeddings"),
        ("embeddings/segments/table", "bert/embeddings/token_type_embeddings"),
        ("heads/mlm/bias", "cls/predictions/output_bias"),
        ("heads/nsp/kernel", "cls/seq_relationship/output_weights", "T"),
        ("heads/nsp/bias", "cls/seq_relationship/output_bias"),
        ("heads/classifier/kernel", "output_weights", "T"),
        ("heads/classifier/bias", "output_bias"),
        ("heads/span/kernel", "cls/squad/output_weights", "T"),
        ("heads/span/bias", "cls/squad/output_bias"),
    ),
    leaves={"kernel": ("/kernel",), "bias": ("/bias",), "gamma": ("/gamma",), "beta": ("/beta",)},
    ignored=dict.fromkeys(
        ("*/adam_m", "*/adam_v", "*/lamb_m", "*/lamb_v", "*/Adam", "*/Adam_1", "global_step", "beta?_power")
    ),
    **_SHARED,
)

# KerasHub's BERT, the one with TensorFlow's own code as its model, has the tanh approximation of GELU
KERAS_HUB = with_tasks(
    keras_hub.dialect(
        "BertBackbone",
        ("pooler", "layers/dense"),
        config=(("embeddings.segments", "num_segments"),),
        feedforward__activation="gelu_tanh",
    )
)

BERT = register(
    Family(
        name="bert",
        spec=Spec(),
        sizes={
            "base": {},
            "large": _size(24, 1024),
            "base-cased": {"embeddings.vocabulary": 28996},
            "large-cased": _size(24, 1024) | {"embeddings.vocabulary": 28996},
            "base-chinese": {"embeddings.vocabulary": 21128},
            "base-multilingual-cased": {"embeddings.vocabulary": 119547},
            "base-multilingual-uncased": {"embeddings.vocabulary": 105879},
            "tiny": _size(2, 128),
            "mini": _size(4, 256),
            "small": _size(4, 512),
            "medium": _size(8, 512),
            "xlarge": _size(24, 2048),
        },
        aliases={f"{size}-uncased": size for size in ("base", "large", "tiny", "mini", "small", "medium")},
        encoder=Encoder,
        names={"hf": HF, "tf1": TF1, "keras_hub": KERAS_HUB},
        paper="Devlin et al., 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    )
)
