"""Conversion: derived buckets are converted buckets, nothing repeats, Flex is refused."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import TEXT

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def program():
    from keras import ops

    from kerasbert.tasks.load import build

    changes = {"hidden": 16, "attention.heads": 2, "feedforward.width": 64, "embeddings.positions": 96}
    model = build("bert/tiny", **changes, **{"embeddings.vocabulary": 50})
    return model, lambda batch: {"p": ops.softmax(model(batch, queries="first")["pooled"])}


def outputs(data, length, seed=0, name=None):
    from ai_edge_litert.interpreter import Interpreter

    generator = np.random.default_rng(seed)
    inputs = {
        "token_ids": generator.integers(5, 50, (1, length), dtype="int32"),
        "padding_mask": (np.arange(length) < length - 2).astype("int32")[None],
        "segment_ids": generator.integers(0, 2, (1, length), dtype="int32"),
    }
    return Interpreter(model_content=data).get_signature_runner(name or f"length_{length}")(**inputs)["p"], inputs


@pytest.mark.slow
def test_derived_buckets_equal_converted_ones(program):
    from kerasbert.mobile.tflite import buckets, convert, repack

    model, function = program
    signatures = {length: f"length_{length}" for length in (7, 24, 80, 96)}
    two = convert._file(model, function, {24: "length_24", 96: "length_96"}, TEXT, "dynamic_int8")
    derived = repack.slim(buckets.add(two, signatures))
    converted = repack.slim(convert._file(model, function, signatures, TEXT, "dynamic_int8"))
    assert repack.operators(derived) == repack.operators(converted)
    assert len(derived) < len(repack.slim(two)) + 2 * 30_000
    for length in signatures:
        np.testing.assert_array_equal(outputs(derived, length)[0], outputs(converted, length)[0])


def test_float_file_equals_keras(program):
    from kerasbert.mobile.tflite import convert

    model, function = program
    data = convert.convert(model, function, {9: "length_9", 20: "length_20", 70: "length_70"}, quantize="float32")
    for length in (9, 20, 70):
        received, inputs = outputs(data, length)
        np.testing.assert_allclose(received, function(inputs)["p"].numpy(), atol=1e-5)


@pytest.mark.slow
def test_any_length_equals_keras(program):
    from kerasbert.mobile.tflite import convert

    model, function = program
    data = convert.convert(model, function, {None: "any_length"}, quantize="float32")
    for length in (3, 8, 9, 31, 95, 96, 3):
        received, inputs = outputs(data, length, name="any_length")
        np.testing.assert_allclose(received, function(inputs)["p"].numpy(), atol=1e-5)


@pytest.mark.slow
def test_graphs_that_differ_in_more_than_length_are_not_derived(program):
    from keras import ops

    from kerasbert.mobile.tflite import buckets, convert

    model, function = program

    def odd(batch):
        p = function(batch)["p"]
        return {"p": ops.exp(p) if batch["token_ids"].shape[1] > 30 else p}

    signatures = {length: f"length_{length}" for length in (10, 24, 40)}
    two = convert._file(model, odd, {24: "length_24", 40: "length_40"}, TEXT, "float32")
    assert buckets.add(two, signatures) is None


def test_lines_are_whole_numbers_only():
    from kerasbert.mobile.tflite.buckets import _line

    a, b = np.array([1, 24, 48], "int32"), np.array([1, 32, 64], "int32")
    np.testing.assert_array_equal(_line(a, b, (-16, 8)), [1, 8, 16])
    assert _line(np.array([3]), np.array([4]), (1, 8)) is None


def test_equal_vectors_are_written_once():
    from kerasbert.mobile.tflite.repack import SharingBuilder

    builder = SharingBuilder(64)
    scales = np.arange(5, dtype="float32")
    assert builder.CreateNumpyVector(scales) == builder.CreateNumpyVector(scales.copy())
    assert builder.CreateNumpyVector(scales) != builder.CreateNumpyVector(scales.view("int32"))
    assert builder.CreateString(b"x") == builder.CreateString(b"x")


def test_an_operator_without_tflite_form_names_its_layer(program):
    import keras
    import tensorflow as tf

    from kerasbert.mobile.tflite import convert

    class Determinant(keras.layers.Layer):
        def call(self, x):
            return x * tf.linalg.det(tf.eye(3) * tf.reduce_sum(x))

    model, function = program
    layer = Determinant(name="volume")
    with pytest.raises(InputError, match=r"no TFLite operator for MatrixDeterminant, asked for by .*volume") as caught:
        convert.convert(model, lambda batch: {"p": layer(function(batch)["p"])}, {8: "length_8"})
    assert "\n" not in str(caught.value)


def test_unknown_quantization_names_the_nearest():
    from kerasbert.mobile.tflite import convert

    assert convert.quantization("none") == "float32"
    with pytest.raises(InputError, match=r"no quantization 'dynamicint8'\. Nearest: 'dynamic_int8'"):
        convert.quantization("dynamicint8")


def test_each_length_is_traced_once(program, tmp_path):
    import tensorflow as tf

    from kerasbert.mobile.tflite import convert

    model, function = program
    traced = []

    def counted(batch):
        traced.append(batch["token_ids"].shape[1])
        return function(batch)

    specs = {n: {each.name: (each.shape(n), each.dtype) for each in TEXT} for n in (7, 24)}
    convert.save(model, {f"length_{n}": (counted, spec) for n, spec in specs.items()}, str(tmp_path))
    assert traced == [7, 24]
    served = tf.saved_model.load(str(tmp_path)).signatures
    batch = {each.name: np.ones((1, 24), each.dtype) for each in TEXT}
    received = served["length_24"](**{name: tf.constant(value) for name, value in batch.items()})["p"]
    assert np.abs(received.numpy() - function(batch)["p"].numpy()).max() < 1e-6
