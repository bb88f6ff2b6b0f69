"""Positions that are fixed, or none."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.layers.embeddings import Embeddings, Sinusoids
from kerasbert.models.mobilebert import MOBILEBERT, Trigrams
from kerasbert.spec import Spec

SMALL = {"hidden": 6, "dropout": 0.0, "embeddings.vocabulary": 9, "embeddings.positions": 5, "embeddings.offset": 1}
IDS = np.array([[3, 1, 3, 3]], "int32")


def test_sines_and_cosines_are_halves():
    layer = Sinusoids(3, 5)
    layer.build()
    rates = np.array([1, 10**-1.6, 10**-3.2])  # 10000 ** -(0, 2/5, 4/5)
    expected = [[*np.sin(p * rates), *np.cos(p * rates[:2])] for p in range(3)]
    np.testing.assert_allclose(layer.table, expected, atol=1e-7)
    np.testing.assert_allclose(layer(np.array([[2, 0]]))[0], np.array(expected)[[2, 0]], atol=1e-7)
    assert layer.weights == []


@pytest.mark.parametrize("kind", [Embeddings, Trigrams])
def test_a_spec_says_which_positions_there_are(kind):
    base = Spec().derive({"attention.heads": 2}) if kind is Embeddings else MOBILEBERT.spec
    narrow = {"embeddings.width": 4} if kind is Trigrams else {}
    layers = {}
    for positions in ("learned", "sinusoidal", "none"):
        layer = layers[positions] = kind(base.derive(SMALL | narrow | {"embeddings.kind": positions}))
        layer.build()
        paths = [weight.path for weight in layer.weights]
        assert any("positions" in path for path in paths) == (positions == "learned")
    sinusoidal, learned, none = layers["sinusoidal"], layers["learned"], layers["none"]
    learned.positions.table.assign(sinusoidal.positions.table)
    for layer in (sinusoidal, none):
        for weight, other in zip(layer.weights, [w for w in learned.weights if "positions" not in w.path], strict=True):
            weight.assign(other)
    for given in (None, np.array([[2, 0, 1, 3]], "int32")):
        np.testing.assert_allclose(
            sinusoidal(IDS, position_ids=given), learned(IDS, position_ids=given), atol=1e-6, rtol=0
        )
        np.testing.assert_array_equal(none(IDS, position_ids=given), none(IDS))
    if kind is Embeddings:  # the same token is the same everywhere
        np.testing.assert_array_equal(none(IDS)[0, 0], none(IDS)[0, 2])
        assert np.abs(sinusoidal(IDS)[0, 0] - sinusoidal(IDS)[0, 2]).max() > 0.01


def test_an_unknown_kind_is_refused():
    with pytest.raises(
        InputError, match="embeddings.kind must be one of learned, sinusoidal, none. Received: 'rotary'"
    ):
        Spec().derive({"embeddings.kind": "rotary"})
