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
    np.testing.assert_array_equal(visibility.bias(visible), [[[[0, -100], [-100, -100]]]])
    assert np.exp(visibility.HIDDEN) < np.finfo("float32").eps ** 3
    assert np.isfinite(np.float16(visibility.HIDDEN))


def test_nobody_sees_what_comes_later():
    np.testing.assert_array_equal(visibility.causal(3), np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 1]]], bool))
    # two keys of memory in front
    remembered = np.array([[[1, 1, 1, 0], [1, 1, 1, 1]]], bool)
    np.testing.assert_array_equal(visibility.causal(2, memory=2), remembered)


def test_what_all_allow_is_allowed():
    mask = visibility.both(visibility.padding(np.array([[1, 1, 0]])), None, visibility.causal(3))
    np.testing.assert_array_equal(mask, np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 0]]], bool))
    assert visibility.both(None) is None
