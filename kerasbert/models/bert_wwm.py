"""BERT with whole word masking (google-research/bert, README, "Whole Word Masking Models", May 2019; Devlin et al., 2019).

If one piece of a word is selected, all are; the share of tokens that is predicted and 80/10/10, drawn piece by piece, stay
as they were. Chinese words: Cui et al., 2019, Pre-Training with Whole Word Masking for Chinese BERT.
"""

from collections.abc import Mapping

from kerasbert.models.bert import BERT
from kerasbert.objectives.bert import BertPretraining
from kerasbert.registry import register, register_objective


class WholeWordMasking(BertPretraining):
    """BERT's pretraining, whole words selected."""

    defaults: Mapping[str, object] = {"select": "words"}


register_objective("wwm", WholeWordMasking)
BERT_WWM = register(
    BERT.derive(
        "bert-wwm",
        spec=BERT.sizes["large"],
        sizes={"large-uncased": {}, "large-cased": {"embeddings.vocabulary": 28996}},
        aliases={"large": "large-uncased"},
        objective="wwm",
        paper="Devlin et al., 2019, BERT; whole word masking models of the released code",
    )
)
