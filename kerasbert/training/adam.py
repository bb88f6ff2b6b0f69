"""Adam's update of one weight (Kingma and Ba, 2015, algorithm 1, with the corrections put into the rate: end of section 2)."""

from collections.abc import Sequence

import keras
from keras import ops

from kerasbert.inputs import Tensor

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf


def adam(
    x: keras.Variable,
    m: keras.Variable,
    v: keras.Variable,
    gradient: Tensor,
    *,
    rate: Tensor,
    betas: Sequence[Tensor],
    powers: Sequence[Tensor],
    epsilon: Tensor,
) -> None:
    """Change a weight and its moments, by TensorFlow's kernel where there is one: one pass, nothing to compile.

    Args:
        x, m, v, gradient: variables and array of one shape [...].
        rate: []. betas: of both moments, [] each. powers: beta^n, n the number of this update. epsilon: what sqrt(v) takes
            before it is corrected.
    """
    if not TENSORFLOW:
        adam_plainly(x, m, v, gradient, rate=rate, betas=betas, powers=powers, epsilon=epsilon)
        return
    handles = {"var": x.handle, "m": m.value.handle, "v": v.value.handle}
    scalars = dict(zip(("beta1", "beta2", "beta1_power", "beta2_power"), (*betas, *powers)))
    tf.raw_ops.ResourceApplyAdam(**handles, **scalars, lr=rate, epsilon=epsilon, grad=gradient)


def adam_plainly(
    x: keras.Variable,
    m: keras.Variable,
    v: keras.Variable,
    gradient: Tensor,
    *,
    rate: Tensor,
    betas: Sequence[Tensor],
    powers: Sequence[Tensor],
    epsilon: Tensor,
) -> None:
    """`adam` as single operations, to the bit."""
    m.assign(m + (gradient - m) * (1 - betas[0]))
    v.assign(v + (ops.square(gradient) - v) * (1 - betas[1]))
    alpha = rate * ops.sqrt(1 - powers[1]) / (1 - powers[0])
    x.assign(x - m * alpha / (ops.sqrt(v) + epsilon))
