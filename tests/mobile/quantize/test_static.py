"""static_int8 and full_int8: what is int8, that lengths share it, and every registered encoder."""

import contextlib
import io
import json

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import TEXT
from kerasbert.testing.battery import Subject
from tests import tiny
from tests.mobile.conftest import TEXTS
from tests.models.cover import families

pytest.importorskip("tensorflow")
MOVES = {"CAST", "QUANTIZE", "DEQUANTIZE"}


def results(model, graph):
    """(operator name, type of its result, tensor) of a subgraph."""
    from kerasbert.mobile.tflite import repack
    from kerasbert.mobile.tflite.weights import builtin

    s = repack.schema()
    names = {value: name for name, value in vars(s.BuiltinOperator).items() if isinstance(value, int)}
    types = {value: name for name, value in vars(s.TensorType).items() if isinstance(value, int)}
    for operator in graph.operators:
        tensor = graph.tensors[int(operator.outputs[0])]
        yield names[builtin(model, operator)], types[tensor.type], tensor


@pytest.fixture(scope="module")
def static_file(run, tmp_path_factory):
    """(path, report) of a static_int8 file with three buckets, of which one was derived; by the command."""
    from kerasbert.mobile.cli import main

    path = tmp_path_factory.mktemp("static") / "static.tflite"
    lines = path.with_name("lines.txt")
    lines.write_text("\n".join(TEXTS))
    arguments = f"compress {run} --quantize static_int8 --calibration {lines} --calibration-size 5 --out {path}"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*arguments.split(), *"--lengths 8,12,24 --min-agreement 0.8 --json".split()]) == 0
    return path, json.loads(printed.getvalue())


@pytest.mark.slow
def test_norms_are_float_and_the_rest_is_int8(static_file):
    from kerasbert.mobile.tflite import repack

    path, report = static_file
    model = repack.read(path.read_bytes())
    for graph in model.subgraphs:
        kinds = {}
        for name, kind, _ in results(model, graph):
            kinds.setdefault(name, set()).add(kind)
        assert kinds["BATCH_MATMUL"] == {"INT8"}
        assert {kinds[name].pop() for name in ("ADD", "MUL", "MEAN", "RSQRT")} == {"FLOAT32"}
        assert "INT8" in kinds["FULLY_CONNECTED"]
    assert {"ADD", "MUL", "MEAN", "RSQRT"} <= set(report["float_operators"])
    assert "BATCH_MATMUL" not in report["float_operators"]
    assert report["mean_difference"] < 0.05
    assert report["quantize"] == "static_int8"


@pytest.mark.slow
def test_lengths_share_weights_and_scales(static_file):
    """One scale for all lengths: what is constant is stored once, and a text means the same in every bucket."""
    from ai_edge_litert.interpreter import Interpreter

    from kerasbert.mobile.tflite import repack

    path, _ = static_file
    model = repack.read(path.read_bytes())
    scales = []
    for graph in model.subgraphs:
        found = [t.quantization.scale.tolist() for _, kind, t in results(model, graph) if kind == "INT8"]
        scales.append(found)
    assert scales[0] == scales[1] == scales[2]
    assert len(scales[0]) > 30
    interpreter = Interpreter(model_path=str(path))
    answers = []
    for length in (8, 12, 24):
        inputs = {name: np.zeros((1, length), "int32") for name in ("token_ids", "padding_mask", "segment_ids")}
        inputs["token_ids"][0, :5], inputs["padding_mask"][0, :5] = [2, 5, 11, 8, 3], 1
        answers.append(interpreter.get_signature_runner(f"length_{length}")(**inputs)["probabilities"])
    assert np.abs(answers[0] - answers[2]).max() < 0.02
    assert np.abs(answers[1] - answers[2]).max() < 0.02


def test_full_int8_computes_nothing_in_float(run, tmp_path):
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import repack

    rows = tmp_path / "rows.tsv"
    rows.write_text("text\n" + "\n".join(TEXTS[:5]) + "\n")
    settings = {"lengths": [24], "texts": TEXTS, "calibration": rows}
    report = compress(run, "full_int8", tmp_path / "x.tflite", min_agreement=0, **settings)
    assert report["float_operators"] == {}
    model = repack.read((tmp_path / "x.tflite").read_bytes())
    kinds = [(name, kind) for name, kind, _ in results(model, model.subgraphs[0]) if name not in MOVES]
    assert len(kinds) > 60
    assert {kind for name, kind in kinds if kind not in ("INT32", "BOOL")} == {"INT8"}
    if report["agreement"] < 0.95:
        with pytest.raises(InputError, match="the full_int8 file agrees .* expected at least 0.95"):
            compress(run, "full_int8", tmp_path / "y.tflite", **settings)


@pytest.mark.slow
def test_a_matrix_that_reads_uneven_values_quantizes_them_per_token(run):
    """Its input is float; all other matrices are as they were."""
    from kerasbert.mobile.pipeline import conversion
    from kerasbert.mobile.quantize import forms, ranges, static
    from kerasbert.mobile.tflite import convert, repack, weights
    from kerasbert.tasks.load import load

    model = load(run)
    bundle = conversion.about(model, {24: "length_24"})
    data = convert.named(model, conversion.program(model, bundle), {24: "length_24"}, TEXT, "float32")
    seen = ranges.observe(data, forms.feeds(model.tokenizer, TEXTS, bundle))
    schema = repack.schema()

    def read_by_products(file):
        product, operators = schema.BuiltinOperator.FULLY_CONNECTED, file.subgraphs[0].operators
        return [weights.inputs_of(op)[0] for op in operators if weights.builtin(file, op) == product]

    before = [seen[0, index].fineness for index in read_by_products(repack.read(data))]
    assert min(before) > 2.0

    def kinds(read):
        made = repack.read(static.static(data, seen, fineness=0.0, read=read))
        tensors = made.subgraphs[0].tensors
        return [tensors[index].type == schema.TensorType.FLOAT32 for index in read_by_products(made)]

    assert not any(kinds(read=0.0))
    between = sorted(before)[len(before) // 2]
    assert kinds(read=between) == [value < between for value in before]


@pytest.mark.slow
def test_any_length_and_mediapipe(run, tmp_path):
    from kerasbert.mobile import compress

    settings = {"texts": TEXTS, "calibration": TEXTS, "min_agreement": 0.8}
    report = compress(run, "static_int8", tmp_path / "any.tflite", lengths="any", length=24, **settings)
    assert report["any_length"] is True
    compress(run, "static_int8", tmp_path / "phone.tflite", target="mediapipe", length=24, **settings)
    compress(run, "static_int8", tmp_path / "again.tflite", target="mediapipe", length=24, **settings)
    assert (tmp_path / "phone.tflite").read_bytes() == (tmp_path / "again.tflite").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where records would be."""
    return tmp_path_factory.mktemp("static")


@pytest.mark.parametrize("name", families("static"))
def test_every_encoder(name, folder):
    """ALBERT's shared layers and MobileBERT's NoNorm are among them: static_int8 keeps the vectors, full_int8 converts."""
    from ai_edge_litert.interpreter import Interpreter

    from kerasbert.layers.naming import names
    from kerasbert.mobile.pipeline import conversion
    from kerasbert.mobile.quantize import forms, ranges, static
    from kerasbert.mobile.tflite import convert, repack

    encoder = Subject(name, folder).encoder()
    bundle = conversion.about(encoder, {12: "length_12"})
    data = convert.named(
        encoder, conversion.program(encoder, bundle), {12: "length_12"}, conversion.inputs_of(bundle), "float32"
    )
    texts = tiny.sentences(20, 0)
    batches = list(forms.feeds(encoder.tokenizer, texts, bundle))
    seen = ranges.observe(data, batches)
    cosines = {}
    for kind, made in (("static", static.static(data, seen)), ("full", static.full(data, seen))):
        before, after = (
            Interpreter(model_content=blob).get_signature_runner("length_12") for blob in (data, repack.slim(made))
        )
        pairs = [(before(**batch)["vector"][0], after(**batch)["vector"][0]) for _, batch in batches]
        cosines[kind] = np.mean([x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in pairs])
        assert (static.floats(repack.read(made)) == {}) == (kind == "full")
    assert cosines["static"] >= 0.99, cosines
    assert cosines["full"] > 0.5, cosines
    rows, _ = forms.quantized(data, "dynamic_int8", list(names(encoder)))
    assert len(rows) <= len(repack.slim(data))
