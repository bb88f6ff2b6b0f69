"""Language models: the loss of the tokens that a model writes, and the next token of a text (Radford et al., 2018, 2019)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from keras import ops

from kerasbert.data.packing import PACKINGS
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.heads import token_head
from kerasbert.objectives.base import Objective
from kerasbert.objectives.lm_loss import token_sums, writes
from kerasbert.registry import register_objective

if TYPE_CHECKING:
    from kerasbert.data.records import Records


ROWS = {None: "", True: " behind a [CLS]", False: " without a [CLS]"}


class LanguageModeling(Objective):
    """Cross-entropy of the tokens that a model writes: `labels` int32 [B, T] and `weights` float32 [B, T] of a batch.

    The model, or its class `token_head`, has `scaled` and `output_rows`, its logits are products of the one with the rows of the
    other, or `output_clusters` where its softmax is adaptive.
    """

    packing = "stream"
    opened: bool | None = None  # whether rows are [CLS] ... [SEP] (False: nothing but text), None: either
    targets = "next tokens"
    scales: Mapping[str, float] = MappingProxyType({"lm": 1.0})
    token_losses = ("lm",)

    @classmethod
    def check(cls, settings: object, records: "Records") -> None:
        name = records.manifest["settings"]["packing"]
        packed = PACKINGS[name]
        if packed.pairs or packed.feature or cls.opened not in (None, packed.cls):
            raise InputError(
                f"records {records.directory} are packed as {name!r}, and the objective takes rows of one text"
                f"{ROWS[cls.opened]}: make them again with --packing {cls.packing}"
            )

    @classmethod
    def predictions(cls, settings: object, length: int, tokens: float | None = None) -> float:
        return 0 if tokens is None else tokens  # no logits are kept

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        head = getattr(encoder, "token_head", None)
        if head is not None and hasattr(head, "output_rows"):  # untied: not the encoder's
            return {"mlm": token_head(head, encoder.spec, dtype=encoder.dtype_policy)}, {
                "mlm": (None, None, encoder.spec.hidden)
            }
        if not writes(encoder):
            raise InputError(
                f"{type(encoder).__name__} writes no tokens, and this objective is for models that do: choose another "
                "(--objective)"
            )
        return {}, {}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"lm": ops.sum(batch["weights"])}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        body, labels = self.model.body, batch["labels"]
        output = self.model.heads.get("mlm", body)
        x = self.model(batch, training=training)["sequence"][:, : labels.shape[1]]
        nats, right = token_sums(output, x, labels, batch["weights"])
        return {"lm": nats, "lm/accuracy": right}


class CausalLM(LanguageModeling):
    """Each token of a row from those before it, the first excepted.

    Documents follow one another in a row with a separator between them, and see what stands before them, as in GPT-2.
    """

    unigram = "written_unigram"

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not getattr(encoder.spec.attention, "causal", False):
            raise InputError(
                f"{type(encoder).__name__} is no decoder (attention.causal), and its tokens would see what they predict: "
                "choose another objective (--objective)"
            )
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids [B, S]; labels, weights [B, S - 1]; row [B]. Nothing real sees the padding behind it: there is no mask."""
        ids, total = features["token_ids"], tf.reduce_sum(features["segment_lengths"], axis=1, keepdims=True)
        real = tf.range(1, ids.shape[1])[None] < total
        return {"token_ids": ids, "labels": ids[:, 1:], "weights": tf.cast(real, tf.float32), "row": features["row"]}


register_objective("causal_lm", CausalLM)
