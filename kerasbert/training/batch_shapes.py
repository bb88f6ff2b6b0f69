"""What (distributed) batches look like to TensorFlow's tracing."""

from collections.abc import Mapping

import tensorflow as tf

from kerasbert.inputs import Tensor


def opened(batch: Mapping[str, Tensor], shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, tf.TypeSpec]:
    """What a (distributed) batch is, with the sizes left open that are None in `shapes`: name -> type spec."""

    def of(spec: tf.TensorSpec, sizes: tuple[int | None, ...]) -> tf.TensorSpec:
        if not isinstance(spec, tf.TensorSpec):  # of a distributed value: one for each replica
            return type(spec)(*(of(each, sizes) for each in spec._component_specs))
        return tf.TensorSpec([None if b is None else a for a, b in zip(spec.shape, sizes, strict=True)], spec.dtype)

    return {name: of(tf.type_spec_from_value(x), shapes[name]) for name, x in batch.items()}


def local_shapes(batch: Mapping[str, Tensor]) -> tuple:
    """The shapes of a (distributed) batch in one replica, by name."""
    return tuple((name, *tf.nest.flatten(x, expand_composites=True)[0].shape) for name, x in batch.items())
