"""BERT's pretraining: masked LM, and next sentence where the records hold pairs (Devlin et al., 2019, section 3.1)."""

from keras import ops

from kerasbert.layers import heads
from kerasbert.layers.backend import pick
from kerasbert.layers.feedforward import Linear
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens
from kerasbert.objectives.program import Program, label_sums
from kerasbert.registry import register_objective


class PretrainingModel(heads.HeadedModel):
    """Encoder with masked-LM and next-sentence heads.

    Call: the encoder's inputs and mlm_positions [B, P] -> the encoder's outputs, mlm_logits [B, P, V] float32
        and, with a next-sentence head, nsp_logits [B, 2] float32.
    """

    def call(self, inputs, training=False):
        outputs = self.encoder(inputs, training=training)
        picked = pick(outputs["sequence"], inputs["mlm_positions"])
        outputs["mlm_logits"] = self.heads["mlm"](picked, self.encoder.embeddings.tokens.table)
        if "nsp" in self.heads:
            outputs["nsp_logits"] = ops.cast(self.heads["nsp"](outputs["pooled"]), "float32")
        return outputs


class BertPretraining(Program):
    """Masked LM + next sentence as a training program.

    Args:
        encoder: Encoder. tokenizer: whose special tokens are never masked. pairs: bool, whether the batches hold
        `next_label`. masking: objectives.masked_lm.MaskedLM, how tokens are selected and rendered. seed: int.
    """

    def __init__(self, encoder, tokenizer, *, pairs: bool, masking: MaskedLM | None = None, seed: int = 0):
        spec, dtype = encoder.spec, encoder.dtype_policy
        self.tokenizer, self.masking, self.seed = tokenizer, masking or MaskedLM(), seed
        width = spec.embeddings.width or spec.hidden
        parts = {
            "mlm": heads.MaskedLM(
                spec.embeddings.vocabulary,
                width,
                spec.feedforward.activation,
                spec.epsilon,
                spec.initializer,
                name="mlm",
                dtype=dtype,
            )
        }
        shapes = {"mlm": (None, None, spec.hidden), "nsp": (None, spec.hidden)}
        self.scales = {"mlm": 1.0}
        if pairs:
            parts["nsp"] = Linear(2, spec.initializer, name="nsp", dtype=dtype)
            self.scales["nsp"] = 1.0
        self.model = PretrainingModel(encoder, parts, shapes, name="pretraining", dtype=dtype)
        self.model.build()

    def prepare(self, features):
        """Records' features of one global batch -> the batch that `losses` takes; runs in the input pipeline."""
        return mask_tokens(features, self.masking, tokenizer=self.tokenizer, seed=self.seed)

    def weights(self, batch):
        counts = {"mlm": ops.sum(batch["mlm_weights"])}
        if "nsp" in self.scales:
            counts["nsp"] = ops.cast(ops.shape(batch["next_label"])[0], "float32")
        return counts

    def losses(self, batch, training=True):
        outputs = self.model(batch, training=training)
        sums = {}
        sums["mlm"], sums["mlm/accuracy"] = label_sums(outputs["mlm_logits"], batch["mlm_labels"], batch["mlm_weights"])
        if "nsp" in self.scales:
            labels = batch["next_label"]
            ones = ops.ones(ops.shape(labels), "float32")
            sums["nsp"], sums["nsp/accuracy"] = label_sums(outputs["nsp_logits"], labels, ones)
        return sums


register_objective("bert", BertPretraining)
