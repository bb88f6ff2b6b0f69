"""What a model would miss: the loss's sensitivity to a gate on each head or neuron (Michel et al., 2019, section 4.1).

I = E_x |dL(x)/dxi|, xi a factor of 1 on what a head (or a neuron of a feed-forward network) gives to the matrix that
reads it. A factor on inputs of a matrix is a factor on its rows, so dL/dxi is the sum of W * dL/dW over the rows of that
head: no gate has to be built into a model, and any attention whose `output/kernel` is [N*D, out] is covered.
"""

import re
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.naming import names
from kerasbert.tasks import predict
from kerasbert.tasks.task import Rows

OUTPUT = re.compile(r"^block_(\d+)/attention/output/kernel$")


def importance(model: keras.Model, rows: Rows, groups: Mapping[str, int], length: int) -> dict[str, np.ndarray]:
    """Sensitivity to groups of rows of kernels, the mean over texts.

    Args:
        model: a task's model.
        rows: texts and targets.
        length: int, longest text in tokens.
        groups: name of a kernel -> G, the number of equal groups of its rows.

    Returns:
        name -> float64 [G].
    """
    if not rows.texts:
        raise InputError("no labelled rows, expected some to measure the importance on")
    kernels = {name: variable.value for name, variable in names(model.encoder).items() if name in groups}
    kind, task = model.kind, model.task

    @tf.function(reduce_retracing=True, autograph=False)
    def measure(batch: Mapping[str, Tensor]) -> list[Tensor]:
        with tf.GradientTape() as tape:
            logits = model.logits(model.network(batch, queries=model.queries(batch)), batch)
            loss = kind.losses(task, logits, batch)["label"]
        gradients = tape.gradient(loss, list(kernels.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO)
        found = []
        for (name, kernel), gradient in zip(kernels.items(), gradients, strict=True):
            by_row = tf.reduce_sum(kernel * tf.convert_to_tensor(gradient), axis=1)
            found.append(tf.abs(tf.reduce_sum(tf.reshape(by_row, (groups[name], -1)), axis=1)))
        return found

    total = {name: np.zeros(groups[name]) for name in kernels}
    encoded = predict.encoded_rows(model, rows.texts, length)
    targets = kind.scaled(task, rows.targets)
    units = encoded.units(kind.together)
    for unit in units:  # one by one: the mean is of absolute values
        arrays, wanted = encoded.arrays(unit, length), [targets[encoded.owners[i]] for i in unit]
        arrays |= kind.batch(task, [encoded.rows[i] for i in unit], wanted, 1, arrays["token_ids"].shape[1])
        batch = {name: tf.convert_to_tensor(value) for name, value in arrays.items()}
        for name, value in zip(kernels, measure(batch), strict=True):
            total[name] += value.numpy()
    return {name: value / len(units) for name, value in total.items()}


def normalised(scores: np.ndarray) -> np.ndarray:
    """A layer's scores over their l2 norm (Michel et al., 2019, section 4.1, after Molchanov et al., 2017)."""
    norm = np.linalg.norm(scores)
    return scores / norm if norm else scores


def least(scores: Mapping[str, np.ndarray], count: int, *, evenly: bool) -> dict[str, list[int]]:
    """The `count` groups with the smallest scores; each kernel keeps at least one.

    Args:
        evenly: bool, the same number from every kernel (`count` is then per kernel).

    Returns:
        name -> indices to take out, ascending. Equal scores: the first kernel's, the first group.
    """
    out: dict[str, list[int]] = {name: [] for name in scores}
    if evenly:
        for name, values in scores.items():
            out[name] = sorted(np.argsort(values, kind="stable")[: min(count, len(values) - 1)].tolist())
        return out
    order = sorted((value, place, i) for place, values in enumerate(scores.values()) for i, value in enumerate(values))
    every = list(scores)
    for _, place, i in order:
        if count and len(out[every[place]]) < len(scores[every[place]]) - 1:
            out[every[place]].append(i)
            count -= 1
    return {name: sorted(indices) for name, indices in out.items()}
