"""BERT's pretraining: masked LM, and next sentence where the records hold pairs (Devlin et al., 2019, section 3.1).

Its heirs change what is selected and rendered, what is asked about the pair, or add a loss: each is a subclass.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import heads
from kerasbert.layers.backend import fusing, pick
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import Linear
from kerasbert.objectives.base import Objective, label_sums
from kerasbert.objectives.lm_loss import biased_sums
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.registry import register_objective
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.data.records import Records


# what a feature of the records asks about a pair: (head, number of classes)
SENTENCES = {
    "next_label": ("nsp", 2),  # BERT: does b follow a?
    "order_label": ("sop", 2),  # ALBERT: does b follow a, or a follow b?
    "place_label": ("place", 3),  # StructBERT: is b the next, the one before, or of another document?
}


class PretrainingModel(heads.HeadedModel):
    """Encoder with masked-LM and, for pairs, sentence heads.

    Call: the encoder's inputs and mlm_positions [B, P] -> the encoder's outputs, mlm_logits [B, P, V] float32
        and, with a head for pairs, `<head>_logits` [B, C] float32 (nsp_logits, sop_logits, place_logits).
        Where a CPU compiles the step also mlm_states [B, P, E], whose products with the table mlm_logits are: a loss that reads
        them needs no logits of all places at once, and the graph leaves out what nothing reads.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = self.encoder(inputs, training=training)
        head, positions = self.heads["mlm"], inputs["mlm_positions"]
        outputs["mlm_logits"] = self.tokens(outputs["sequence"], positions)
        if fusing() and type(head).call is heads.MaskedLM.call:
            outputs["mlm_states"] = head.states(pick(outputs["sequence"], positions))
        for head, _ in SENTENCES.values():
            if head in self.heads:
                outputs[f"{head}_logits"] = ops.cast(self.heads[head](outputs["pooled"]), "float32")
        return outputs

    def tokens(self, sequence: Tensor, positions: Tensor) -> Tensor:
        """Masked-LM logits [B, P, V] of the vectors at positions [B, P]; the product with the table is made there alone."""
        return self.heads["mlm"](pick(sequence, positions), self.encoder.embeddings.tokens.table)


class BertPretraining(Objective):
    """Masked LM + a question about the pair.

    Args:
        encoder: Encoder.
        tokenizer: whose special tokens are never masked.
        features: names of what a batch of the records holds; those of SENTENCES bring a head.
        settings: objectives.masked_lm.MaskedLM, how tokens are selected and rendered, or a mapping.
        seed: int.
    """

    packing = "pairs"
    settings_class = MaskedLM
    token_losses = ("mlm",)
    targets = "masked tokens"
    model_class = PretrainingModel
    # loss of predicted tokens -> its labels and weights [B, P] in a batch; the model gives `<loss>_logits`
    predicted: Mapping[str, tuple[str, str]] = {"mlm": ("mlm_labels", "mlm_weights")}

    def __init__(
        self,
        encoder: Encoder,
        tokenizer: Tokenizer,
        *,
        features: Collection[str] = (),
        settings: Any = None,
        seed: int = 0,
    ) -> None:
        self.sentences = {feature: SENTENCES[feature] for feature in SENTENCES if feature in features}
        super().__init__(encoder, tokenizer, features=features, settings=settings, seed=seed)
        self.scales = dict.fromkeys([*self.model.heads, *self.predicted], 1.0)

    @classmethod
    def check(cls, settings: MaskedLM, records: "Records") -> None:
        if settings.select == "entities" and "entities" not in records.manifest["settings"]:
            raise InputError(
                f"records {records.directory} bring no entities along, and the masking selects them: make them again with "
                "kerasbert data --entities SOURCE, or select words"
            )

    @classmethod
    def predictions(cls, settings: MaskedLM, length: int, tokens: float | None = None) -> float:
        width = settings.width(length)
        return width if tokens is None else min(width, settings.rate * tokens)

    def heads(self, encoder: Encoder) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        """The heads by name, and the shapes they are built with."""
        spec, dtype = encoder.spec, encoder.dtype_policy
        if not hasattr(encoder, "token_head"):
            raise InputError(
                f"{type(encoder).__name__} has no token_head, and this objective predicts tokens: choose another (--objective)"
            )
        parts = {"mlm": heads.token_head(encoder.token_head, spec, dtype=dtype)}
        shapes: dict[str, tuple] = {"mlm": (None, None, spec.hidden)}
        if self.sentences and not spec.pooler:
            raise InputError(
                f"the records ask about pairs ({', '.join(self.sentences)}) and the model has no pooled vector to answer by: "
                "make records with --packing full or doc"
            )
        for head, classes in self.sentences.values():
            parts[head] = Linear(classes, specs.head_deviation(spec), name=head, dtype=dtype)
            shapes[head] = (None, spec.hidden)
        return parts, shapes

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return mask_tokens(features, self.settings, tokenizer=self.tokenizer, seed=self.seed)

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        counts = {loss: ops.sum(batch[weights]) for loss, (_, weights) in self.predicted.items()}
        for feature, (head, _) in self.sentences.items():
            counts[head] = ops.sum(self.pair_weights(batch, feature))
        return counts

    def pair_weights(self, batch: Mapping[str, Tensor], feature: str) -> Tensor:
        """Which rows are asked about their pair: float32 [B] of 0 or 1."""
        return ops.ones(ops.shape(batch[feature]), "float32")

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return self.sums(self.model(batch, training=training), batch)

    def sums(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss and metric sums of the model's outputs."""
        sums = {}
        for loss, (labels, weights) in self.predicted.items():
            if f"{loss}_states" in outputs:
                table, bias = self.model.encoder.embeddings.tokens.table, self.model.heads[loss].bias
                found = biased_sums(outputs[f"{loss}_states"], table, bias, batch[labels], batch[weights])
            else:
                found = label_sums(outputs[f"{loss}_logits"], batch[labels], batch[weights])
            sums[loss], sums[f"{loss}/accuracy"] = found
        for feature, (head, _) in self.sentences.items():
            weights = self.pair_weights(batch, feature)
            sums[head], sums[f"{head}/accuracy"] = label_sums(outputs[f"{head}_logits"], batch[feature], weights)
        return sums


class MaskedLMPretraining(BertPretraining):
    """Masked LM alone, on rows filled with text (Liu et al., 2019, section 4.2: FULL-SENTENCES; no next sentence)."""

    packing = "full"


register_objective("bert", BertPretraining)
register_objective("masked_lm", MaskedLMPretraining)
