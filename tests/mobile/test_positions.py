"""Flatbuffers by hand: rows of positions that are added, in int8; others that are multiplied with, left alone."""

import numpy as np
import pytest

from kerasbert.mobile.tflite import repack
from kerasbert.mobile.tflite.editor import by_row
from kerasbert.mobile.tflite.tables import positions

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
SIZES, WIDTH = (34, 40), 32
TABLE = np.random.default_rng(0).normal(size=(SIZES[-1], WIDTH)).astype("float32") * np.linspace(0.1, 9, 40)[:, None]
TABLE = TABLE.astype("float32")


def tensor(name: str, shape: list[int], buffer: int):
    made = repack.schema().TensorT()
    made.name, made.shape, made.buffer = name.encode(), np.array(shape, "int32"), buffer
    made.type = repack.schema().TensorType.FLOAT32
    return made


def file(operation: str) -> bytes:
    """A signature for each of SIZES: x [1, S, WIDTH] and the first S rows of TABLE, a constant each, -> y."""
    s = repack.schema()
    model = s.ModelT()
    model.version, model.operatorCodes, model.subgraphs, model.signatureDefs = 3, [], [], []
    model.buffers = [s.BufferT() for _ in range(1 + len(SIZES))]
    for number, size in enumerate(SIZES):
        model.buffers[number + 1].data = np.frombuffer(TABLE[:size].tobytes(), np.uint8)
        graph, operator, entry = s.SubGraphT(), s.OperatorT(), s.SignatureDefT()
        shape = [1, size, WIDTH]
        graph.tensors = [tensor("x", shape, 0), tensor("rows", shape, number + 1), tensor("y", shape, 0)]
        operator.opcodeIndex = repack.operator_code(model, getattr(s.BuiltinOperator, operation))
        operator.inputs, operator.outputs = np.array([0, 1], "int32"), np.array([2], "int32")
        operator.builtinOptions = getattr(s, f"{operation.title()}OptionsT")()
        operator.builtinOptionsType = getattr(s.BuiltinOptions, f"{operation.title()}Options")
        graph.operators, graph.inputs, graph.outputs = [operator], np.array([0], "int32"), np.array([2], "int32")
        entry.signatureKey, entry.subgraphIndex = f"length_{size}".encode(), number
        entry.inputs, entry.outputs = [s.TensorMapT()], [s.TensorMapT()]
        entry.inputs[0].name, entry.inputs[0].tensorIndex = b"x", 0
        entry.outputs[0].name, entry.outputs[0].tensorIndex = b"y", 2
        model.subgraphs.append(graph)
        model.signatureDefs.append(entry)
    return repack.slim(repack.write(model))


def test_rows_that_are_added_are_int8_with_a_scale_each():
    """Off by half a scale of their row at most, at both lengths; a quarter of the bytes, and the scales."""
    plain = file("ADD")
    small = positions.lowered(plain)
    whole, scale = by_row(TABLE)
    wanted = whole * scale[:, None]
    assert (np.abs(wanted - TABLE).max(axis=1) <= scale * 0.5001).all()
    for data, table, near in ((plain, TABLE, 0), (small, wanted, 1e-6)):
        runner = interpreter.Interpreter(model_content=data)
        for size in SIZES:
            x = np.random.default_rng(size).normal(size=(1, size, WIDTH)).astype("float32")
            found = runner.get_signature_runner(f"length_{size}")(x=x)["y"]
            np.testing.assert_allclose(found[0], x[0] + table[:size], atol=near)
    lengths = [len(buffer.data) for buffer in repack.read(small).buffers if buffer.data is not None]
    assert TABLE.size in lengths
    assert TABLE.nbytes not in lengths
    names = [tensor.name for graph in repack.read(small).subgraphs for tensor in graph.tensors]
    assert all(names)
    assert len(set(names)) == len(names) > len(repack.read(plain).subgraphs[0].tensors)
    assert positions.lowered(small) is small  # nothing is left to do


def test_rows_that_are_multiplied_with_stay():
    """Rotations of RoPE."""
    plain = file("MUL")
    assert "SLICE" in repack.operators(plain)
    assert positions.lowered(plain) is plain
