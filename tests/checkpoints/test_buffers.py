"""Tensors that others store and that are computed here: by hand, and what differs from them."""

import numpy as np
import pytest

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.buffers import agrees

ROOT = 10000**-0.5
GOLDEN = {  # function -> shape, numbers worked out on paper
    "counted": ((1, 4), [[0, 1, 2, 3]]),
    "zeros": ((2, 2), [[0, 0], [0, 0]]),
    "causal": ((1, 2, 3), [[[1, 0, 0], [1, 1, 0]]]),
    "sines": ((2, 3), [[0, 0, 1], [np.sin(1), np.sin(10000 ** (-2 / 3)), np.cos(1)]]),
    "frequencies": ((2,), [1, ROOT]),
    "hidden": ((2,), [-1000, -1000]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_by_hand(name):
    shape, expected = GOLDEN[name]
    found = getattr(buffers, name)(shape)
    assert found.shape == shape
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert agrees(np.array(expected, "float32"), getattr(buffers, name))


def test_even_widths_of_sines():
    angles = np.array([0, 0.01, 1, 0.01])  # of 4: 1 and 10000^-1/2
    np.testing.assert_allclose(
        buffers.sines((2, 4)), [[0, 0, 1, 1], [np.sin(1), np.sin(0.01), np.cos(1), np.cos(0.01)]], rtol=1e-12
    )
    assert not agrees(angles, buffers.sines)


def test_every_function_of_a_shape_is_here():
    own = {name for name, each in vars(buffers).items() if getattr(each, "__module__", "") == buffers.__name__}
    assert own == {*GOLDEN, "agrees"}


@pytest.mark.parametrize("name", GOLDEN)
def test_other_numbers_and_shapes_do_not_agree(name):
    _, expected = GOLDEN[name]
    values = np.array(expected, "float64")
    for change in (2e-3, np.nan, -np.inf):
        other = values.copy()
        other.flat[0] += change
        assert not agrees(other, getattr(buffers, name)), change
    if name != "hidden":
        close = values.copy()
        close.flat[-1] += 9e-4
        assert agrees(close, getattr(buffers, name))
        assert agrees(close.astype("float16"), getattr(buffers, name))
        close.flat[-1] += 5e-3
        assert not agrees(close.astype("float32"), getattr(buffers, name))
        assert agrees(close.astype("float16"), getattr(buffers, name))  # as exact as such numbers are
        close.flat[-1] += 2e-2
        assert not agrees(close.astype("float16"), getattr(buffers, name))


def test_whole_numbers_are_exact():
    assert agrees(np.array([[0, 1, 2]]), buffers.counted)
    assert not agrees(np.array([[0, 1, 3]]), buffers.counted)
    assert not agrees(np.array([1, 2, 3], "int8"), buffers.counted)


@pytest.mark.parametrize(
    ("name", "shape"), [("causal", (3,)), ("sines", (3,)), ("sines", (1, 2, 3)), ("frequencies", (2, 2))]
)
def test_shapes_that_no_such_tensor_has(name, shape):
    assert getattr(buffers, name)(shape) is None
    assert not agrees(np.zeros(shape), getattr(buffers, name))


def test_what_hides_may_be_any_lower_number():
    assert agrees(np.array([-1000.0, -1e4, -3e38]), buffers.hidden)
    assert not agrees(np.array([-1000.0, -999.0]), buffers.hidden)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3), (1, 2, 3)])
def test_any_shape_of_a_damaged_file_is_answered(shape):
    """A position_ids of one number had raised numpy's ValueError."""
    for name in GOLDEN:
        found = getattr(buffers, name)(shape)
        assert found is None or found.shape == shape, name
        assert not agrees(np.full(shape, 7.5), getattr(buffers, name)) or 0 in shape, name
