"""GloVe's weighted least squares: by hand, and updates of the step core as written from the equations."""

import keras
import numpy as np
import tensorflow as tf

from kerasbert.classics.objectives import glove
from kerasbert.training.step import StepCore


def made(words=4, width=3, batch=5):
    model = glove.GloVe(words, width, seed=1)
    model.build()
    return model, glove.WeightedLeastSquares(model, batch)


def test_loss_by_hand():
    model, program = made(2, 2, 1)
    for name, values in {
        "word": [[1, 2], [0, 0]],
        "context": [[0, 0], [3, 4]],
        "word_bias": [0.5, 0],
        "context_bias": [0, 0.25],
    }.items():
        getattr(model, name).assign(values)
    batch = {"token_ids": np.array([[0, 1]]), "log_counts": np.float32([2]), "weights": np.float32([0.5])}
    # 1*3 + 2*4 + 0.5 + 0.25 - 2 = 9.75; 0.5 * 0.5 * 9.75^2
    assert float(program.losses(batch)["glove"]) == 0.25 * 9.75**2
    assert model.vectors().tolist() == [[1, 2], [3, 4]]


def test_updates_are_those_of_the_equations():
    """Float64 numpy: gradients summed over the batch, AdaGrad that begins with 1; one pair twice, one without weight."""
    model, program = made()
    core = StepCore(
        program,
        keras.optimizers.Adagrad(glove.RATE, initial_accumulator_value=glove.START),
        tf.distribute.get_strategy(),
        clip=0.0,
    )
    pairs = np.array([[0, 1], [0, 1], [2, 3], [1, 1], [3, 0]], np.int32)
    logs, weights = np.float32([2, 2, -1, 0.5, 9]), np.float32([1, 1, 0.3, 0.2, 0])
    batch = {"token_ids": pairs, "log_counts": logs, "weights": weights, "row": np.arange(5, dtype=np.int32)}
    w, c = (each.numpy().astype(float) for each in (model.word, model.context))
    b, d = (each.numpy().astype(float) for each in (model.word_bias, model.context_bias))
    table, i, j = [w, c, b, d], pairs[:, 0], pairs[:, 1]
    sums = [np.ones_like(each) for each in table]
    for _ in range(5):
        error = weights * ((w[i] * c[j]).sum(1) + b[i] + d[j] - logs)
        gradients = [np.zeros_like(each) for each in table]
        for place, rows, values in (
            (0, i, error[:, None] * c[j]),
            (1, j, error[:, None] * w[i]),
            (2, i, error),
            (3, j, error),
        ):
            np.add.at(gradients[place], rows, values)
        for value, gradient, total in zip(table, gradients, sums):
            total += gradient**2
            value -= glove.RATE * gradient / np.sqrt(total + 1e-7)
        core.step({name: tf.constant(value) for name, value in batch.items()})
    for name, value in zip(("word", "context", "word_bias", "context_bias"), table):
        np.testing.assert_allclose(getattr(model, name).numpy(), value, atol=1e-5)
