"""The names of a file's tensors, and the tools of others that read them."""

import os

import numpy as np
import pytest

from kerasbert.mobile import tensor_names
from kerasbert.mobile.tflite import repack


def test_every_tensor_has_a_name_of_its_own(float_file):
    """The lengths are derived from two, and were named as those are."""
    model = repack.read(float_file[0].read_bytes())
    names = [tensor.name.decode() for graph in model.subgraphs for tensor in graph.tensors]
    assert len(set(names)) == len(names) > 3 * 50
    for entry in model.signatureDefs:
        graph, key = model.subgraphs[entry.subgraphIndex], entry.signatureKey.decode()
        told = {tensor.name.decode() for tensor in graph.tensors}
        assert all(name.startswith(f"{key}/") for name in told)
        parts = ("token_ids", "segment_ids", "padding_mask", "probabilities")
        assert {f"{key}/{part}" for part in parts} <= told
        assert any(name.startswith(f"{key}/encoder_1/block_1_1/attention_1/query_1/MatMul") for name in told)


def test_the_first_operation_names_a_tensor_that_many_were_fused_into():
    s = repack.schema()
    model, graph = s.ModelT(), s.SubGraphT()
    graph.inputs, graph.outputs = [0], [3]
    told = [b"ids", b";m/a/b/MatMul1;m/a/b/add", b"m/a/b/MatMul1;m/c", b"m/c:0", b"arith.constant7", None]
    graph.tensors = [s.TensorT() for _ in told]
    for tensor, name in zip(graph.tensors, told):
        tensor.name = name
    model.subgraphs = [graph]
    tensor_names.name(model)
    assert [tensor.name.decode() for tensor in graph.tensors] == [
        *("ids", "subgraph_0/a/b/MatMul1", "subgraph_0/a/b/MatMul1_1"),
        *("m/c:0", "subgraph_0/constant7", "subgraph_0/tensor"),
    ]


@pytest.fixture(scope="module")
def batch(float_file):
    """What the shortest signature reads, and what it gives."""
    from kerasbert.mobile.runtime import load

    used, ids = 6, np.array([2, 7, 9, 12, 5, 3, 0, 0], np.int32)
    wanted = load(float_file[0], cache=False).run(ids[:used].tolist(), [0] * used)
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": (np.arange(8) < used).astype(np.int32)}, wanted


@pytest.mark.full  # CI does not install it
def test_openvino_reads_a_file_and_answers_the_same(float_file, batch):
    openvino = pytest.importorskip("openvino")
    values, wanted = batch
    model = openvino.Core().read_model(os.fspath(float_file[0]))
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled({f"length_8/{name}": array[None] for name, array in values.items()})
    np.testing.assert_allclose(next(iter(found.values()))[0], wanted, atol=1e-5)


@pytest.mark.full  # CI does not install it
def test_ai_edge_quantizer_rewrites_a_file(float_file, batch):
    """Its int8 of our float file beside the float file."""
    quantizer = pytest.importorskip("ai_edge_quantizer")
    from ai_edge_litert.interpreter import Interpreter

    values, wanted = batch
    asked = quantizer.quantizer.Quantizer(os.fspath(float_file[0]), quantizer.recipe.dynamic_wi8_afp32())
    rounded = bytes(asked.quantize().quantized_model)
    reader = Interpreter(model_content=rounded).get_signature_runner("length_8")
    found = next(iter(reader(**{name: value[None] for name, value in values.items()}).values()))[0]
    np.testing.assert_allclose(found, wanted, atol=0.1)
    types = [tensor.type for graph in repack.read(rounded).subgraphs for tensor in graph.tensors]
    assert types.count(repack.schema().TensorType.INT8) >= 3 * 6
