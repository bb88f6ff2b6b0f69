"""Rotary attention by its definition: complex numbers that turn with the place."""

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.rotary import RotaryAttention, rotate
from kerasbert.models.modernbert import LocalAttention

RNG = np.random.default_rng(0)


def turned(x, places, theta):
    """Pairs (i, i + D/2) as complex numbers, times e^(i * place * theta^(-2i/D)): [B, N, S, D] in float64."""
    half = x.shape[-1] // 2
    angles = places[:, None, :, None] * theta ** (-np.arange(half) / half)
    pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


@pytest.mark.parametrize("theta", [10000.0, 160000.0])
def test_pairs_turn_with_the_place(theta):
    x, places = RNG.normal(size=(2, 3, 5, 8)), np.array([[0, 1, 2, 7, 100], [3, 0, 1, 2, 511]])
    np.testing.assert_allclose(rotate(x.astype("float32"), places, theta), turned(x, places, theta), atol=2e-5)


def test_scores_depend_on_the_distance_alone():
    layer = RotaryAttention(2, 6, initializer=0.5)
    layer.build((None, None, 12))
    x = ops.convert_to_tensor(RNG.normal(size=(1, 7, 12)).astype("float32"))
    query, key = (layer.split(part(x)) for part in (layer.query, layer.key))

    def scores(places):
        return np.asarray(layer.scores(*layer.placed(query, key, key, None, scoring=places)[:2]))

    places = np.arange(7, dtype="int32")[None]
    here, there = scores(places), scores(places + 40)
    np.testing.assert_allclose(there, here, atol=1e-4)
    assert np.abs(here - scores(2 * places)).max() > 1e-2


@pytest.mark.parametrize("queries", ["first", np.array([[4, 0], [6, 6]], "int32")], ids=["first", "positions"])
@pytest.mark.parametrize("window", [0, 4])
def test_of_some_queries_as_of_all(queries, window):
    layer = LocalAttention(2, 6, initializer=0.5, window=window)
    layer.build((None, None, 12))
    x = RNG.normal(size=(2, 7, 12)).astype("float32")
    places = np.array([np.arange(7), [0, 1, 2, 0, 1, 2, 3]], "int32")  # the second row holds two packed texts
    rows = np.zeros((2, 1), int) if isinstance(queries, str) else queries
    some = np.take_along_axis(x, rows[..., None], axis=1)
    whole, part = layer(x, scoring=places)[0], layer(some, source=x, scoring=places, queries=queries)[0]
    np.testing.assert_allclose(part, np.take_along_axis(np.asarray(whole), rows[..., None], axis=1), atol=1e-5)


def test_a_window_is_half_on_each_side():
    layer = LocalAttention(2, 6, window=4)
    layer.build((None, None, 12))
    weights = np.asarray(layer(RNG.normal(size=(1, 9, 12)).astype("float32"), scoring=np.arange(9)[None])[1])
    seen = weights[0].min(axis=0) > 1e-6
    np.testing.assert_array_equal(seen, np.abs(np.arange(9)[:, None] - np.arange(9)) <= 2)
