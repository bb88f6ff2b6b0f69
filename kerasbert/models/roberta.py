"""RoBERTa: A Robustly Optimized BERT Pretraining Approach (Liu et al., 2019), and XLM-R.

Differences from BERT: byte-level BPE of 50K pieces (section 4.4), no next sentence prediction and FULL-SENTENCES inputs
(4.2; the other three formats of 4.2 are packings: pairs, sentences, doc), dynamic masking (4.1), batches of 8K. Of the
released code: one segment, and positions counted from 2, for fairseq gives 1 to padding.

XLM-R (Conneau et al., 2020, Unsupervised Cross-lingual Representation Learning at Scale, section 3) is RoBERTa with
one SentencePiece vocabulary of 250K pieces for 100 languages.
"""

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.keras_hub_tasks import with_tasks
from kerasbert.checkpoints.names import Class, of_family
from kerasbert.layers.heads import GeluMaskedLM
from kerasbert.models.bert import BERT, Encoder
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import register


class Roberta(Encoder):
    """BERT's encoder; the head that predicts tokens has GELU whatever the blocks have.

    Differs: fairseq's head takes the blocks' activation, transformers' is always GELU. Every released model has GELU in
    both; ours is transformers', where checkpoints with another activation come from.
    """

    open_lengths = True

    token_head = GeluMaskedLM


HF = BERT_HF.derive(
    ("bert.", "roberta."),
    rows=(
        ("heads/mlm/transform", "lm_head.dense"),
        ("heads/mlm/norm", "lm_head.layer_norm"),
        ("heads/mlm/bias", "lm_head.bias"),
    ),
    heads={name: BERT_HF.heads[name] for name in ("mlm", "classifier", "span")},
    fixed={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False, "pad_token_id": 1},
    classes={
        "RobertaModel": Class(),
        "RobertaForMaskedLM": Class(("mlm",), pooler=False),
        # their classifier has a tanh layer of its own over the first token, and the class no pooler: it is one
        "RobertaForSequenceClassification": Class(
            ("classifier",), rows=(("pooler", "classifier.dense"), ("heads/classifier", "classifier.out_proj"))
        ),
        "RobertaForTokenClassification": Class(("classifier",), pooler=False),
        "RobertaForQuestionAnswering": Class(("span",), pooler=False),
        "RobertaForMultipleChoice": Class(("classifier",)),
    },
    model_types=("camembert", "data2vec-text"),
    renames=(*BERT_HF.renames, (r"^data2vec_text\.", "roberta.")),
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
XLM_R_HF = HF.derive(
    model_types=(),
    classes=of_family(HF.classes, "Roberta", "XLMRoberta"),
)
# KerasHub leaves out the rows before the first position, the one segment and the pooler, which only its classifier has
KERAS_HUB, XLM_R_KERAS_HUB = (
    with_tasks(keras_hub.dialect(name, joined=True, embeddings__offset=0, embeddings__segments=0), "pooler")
    for name in ("RobertaBackbone", "XLMRobertaBackbone")
)

ROBERTA = register(
    BERT.derive(
        "roberta",
        spec={
            "embeddings.vocabulary": 50265,
            "embeddings.positions": 514,
            "embeddings.offset": 2,
            "embeddings.segments": 1,
            "epsilon": 1e-5,
        },
        sizes={"base": {}, "large": BERT.sizes["large"]},
        aliases={},
        encoder=Roberta,
        tokenizer="bpe",
        objective="masked_lm",
        names={"hf": HF, "keras_hub": KERAS_HUB},
        paper="Liu et al., 2019, RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    )
)
XLM_R = register(
    ROBERTA.derive(
        "xlm-roberta",
        spec={"embeddings.vocabulary": 250002},
        tokenizer="unigram",
        names={"hf": XLM_R_HF, "keras_hub": XLM_R_KERAS_HUB},
        paper="Conneau et al., 2020, Unsupervised Cross-lingual Representation Learning at Scale",
    )
)
