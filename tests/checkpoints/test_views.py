"""A checkpoint as its file names it, without wrappers and in our forms."""

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints import views
from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.views import Unwrapped, View, check_buffers, partly_wrapped, unwrapped
from kerasbert.errors import InputError
from tests.checkpoints.test_forms import Stored

WRAPPER, OTHER = views.WRAPPERS[:2]


def named(*names):
    return Stored(**{name: np.full(i + 1, i, "float32") for i, name in enumerate(names)})


@pytest.mark.parametrize(
    ("names", "own", "ignore", "removed"),
    [
        (["a.x", "a.y"], "", [], ""),
        ([f"{WRAPPER}a", f"{WRAPPER}b"], "", [], WRAPPER),
        ([f"{WRAPPER}{OTHER}a", f"{WRAPPER}{OTHER}b"], "", [], WRAPPER + OTHER),
        ([f"{WRAPPER}a", "b"], "", [], ""),
        ([f"{WRAPPER}a", "b"], "", ["b"], WRAPPER),
        ([f"{WRAPPER}a", f"{WRAPPER}b"], WRAPPER, [], ""),  # the family's own prefix
        ([f"{WRAPPER}{WRAPPER}a", f"{WRAPPER}{WRAPPER}b"], WRAPPER, [], WRAPPER),
        ([], "", [], ""),
    ],
)
def test_wrappers_that_every_name_begins_with_are_left_out(names, own, ignore, removed):
    reader = named(*names)
    found, told = unwrapped(reader, own, ignore)
    assert told == removed
    assert found.names() == sorted(name.removeprefix(removed) for name in names)
    if not removed:
        assert found is reader
        return
    for name in names:
        bare = name.removeprefix(removed)
        assert found.shape(bare) == reader.shape(name)
        assert found.read(bare) is reader.read(name)
        assert found.stored(bare) is reader.stored(name)


def test_a_wrapper_keeps_each_tensor_beside_its_name():
    reader = named("w.b", "w.a", "c")
    found = Unwrapped(reader, "w.")
    assert (found.names(), found.shape("a"), found.read("b").tolist()) == (["a", "b", "c"], (2,), [0])


@pytest.mark.parametrize(
    ("names", "own", "told"),
    [
        ([f"{WRAPPER}a", f"{WRAPPER}b", "c"], "", rf"2 of 3 names begin with '{WRAPPER}'.* the others do not \(c\)"),
        ([f"{WRAPPER}a", "b"], "", None),  # half of them
        ([f"{WRAPPER}a", f"{WRAPPER}b", "c"], WRAPPER, None),
        (["a", "b"], "", None),
    ],
)
def test_names_of_which_most_are_wrapped(names, own, told):
    found = partly_wrapped(named(*names), own, "here")
    assert (found is None) == (told is None)
    if told:
        with pytest.raises(InputError, match=f"here does not fit the model: {told}"):
            raise found


def test_buffers_that_are_not_what_is_computed_are_named():
    dialect = registry.family("bert").names["hf"]
    name = "bert.embeddings.position_ids"
    reader = Stored(**{name: np.arange(5)[None], "other": np.ones(3)})
    check_buffers(reader, dialect, [name, "other"], "here")
    reader.arrays[name] = np.arange(1, 6)[None]
    with pytest.raises(InputError, match=rf"{name} in here is not what is computed in its place \(counted\)"):
        check_buffers(reader, dialect, ["other", name], "here")


def test_joined_tensors_are_seen_one_by_one():
    values = np.arange(12, dtype="float32").reshape(2, 6)
    view = View(Stored(**{"a.weight": values, "b.weight": values[:, :2]}), {"a.*": Joined(3)}, 1)
    assert view.names() == ["a#0.weight", "a#1.weight", "a#2.weight", "b.weight"]
    assert view.shape("a#1.weight") == view.shape("b.weight") == (2, 2)
    np.testing.assert_array_equal(view.read("a#1.weight"), values[:, 2:4])
    np.testing.assert_array_equal(view.read("b.weight"), values[:, :2])
    assert view.stored("a#2.weight") is values
    assert View(Stored(**{"a.weight": values[:, :4]}), {"a.*": Joined(3)}, 1).names() == ["a.weight"]  # not of three
    assert (views.part("h.0.attn.weight", 2), views.part("x", 0)) == ("h.0.attn#2.weight", "#0.x")
