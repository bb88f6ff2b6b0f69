"""Fast forms equal the plain ones."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from kerasbert.layers import backend
from kerasbert.layers.backend_graph import recompute
from kerasbert.layers.embeddings import FEW, Table
from kerasbert.layers.feedforward import Linear


def test_gather_pick_and_project_equal_their_plain_forms():
    generator = np.random.default_rng(0)
    table, ids = generator.normal(size=(11, 3)).astype("float32"), generator.integers(0, 11, (2, 5))
    np.testing.assert_array_equal(backend.gather(table, ids), table[ids])
    np.testing.assert_array_equal(backend.look_up(table, ids), table[ids])
    with backend.as_tpu():
        np.testing.assert_array_equal(backend.look_up(ops.convert_to_tensor(table), ids), table[ids])
    x, positions = generator.normal(size=(2, 7, 3)).astype("float32"), generator.integers(0, 7, (2, 4))
    plain = np.take_along_axis(x, positions[:, :, None], axis=1)
    np.testing.assert_array_equal(backend.pick(ops.convert_to_tensor(x), positions), plain)
    np.testing.assert_array_equal(backend.pick_by_contraction(ops.convert_to_tensor(x), positions), plain)
    kernel = generator.normal(size=(3, 6)).astype("float32")
    np.testing.assert_allclose(backend.project(ops.convert_to_tensor(x), kernel), x @ kernel, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, FEW, FEW + 1])
def test_a_table_on_tpu_gives_the_rows_and_gradients_of_a_gather(rows):
    table = Table(rows, 3)
    table.build()
    ids = tf.constant(np.random.default_rng(0).integers(0, rows, (4, 50)), "int32")
    upstream = tf.constant(np.random.default_rng(1).normal(size=(4, 50, 3)), "float32")

    def found() -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            x = table(ids)
        gradient = tape.gradient(x, table.table.value, output_gradients=upstream)
        return [x.numpy(), tf.convert_to_tensor(gradient).numpy()]

    plain = found()
    with backend.as_tpu():
        value, gradient = found()
    np.testing.assert_array_equal(value, plain[0])
    np.testing.assert_allclose(gradient, plain[1], rtol=1e-6, atol=1e-5)  # sums of up to 200 numbers


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("shape", [(3, 7), (2, 5, 7)])
def test_a_linear_map_that_serves_equals_the_plain_one(activation, shape):
    layer = Linear(11, initializer=1.0)
    layer.build((None, 7))
    layer.bias.assign(np.random.default_rng(4).normal(size=11))
    x = np.random.default_rng(5).normal(size=shape).astype("float32")
    plain = layer(x, activation=activation)
    with backend.serving():
        served = layer(x, activation=activation)
    np.testing.assert_allclose(served, plain, rtol=1e-5, atol=1e-6)


def test_the_graph_optimizer_finds_what_serves():
    """MatMul, BiasAdd and GELU in the one form that it puts into one operator, with no reshape between."""
    import tensorflow as tf

    layer = Linear(11)
    layer.build((None, None, 7))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 7])], autograph=False)
    def call(x):
        with backend.serving():
            return layer(x, activation="gelu")

    graph = call.get_concrete_function().graph
    erf = next(node for node in graph.get_operations() if node.type == "Erf")
    added = erf.inputs[0].op.inputs[0].op
    assert (erf.inputs[0].op.type, added.type, added.inputs[0].op.type) == ("Mul", "BiasAdd", "MatMul")
    behind = [erf]
    while behind[-1].type != "Reshape":
        behind.append(behind[-1].outputs[0].consumers()[0])
    assert [node.type for node in behind] == ["Erf", "AddV2", "Mul", "Mul", "Reshape"]
    assert behind[3].inputs[1].op is added


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("length", [7, None])
def test_gelu_in_16_bits_is_float64s_but_for_the_rounding_of_its_result(dtype, length):
    import tensorflow as tf

    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]  # half of the distance of two numbers, of the smaller
    x = tf.cast(
        np.concatenate([np.random.default_rng(3).normal(size=(5, 7)) * 3, [[0, -0.0, 9, -9, 1, -1, 88]]]), dtype
    )

    @tf.function(input_signature=[tf.TensorSpec([None, length], dtype)], autograph=False)
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = backend.gelu(x)
        return y, tape.gradient(y, x)

    wide = tf.cast(x, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(wide)
        expected = tf.nn.gelu(wide, approximate=False)
    y, gradient = both(x)
    assert y.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(tf.cast(y, "float64"), expected, rtol=1.01 * unit, atol=1e-6)
    np.testing.assert_allclose(tf.cast(gradient, "float64"), tape.gradient(expected, wide), rtol=1.01 * unit, atol=1e-6)
    with backend.serving():
        np.testing.assert_array_equal(backend.gelu(x), y)
    # float32, and a TPU, have Keras' own
    np.testing.assert_array_equal(
        backend.gelu(tf.cast(x, "float32")), ops.gelu(tf.cast(x, "float32"), approximate=False)
    )
    with backend.as_tpu():
        np.testing.assert_array_equal(backend.gelu(x), ops.gelu(x, approximate=False))


def test_softmax_for_a_tpu_equals_the_plain_one_and_its_gradient():
    import tensorflow as tf

    generator = np.random.default_rng(1)
    scores = tf.constant(generator.normal(size=(2, 3, 5, 7)), tf.float32)
    upstream = tf.constant(generator.normal(size=(2, 3, 5, 7)), tf.float32)

    def both(dtype):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            p = backend.softmax(scores, dtype)
            loss = tf.reduce_sum(tf.cast(p, tf.float32) * upstream)
        return p, tape.gradient(loss, scores).numpy()

    plain, expected = both("float32")
    with backend.as_tpu():
        same, found = both("float32")
        np.testing.assert_array_equal(same, plain)
        np.testing.assert_array_equal(found, expected)
        rounded, found = both("bfloat16")
    assert rounded.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(rounded, tf.float32), plain, rtol=2**-8)
    # the upstream gradient is rounded too: two roundings of 2^-9 on numbers of order one
    np.testing.assert_allclose(found, expected, atol=4e-3)
    assert np.abs(found).max() > 0.1


def test_recomputing_for_a_tpu_gives_the_same_value_and_gradients():
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    outer = keras.layers.Dense(3)
    x = tf.constant(np.random.default_rng(2).normal(size=(4, 5)), tf.float32)
    outer.build((4, 5))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = recompute(lambda x: outer(ops.gelu(x)))(x)
            loss = tf.reduce_sum(y * y)
        return [y, *tape.gradient(loss, [x, outer.kernel.value, outer.bias.value])]

    plain = tf.function(step, autograph=False, jit_compile=True)(x)
    with backend.as_tpu():
        again = tf.function(step, autograph=False, jit_compile=True)
        for one, other in zip(plain, again(x), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-6)
        assert "opt-barrier" in again.experimental_get_compiler_ir(tf.TensorSpec([4, 5]))(stage="hlo")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_numbers_of_16_bits_are_kept_as_by_a_choice(dtype, compiled):
    """To the bit, whatever stands where nothing is kept; the first and second derivatives too."""
    x = tf.cast([[1.7, -2.3, 3e4, 0.01, -0.0], [np.nan, np.inf, -np.inf, 65000.0, 5.0]], dtype)
    kept = np.array([[True, False, True, True, True], [False, False, False, False, True]])

    def twice(form, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = form(form(x) * x)
            first = tape.gradient(y, x)
        return y, first, outer.gradient(first, x)

    def chosen(x):
        return tf.where(kept, x * tf.cast(1.25, x.dtype), tf.cast(0, x.dtype))

    graph = tf.function(
        lambda x: twice(lambda x: backend.keep(x, kept, 1.25), x), jit_compile=compiled, autograph=False
    )
    wanted = tf.function(lambda x: twice(chosen, x), jit_compile=compiled, autograph=False)
    for one, other in zip(graph(x), wanted(x), strict=True):
        rows = [np.where(kept, tf.cast(each, "float32"), 0) for each in (one, other)]
        np.testing.assert_array_equal(*rows)
    y = backend.keep(x, kept, 1.25)
    np.testing.assert_array_equal(tf.bitcast(y, tf.int16), tf.bitcast(chosen(x), tf.int16))
