"""A training program: a model and the pair `weights`, `losses` that the step core differentiates.

The step core sums and all-reduces the counts of the whole global batch first, then differentiates
sum(scale * loss sum / count): a mean per replica would be wrong wherever the counts are uneven.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from kerasbert.layers.backend import fused, on_tpu


class Program:
    """What is trained, and towards what.

    Attributes:
        model: keras.Model with names of weights as `layers.naming` gives them.
        scales: loss name -> factor. Other keys that `losses` returns are metrics, `<loss>/<metric>`, divided by
            the count of their loss.
        packing: of a pretraining objective, the name of the packing that its paper uses.
        masking_defaults: of a pretraining objective, the fields of MaskedLM that differ from BERT's.
    """

    model: keras.Model
    scales: Mapping[str, float]
    packing: str = "full"
    masking_defaults: Mapping[str, Any] = {}

    @classmethod
    def masking_of(cls, spec: Any) -> Mapping[str, Any]:
        """The fields of MaskedLM that differ from BERT's in pretraining a model of that Spec."""
        return cls.masking_defaults

    @classmethod
    def networks(cls, spec: Any, predictions: float) -> list[tuple[Any, float]]:
        """What an update runs, for the estimate of its arithmetic: (Spec, masked tokens predicted) of each network."""
        return [(spec, predictions)]

    def weights(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Loss name -> number of targets in the batch (float32 scalar), from the targets alone."""
        raise NotImplementedError

    def losses(self, batch: Mapping[str, Any], training: bool = True) -> dict[str, Any]:
        """Loss or metric name -> sum over the batch (float32 scalar). Random numbers come from the open scope."""
        raise NotImplementedError


@fused(constant=(2,))
def label_sums(logits: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    """[..., C] logits, int [...] labels, float32 [...] weights -> sums of nats and of right answers, both weighted."""
    return ops.sum(cross_entropy(logits, labels) * weights), ops.sum(correct(logits, labels) * weights)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """[..., C] logits, int32 [...] labels -> [...] nats, in float32.

    Not `ops.sparse_categorical_crossentropy`: it makes the labels int64, which a TPU has not.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, ops.cast(logits, "float32"))


def correct(logits: Any, labels: Any) -> Any:
    """1.0 where the largest logit is the label: [..., C], [...] -> [...] float32."""
    if on_tpu():
        # argmax is a pass of its own over the logits, the maximum is part of the loss; where two are the largest, both count
        chosen = ops.equal(ops.arange(logits.shape[-1], dtype="int32"), ops.expand_dims(labels, -1))
        of_label = ops.sum(ops.where(chosen, logits, ops.zeros_like(logits)), axis=-1)
        return ops.cast(of_label >= ops.max(logits, axis=-1), "float32")
    return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels), "float32")
