"""Masks worked out by hand."""

import numpy as np
import pytest

from kerasbert.mobile.prune.masks import fits, largest, masks, two_of_four

A = np.array([[1.0, -8.0], [-2.0, 7.0], [3.0, -6.0], [-4.0, 5.0]], "float32")
B = 10 * A


def made(weights, sparsity, structure="none", scope="layer", old=None):
    return masks(
        weights, sparsity, structure, scope, old or {name: np.ones(w.shape, bool) for name, w in weights.items()}
    )


def test_each_kernel_loses_its_own_smallest():
    found = made({"a": A, "b": B}, 0.5)
    for mask in found.values():
        np.testing.assert_array_equal(mask, [[False, True]] * 4)


def test_globally_the_smallest_of_all_go():
    found = made({"a": A, "b": B}, 0.5, scope="global")
    assert not found["a"].any()
    assert found["b"].all()
    # 9 of 16: all of a, and the 10 of b
    found = made({"a": A, "b": B}, 9 / 16, scope="global")
    assert np.flatnonzero(~found["b"]).tolist() == [0]


def test_blocks_are_four_inputs_of_one_output():
    weights = np.concatenate([A, 2 * A])  # means 2.5, 6.5 and 5, 13
    found = made({"a": weights}, 0.5, "4x1")["a"]
    np.testing.assert_array_equal(found, [[False, True]] * 8)
    found = made({"a": weights}, 0.25, "4x1")["a"]
    np.testing.assert_array_equal(found, [[False, True]] * 4 + [[True, True]] * 4)
    # globally the two blocks of a and the smaller ones of b compete: 2.5, 6.5 of a against 25, 65 of b
    found = made({"a": A, "b": B}, 0.5, "4x1", "global")
    assert not found["a"].any()
    assert found["b"].all()


def test_two_of_four_is_exact_whatever_the_sparsity_says():
    weights = np.random.default_rng(0).normal(size=(64, 5)).astype("float32")
    found = made({"a": weights}, 0.5, "2:4")["a"]
    assert (found.reshape(16, 4, 5).sum(1) == 2).all()
    groups, kept = np.abs(weights).reshape(16, 4, 5), found.reshape(16, 4, 5)
    assert (np.where(kept, groups, np.inf).min(1) >= np.where(kept, -np.inf, groups).max(1)).all()
    np.testing.assert_array_equal(two_of_four(np.array([[1.0], [5.0], [5.0], [5.0]]))[:, 0], [False, False, True, True])


@pytest.mark.parametrize(("structure", "size"), [("none", 1), ("4x1", 4)])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.9, 0.999])
def test_the_share_is_exact_to_one_block(structure, size, sparsity):
    weights = np.random.default_rng(1).normal(size=(40, 30)).astype("float32")
    found = made({"a": weights}, sparsity, structure)["a"]
    assert (~found).sum() == size * round(sparsity * 1200 / size)


def test_of_equal_magnitudes_the_first_goes():
    same = np.array([[1.0, -1.0], [1.0, -1.0]], "float32")
    np.testing.assert_array_equal(made({"a": same}, 0.25)["a"], [[False, True], [True, True]])
    found = made({"b": same, "a": same}, 0.5, scope="global")  # by name, not by place
    assert not found["a"].any()
    assert found["b"].all()
    assert largest(np.zeros(5), 0.4).tolist() == [False, False, True, True, True]


def test_what_is_gone_stays_gone():
    weights = {"a": np.array([[0.0], [0.0], [3.0], [4.0]], "float32")}
    # the second is gone, the first is a kept weight that happens to be zero
    old = {"a": np.array([[True], [False], [True], [True]])}
    np.testing.assert_array_equal(made(weights, 0.25, old=old)["a"], old["a"])
    np.testing.assert_array_equal(made(weights, 0.5, old=old)["a"], [[False], [False], [True], [True]])
    np.testing.assert_array_equal(made(weights, 0.5, "2:4", old=old)["a"], [[False], [False], [True], [True]])


def test_which_kernels_a_structure_fits():
    assert fits((6, 4), "none")
    assert not fits((6, 4), "4x1")
    assert fits((8, 3), "2:4")
