"""compress: a file that was compared with its model, or an error and no file."""

import hashlib

import numpy as np
import pytest

from kerasbert.errors import InputError
from tests.mobile.conftest import TEXTS, make_run

pytest.importorskip("tensorflow")


def test_float_file_equals_the_model(float_file):
    path, report = float_file
    assert report["max_difference"] <= 1e-4
    assert report["agreement"] == 1
    assert report["cut"] == 0
    assert report["lengths"] == [8, 12, 24]
    assert report["bytes"] == path.stat().st_size


@pytest.mark.slow
def test_any_length_is_one_signature(run, any_file, int8_buckets):
    from kerasbert.export import bundle
    from kerasbert.mobile.judging.comparison import reading
    from kerasbert.mobile.tflite.buckets import choose
    from kerasbert.tasks.base import kind_of
    from kerasbert.tasks.load import load

    path, report = any_file
    assert report["max_difference"] <= 1e-4
    assert (report["lengths"], report["any_length"]) == ([24], True)
    found = bundle.read(path)
    assert ({24: found.signature(24)}, found.any_length) == ({24: "any_length"}, True)
    assert int8_buckets[1]["any_length"] is False
    fixed = bundle.read(int8_buckets[0])
    assert {length: fixed.signature(length) for length in fixed.lengths} == {8: "length_8", 24: "length_24"}
    model = load(run)
    assert choose(model.spec.longest, "kerasbert", None, None) == (8, 16, 24, 32, 40)
    assert choose(model.spec.longest, "kerasbert", None, "any") == (40,)
    assert choose(model.spec.longest, "kerasbert", 30, [8, 16, 36]) == (8, 16, 30)
    assert choose(model.spec.longest, "mediapipe", None, None) == (40,)
    assert [reading(kind_of(model).answers, model.tokenizer, None, TEXTS, length)["cut"] for length in (6, 9, 24)] == [
        2,
        1,
        0,
    ]
    pairs = [("a good film", "dull"), ("dull", "dull")]
    assert reading(kind_of(model).answers, model.tokenizer, None, pairs, 6) == {"cut": 1}


def test_int8_file_agrees_and_says_on_what(int8_file):
    _, report = int8_file
    assert report["agreement"] >= 0.9
    assert report["texts_from"] == "generated from the vocabulary"
    assert 0 < report["mean_difference"] < 0.05


def test_bundle_carries_tokenizer_labels_and_digest(float_file):
    from kerasbert.export import bundle

    path, _ = float_file
    found = bundle.read(path)
    assert found.labels == ("negative", "neutral", "positive")
    assert found.model == "bert/tiny"
    assert sorted(found.tokenizer) == ["tokenizer.json", "vocab.txt"]
    model = path.read_bytes()[: -len(found.to_zip())]
    assert hashlib.sha256(model).hexdigest() == found.digest


def test_same_input_same_bytes_and_no_paths(run, float_file, tmp_path):
    from kerasbert.mobile import compress

    again = tmp_path / "other name.tflite"
    compress(run, "float32", again, lengths=[8, 12, 24], texts=TEXTS)
    data = again.read_bytes()
    assert data == float_file[0].read_bytes()
    assert str(tmp_path).encode() not in data
    assert b"/tmp" not in data


def test_a_file_that_disagrees_is_not_written(run, float_file, tmp_path, monkeypatch):
    from kerasbert.export import bundle
    from kerasbert.mobile import compress
    from kerasbert.mobile.judging import comparison
    from kerasbert.mobile.pipeline import compression

    data = float_file[0].read_bytes()
    converted = data[: -len(bundle.read(data).to_zip())]
    monkeypatch.setattr(compression.convert, "convert", lambda *a: converted)
    real = comparison.reference
    monkeypatch.setattr(comparison, "reference", lambda *a: np.roll(real(*a), 1, axis=-1))
    for quantize, text in (
        ("float32", "float32 file differs .* at most 0.0001"),
        ("dynamic_int8", "not worth the Keras model: agreement 0.0000, expected at least 0.985"),
    ):
        with pytest.raises(InputError, match=text):
            compress(run, quantize, tmp_path / "x.tflite", lengths=[8, 12, 24], texts=TEXTS)
        assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def half_file(run, tmp_path_factory):
    """(path, report) of an fp16 file of two lengths that was judged by labelled rows."""
    from kerasbert.mobile import compress
    from kerasbert.tasks.predict import predict

    folder = tmp_path_factory.mktemp("half")
    rows = [f"{text}\t{answer.label}" for text, answer in zip(TEXTS[:5], predict(run, TEXTS[:5]))]
    (folder / "dev.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    path = folder / "x.tflite"
    return path, compress(run, "fp16", path, lengths=[8, 24], data=folder / "dev.tsv")


def test_labels_of_data_give_accuracies(half_file):
    _, report = half_file
    assert report["accuracy"] == {"keras": 1.0, "tflite": 1.0}
    assert report["texts"] == 5


def rows_of_positions(path):
    """Rows of the constants of which a file takes the first ones."""
    from kerasbert.mobile.tflite import repack

    model, s = repack.read(path.read_bytes()), repack.schema()
    (graph,) = model.subgraphs
    cut = [each for each in graph.operators if repack.builtin(model, each) == s.BuiltinOperator.STRIDED_SLICE]
    tables = [graph.tensors[each.inputs[0]] for each in cut]
    return [int(table.shape[0]) for table in tables if model.buffers[table.buffer].data is not None]


def test_a_file_of_any_length_has_no_positions_that_it_cannot_reach(any_file):
    """The model has 40, the file reads 24 tokens; its answers are compared with Keras's where it is made."""
    assert rows_of_positions(any_file[0]) == [24]


@pytest.mark.slow
def test_positions_of_roberta_begin_at_two(tmp_path):
    from kerasbert.mobile import compress
    from tests.mobile.conftest import make_run

    run = make_run(tmp_path / "run", name="roberta/base", spec={"blocks.layers": 1})
    report = compress(
        run, "float32", tmp_path / "x.tflite", lengths="any", length=24, texts=[*TEXTS, "a good film " * 9]
    )
    assert rows_of_positions(tmp_path / "x.tflite") == [26]
    assert report["cut"] == 1  # all 24 places were used, and equal Keras's, or nothing is written


def test_no_length_of_a_half_precision_file_has_tables_or_matrices_in_float32(half_file):
    """Each was 46 MB of MiniLM's; every piece of a graph begins with what it can compute, which went to the next as tensors."""
    from kerasbert.mobile.tflite import repack

    model, s = repack.read(half_file[0].read_bytes()), repack.schema()
    for graph in model.subgraphs:
        length = int(graph.tensors[graph.inputs[0]].shape[1])
        codes = [model.operatorCodes[operator.opcodeIndex].builtinCode for operator in graph.operators]
        assert s.BuiltinOperator.BITCAST in codes
        unpacked = [operator for operator, code in zip(graph.operators, codes) if code == s.BuiltinOperator.DEQUANTIZE]
        for operator in unpacked:
            source, readers = graph.tensors[operator.inputs[0]], graph.operators[graph.operators.index(operator) + 1]
            constant = model.buffers[source.buffer].data is not None
            assert constant or source.shape.tolist() == [1, length, 16]  # rows that were looked up
            assert not constant or operator.outputs[0] in readers.inputs or readers in unpacked


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target": "mediapip"}, "no target 'mediapip'. Nearest: 'mediapipe'"),
        ({"quantize": "int9"}, "no quantization 'int9'"),
        ({"length": 41}, "length is 41, expected 3 to 40"),
        ({"lengths": [8, 500]}, "length is 500, expected 3 to 40"),
        ({"target": "mediapipe", "lengths": [8, 16]}, "takes one --length"),
        ({"texts": "a good film"}, "texts is empty or one string"),
        ({"texts": ["a"], "data": "x"}, "texts and data are both given"),
    ],
)
def test_mistakes_are_named(run, tmp_path, options, text):
    from kerasbert.mobile import compress

    with pytest.raises(InputError, match=text):
        compress(run, **{"out": tmp_path / "x.tflite", **options})
    assert not list(tmp_path.iterdir())


def test_an_existing_file_stays(run, tmp_path):
    from kerasbert.mobile import compress

    (tmp_path / "x.tflite").write_text("mine")
    with pytest.raises(InputError, match=r"x\.tflite exists already"):
        compress(run, out=tmp_path / "x.tflite")
    assert (tmp_path / "x.tflite").read_text() == "mine"


def test_mediapipe_gets_no_pairs_and_no_cased_text(tmp_path):
    from kerasbert.mobile import compress
    from kerasbert.tasks.load import load

    pairs = load(make_run(tmp_path / "pairs", text_b="second"))
    with pytest.raises(InputError, match="for pairs of texts, expected a classification or vectors of one text"):
        compress(pairs, out=tmp_path / "x.tflite", target="mediapipe")
    cased = load(make_run(tmp_path / "cased"))
    cased.tokenizer.lowercase = False
    with pytest.raises(InputError, match="not an uncased WordPiece"):
        compress(cased, out=tmp_path / "x.tflite", target="mediapipe")


@pytest.mark.slow
def test_pairs_regression_and_vectors(tmp_path):
    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load
    from kerasbert.tasks import load as loading
    from kerasbert.tasks import predict

    directory = make_run(tmp_path / "run", kind="regression", text_b="second", labels={}, metric="spearman")
    model = loading.load(directory)
    pairs = [("a good film", "it was great"), ("bad", "")]
    compress(model, "float32", tmp_path / "pairs.tflite", lengths=[24], texts=pairs)
    expected = [answer.value for answer in predict.predict(model, pairs)]
    runner = load(tmp_path / "pairs.tflite", cache=False)
    assert [answer.value for answer in runner(pairs)] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(InputError, match="expected a pair of texts"):
        runner(["one text"])

    model.encoder.tokenizer = model.tokenizer
    compress(model.encoder, "float32", tmp_path / "vectors.tflite", lengths="any", length=24, texts=TEXTS)
    vectors = [answer.values for answer in load(tmp_path / "vectors.tflite", cache=False)(TEXTS)]
    np.testing.assert_allclose(vectors, predict.encode(model, TEXTS), atol=1e-4)
