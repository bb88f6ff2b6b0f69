"""Visibility by hand: who sees whom, written out."""

import numpy as np

from kerasbert.layers import visibility


def test_padding_is_seen_by_nobody():
    mask = visibility.padding(np.array([[1, 1, 0], [1, 1, 1]]))
    np.testing.assert_array_equal(mask, [[[True, True, False]], [[True, True, True]]])


def test_pieces_of_a_row_see_themselves():
    mask = visibility.packed(np.array([[1, 1, 2, 0, 0]]))
    rows = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(mask, np.array([rows], bool))


def test_the_bias_is_bounded():
    visible = np.array([[[True, False], [False, False]]])
    np.testing.assert_array_equal(visibility.bias(visible), [[[[0, -60], [-60, -60]]]])
    assert np.exp(visibility.HIDDEN) < np.finfo("float32").eps ** 3
    assert np.isfinite(np.float16(visibility.HIDDEN))
