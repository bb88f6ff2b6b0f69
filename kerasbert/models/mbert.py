"""Multilingual BERT (Devlin et al., 2019; google-research/bert, multilingual.md): BERT with 104 languages' pieces."""

from kerasbert.models.bert import BERT
from kerasbert.registry import register

MBERT = register(
    BERT.derive(
        "mbert",
        spec={"embeddings.vocabulary": 119547},
        sizes={"base-cased": {}, "base-uncased": {"embeddings.vocabulary": 105879}},
        aliases={},
        paper="Devlin et al., 2019, BERT; multilingual.md of the released code",
    )
)
