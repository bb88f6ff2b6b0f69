"""Stored vectors, their cosines, and the nearest of them, against numpy by hand."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.retrieval import exact, forms

RNG = np.random.default_rng(0)
VECTORS = forms.unit(RNG.normal(size=(501, 24)).astype("float32"))
QUERIES = forms.unit(RNG.normal(size=(4, 24)).astype("float32"))


def by_hand(cosines, top):
    order = np.lexsort((np.broadcast_to(np.arange(cosines.shape[1]), cosines.shape), -cosines))[:, :top]
    return np.take_along_axis(cosines, order, 1), order


@pytest.mark.parametrize("dtype", forms.DTYPES)
@pytest.mark.parametrize("top", [1, 7, 501, 900])
def test_the_nearest_are_those_of_all_cosines(monkeypatch, dtype, top):
    monkeypatch.setattr(exact, "BLOCK", 100)
    kept = forms.stored(VECTORS, dtype)
    assert kept.dtype == forms.DTYPES[dtype]
    assert kept.shape == (501, forms.columns(24, dtype))
    scores, numbers = exact.nearest(kept, dtype, QUERIES, top)
    wanted = by_hand(QUERIES @ forms.read(kept, dtype, 24).T, min(top, 501))
    np.testing.assert_array_equal(numbers, wanted[1])
    np.testing.assert_allclose(scores, wanted[0], atol=1e-6)


def test_equal_ones_keep_their_order_over_blocks(monkeypatch):
    monkeypatch.setattr(exact, "BLOCK", 3)
    same = np.tile(np.eye(2, 24, dtype="float32"), (5, 1))
    _, numbers = exact.nearest(same, "float32", same[:1], 7)
    assert numbers[0].tolist() == [0, 2, 4, 6, 8, 1, 3]


@pytest.mark.parametrize(("dtype", "most"), [("float16", 3e-4), ("int8", 8e-3)])
def test_a_cosine_is_kept_to_the_rounding(dtype, most):
    kept = forms.read(forms.stored(VECTORS * 7, dtype), dtype, 24)  # whatever the scale
    assert np.abs(QUERIES @ kept.T - QUERIES @ VECTORS.T).max() < most


def test_bits_are_signs_and_a_width_need_not_be_of_bytes():
    odd = VECTORS[:, :13]
    kept = forms.stored(odd, "binary")
    assert kept.shape == (501, 2)
    np.testing.assert_allclose(forms.read(kept, "binary", 13), np.where(odd > 0, 1, -1) / 13**0.5, rtol=1e-6)


def test_a_vector_of_nothing_is_like_nothing():
    nothing = np.zeros((1, 24), "float32")
    for dtype in ("float32", "float16", "int8"):
        assert not (forms.read(forms.stored(forms.unit(nothing), dtype), dtype, 24) @ QUERIES.T).any()


def test_a_form_that_is_none_is_named():
    with pytest.raises(InputError, match="dtype must be one of float32, float16, int8, binary. Received: 'int4'"):
        forms.check("int4")
