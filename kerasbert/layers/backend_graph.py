"""How a function stands in TensorFlow's graph: traced once, differentiated by a gradient of its own, computed again on a TPU."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerasbert.inputs import Tensor
from kerasbert.layers.backend import TENSORFLOW, on_tpu
from kerasbert.layers.backend_fused import differentiated

if TENSORFLOW:
    import tensorflow as tf


@functools.cache
def _graph_of(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return tf.function(fn, autograph=False, reduce_retracing=True)


def traced_once(fn: Callable[..., Tensor], shape: Sequence[int | None], *arguments: Tensor) -> Tensor:
    """fn(*arguments) of that shape; in TensorFlow's graph a function of its own, traced once for all calls that are alike.

    The graph's optimizer puts it where it is called, so that the same operations run.
    """
    if not TENSORFLOW or on_tpu() or tf.executing_eagerly():
        return fn(*arguments)
    made = _graph_of(fn)(*arguments)
    made.set_shape(shape)
    return made


def own_gradient(fn: Callable[..., tuple[Tensor, Callable]], *arrays: Tensor | None) -> Tensor:
    """y of fn(*arrays) = (y, gradient), differentiated by that gradient: upstream -> one for each array that is not None.

    None where the plain form serves: no tape records, and on a TPU, whose compiler needs no help.
    """
    if not TENSORFLOW or on_tpu():
        return None
    read = [tf.convert_to_tensor(each) for each in arrays if each is not None]
    return tf.custom_gradient(lambda *own: fn(*own))(*read) if any(map(differentiated, read)) else None


def recompute(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`fn` itself; on TPU with a gradient that works out `fn` again and keeps its arguments alone.

    A TPU multiplies faster than it reads: what is cheap to repeat should not go to memory and back.
    """
    if not on_tpu():
        return fn
    from tensorflow.compiler.tf2xla.python import xla

    @tf.custom_gradient
    def call(*arrays: Any) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor, variables: Sequence[Tensor] = ()) -> tuple[list[Tensor], list[Tensor]]:
            # without the barrier the compiler would see the same operations twice and keep the first
            again = [xla.optimization_barrier(x)[0] for x in arrays]
            with tf.GradientTape() as tape:
                tape.watch(again)
                y = fn(*again)
            gradients = tape.gradient(y, [*again, *variables], output_gradients=upstream)
            return gradients[: len(arrays)], gradients[len(arrays) :]

        return fn(*arrays), gradient

    return call


def in_own_type(x: Tensor) -> Tensor:
    """x; on TPU its gradient is stored in the type of x.

    The compiler joins a later cast to float32 with what makes the gradient, and keeps twice the bytes.
    """
    if not on_tpu():
        return x
    from tensorflow.compiler.tf2xla.python import xla

    @tf.custom_gradient
    def call(x: Tensor) -> tuple[Tensor, Callable]:
        return tf.identity(x), lambda upstream: xla.optimization_barrier(upstream)[0]

    return call(x)
