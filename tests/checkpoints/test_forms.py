"""Tensors in other forms than ours: read and written back, and seen one by one in a checkpoint."""

import numpy as np
import pytest

from kerasbert.checkpoints.forms import ByHead, Form, Joined, Leading
from kerasbert.checkpoints.views import View, whole

N, D, H = 2, 3, 5


class Stored:
    """A Reader of arrays."""

    def __init__(self, **arrays):
        self.arrays = arrays

    def names(self):
        return sorted(self.arrays)

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name):
        return self.arrays[name]

    stored = read


@pytest.mark.parametrize(
    ("form", "shape", "ours"),
    [
        (Form(), (H, 4), (H, 4)),
        (Joined(3), (H, 9), (H, 3)),
        (Joined(3, axis=0), (9, H), (3, H)),
        (Joined(3, axis=0), (9,), (3,)),
        (Joined(3, axis=0, by_head=True), (3 * N * D, H), (N * D, H)),
        (Joined(3, by_head=True), (H, 3 * N * D), (H, N * D)),
        (Leading(), (1, 7), (7,)),
        (ByHead(), (H, N, D), (H, N * D)),
    ],
)
def test_there_and_back(form, shape, ours):
    theirs = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    assert form.shape(shape, N) == ours
    parts = form.split(theirs, N)
    assert [part.shape for part in parts] == [ours] * form.count
    assert np.array_equal(form.join(parts, D), theirs)


def test_queries_keys_and_values_of_each_head_stand_together():
    """As DeBERTa's in_proj and GPT-NeoX's query_key_value: [N, 3, D] rows."""
    theirs = np.arange(3 * N * D).reshape(N, 3, D)
    expected = [theirs[:, i].reshape(-1) for i in range(3)]
    for axis, shape in ((0, (-1, 1)), (-1, (1, -1))):
        parts = Joined(3, axis=axis, by_head=True).split(theirs.reshape(shape), N)
        assert [part.reshape(-1).tolist() for part in parts] == [part.tolist() for part in expected]
    assert [part.tolist() for part in Joined(3, axis=0).split(theirs.reshape(-1), N)] != [p.tolist() for p in expected]


@pytest.mark.parametrize(
    ("form", "shape"),
    [(Joined(3), (4,)), (Joined(3, by_head=True), (9,)), (Joined(2), ()), (Leading(), (7,)), (ByHead(), (5, 6))],
)
def test_a_tensor_of_another_shape_is_left_as_it_is(form, shape):
    assert form.shape(shape, N) is None
    view = View(Stored(x=np.zeros(shape)), {"x": form}, N)
    assert (view.names(), view.shape("x")) == (["x"], shape)


def test_a_checkpoint_in_our_forms_and_back():
    forms = {"*.qkv.*": Joined(3, axis=0, by_head=True), "bias": Leading()}
    stored = Stored(
        **{
            "a.qkv.weight": np.random.default_rng(0).normal(size=(3 * N * D, H)),
            "bias": np.ones((1, 4)),
            "other": np.zeros(3),
        }
    )
    view = View(stored, forms, N)
    assert view.names() == [*(f"a.qkv#{i}.weight" for i in range(3)), "bias", "other"]
    assert (view.shape("a.qkv#1.weight"), view.shape("bias")) == ((N * D, H), (4,))
    shapes, read = whole(forms, {name: view.shape(name) for name in view.names()}, view.read, D)
    assert shapes == {name: stored.shape(name) for name in stored.names()}
    for name in shapes:
        assert np.array_equal(read(name), stored.read(name))
