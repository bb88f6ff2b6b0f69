"""DistilBERT, a distilled version of BERT (Sanh et al., 2019): every second layer of BERT-base, trained to imitate it.

Section 3: no segment embeddings and no pooler; half the layers. Pretraining here is masked LM alone, on rows filled with
text (the paper drops next sentence and masks anew at every step); imitating a teacher is another matter.

Differs: the released classifier (a layer of H units with ReLU before the labels, as its authors' code) has no dropout in
front of that layer and 0.2 behind it; here `dropout` stands in front of both, in training alone.
"""

from kerasbert.checkpoints import buffers, keras_hub
from kerasbert.checkpoints.keras_hub_tasks import INNER, with_tasks
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.models.bert import BERT, Encoder
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import register


class DistilBert(Encoder):
    """BERT's encoder; the head of a task has a hidden layer, for there is no pooler."""

    open_lengths = True

    label_activation = "relu"


HF = Dialect(
    rows=(
        ("embeddings/tokens/table", "distilbert.embeddings.word_embeddings.weight"),
        # with sinusoidal_pos_embds the table is in the file just so
        ("embeddings/positions/table", "distilbert.embeddings.position_embeddings.weight"),
        ("embeddings/norm", "distilbert.embeddings.LayerNorm"),
        ("block_{i}/attention/query", "distilbert.transformer.layer.{i}.attention.q_lin"),
        ("block_{i}/attention/key", "distilbert.transformer.layer.{i}.attention.k_lin"),
        ("block_{i}/attention/value", "distilbert.transformer.layer.{i}.attention.v_lin"),
        ("block_{i}/attention/output", "distilbert.transformer.layer.{i}.attention.out_lin"),
        ("block_{i}/attention_norm", "distilbert.transformer.layer.{i}.sa_layer_norm"),
        ("block_{i}/feedforward/inner", "distilbert.transformer.layer.{i}.ffn.lin1"),
        ("block_{i}/feedforward/outer", "distilbert.transformer.layer.{i}.ffn.lin2"),
        ("block_{i}/feedforward_norm", "distilbert.transformer.layer.{i}.output_layer_norm"),
        ("heads/mlm/transform", "vocab_transform"),
        ("heads/mlm/norm", "vocab_layer_norm"),
        ("heads/mlm/bias", "vocab_projector.bias"),
        ("heads/classifier/inner", "pre_classifier"),
        ("heads/classifier", "classifier"),
        ("heads/span", "qa_outputs"),
        ("pooler", "distilbert.pooler"),  # there is none
    ),
    leaves=BERT_HF.leaves,
    heads={
        "mlm": BERT_HF.heads["mlm"],
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
        "span": BERT_HF.heads["span"],
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("hidden", "dim"),
        ("blocks.layers", "n_layers"),
        ("attention.heads", "n_heads"),
        ("feedforward.width", "hidden_dim"),
        ("feedforward.activation", "activation"),
        ("dropout", "dropout"),
        ("attention.dropout", "attention_dropout"),
        ("initializer", "initializer_range"),
    ),
    fixed={"model_type": "distilbert"},
    classes={
        "DistilBertModel": Class(),
        "DistilBertForMaskedLM": Class(("mlm",)),
        "DistilBertForSequenceClassification": Class(("classifier",)),
        "DistilBertForTokenClassification": Class(("classifier",), shapes={"classifier": BERT_HF.shapes("classifier")}),
        "DistilBertForQuestionAnswering": Class(("span",)),
        "DistilBertForMultipleChoice": Class(("classifier",)),
    },
    prefix="distilbert.",
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    ignored={"*embeddings.position_ids": buffers.counted},
    unread={
        "sinusoidal_pos_embds": "the file holds the table, whatever filled it",
        "tie_weights_": "what is tied is compared",
    },
)

DISTILBERT = register(
    BERT.derive(
        "distilbert",
        spec={"blocks.layers": 6, "embeddings.segments": 0, "pooler": False},
        sizes={
            "base": {},
            "base-cased": {"embeddings.vocabulary": 28996},
            "base-multilingual-cased": {"embeddings.vocabulary": 119547},
        },
        aliases={"base-uncased": "base"},
        encoder=DistilBert,
        names={"hf": HF, "keras_hub": with_tasks(keras_hub.dialect("DistilBertBackbone", joined=True), INNER)},
        objective="masked_lm",
        paper="Sanh et al., 2019, DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    )
)
