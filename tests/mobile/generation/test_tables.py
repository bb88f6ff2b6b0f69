"""Flatbuffers by hand: a table that is looked up and multiplied with, the same with scaled columns, half precision."""

import numpy as np
import pytest

from kerasbert.mobile.generation import tables
from kerasbert.mobile.quantize import forms
from kerasbert.mobile.tflite import repack, weights

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
TABLE = np.random.default_rng(0).normal(size=(40, 32)).astype("float32")
SCALE = np.linspace(0.5, 2, 32).astype("float32")
IDS = np.array([3, 39], "int32")


def tied(table: np.ndarray, output: np.ndarray) -> bytes:
    """A .tflite of one signature: ids [2] -> rows of a table times the rows of another, [2, 40]."""
    s = repack.schema()
    model, graph = s.ModelT(), s.SubGraphT()
    model.version, model.operatorCodes, model.subgraphs = 3, [], [graph]
    model.buffers = [s.BufferT() for _ in range(3)]
    for buffer, values in zip(model.buffers[1:], (table, output)):
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    graph.tensors, kinds = [], s.TensorType
    shared = table is output
    for name, shape, kind, buffer in (
        ("ids", [2], kinds.INT32, 0),
        ("table", [40, 32], kinds.FLOAT32, 1),
        ("rows", [2, 32], kinds.FLOAT32, 0),
        ("output", [40, 32], kinds.FLOAT32, 0 if shared else 2),
        ("y", [2, 40], kinds.FLOAT32, 0),
    ):
        tensor = s.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), np.array(shape, "int32"), kind, buffer
        graph.tensors.append(tensor)
    product = s.FullyConnectedOptionsT()
    graph.operators = []
    for name, inputs, outputs, options in (
        ("GATHER", [1, 0], [2], s.GatherOptionsT()),
        ("FULLY_CONNECTED", [2, 1 if shared else 3, -1], [4], product),
    ):
        graph.operators.append(repack.new_operator(model, name, inputs, outputs, options))
    graph.inputs, graph.outputs = np.array([0], "int32"), np.array([4], "int32")
    entry = s.SignatureDefT()
    entry.signatureKey, entry.subgraphIndex = b"answer", 0
    entry.inputs, entry.outputs = [s.TensorMapT()], [s.TensorMapT()]
    entry.inputs[0].name, entry.inputs[0].tensorIndex = b"ids", 0
    entry.outputs[0].name, entry.outputs[0].tensorIndex = b"y", 4
    model.signatureDefs = [entry]
    return repack.write(model)


def run(data: bytes) -> np.ndarray:
    return interpreter.Interpreter(model_content=data).get_signature_runner("answer")(ids=IDS)["y"]


def sizes(data: bytes) -> list[int]:
    """Bytes of the constants, the largest first."""
    found = repack.read(data).buffers
    return sorted((len(each.data) for each in found if each.data is not None), reverse=True)


def test_scaled_columns_become_a_product():
    data = tied(TABLE, TABLE * SCALE)
    assert sizes(data)[:2] == [4 * TABLE.size] * 2
    made = repack.slim(repack.write(tables.shared(repack.read(data))))
    assert sizes(made)[:2] == [4 * TABLE.size, 4 * 32]
    np.testing.assert_allclose(run(made), TABLE[IDS] @ (TABLE * SCALE).T, rtol=1e-5, atol=1e-5)
    assert repack.operators(made) == {"FULLY_CONNECTED": 1, "GATHER": 1, "MUL": 1}


def test_other_matrices_are_left_alone():
    other = TABLE * SCALE
    other[5, 7] *= 1.001
    data = tied(TABLE, other)
    assert repack.write(tables.shared(repack.read(data))) == repack.write(repack.read(data))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_tied_table_is_stored_once_in_int8(scaled):
    """Look-ups and products have the same rows and the same scale a row."""
    model = tables.shared(repack.read(tied(TABLE, TABLE * SCALE if scaled else TABLE)))
    found = weights.find(model)
    assert [(each.kind, each.size) for each in found] == [("tied", TABLE.size)]
    assert forms.plan("int8_embeddings", found) == []  # its products stay float
    made = repack.slim(repack.write(weights.lower(model, forms.plan("dynamic_int8", found))))
    assert sizes(made)[:2] == [TABLE.size, 4 * 40]
    step = np.abs(TABLE).max(axis=1, keepdims=True) / 127
    rounded = np.rint(TABLE / step) * step
    expected = (rounded[IDS] * (SCALE if scaled else 1)) @ rounded.T
    error = np.abs(run(made) - expected).max()  # of the activations, 8 bits a row
    assert 0 < error < 0.02 * np.abs(expected).max()


def test_half_precision_keeps_one_table():
    made = repack.slim(repack.write(tables.half(repack.read(tied(TABLE, TABLE)))))
    assert sizes(made)[0] == 2 * TABLE.size
    assert repack.operators(made) == {"DEQUANTIZE": 2, "BITCAST": 1, "FULLY_CONNECTED": 1, "GATHER": 1}
    rounded = TABLE.astype("float16").astype("float32")
    np.testing.assert_allclose(run(made), rounded[IDS] @ rounded.T, rtol=1e-4, atol=1e-4)
