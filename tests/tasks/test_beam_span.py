"""Spans whose ends are looked for by their starts, from a file to the server and the phone."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import mobile, registry
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile.runtime import load
from kerasbert.tasks import beam_span
from kerasbert.tasks.batches import encode_texts
from kerasbert.text.added import finding_specials
from tests import tiny
from tests.tasks.test_span import LENGTH, squad_file

TEXTS = [
    ("the film", "the dog sees a good river and a very old stone " * 3),
    ("film", "a happy cat"),
    ("film", ""),
    ("", "x"),
]


def test_where_an_answer_may_stand():
    kind = registry.task("squad").optioned({"stride": 2, "max_answer": 1}).how
    rows = encode_texts(tiny.tokenizer(), [("the film", "the cat sees the dog runs")], 9, kind=kind)
    batch = rows.arrays(range(len(rows.rows)), 9, lengths=[12])
    allowed, null = (np.asarray(each) for each in beam_span.places(tiny.tokenizer(), batch))
    for row, (may, none) in zip(rows.rows, zip(allowed, null)):
        window = row.about
        assert np.flatnonzero(none).tolist() == [window.null]
        expected = [window.null, *range(window.place, window.place + window.count)]
        assert np.flatnonzero(may).tolist() == expected
    with pytest.raises(InputError, match="there is no tokenizer"):
        beam_span.places(None, batch)
    with pytest.raises(InputError, match=r"between \[CLS\], \[SEP\], which the tokenizer finds within texts too"):
        beam_span.places(finding_specials(tiny.tokenizer()), batch)


def test_what_it_is_not_for():
    task = registry.task("squad2").optioned({"starts": 3})
    with pytest.raises(InputError, match=r"starts is -1, expected at least 0"):
        task.optioned({"starts": -1})
    with pytest.raises(InputError, match=r"starts is an option of training alone"):
        task.answering({"starts": 2})
    assert not task.how.averaged
    assert task.how.taught == ()
    assert registry.task("squad2").how.taught


@pytest.mark.slow
def test_it_learns_and_answers_alike_everywhere(pretrained, tmp_path):
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (the tokenizer's operations)

    files = {"train": squad_file(tmp_path / "train.json", 250, 0), "dev": squad_file(tmp_path / "dev.json", 60, 1)}
    settings = {"epochs": 4, "batch": 24, "learning_rate": 1e-2, "length": LENGTH, "quiet": True}
    task = registry.task("squad2").optioned({"starts": 3})
    kb.finetune(pretrained, task, files, out=tmp_path / "run", **settings)
    model = kb.load(tmp_path / "run")
    found = kb.evaluate(model, tmp_path / "dev.json")["metrics"]
    assert found["exact_match"] > 0.9, found
    assert sum(name.startswith("heads/beam_span/") for name in names(model)) == 13
    answers = [answer.to_json() for answer in kb.predict(model, TEXTS)]
    assert [each["text"] for each in answers[:2]] == ["good", "happy"]
    kb.export(model, tmp_path / "saved")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    questions, contexts = zip(*TEXTS)
    served = serve(question=tf.constant(questions), context=tf.constant(contexts))
    for i, answer in enumerate(answers):
        told = {
            "text": served["text"].numpy()[i].decode(),
            "start": int(served["start"][i]),
            "end": int(served["end"][i]),
        }
        assert told == {name: answer[name] for name in told}
        assert float(served["score"][i]) == pytest.approx(answer["score"], abs=1e-5)
    report = mobile.compress(model, "dynamic_int8", tmp_path / "span.tflite", lengths="any", texts=TEXTS)
    assert report["agreement"] == 1
    received = load(tmp_path / "span.tflite", cache=False)(TEXTS)
    assert [each.text for each in received] == [each["text"] for each in answers]
