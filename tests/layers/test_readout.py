"""One vector a row, worked out by hand; as .tflite."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.readout import queries_of, readout, width
from kerasbert.poolings import READOUTS
from kerasbert.spec import Spec

X = np.arange(16, dtype="float32").reshape(2, 4, 2)  # rows 0 1 | 2 3 | 4 5 | 6 7 and 8 9 | 10 11 | 12 13 | 14 15
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], "int32")
LEFT = np.array([[0, 0, 1, 0], [0, 1, 1, 0]], "bool")  # padding in front too


@pytest.mark.parametrize(
    ("kind", "mask", "expected"),
    [
        ("first", MASK, [[0, 1], [8, 9]]),
        ("last", MASK, [[2, 3], [14, 15]]),
        ("last", LEFT, [[4, 5], [12, 13]]),
        ("last", None, [[6, 7], [14, 15]]),
        ("mean", MASK, [[1, 2], [11, 12]]),
        ("mean", LEFT, [[4, 5], [11, 12]]),
        ("mean", None, [[3, 4], [11, 12]]),
        ("mean", 0 * MASK, [[0, 0], [0, 0]]),
        ("max", LEFT, [[4, 5], [12, 13]]),
        ("max", None, [[6, 7], [14, 15]]),
        ("mean_sqrt_len", None, [[6, 8], [22, 24]]),
        ("mean_sqrt_len", 0 * MASK, [[0, 0], [0, 0]]),
        ("weighted_mean", MASK * [[1, 1, 0, 0], [1, 1, 0, 0]], [[4 / 3, 7 / 3], [28 / 3, 31 / 3]]),
        ("weighted_mean", None, [[4, 5], [12, 13]]),
        ("weighted_mean", 0 * MASK, [[0, 0], [0, 0]]),
        ("mean+cls", MASK, [[1, 2, 0, 1], [11, 12, 8, 9]]),
        ("concat", MASK, [[2, 3, 2, 3, 1, 2], [14, 15, 14, 15, 11, 12]]),
    ],
)
def test_by_hand(kind, mask, expected):
    np.testing.assert_allclose(readout(tf.constant(X), mask, kind), expected, rtol=1e-6)
    assert width(kind, 2) == np.shape(expected)[1]
    half = readout(tf.constant(X, tf.bfloat16), mask, kind)
    assert half.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(half, tf.float32), tf.cast(tf.constant(expected, tf.bfloat16), tf.float32))


def test_none_takes_what_is_one_vector_already():
    np.testing.assert_array_equal(readout(X[:, 0], MASK, "none"), X[:, 0])
    with pytest.raises(InputError, match="readout must be one of first, .*, none, or .*. Received: 'median'"):
        readout(X, MASK, "median")
    for kind in ("mean+median", "mean+", "concat+mean", "none+mean"):
        with pytest.raises(InputError, match="or some with \\+ between them. Received"):
            readout(X, MASK, kind)


@pytest.mark.parametrize("kind", READOUTS[:3])
def test_the_last_layer_computes_what_is_read(kind):
    keras.utils.set_random_seed(1)
    small = {"hidden": 16, "attention.heads": 2, "feedforward.width": 24, "blocks.layers": 2}
    encoder = Encoder(Spec().derive(small | {"embeddings.vocabulary": 20, "initializer": 0.3}))
    inputs = {"token_ids": np.arange(8, dtype="int32").reshape(2, 4), "padding_mask": MASK}
    whole = encoder(inputs)["sequence"]
    some = encoder(inputs, queries=queries_of(kind, MASK))["sequence"]
    assert some.shape[1] == (4 if kind == "mean" else 1)
    np.testing.assert_allclose(readout(some, MASK, kind), readout(whole, MASK, kind), atol=1e-5)


def test_every_readout_becomes_a_tflite_program(tmp_path):
    """Of our own operators alone: the converter is not told that it may keep TensorFlow's."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model = tf.Module()
    model.program = tf.function(lambda x, mask: {kind: readout(x, mask, kind) for kind in (*READOUTS[:6], "max+first")})
    signatures = {}
    for name, size in (("fixed", 4), ("any", None)):
        shapes = tf.TensorSpec([1, size, 2], tf.float32, "x"), tf.TensorSpec([1, size], tf.int32, "mask")
        signatures[name] = model.program.get_concrete_function(*shapes)
    tf.saved_model.save(model, str(tmp_path), signatures=signatures)
    data = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path)).convert()
    wanted = [("first", [[0, 1]]), ("last", [[2, 3]]), ("mean", [[1, 2]]), ("max", [[2, 3]])]
    wanted += [
        ("mean_sqrt_len", [[2**0.5, 2 * 2**0.5]]),
        ("weighted_mean", [[4 / 3, 7 / 3]]),
        ("max+first", [[2, 3, 0, 1]]),
    ]
    for name in signatures:
        found = interpreter.Interpreter(model_content=data).get_signature_runner(name)(x=X[:1], mask=MASK[:1])
        for kind, expected in wanted:
            np.testing.assert_allclose(found[kind], expected, atol=1e-6)
