"""The character CNN and the highway: by hand, and against float64 numpy."""

import numpy as np
import pytest

from kerasbert.classics.layers.characters import CharacterCNN, Highway
from kerasbert.layers.backend import as_tpu


def built(**changes):
    layer = CharacterCNN(
        **{"rows": 4, "width": 2, "filters": (2, 1), "highways": 0, "units": 2} | changes, name="characters"
    )
    layer.build()
    return layer


def test_by_hand():
    layer = built()
    layer.table.assign([[1, 0], [0, 1], [2, -1], [-1, 3]])
    one, two = layer.convolutions
    one.kernel.assign([[1, -1], [2, 0]])
    one.bias.assign([0, 1])
    two.kernel.assign([[1], [0], [0], [1]])  # the first character's first number and the second's second
    two.bias.assign([-1])
    layer.projection.kernel.assign([[1, 0], [0, 1], [10, 100]])
    layer.projection.bias.assign([0.5, 0])
    # word 1, 3, 0: (1, 0), (2, -1), (0, 0). Filter 1: 1, 0, 0. Filter 2: -1, -2, 0 and 1. Width 2: 1 - 1, 2 + 0, less 1
    # word 4, 0, 0: (-1, 3). Filter 1: 5. Filter 2: 1 and 1. Width 2: -1 + 0, 0 + 0, less 1: -1, to 0
    found = layer(np.array([[[1, 3, 0], [4, 0, 0]]]))
    np.testing.assert_allclose(found, [[[1 + 10 + 0.5, 1 + 100], [5 + 0.5, 2]]])


def test_highway_by_hand():
    layer = Highway(2, name="highway")
    layer.build((None, 2))
    np.testing.assert_array_equal(layer.carry.bias, [-2, -2])  # little of it at first
    layer.carry.kernel.assign(np.zeros((2, 2)))
    layer.carry.bias.assign([0.0, np.log(3.0)])  # gates of 1/2 and 3/4
    layer.transform.kernel.assign([[0, 1], [1, 0]])
    layer.transform.bias.assign([1, -1])
    # f of (4, 8) is relu(8 + 1), relu(4 - 1)
    np.testing.assert_allclose(layer(np.array([[4.0, 8.0]])), [[4.5 + 2, 2.25 + 2]], rtol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_numpy_in_float64(activation):
    layer = built(rows=11, width=3, filters=(2, 3, 5), highways=2, units=7, activation=activation)
    draw = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(draw.normal(0, 0.5, weight.shape))
    value = {weight.path: np.asarray(weight, "float64") for weight in layer.weights}
    ids = draw.integers(0, 12, (2, 3, 6))
    x = np.concatenate([np.zeros((1, 3)), value["characters/table"]])[ids]
    parts = []
    for size in (1, 2, 3):
        at = f"characters/convolution_{size}"
        places = [x[:, :, p : p + size].reshape(2, 3, -1) @ value[f"{at}/kernel"] for p in range(6 - size + 1)]
        parts.append(np.max(places, axis=0) + value[f"{at}/bias"])
    y = np.concatenate(parts, axis=-1)
    y = np.maximum(y, 0) if activation == "relu" else np.tanh(y)
    for number in range(2):
        carry, transform = (
            y @ value[f"characters/highway_{number}/{part}/kernel"] + value[f"characters/highway_{number}/{part}/bias"]
            for part in ("carry", "transform")
        )
        gate = 1 / (1 + np.exp(-carry))
        y = gate * np.maximum(transform, 0) + (1 - gate) * y
    y = y @ value["characters/projection/kernel"] + value["characters/projection/bias"]
    np.testing.assert_allclose(layer(ids), y, atol=1e-5)
    with as_tpu():  # rows of the table by a product
        np.testing.assert_allclose(layer(ids), y, atol=1e-5)
    assert sum(int(np.prod(weight.shape)) for weight in layer.weights) == (
        11 * 3 + (1 * 2 + 2 * 3 + 3 * 5) * 3 + 10 + 2 * 2 * (10 * 10 + 10) + 10 * 7 + 7
    )


def test_a_word_is_seen_alone():
    """Nothing of one word is in another's vector, and padding characters are no word's."""
    layer, draw = built(rows=9, highways=1), np.random.default_rng(1)
    ids = draw.integers(1, 10, (2, 3, 5))
    other = ids.copy()
    other[0, 1] = 1 + other[0, 1] % 9
    one, two = np.asarray(layer(ids)), np.asarray(layer(other))
    same = np.ones((2, 3), bool)
    same[0, 1] = False
    np.testing.assert_array_equal(one[same], two[same])
    assert np.abs(one[0, 1] - two[0, 1]).max() > 1e-6
