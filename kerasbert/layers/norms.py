"""Normalisation over the last axis."""

import keras
from keras import ops


class LayerNorm(keras.layers.Layer):
    """Layer normalisation (Ba et al., 2016), in float32 whatever the compute type.

    Written as mean -> centre -> mean: the TFLite converter turns it into operations that XNNPACK takes.

    Args:
        epsilon: float, added to the variance.
    Call: x [..., H] -> [..., H]. Trainable weights: 2*H.
    """

    def __init__(self, epsilon: float = 1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x):
        centred = ops.cast(x, "float32")
        centred = centred - ops.mean(centred, axis=-1, keepdims=True)
        variance = ops.mean(centred * centred, axis=-1, keepdims=True)
        y = centred * ops.rsqrt(variance + self.epsilon)
        y = y * ops.cast(self.gamma, "float32") + ops.cast(self.beta, "float32")
        return ops.cast(y, self.compute_dtype)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
