"""Both directions against float64 written from the equations; label scores on top of them."""

import numpy as np
import pytest

from kerasbert.layers.bidirectional import Bidirectional, BiLSTMHead, borders
from tests.layers.test_recurrent import MASK, by_equations, text


def drawn(layer, seed=0):
    generator = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def both(layer, x, mask):
    """A row in float64."""
    found = [by_equations(way, x, mask, [np.zeros(width, "float32") for width in way.widths])[0] for way in layer.ways]
    return np.concatenate(found, axis=-1)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_it_is_the_equations_in_each_direction(cell):
    layer, x = Bidirectional(6, cell), text()
    layer.build((None, None, 5))
    drawn(layer)
    y, (forward, backward) = layer.read(x, MASK)
    first = layer.weights[:: len(layer.weights) // 2]
    assert [weight.path.split("/")[1:] for weight in first] == [["forward", "kernel"], ["backward", "kernel"]]
    np.testing.assert_array_equal(layer(x, MASK), y)
    for row in range(3):
        np.testing.assert_allclose(y[row], both(layer, x[row], MASK[row]), atol=1e-5)
        last = MASK[row].sum() - 1
        np.testing.assert_allclose(forward[0][row], y[row, last, :6], atol=1e-6)
        np.testing.assert_allclose(backward[0][row], y[row, 0, 6:], atol=1e-6)


def test_pieces_of_a_row_see_each_other_alone():
    layer, x = Bidirectional(3), text()
    layer.build((None, None, 5))
    drawn(layer)
    assert borders({"padding_mask": MASK}) == (MASK, (None, None))
    real, begins = borders({"packed_ids": np.array([[1, 1, 1, 2, 2, 0, 0]] * 3)})
    y = layer(x, real, begins)
    for piece in (slice(0, 3), slice(3, 5)):
        np.testing.assert_allclose(y[:, piece], layer(x[:, piece]), atol=1e-6)


def test_label_scores_of_two_layers():
    head, x = BiLSTMHead(4, 6, 2, dropout=0.5, name="classifier"), text()
    head.build((None, None, 5))
    drawn(head, 1)
    scores, (one, two) = head(x, MASK), head.recurrent
    assert scores.shape == (3, 7, 4)
    for row in range(3):
        inner = both(two, both(one, x[row], MASK[row]), MASK[row])
        expected = inner @ np.float64(head.kernel) + np.float64(head.bias)
        np.testing.assert_allclose(scores[row], expected, atol=1e-5)
    names = {weight.path.split("/", 1)[1] for weight in head.weights}
    ways = [f"lstm_{i}/{way}" for i in (0, 1) for way in ("forward", "backward")]
    assert names == {"kernel", "bias"} | {
        f"{way}/{part}" for way in ways for part in ("kernel", "recurrent_kernel", "bias")
    }
