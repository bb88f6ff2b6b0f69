"""StructBERT (ALICE): Incorporating Language Structures into Pre-training (Wang et al., 2020).

Differences from BERT: besides masked tokens, the order of shuffled trigrams is restored (section 2.2, the word structural
objective); the question about a pair has three answers: next, previous, of another document (sentence structural).
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.models.bert import BERT, HF, TF1
from kerasbert.objectives.bert import BertPretraining, PretrainingModel
from kerasbert.objectives.masked_lm import masked_columns, ordinary, row_keys
from kerasbert.objectives.shuffle import shuffle
from kerasbert.registry import register, register_objective

SHARE = 0.05  # of a sequence's trigrams, those that overlap counted


class StructBertModel(PretrainingModel):
    """PretrainingModel that also predicts what stood at shuffled places, with the same token head.

    Call: also wso_positions [B, 3 T] -> also wso_logits [B, 3 T, V] float32.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = super().call(inputs, training=training)
        outputs["wso_logits"] = self.tokens(outputs["sequence"], inputs["wso_positions"])
        return outputs


class StructBertPretraining(BertPretraining):
    """Masked LM + word structural objective + three-way sentence objective, with equal weights (section 2.2).

    A twentieth as many trigrams as there are tokens are shuffled, of tokens that are neither masked nor special; each of
    the six orders, the right one too, is as likely. Trigrams do not overlap.
    """

    packing = "place"
    model_class = StructBertModel
    predicted: ClassVar = {**BertPretraining.predicted, "wso": ("wso_labels", "wso_weights")}

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        batch = super().prepare(features)
        tokens = ops.sum(batch["padding_mask"], axis=1)
        length = batch["token_ids"].shape[1]
        counts = np.round(SHARE * np.arange(length + 1)).astype("int32")
        visible = ops.cast(batch["padding_mask"], "bool") & ordinary(features["token_ids"], self.tokenizer)
        ids, positions, labels, chosen = shuffle(
            row_keys(features, self.settings, self.seed, "word_structure"),
            batch["token_ids"],
            visible & ~masked_columns(batch),
            ops.take(counts, tokens),
            int(max(1, counts[-1])),
        )
        return batch | {
            "token_ids": ids,
            "wso_positions": ops.where(chosen, positions, 0),
            "wso_labels": ops.where(chosen, labels, 0),
            "wso_weights": ops.cast(chosen, "float32"),
        }


register_objective("structbert", StructBertPretraining)
STRUCTBERT = register(
    BERT.derive(
        "structbert",
        spec={},
        sizes={"base": {}, "large": BERT.sizes["large"]},
        aliases={"base-uncased": "base", "large-uncased": "large"},
        objective="structbert",
        # they have BERT's names, and no place for an answer of three
        names={
            "hf": HF.derive(heads={**HF.heads, "place": None}),
            "tf1": TF1.derive(heads={**TF1.heads, "place": None}),
        },
        paper="Wang et al., 2020, StructBERT: Incorporating Language Structures into Pre-training for Deep Language "
        "Understanding",
    )
)
