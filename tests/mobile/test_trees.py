"""One tree everywhere: a phone, a SavedModel and Python answer alike, with HowNet's triples."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.mobile import compress
from kerasbert.mobile.runtime import load
from kerasbert.tasks import predict
from kerasbert.testing.battery import Subject
from kerasbert.text import WordPiece
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.text.tree import with_knowledge
from tests.support import shared
from tests.text.test_tree_graph import _pieces, reviews

LENGTH = 64


def trained(folder, task, rows, graph, length=LENGTH):
    """A tiny K-BERT after an update."""
    subject = Subject("kbert", folder)
    made = with_knowledge(WordPiece(_pieces()), KnowledgeGraph.read(shared(f"data/kbert/kgs/{graph}.spo")))
    subject.spec = subject.spec.derive({"embeddings.vocabulary": made.size, "embeddings.positions": LENGTH})
    subject.tokenizer = made
    return kb.finetune(
        subject.encoder(), task, (rows, rows), out=folder / "run", steps=1, batch=16, length=length, quiet=True
    )


@pytest.mark.parametrize("count", [pytest.param(32, marks=pytest.mark.slow), pytest.param(500, marks=pytest.mark.full)])
def test_texts_have_one_tree_and_one_answer(count, tmp_path, capsys):
    import tensorflow as tf

    from kerasbert.mobile.cli import main

    texts = reviews(count)
    rows = [{"text": line, "label": str(i % 2)} for i, line in enumerate(texts[:32])]
    model = trained(tmp_path, "classification", rows, "HowNet")
    expected = [answer.to_json() for answer in kb.predict(model, texts)]
    encoded = predict.encoded_for(model, texts, None)
    assert sum(map(len, encoded.triples)) > count // 4

    compress(model, out=tmp_path / "k.tflite", quantize="none", texts=texts[:20])
    runner = load(tmp_path / "k.tflite", cache=False)
    kept = [runner.kind.rows(runner.tokenizer, (line,), LENGTH)[0] for line in texts]
    assert [(row.values, row.triples) for row in kept] == [(row.values, row.triples) for row in encoded.rows]
    assert main(["run", str(tmp_path / "k.tflite"), texts[0], "--json", "--no-cache"]) == 0
    phone = json.loads(capsys.readouterr().out)
    assert [tuple(each) for each in phone["triples"]] == encoded.triples[0]

    answered = runner(texts)
    assert [list(answer.triples) for answer in answered] == encoded.triples
    kb.export(model, tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    probabilities = served(text=tf.constant(texts))["probabilities"].numpy()
    for one, other, graph in zip(expected, answered, probabilities, strict=True):
        wanted = list(one["scores"].values())
        np.testing.assert_allclose([list(other.scores.values()), graph], [wanted, wanted], atol=1e-4)


@pytest.mark.full
def test_tags_have_the_offsets_of_the_text(tmp_path):
    import tensorflow as tf

    lines = shared("data/kbert/medical_ner/dev.tsv").read_text(encoding="utf-8").split("\n")[1:129]
    rows = [{name: cell.split(" ") for name, cell in zip(("text_a", "label"), line.split("\t"))} for line in lines]
    model = trained(tmp_path, "medical_ner", rows, "Medical", length=24)
    texts = ["".join(row["text_a"]) for row in rows[:60]]
    answers = kb.predict(model, texts)
    for line, answer in zip(texts, answers):
        assert [line[a:b] for a, b in zip(answer.starts, answer.ends)] == list(answer.words)
    encoded = predict.encoded_for(model, texts, None)
    assert len(encoded.rows) > 80  # windows
    assert sum(map(len, encoded.triples)) > 6
    labels = [answer.labels for answer in answers]
    compress(model, out=tmp_path / "t.tflite", quantize="none", texts=texts[:10])
    assert [answer.labels for answer in load(tmp_path / "t.tflite", cache=False)(texts)] == labels
    kb.export(model, tmp_path / "serving")
    served = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"](text=tf.constant(texts))
    for i, answer in enumerate(answers):
        got = served["labels"][i][: len(answer.words)].numpy().tolist()
        assert [label.decode() for label in got] == list(answer.labels)
        np.testing.assert_allclose(served["scores"][i][: len(answer.words)], answer.scores, atol=1e-4)
