"""Real graphs: every registered model's train step is safe, and what is not safe is found and named."""

import dataclasses
import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.layers import backend, backend_blocks
from kerasbert.layers.block import Block
from kerasbert.models.bert import Encoder
from kerasbert.spec import derive
from kerasbert.testing import battery
from kerasbert.tpu_check.lower import Lowered, Step, lower
from kerasbert.tpu_check.module import parse
from tests import tiny
from tests.training.worker import batches

TINY = tiny.SPEC | {"embeddings.vocabulary": 64, "blocks.layers": 1}
LENGTH, BATCH = 24, 8


def shrunk(spec):
    """Any family's Spec with one tiny layer."""
    return derive(spec, battery.tiny(spec, 64) | battery.shallow(spec))


def specs() -> dict[str, tuple]:
    """Every registered model made tiny; sizes that become the same are lowered once."""
    found = {}
    for family in [family for family in registry.families().values() if family.objective]:
        for size in family.sizes:
            found.setdefault((family.encoder, family.objective, shrunk(family.size(size))), f"{family.name}/{size}")
    return {name: registry.find(name) for name in found.values()}


@dataclasses.dataclass(frozen=True)
class Characters:
    """Settings of a family that names its tokens otherwise."""

    hidden: int = 8
    characters: int = 64


def test_family_without_a_vocabulary_is_refused():
    with pytest.raises(InputError, match=r"the family bert has no embeddings\.vocabulary, which the shapes"):
        Step(registry.family("bert"), Characters(), length=LENGTH)


RESULTS = 6_272_269  # bytes
SMALL = ("albert/base",)  # of the default run
# one for each kind of attention, recurrence and objective; the battery's journeys lower theirs too
OTHERS = ("bert", "longformer", "modernbert", "reformer", "t5", "transformer-xl", "xlnet")


def lowered() -> list:
    """The default run's; those of CI; the rest under `full`."""
    seen, parameters = set(), []
    for name in specs():
        family = name.partition("/")[0]
        mark = pytest.mark.slow if family in OTHERS and family not in seen else pytest.mark.full
        seen.add(family)
        parameters.append(pytest.param(name, marks=() if name in SMALL else mark))
    return parameters


@functools.lru_cache(maxsize=1)
def lowered_step(name: str) -> Lowered:
    """Of four replicas."""
    family, spec = specs()[name]
    return Step(family, shrunk(spec), length=LENGTH, replicas=4).lower(BATCH)


@pytest.mark.parametrize("name", lowered())
def test_the_train_step_of_every_model_is_safe(name):
    lowered = lowered_step(name)
    assert lowered.problems == []
    assert lowered.module
    # the gradients are summed over the four replicas, the state is updated in place
    assert "replica_groups={{0,1,2,3}}" in lowered.text
    assert "input_output_alias" in lowered.text
    # the masked positions and segments are read by a product: a gather's gradient would be a scatter
    assert not re.search(r"scatter\(\w+\[(8,24,16|2,\d+)\]", lowered.text)


def test_a_step_computes_no_more_than_it_did():
    """Bytes of all results of the lowered step of albert/base: what is computed, cast or kept wide besides is seen here.

    A change that is meant goes on: the figure is then the new one.
    """
    views = ("parameter", "constant", "tuple", "get-tuple-element")
    found = parse(lowered_step(SMALL[0]).text).total(
        lambda one, _: sum(x.size for x in one.arrays) * (one.opcode not in views)
    )
    assert found == pytest.approx(RESULTS, rel=0.02)


@pytest.fixture(scope="module")
def bert():
    family, spec = registry.find("bert/tiny")
    return Step(family, spec.derive(TINY), length=LENGTH, replicas=2, precision="float32", accumulate=2)


@pytest.mark.slow
def test_state_and_summed_bytes_by_hand(bert):
    lowered = bert.lower(4)
    trained = bert.program.model.trainable_variables
    weights = sum(int(np.prod(v.shape)) for v in trained)
    extra = lowered.state - 3 * 4 * weights  # weights and AdamW's two moments
    assert 0 < extra < 128  # iterations, learning rate and dropout's seeds
    assert 4 * weights < lowered.reduced < 4 * weights + 64  # and the counts and sums of losses
    assert "replica_groups={{0,1}}" in lowered.text


def test_micro_batches_must_divide_the_batch(bert):
    from kerasbert.errors import InputError

    with pytest.raises(InputError, match="batch 5 is not a multiple of 2 micro-batches"):
        bert.lower(5)


def test_tracing_for_a_tpu_ends_with_its_scope():
    assert not backend.on_tpu()
    with backend.as_tpu():
        assert backend.on_tpu()
    assert not backend.on_tpu()


@pytest.mark.slow
@pytest.mark.parametrize("block", [backend_blocks.BLOCK, 1], ids=["all rows at once", "row by row"])
def test_the_forms_for_a_tpu_compute_what_the_others_compute(monkeypatch, block):
    """Gradients and logs of one batch, compiled on this CPU: contraction, recomputation, accuracy by the maximum."""
    monkeypatch.setattr(backend_blocks, "BLOCK", block)
    (batch,) = batches(8, LENGTH, 4, steps=1)
    batch = {
        name: tf.constant(value % 64 if name in ("token_ids", "mlm_labels") else value) for name, value in batch.items()
    }
    family, spec = registry.find("bert/tiny")
    core = Step(family, spec.derive(TINY), length=LENGTH, precision="float32").core

    def compiled():
        gradients, logs = tf.function(core._backward, autograph=False, jit_compile=True)(batch)
        return [gradient.numpy() for gradient in gradients], {name: float(value) for name, value in logs.items()}

    expected, logs = compiled()
    with backend.as_tpu():
        found, same = compiled()
    assert same == pytest.approx(logs, rel=1e-5)
    assert logs["gradient_norm"] > 0.1
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)


def unsafe(body):
    """A step with `body` inside of a layer's scope."""

    def step(batch):
        with tf.name_scope("encoder/block_0"):
            return body(batch["x"])

    return lower(step, {"x": tf.TensorSpec([4], tf.float32)})[2]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (lambda x: tf.where(x > 0), "dynamic dimension"),
        (lambda x: tf.boolean_mask(x, x > 0), "dynamic dimension"),
        (lambda x: tf.unique(x)[0], "dynamic dimension"),
        (lambda x: tf.cast(x, tf.float64) * 2, "float64"),
        (lambda x: tf.py_function(lambda y: y, [x], tf.float32), "lowering"),
        (lambda x: tf.strings.length(tf.strings.as_string(x)), "lowering"),
        (lambda x: tf.range(tf.cast(x[0], tf.int32)), "lowering"),
        (lambda x: tf.reshape(x, [tf.cast(x[0], tf.int32), -1]), "lowering"),
    ],
    ids=["where", "boolean_mask", "unique", "float64", "py_function", "strings", "range", "reshape"],
)
def test_unsafe_operations_are_found_with_their_layer(body, kind):
    found = unsafe(body)
    assert kind in [problem.kind for problem in found]
    assert all(problem.layer.startswith("encoder/block_0") for problem in found), found


def test_a_layer_of_a_model_is_named():
    """A block that picks its positive numbers: how many there are is known only when it runs."""

    class Picky(Block):
        def call(self, x, *args, **kwargs):
            y, probabilities = super().call(x, *args, **kwargs)
            return y * tf.cast(tf.size(tf.boolean_mask(x, x > 0)) > 3, y.dtype), probabilities

    class PickyEncoder(Encoder):
        block_class = Picky

    family, spec = registry.find("bert/tiny")
    family = dataclasses.replace(family, encoder=PickyEncoder)
    found = Step(family, spec.derive(TINY), length=LENGTH).lower(BATCH).problems
    assert {(problem.kind, problem.layer.rpartition("/boolean_mask")[0] or problem.layer) for problem in found} == {
        ("dynamic dimension", "pretraining/encoder/block_0")
    }


def test_a_safe_function_has_no_problems():
    assert unsafe(lambda x: tf.nn.softmax(x)) == []
