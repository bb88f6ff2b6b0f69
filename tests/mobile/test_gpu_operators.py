"""Flatbuffers by hand: look-ups and norms in the operators that a GPU's accelerator takes, with the same numbers."""

import numpy as np
import pytest

from kerasbert.mobile.tflite import repack

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
TABLE = np.arange(12, dtype="float32").reshape(4, 3)


def file(operation: str, tensors: list[tuple], inputs: list[int], options=None) -> bytes:
    """One operator, from tensor 0 to the last one: (name, shape, signature or None, constant or type)."""
    s = repack.schema()
    model, graph, entry = s.ModelT(), s.SubGraphT(), s.SignatureDefT()
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [], [graph], [s.BufferT()]
    kinds = {"float32": s.TensorType.FLOAT32, "int32": s.TensorType.INT32, "int8": s.TensorType.INT8}
    graph.tensors = []
    for name, shape, signature, value in tensors:
        made = s.TensorT()
        made.name, made.shape, made.buffer, made.type = (
            name.encode(),
            np.array(shape, "int32"),
            0,
            kinds[str(value.dtype)],
        )
        made.shapeSignature = None if signature is None else np.array(signature, "int32")
        if value.size:
            made.buffer = len(model.buffers)
            model.buffers.append(s.BufferT())
            model.buffers[-1].data = np.frombuffer(value.tobytes(), np.uint8)
        graph.tensors.append(made)
    last = len(tensors) - 1
    graph.operators = [repack.new_operator(model, operation, inputs, [last], options)]
    graph.inputs, graph.outputs = np.array([0], "int32"), np.array([last], "int32")
    entry.signatureKey, entry.subgraphIndex = b"answer", 0
    entry.inputs, entry.outputs = [s.TensorMapT()], [s.TensorMapT()]
    entry.inputs[0].name, entry.outputs[0].name = b"x", b"y"
    entry.inputs[0].tensorIndex, entry.outputs[0].tensorIndex = 0, last
    model.signatureDefs = [entry]
    return repack.slim(repack.write(model))


def answer(data: bytes, x: np.ndarray) -> np.ndarray:
    return interpreter.Interpreter(model_content=data).get_signature_runner("answer")(x=x)["y"]


def look_up(shape: list[int], signature: list[int] | None = None, table: np.ndarray = TABLE) -> bytes:
    ids, rows = np.zeros(0, "int32"), np.zeros(0, table.dtype)
    width = list(table.shape[1:])
    after = None if signature is None else [*signature, *width]
    tensors = [("x", shape, signature, ids), ("table", table.shape, None, table), ("y", [*shape, *width], after, rows)]
    return file("GATHER", tensors, [1, 0], repack.schema().GatherOptionsT())


@pytest.mark.parametrize("shape", [[1, 2], [2, 1], [2, 3], [1, 2, 2]])
@pytest.mark.parametrize("table", [TABLE, TABLE.astype("int8"), np.arange(4, dtype="float32")])
def test_rows_are_looked_up_on_one_axis(shape, table):
    data = look_up(shape, table=table)
    assert repack.operators(data) == {"GATHER": 1, "RESHAPE": 2}
    x = (np.arange(np.prod(shape)).reshape(shape) % 4)[..., ::-1].astype("int32")
    np.testing.assert_array_equal(answer(data, x), table[x])
    assert repack.slim(data) == data  # nothing is left to do


def test_ids_on_one_axis_stay():
    assert repack.operators(look_up([3])) == {"GATHER": 1}


def test_ids_of_any_length():
    data = look_up([1, 1], [1, -1])
    assert repack.operators(data) == {"GATHER": 1, "RESHAPE": 2}
    for length in (1, 4, 2):
        x = np.arange(length, dtype="int32")[None]
        np.testing.assert_array_equal(answer(data, x), TABLE[x])
    two = look_up([1, 1], [-1, -1])  # RESHAPE finds one size, not both
    assert repack.operators(two) == {"GATHER": 1}
    np.testing.assert_array_equal(answer(two, np.array([[3, 0], [1, 1]], "int32")), TABLE[[[3, 0], [1, 1]]])


def test_a_vector_is_divided_by_its_norm():
    x = np.array([[3, 4], [0, 0], [-5, 12]], "float32")
    floats = np.zeros(0, "float32")
    options = repack.schema().L2NormOptionsT()
    data = file("L2_NORMALIZATION", [("x", x.shape, None, floats), ("y", x.shape, None, floats)], [0], options)
    assert repack.operators(data) == {"DIV": 1, "MAXIMUM": 1, "MUL": 1, "SQRT": 1, "SUM": 1}
    np.testing.assert_allclose(answer(data, x), [[0.6, 0.8], [0, 0], [-5 / 13, 12 / 13]], rtol=1e-6)
