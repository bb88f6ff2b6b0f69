"""Compiled by libtpu for topologies that are not here."""

import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import backend, random, visibility
from kerasbert.layers.attention import Attention
from kerasbert.tpu_check import chips, compiler
from kerasbert.tpu_check.check import check_tpu
from kerasbert.tpu_check.lower import lower
from kerasbert.training.chips import GB
from tests.tpu_check.test_lower import TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def needed():
    for name in ("jax", "libtpu"):
        pytest.importorskip(name, reason="needs kerasbert[tpu-check]")


def program(size: int) -> bytes:
    """The sum over a function of [size, size] float32."""

    def step(batch):
        x = batch["x"]
        return tf.reduce_sum(tf.sin(x))

    module, _, problems = lower(step, {"x": tf.TensorSpec([size, size], tf.float32)})
    assert problems == []
    return module


@pytest.mark.parametrize("kind", chips.CHIPS)
def test_the_table_has_the_memory_that_libtpu_has(kind):
    """Of each chip, from the compiler's own refusal; and a small program compiles for it."""
    where = chips.topology(f"{kind}:2x2x1" if kind in ("v4", "v5p") else f"{kind}:2x2")
    small = compiler.compile_for(chips.Slice(kind, where.shape), program(256))
    assert small.flops > 0
    with pytest.raises(compiler.TooLarge) as caught:
        compiler.compile_for(where, program(200_000))
    assert caught.value.capacity == pytest.approx(where.chip.device.hbm, rel=1e-3)
    assert caught.value.used > caught.value.capacity


def test_a_topology_that_cannot_be_wired():
    with pytest.raises(InputError, match="libtpu has no topology v5e:3x3: .*not divisible"):
        compiler.compile_for(chips.topology("v5e:3x3"), b"")


@pytest.mark.parametrize("name", ["albert/base", "bert/base"])
def test_train_steps_compile(name):
    """At toy size, on two chips."""
    found = check_tpu(name, "v5e:2x2", batch=8, length=24, changes=TINY)
    at = found.compiled
    # the state is updated in place: it is there once, beside the batch
    assert found.lowered.state <= at.arguments < 1.5 * found.lowered.state + 2**20
    assert at.used < GB
    assert 0 < found.roofline.utilisation <= 1
    assert "all-reduce" in at.text


ROWS, LENGTH, HIDDEN = 64, 512, 256
MOVED = 70_044_162  # bytes from and to HBM, of libtpu 0.0.51


def test_a_wide_attention_moves_no_more_bytes_than_it_did():
    """An attention with dropout, forward and gradient, which is computed in blocks.

    A change that is meant goes on: the figure is then the new one.
    """
    layer = Attention(4, 64, dropout=0.1, dtype="mixed_bfloat16")
    layer.build((None, None, HIDDEN))

    def step(batch):
        x, bias = batch["x"], visibility.bias(visibility.padding(batch["mask"]))
        weights = [weight.value for weight in layer.trainable_variables]
        with random.scope(batch["words"], tf.range(ROWS)), tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(tf.cast(layer(x, bias, training=True)[0], "float32")))
        return tape.gradient(loss, [x, *weights])

    signature = {"x": tf.TensorSpec([ROWS, LENGTH, HIDDEN], tf.bfloat16), "words": tf.TensorSpec([2], tf.uint32)}
    with backend.as_tpu():
        module, _, problems = lower(step, signature | {"mask": tf.TensorSpec([ROWS, LENGTH], tf.bool)})
    assert problems == []
    assert compiler.compile_for(chips.topology("v5e:2x2"), module).hbm == pytest.approx(MOVED, rel=0.02)
