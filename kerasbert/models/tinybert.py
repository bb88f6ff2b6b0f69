"""TinyBERT: Distilling BERT for Natural Language Understanding (Jiao et al., 2020): BERT in two small shapes.

Section 4.2: 4 layers of 312 (F 1200) and 6 layers of 768, 12 heads each. What the paper is about - attention, hidden
states and embeddings learned from a teacher - is distillation; without a teacher it is pretrained as BERT is.

Differs: the released files hold the matrices that lifted the student's hidden states to the teacher's width (`fit_dense`,
in later releases `fit_denses`, one a layer). No model computes with them after training; they are left out.
"""

from kerasbert.models.bert import BERT
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import register

# their configuration says "bert": named by `model="tinybert"`
HF = BERT_HF.derive(ignored={**BERT_HF.ignored, "fit_dense.*": None, "fit_denses.*": None})

TINYBERT = register(
    BERT.derive(
        "tinybert",
        spec={"hidden": 312, "blocks.layers": 4, "feedforward.width": 1200},
        sizes={"4x312": {}, "6x768": {"hidden": 768, "blocks.layers": 6, "feedforward.width": 3072}},
        aliases={"4l-312d": "4x312", "6l-768d": "6x768"},
        names={**BERT.names, "hf": HF},
        paper="Jiao et al., 2020, TinyBERT: Distilling BERT for Natural Language Understanding",
    )
)
