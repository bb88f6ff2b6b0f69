"""Forms of weights: rows of a table and columns of a matrix, by hand and against numpy; names; every encoder."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import TEXT
from tests.mobile.conftest import TEXTS

pytest.importorskip("tensorflow")


def test_by_row_by_hand():
    from kerasbert.mobile.tflite.editor import by_row

    data, scale = by_row(np.array([[1.27, -0.5, 0.014], [0, 0, 0], [-254, 2, 1.1]], "float32"))
    np.testing.assert_allclose(scale, [0.01, 1, 2], rtol=1e-6)
    np.testing.assert_array_equal(data, [[127, -50, 1], [0, 0, 0], [-127, 1, 1]])
    assert data.dtype == np.int8


def test_grid_holds_zero_and_both_ends():
    from kerasbert.mobile.tflite.weights import grid

    assert grid(-1.28, 1.27) == (pytest.approx(0.01), 0)
    assert grid(0.5, 2.55) == (pytest.approx(0.01), -128)  # zero is in every range
    assert grid(-2.55, -1) == (pytest.approx(0.01), 127)
    assert grid(0, 0) == (1.0, -128)


def test_fineness_of_a_flat_and_of_an_uneven_tensor():
    from kerasbert.mobile.quantize.ranges import Range

    flat, uneven = Range(), Range()
    flat.see(np.array([0.0, 255.0]))
    assert flat.fineness == pytest.approx(127.5**2 * 12)
    uneven.see(np.array([2550.0, *[1.0] * 2549]))
    assert uneven.fineness == pytest.approx((5099 / 2550 / 10) ** 2 * 12)


@pytest.fixture(scope="module")
def tables():
    """(file with an int8 table, the same in float, the table) of a look-up alone."""
    from kerasbert.layers.embeddings import Table
    from kerasbert.mobile.quantize import forms
    from kerasbert.mobile.tflite import convert, repack

    layer = Table(300, 8, name="tokens")
    layer.build()
    generator = np.random.default_rng(0)
    values = generator.normal(0, 1, (300, 8)) * 10.0 ** generator.uniform(-3, 3, (300, 1))
    layer.table.assign(values)
    signatures = {4: "length_4", 6: "length_6", 9: "length_9"}
    data = convert.named(layer, lambda batch: {"x": layer(batch["token_ids"])}, signatures, TEXT[:1], "float32")
    made, record = forms.quantized(data, "int8_embeddings", ["tokens/table"])
    return made, repack.slim(data), layer.table.numpy(), record


def test_int8_table_row_by_row(tables):
    """Each row is off by at most half of its own step; with one scale a table, small rows would be zeros."""
    from ai_edge_litert.interpreter import Interpreter

    made, data, table, record = tables
    assert len(made) < len(data) - 300 * 8 * 3 + 300 * 4 + 3000
    assert record == {}
    runner = Interpreter(model_content=made).get_signature_runner("length_6")
    step = np.abs(table).max(axis=1, keepdims=True) / 127
    for start in range(0, 300, 6):
        ids = np.arange(start, start + 6, dtype="int32")[None]
        found = runner(token_ids=ids)["x"][0]
        assert (np.abs(found - table[ids[0]]) <= step[ids[0]] * 0.5001).all()
        assert (np.abs(found).max(axis=1) > 0).all()


@pytest.mark.slow
def test_only_the_tables_are_int8(run, tmp_path, monkeypatch):
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import repack, weights

    monkeypatch.setattr(weights, "SMALLEST", 1)  # all are tiny here
    report = compress(run, "int8_embeddings", tmp_path / "x.tflite", lengths=[24], texts=TEXTS)
    s = repack.schema()
    model = repack.read((tmp_path / "x.tflite").read_bytes())
    for graph in model.subgraphs:
        small = [tensor for tensor in graph.tensors if tensor.type == s.TensorType.INT8]
        tables = [tensor for tensor in small if model.buffers[tensor.buffer].data is not None]
        assert sorted(int(tensor.shape[0]) for tensor in tables) == [2, 26]  # segments and pieces
        for operator in graph.operators:
            if weights.builtin(model, operator) == s.BuiltinOperator.FULLY_CONNECTED:
                kinds = {graph.tensors[index].type for index in weights.inputs_of(operator) if index >= 0}
                assert kinds == {s.TensorType.FLOAT32}
    assert 0 < report["max_difference"] < 0.05


@pytest.mark.slow
def test_a_file_of_any_length_has_int8_tables_too(run, tmp_path, monkeypatch):
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import repack, weights

    monkeypatch.setattr(weights, "SMALLEST", 1)
    path = tmp_path / "x.tflite"
    report = compress(run, "int8_embeddings", path, lengths="any", length=24, texts=TEXTS)
    assert repack.operators(path.read_bytes())["GATHER"] == 4  # two tables, each with its scales
    assert 0 < report["max_difference"] < 0.05


@pytest.mark.slow
def test_weights_have_their_layers_names(run, monkeypatch):
    from kerasbert.layers.naming import names
    from kerasbert.mobile.pipeline import compression, conversion
    from kerasbert.mobile.tflite import convert, repack, weights

    monkeypatch.setattr(weights, "SMALLEST", 1)
    model, _ = compression.opened(run)
    signatures = {8: "length_8", 12: "length_12", 24: "length_24"}
    bundle = conversion.about(model, signatures)
    data = convert.named(model, conversion.program(model, bundle), signatures, TEXT, "float32")
    found = weights.find(repack.read(data), names(model))
    places = ("attention/key", "attention/output", "attention/query", "attention/value")
    places += ("feedforward/inner", "feedforward/outer")
    expected = {f"block_{layer}/{place}" for layer in range(2) for place in places}
    assert {weight.name for weight in found} == {
        *expected,
        "embeddings/tokens",
        "embeddings/segments",
        "pooler",
        "heads/classifier",
    }
    assert all(len(weight.users) == 3 for weight in found)
    for weight in found:
        kernel = names(model)[weight.name + ("/kernel" if weight.kind == "matrix" else "/table")].numpy()
        assert weight.size == kernel.size


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"quantize": "static_int8"}, "static_int8 needs calibration: real texts"),
        ({"quantize": "full_int8", "calibration": []}, "calibration holds no texts"),
        ({"quantize": "static_int8", "calibration": TEXTS, "calibration_size": 7}, "holds 6 texts, 7 were asked for"),
        (
            {"quantize": "static_int8", "calibration": TEXTS, "calibration_size": 0},
            "calibration_size must be a whole number of at least 1",
        ),
        ({"quantize": "static_int8", "calibration": [("a", "b")]}, r"holds \('a', 'b'\), expected texts, not pairs"),
        ({"quantize": "static_int8", "calibration": "no such file"}, "no calibration file no such file"),
        ({"calibration": TEXTS}, "calibration is given with dynamic_int8, expected with static_int8 and full_int8"),
        ({"max_drop": 0.5}, "max_drop needs labelled rows"),
        ({"max_drop": -1}, "max_drop must be a number of at least 0. Received: -1"),
        ({"max_drop": 1, "quantize": "fp16"}, "max_drop is given with fp16, expected with one of: dynamic_int8"),
    ],
)
def test_mistakes_are_named(run, tmp_path, options, text):
    from kerasbert.mobile import compress

    with pytest.raises(InputError, match=text):
        compress(run, **{"out": tmp_path / "x.tflite", "lengths": [8], **options})
    assert not list(tmp_path.iterdir())


def test_calibration_is_read_from_lines_pairs_and_rows(tmp_path):
    from kerasbert.mobile.quantize.ranges import choose, read
    from kerasbert.tasks.task import Task

    lines = tmp_path / "lines.txt"
    lines.write_text("a film\n\na\tb\n")
    assert read(lines, None, False) == ["a film", "a\tb"]
    with pytest.raises(InputError, match="line 1 has 0 tabs, expected 1"):
        read(lines, None, True)
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tother\na film\tx\ngood\ty\n")
    assert read(rows, Task("t"), False) == ["a film", "good"]
    rows.rename(tmp_path / "train.tsv")
    assert read(tmp_path, Task("t"), False) == ["a film", "good"]
    with pytest.raises(InputError, match="holds 'a', expected pairs of texts"):
        read([("a", "b"), "a"], None, True)
    assert choose(list("abcdefg"), 3) == ["a", "c", "e"]
    assert len(choose(["x"] * 900, None)) == 200
