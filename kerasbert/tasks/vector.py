"""A text as a vector: the mean of an encoder's tokens. An encoder alone answers so; nothing is fine-tuned for it."""

from keras import ops

from kerasbert.layers.readout import readout
from kerasbert.tasks.base import TaskKind


class Vector(TaskKind):
    """Vectors [B, H] of an encoder."""

    name = "vector"
    metrics_known = ()

    def device(self, outputs, inputs):
        mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
        return ops.sum(outputs["sequence"] * mask, axis=1) / ops.sum(mask, axis=1)

    def exported(self, model, outputs, inputs):
        return {"vector": readout(outputs["sequence"], inputs["padding_mask"], "mean")}  # finite without a token too

    def described(self):
        return "`vector` [B, H] float32: the mean over the tokens"

    def check_target(self, target):
        pass


KIND = Vector()
