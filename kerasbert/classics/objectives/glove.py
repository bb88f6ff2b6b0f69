"""GloVe's weighted least squares (Pennington et al., 2014, equation 8), for the step core.

J = sum of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2, f(x) = min(1, (x / most)^power).

Differs: the authors' program takes one pair at a time, with threads that do not wait for each other; here an update is the
sum over a batch of pairs, the same for a seed on any number of replicas. AdaGrad, its rate and its start are theirs.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import gather
from kerasbert.objectives.base import Objective

MOST, POWER = 100.0, 0.75  # section 4.2
RATE, START = 0.05, 1.0  # of AdaGrad, and what its sums begin with in the authors' program
LOSS = "glove"


class GloVe(keras.Model):
    """Words' and contexts' vectors and biases. Weights: 2 V (D + 1).

    Args:
        words: int V.
        width: int D.
        seed: int, of the first values: uniform, at most 1 / (2 D), as in the authors' program.
    Call: int [B, 2], word and context -> float32 [B], what is to be log X.
    """

    def __init__(self, words: int, width: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.words, self.width, self.seed = words, width, seed

    def build(self, shape: Shape | None = None) -> None:
        for number, name in enumerate(("word", "context")):
            first = keras.initializers.RandomUniform(-0.5 / self.width, 0.5 / self.width, seed=2 * self.seed + number)
            setattr(self, name, self.add_weight(shape=(self.words, self.width), initializer=first, name=name))
            setattr(
                self, f"{name}_bias", self.add_weight(shape=(self.words,), initializer="zeros", name=f"{name}_bias")
            )
        self.built = True

    def call(self, pairs: Tensor) -> Tensor:
        i, j = pairs[:, 0], pairs[:, 1]
        product = ops.sum(gather(self.word, i) * gather(self.context, j), axis=-1)
        return product + gather(self.word_bias, i) + gather(self.context_bias, j)

    def vectors(self) -> np.ndarray:
        """word + context, float32 [V, D] (section 4.2)."""
        return self.word.numpy() + self.context.numpy()


class WeightedLeastSquares(Objective):
    """The objective of a GloVe.

    Args:
        model: a built GloVe.
        batch: int, pairs of an update: its loss is their sum, as in equation 8.
    Batch: token_ids int32 [B, 2], log_counts float32 [B], weights float32 [B] (f(X), 0 where the row is padding).
    """

    def __init__(self, model: GloVe, batch: int) -> None:
        self.model, self.scales = model, {LOSS: float(batch)}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {LOSS: ops.sum(ops.ones_like(batch["weights"]))}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        error = self.model(batch["token_ids"]) - batch["log_counts"]
        return {LOSS: 0.5 * ops.sum(batch["weights"] * error * error)}
