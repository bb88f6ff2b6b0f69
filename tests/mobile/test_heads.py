"""Attention by groups of heads: the same numbers as all heads at once, and only where the scores are large."""

import functools
import tempfile

import numpy as np
import pytest

from kerasbert.mobile.tflite import convert, repack
from kerasbert.mobile.tflite.attention import heads

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
tf = pytest.importorskip("tensorflow")
LONG, SHORT = 24, 8


@functools.cache
def attention(bias_heads: int = 1, scores: bool = False, count: int = 6, constant: bool = False) -> bytes:
    """A file of two lengths: softmax(q k / 2 + bias) v of [1, count, S, 4], and the scores too where asked for."""

    def signature(length: int):
        spec = [tf.TensorSpec((1, count, length, 4)) for _ in range(3)]

        @tf.function(input_signature=[*spec, tf.TensorSpec((1, bias_heads, 1, length))])
        def answer(q, k, v, bias):
            product = tf.matmul(q, k, transpose_b=True) * 0.5 + bias
            if constant:  # as relative positions of a fixed length are
                product += tf.reshape(tf.range(count * length**2, dtype="float32") % 7, (1, count, length, length))
            return {"y": tf.matmul(tf.nn.softmax(product), v)} | ({"scores": product} if scores else {})

        return answer.get_concrete_function()

    with tempfile.TemporaryDirectory() as directory:
        found = {f"length_{length}": signature(length) for length in (SHORT, LONG)}
        tf.saved_model.save(tf.Module(), directory, found)
        return repack.slim(convert.converted(directory, list(found), "float32", lambda: ""))


def operators(data: bytes) -> list[dict[str, int]]:
    """Counts of the two graphs, the shorter first."""
    model, counts = repack.read(data), []
    names = {value: name for name, value in vars(repack.schema().BuiltinOperator).items() if isinstance(value, int)}
    for graph in model.subgraphs:
        found = [names[repack.builtin(model, operator)] for operator in graph.operators]
        counts.append({name: found.count(name) for name in found})
    return sorted(counts, key=lambda each: sum(each.values()))


def answers(data: bytes, length: int, bias_heads: int = 1, count: int = 6) -> dict[str, np.ndarray]:
    draw, network = np.random.default_rng(0), interpreter.Interpreter(model_content=data)
    runners = [network.get_signature_runner(key) for key in network.get_signature_list()]
    run = next(each for each in runners if each.get_input_details()["q"]["shape"][2] == length)
    q, k, v = (draw.normal(size=(1, count, length, 4)).astype("float32") for _ in range(3))
    return run(q=q, k=k, v=v, bias=draw.normal(size=(1, bias_heads, 1, length)).astype("float32"))


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(heads, "GROUP", 4 * LONG * LONG)


@pytest.mark.parametrize(("bias_heads", "constant"), [(1, False), (6, False), (1, True)])
def test_numbers_are_those_of_all_heads_at_once(bias_heads, constant):
    data = attention(bias_heads, constant=constant)
    made = heads.apart(data)
    short, long = operators(made)
    assert short == operators(data)[0]
    assert (long["BATCH_MATMUL"], long["SOFTMAX"]) == (12, 6)
    assert long["SPLIT"] == 4 * (3 + (bias_heads == 6) + constant)  # in 3, each in 2
    assert long["CONCATENATION"] == 3  # of 3, of 3, of both
    for length in (SHORT, LONG):
        before, after = (answers(each, length, bias_heads) for each in (data, made))
        np.testing.assert_array_equal(before["y"], after["y"])
    assert heads.apart(made) == made


def test_heads_that_fit_stay_together(monkeypatch):
    monkeypatch.setattr(heads, "GROUP", 4 * LONG * LONG * 3)
    data = attention()
    made = heads.apart(data)
    assert operators(made)[1]["SOFTMAX"] == 2
    np.testing.assert_array_equal(*(answers(each, LONG)["y"] for each in (data, made)))


def test_names_stay_unique():
    model = repack.read(heads.apart(attention()))
    names = [tensor.name for graph in model.subgraphs for tensor in graph.tensors]
    assert len(set(names) - {None, b""}) == len(names)


@pytest.mark.parametrize("count", [1, 5])
def test_heads_that_cannot_be_parted_stay(count):
    data = attention(count=count)
    assert heads.apart(data) == data


def test_scores_that_are_answered_stay_whole():
    data = attention(scores=True)
    assert heads.apart(data) == data
