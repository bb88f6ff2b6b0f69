"""What an import would do and what it gives: nothing is read of what does not fit, everything of what does."""

import dataclasses

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.checkpoints.coverage import Coverage, Pair
from kerasbert.checkpoints.directory import Weights, named_weights
from kerasbert.checkpoints.plans import Imported, Plan, name_of, shapes_of
from kerasbert.errors import InputError
from tests import tiny
from tests.checkpoints.test_forms import Stored

BERT = registry.family("bert")
SIZES = {"hidden": 4, "attention.heads": 2, "feedforward.width": 6, "blocks.layers": 1, "embeddings.vocabulary": 7}
SPEC = BERT.spec.derive(SIZES)
KERNEL, BIAS = np.arange(6, dtype="float64").reshape(2, 3), np.ones(2, "float32")
PAIRS = (
    Pair("x/kernel", "a.weight", True, (3, 2)),
    Pair("heads/mlm/bias", "b", False, (2,)),
    Pair("heads/mlm/norm/beta", "b", False, (2,)),
)


def plan(**more):
    tensors = Stored(**{"a.weight": KERNEL, "b": BIAS})
    return Plan(Coverage(PAIRS, (), (), (), (), ()), tensors=tensors, family=BERT, name="bert", spec=SPEC, **more)


def test_each_tensor_goes_to_its_place_as_float32():
    found = plan(task={"kind": "classification"}, described={"labels": ("a",)}, heads={"own": {"x": BIAS}}).read()
    assert list(found.encoder.arrays) == ["x/kernel"]
    np.testing.assert_array_equal(found.encoder.arrays["x/kernel"], KERNEL.T)
    assert found.encoder.arrays["x/kernel"].dtype == np.float32
    assert found.encoder.arrays["x/kernel"].flags.c_contiguous
    assert {head: sorted(parts) for head, parts in found.heads.items()} == {"own": ["x"], "mlm": ["bias", "norm/beta"]}
    assert (found.task, found.described, found.name, found.encoder.spec) == (
        {"kind": "classification"},
        {"labels": ("a",)},
        "bert",
        SPEC,
    )
    assert plan(convert=lambda made: (made.name, len(made.heads))).read() == ("bert", 1)
    changed = plan(tensor=lambda pair, values: values * 2).read()
    np.testing.assert_array_equal(changed.encoder.arrays["x/kernel"], KERNEL * 2)
    made = dataclasses.replace(plan(), coverage=None, heads={"own": {}}).read()
    assert (made.encoder.arrays, made.heads) == ({}, {"own": {}})


def test_what_does_not_fit_is_not_read():
    problem = InputError("2 missing")
    wrong = plan(problem=problem)
    wrong.tensors = None
    assert wrong.dry_run() is wrong.coverage
    with pytest.raises(InputError, match="2 missing"):
        wrong.read()
    with pytest.raises(InputError, match="a bert is made of weights and words as they are: leave dry_run out"):
        dataclasses.replace(wrong, coverage=None).dry_run()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_also_of_a_dry_run(value):
    damaged = plan()
    damaged.tensors.arrays["b"] = np.float32([1, value])
    for act in (damaged.read, damaged.dry_run):
        with pytest.raises(InputError, match="b holds values that are not finite: the checkpoint is damaged"):
            act()
    assert plan().dry_run().fits


def test_a_model_that_is_built_takes_its_arrays():
    arrays = {name: np.full(shape, i, "float32") for i, (name, shape) in enumerate(shapes_of(BERT, SPEC).items())}
    about = {"labels": ("a", "b"), "tokenizer": tiny.tokenizer(), "source": {"hub": "x"}}
    made = Imported(BERT, "bert", Weights(SPEC, arrays), {"mlm": {}}, {"kind": "x"}, about)
    model = made.build()
    assert made.encoder is model
    for name, variable in named_weights(model).items():
        np.testing.assert_array_equal(np.asarray(variable), arrays[name])
    assert (model.model_name, model.heads, model.task, model.labels) == ("bert", {"mlm": {}}, {"kind": "x"}, ("a", "b"))
    assert (model.source, model.generation, model.tokenizer) == ({"hub": "x"}, None, about["tokenizer"])
    again = Imported(BERT, "bert/x", model).build()
    assert (again, again.model_name, again.labels) == (model, "bert/x", None)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "bert/tiny"),
        ({"dropout": 0.5, "attention.dropout": 0.2, "initializer": 0.1, "pooler": False}, "bert/tiny"),
        ({"hidden": 130}, "bert"),
        ({"embeddings.vocabulary": 7}, "bert"),
    ],
)
def test_the_size_with_exactly_these_dimensions(changes, name):
    assert name_of(BERT, BERT.size("tiny").derive(changes)) == name


def test_shapes_of_an_encoder():
    found = shapes_of(BERT, SPEC)
    assert found["embeddings/tokens/table"] == (7, 4)
    assert found["block_0/feedforward/inner/kernel"] == (4, 6)
    assert "block_1/feedforward/inner/kernel" not in found
