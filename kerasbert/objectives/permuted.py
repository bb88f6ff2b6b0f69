"""Masked and permuted language modelling (Song et al., 2020, sections 2.2 and 2.3): BERT's masks, predicted in a random order.

15% of the tokens, whole words, are predicted one after another. What a network reads in their places before they are known are
BERT's symbols: 80% are the mask, 10% a random token, 10% the token itself (3.1). A network with a query stream
(`models/mpnet.py`) says who sees what.
"""

from collections.abc import Mapping
from types import MappingProxyType

import keras
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import HeadedModel
from kerasbert.objectives import render
from kerasbert.objectives.bert import MaskedLMPretraining
from kerasbert.objectives.masked_lm import row_keys
from kerasbert.objectives.permutation import ranks
from kerasbert.registry import register_objective


class MPNetModel(HeadedModel):
    """Call: as the encoder's, with target_positions [B, P] -> its outputs and mlm_logits float32 [B, P, V]."""

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = self.encoder(inputs, training=training)
        return outputs | {"mlm_logits": self.heads["mlm"](outputs["sequence"], self.encoder.embeddings.tokens.table)}


class MaskedAndPermuted(MaskedLMPretraining):
    """MPNet's objective (sections 2.2 and 2.3): BERT's choice of whole words, predicted in a random order."""

    defaults: Mapping[str, object] = MappingProxyType({"select": "words"})
    targets = "predicted tokens"
    model_class = MPNetModel

    def heads(self, encoder: Encoder) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not hasattr(encoder, "compensated") or encoder.spec.attention.causal:
            raise InputError(
                f"{type(encoder).__name__} has no query stream that sees both ways, which this objective predicts tokens with: "
                "choose another (--objective)"
            )
        if self.sentences:
            raise InputError(
                f"the records ask about pairs ({', '.join(self.sentences)}), of which MPNet learns nothing: make records with "
                "--packing full or doc"
            )
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """token_ids and order [B, S]; target_positions, target_ids, mlm_labels, mlm_weights [B, P], and as `mask_tokens`."""
        batch = super().prepare(features)
        positions, labels = batch.pop("mlm_positions"), batch["mlm_labels"]
        chosen, symbols = batch["mlm_weights"] > 0, render.take(batch["token_ids"], positions)
        key = row_keys(features, self.settings, self.seed, "permuted")
        order = tf.where(chosen, ranks(key, positions.shape[1]), 0)
        return batch | {
            "token_ids": render.add(batch["token_ids"], positions, tf.where(chosen, labels - symbols, 0)),
            "order": render.add(tf.zeros_like(batch["token_ids"]), positions, order),
            "target_positions": positions,
            "target_ids": symbols,
        }


register_objective("mpnet", MaskedAndPermuted)
