"""Bundles of format 3 end to end: a language, a kind for each token, an input that a plug-in makes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from kerasbert import inputs, registry
from kerasbert.errors import InputError
from kerasbert.export import bundle
from tests.mobile.conftest import TEXTS, make_run
from tests.support import forgotten, python

PLUGIN = Path(__file__).with_name("plugin_pieces.py")
LABELS = {"0": "O", "1": "B", "2": "I"}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """(model, file, report): it labels tokens and reads neighbours; dynamic int8, three buckets, of which one is derived."""
    from keras import ops

    from kerasbert.mobile import compress
    from kerasbert.models import bert
    from kerasbert.tasks.load import load

    class Near(bert.Encoder):
        def embed(self, inputs, training=False):
            x = super().embed(inputs, training=training)
            return x + ops.matmul(ops.cast(inputs["neighbours"], x.dtype), x)

    with forgotten():
        registry.load_plugin(PLUGIN)
        declared = (*bert.BERT.inputs, inputs.find("neighbours"))
        registry.register(dataclasses.replace(bert.BERT, name="near", encoder=Near, inputs=declared))
        folder = tmp_path_factory.mktemp("pieces")
        model = load(make_run(folder / "run", name="near/tiny", kind="pieces", labels=LABELS))
        report = compress(model, out=folder / "x.tflite", lengths=[8, 12, 24], texts=TEXTS * 4, min_agreement=0.9)
        yield model, folder / "x.tflite", report


def test_a_kind_for_each_token_answers_as_predict(pieces):
    from kerasbert.mobile.runtime import load
    from kerasbert.tasks import predict

    model, path, report = pieces
    runner, texts = load(path, cache=False, plugin=PLUGIN), [*TEXTS, "good " * 30]
    expected, received = predict.outputs(model, texts, 24), runner.outputs(texts)
    assert [len(row) for row in received] == [len(row) for row in expected]  # no padding
    probabilities = [runner.kind.probabilities(row) for row in expected]  # what a file gives
    assert runner.kind.agreement(probabilities, received) > 0.9
    assert 0 < report["max_difference"] < 0.2
    answers = runner(texts)
    assert [answer.truncated for answer in answers] == [False] * len(TEXTS) + [True]
    assert [answer.labels for answer in answers] == [tuple(LABELS[str(i)] for i in row.argmax(-1)) for row in received]
    assert len({label for answer in answers for label in answer.labels}) > 1
    read = {each.name: each for each in runner.bundle.inputs}["neighbours"]
    assert (read.axes, read.dtype, read.filled_by) == ("BSS", "bool", "maker")


def test_tokens_beyond_the_longest_bucket_count_as_lost(pieces):
    from kerasbert.mobile.judging.verdict import compare
    from kerasbert.tasks.base import find

    expected = [np.eye(3, dtype="float32")[[0, 1, 2, 2]]]
    found = compare(expected, [expected[0][:2]], find("pieces"), None)
    assert (found["agreement"], found["max_difference"]) == (0.5, 0)


def test_the_plug_in_must_be_there_and_the_same(pieces, tmp_path):
    """In a process of its own, without TensorFlow."""
    path, other = pieces[1], tmp_path / "plugin_pieces.py"
    other.write_text(PLUGIN.read_text() + "\n")
    said = python("-m", "kerasbert.mobile.cli", "run", path, "a good film", "--no-cache", check=False)
    assert said.returncode == 2
    assert "answers with 'pieces', which the plug-in 'plugin_pieces.py' brings" in said.stderr
    said = python("-m", "kerasbert.mobile.cli", "run", path, "a", "--plugin", other, "--no-cache", check=False)
    sums = [registry.plugin_digest(file)[:12] for file in (PLUGIN, other)]
    assert said.returncode == 2
    (line,) = said.stderr.splitlines()
    assert f"of sha256 {sums[0]}, received {other} with {sums[1]}" in line
    code = "import sys; from kerasbert.mobile.runtime import load; from kerasbert.mobile.cli import main\n"
    code += "print(load(sys.argv[1], cache=False, plugin=sys.argv[2])(['a good film'])[0].labels)\n"
    code += "main(['run', sys.argv[1], 'a good film', '--plugin', sys.argv[2], '--no-cache', '--json'])\n"
    code += "main(['run', sys.argv[1], 'a good film', '--plugin', sys.argv[2], '--no-cache'])\n"
    code += "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    lines = python("-c", code, path, PLUGIN).stdout.splitlines()
    labels = json.loads(lines[1])["labels"]
    assert lines == [str(tuple(labels)), json.dumps({"labels": labels}), f"{' '.join(labels)}\ta good film"]
    assert len(labels) == 5


def test_labelled_rows_give_the_metric(pieces, tmp_path, monkeypatch):
    """Compression measures tokens as the task does."""
    from kerasbert.mobile.judging import comparison, verdict
    from kerasbert.tasks import predict
    from kerasbert.tasks.base import find

    model = pieces[0]
    targets = [row.argmax(-1) for row in predict.outputs(model, TEXTS)]
    packed = comparison.encoded(model, TEXTS, 40), comparison.encoded(model, TEXTS, 24)
    expected = comparison.reference(model, TEXTS, 40)
    received = comparison.run(pieces[1].read_bytes(), TEXTS)
    found = verdict.compare(expected, received, find("pieces"), targets, model.task, packed)
    assert found["accuracy"]["keras"] == 1
    assert 0.9 <= found["accuracy"]["tflite"] <= 1


@pytest.mark.slow
def test_a_model_with_languages_reads_the_one_of_the_call(tmp_path):
    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load
    from kerasbert.tasks import predict
    from kerasbert.tasks.load import load as load_model

    spec = {"embeddings.languages": 2, "blocks.layers": 2}
    settings = {"name": "xlm/mlm-tlm-xnli15-1024", "languages": {"en": 0, "fr": 1}, "settings": {"language": "fr"}}
    model = load_model(make_run(tmp_path / "run", spec=spec, **settings))
    for quantize, lengths, tolerance in (("float32", "any", 1e-4), ("static_int8", [24], 0.3)):
        path = tmp_path / f"{quantize}.tflite"
        more = {} if quantize == "float32" else {"calibration": TEXTS * 5, "min_agreement": 0}
        compress(model, quantize, path, lengths=lengths, length=24, texts=TEXTS, **more)
        runner = load(path, cache=False)
        outputs = {}
        for language in (None, "fr", "en"):
            expected = [answer.scores for answer in predict.predict(model, TEXTS, language=language)]
            answers = [answer.scores for answer in runner(TEXTS, language=language)]
            outputs[language] = np.array([list(scores.values()) for scores in answers])
            np.testing.assert_allclose(outputs[language], [list(s.values()) for s in expected], atol=tolerance)
        np.testing.assert_array_equal(outputs[None], outputs["fr"])
        assert np.abs(outputs["fr"] - outputs["en"]).max() > 0.01
        with pytest.raises(InputError, match=r"no language 'fra'. Nearest: 'fr'. All: "):
            runner(TEXTS, language="fra")
    said = json.loads(bundle.unpack(path)["bundle.json"])
    (row,) = [row for row in said["inputs"] if row["name"] == "language_ids"]
    assert (said["format"], row["default"], row["choices"]["en"] != row["choices"]["fr"]) == (3, "fr", True)


def test_a_model_without_languages_refuses_one(float_file):
    from kerasbert.mobile.runtime import load

    with pytest.raises(InputError, match="the model takes no language. Received: 'fr'. Leave --language out"):
        load(float_file[0], cache=False)(["a"], language="fr")


def test_a_kind_may_make_several_rows_of_a_text_and_run_the_model_more_than_once(float_file):
    from kerasbert.answers.classification import ClassificationKind
    from kerasbert.mobile.runtime import load

    class Halves(ClassificationKind):
        def rows(self, tokenizer, parts, length):
            words = parts[0].split()
            halves = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
            return [row for half in halves for row in super(Halves, self).rows(tokenizer, (half,), length)]

        def decode(self, parts, rows, outputs, labels):
            return super().decode(parts, rows, [np.mean(outputs, axis=0)], labels)

    class Twice(ClassificationKind):
        def answer(self, run, tokenizer, parts, length, labels):
            (row,) = self.rows(tokenizer, parts, length)
            return self.decode(parts, [row], [(run(row) + run(row)) / 2], labels)

    runner = load(float_file[0], cache=False)
    plain = runner(["a good film is", "not bad", "a good", "film is"])
    runner.kind = Halves()
    found = runner(["a good film is", "not bad"])
    assert runner.outputs(["a good film is", "not bad"]).shape == (4, 3)
    expected = np.mean([list(answer.scores.values()) for answer in plain[2:]], axis=0)
    np.testing.assert_allclose(list(found[0].scores.values()), expected, atol=1e-6)
    runner.kind = Twice()
    assert [a.scores for a in runner(["a good film is", "not bad"])] == [a.scores for a in plain[:2]]
