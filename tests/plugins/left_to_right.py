"""A third party's objective in one file: predict the next token, left to right (Bengio et al., 2003, section 2).

kerasbert data FILES... --tokenizer DIR --packing stream --length 128 --out DATA
kerasbert pretrain left-to-right/base --plugin left_to_right.py --data DATA --steps 1000 --out RUN
kerasbert check-tpu left-to-right/base --plugin left_to_right.py --set objective.least=16
"""

import dataclasses

from keras import ops

from kerasbert.errors import InputError
from kerasbert.layers import heads
from kerasbert.models.bert import BERT
from kerasbert.objectives.base import Objective, label_sums
from kerasbert.registry import register, register_objective


@dataclasses.dataclass(frozen=True)
class Settings:
    """Args: least: int, tokens to the left of the first that is predicted; 1 predicts all but the first of a row."""

    least: int = 1

    def __post_init__(self):
        if self.least < 1:
            raise InputError(f"least {self.least}, expected at least 1: nothing stands before a row's first token")


class LanguageModel(heads.HeadedModel):
    """Call: as the encoder's -> also next_logits [B, S, V] float32, of the token after each."""

    def call(self, inputs, training=False):
        outputs = super().call(inputs, training=training)
        table = self.encoder.embeddings.tokens.table
        return outputs | {"next_logits": self.heads["next"](outputs["sequence"], table)}


class LeftToRight(Objective):
    """Cross-entropy of each next token."""

    packing, targets = "stream", "next tokens"
    settings_class, model_class = Settings, LanguageModel
    scales, token_losses = {"next": 1.0}, ("next",)

    def heads(self, encoder):
        head = heads.token_head(encoder.token_head, encoder.spec, "next", dtype=encoder.dtype_policy)
        return {"next": head}, {"next": (None, None, encoder.spec.hidden)}

    def prepare(self, features):
        ids, total = features["token_ids"], ops.sum(features["segment_lengths"], axis=1, keepdims=True)
        place = ops.arange(ids.shape[1], dtype="int32")[None]
        predicts = ops.logical_and(place + 1 >= self.settings.least, place + 1 < total)
        batch = {"token_ids": ids, "padding_mask": ops.cast(place < total, "int32"), "row": features["row"]}
        return batch | {"labels": ops.roll(ids, -1, axis=1), "weights": ops.cast(predicts, "float32")}

    def counts(self, batch):
        return {"next": ops.sum(batch["weights"])}

    def losses(self, batch, training=True):
        logits = self.model(batch, training=training)["next_logits"]
        nats, right = label_sums(logits, batch["labels"], batch["weights"])
        return {"next": nats, "next/accuracy": right}


register_objective("left_to_right", LeftToRight)
CHANGES = {"pooler": False, "embeddings.segments": 0, "attention.causal": True}
ABOUT = {"objective": "left_to_right", "paper": "Bengio et al., 2003, A Neural Probabilistic Language Model"}
register(BERT.derive("left-to-right", spec=CHANGES, sizes={"base": {}}, aliases={}, names={}, **ABOUT))
