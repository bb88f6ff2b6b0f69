"""Spans: Python = SavedModel = phone, with three tokenizers; windows of long contexts."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers import Span
from kerasbert.errors import InputError
from kerasbert.mobile.golden import verify
from kerasbert.mobile.runtime import load
from kerasbert.tasks import predict
from tests import tiny
from tests.support import python
from tests.text import kinds

LENGTH = 32
TOKENIZERS = {"wordpiece": tiny.tokenizer, "bpe": kinds.small_bpe, "unigram": kinds.small_unigram}
LONG = " ".join(f"the {chr(97 + i % 26)}{chr(97 + i // 26 % 26)} dog {chr(97 + i * 7 % 26)}" for i in range(420))
TEXTS = [
    ("the film", LONG),  # more windows than the graph runs at once
    ("the film", "  a good film  \n\n runs very\u00a0old  "),
    ("Ünïcödé?", "naïve cafe\u0301, 一二三 four \U0001f600 five"),
    ("why " * 80, "the cat sees the dog, the river and the stone. " * 3),
    ("the film", ""),
    (" ", "the cat"),
    ("x", "y"),
]


def directory(folder, tokenizer, **options):
    """A random BERT that answers with spans."""
    import keras

    from kerasbert.checkpoints import save_model
    from kerasbert.tasks.load import build
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import find_task

    keras.utils.set_random_seed(3)
    sizes = {"embeddings.positions": 40, "embeddings.vocabulary": tokenizer.size, "blocks.layers": 1}
    encoder = build("bert/tiny", **{**tiny.SPEC, **sizes})
    generator = np.random.default_rng(3)
    encoder.tokenizer = tokenizer
    model = TaskModel(encoder, find_task("squad").optioned(options))
    model.build()
    for weight in model.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(generator.normal(0, 1.2 / weight.shape[-1] ** 0.5, weight.shape))
    task = model.task.to_json() | {"length": LENGTH}
    save_model(folder, encoder=encoder, name="bert/tiny", heads=model.heads, tokenizer=tokenizer, task=task)
    return folder


SERVE = """
import sys, json, tensorflow as tf, tensorflow_text
sys.modules['kerasbert'] = None
questions, contexts = zip(*json.loads(sys.argv[1]))
for folder in sys.argv[2:]:
    serve = tf.saved_model.load(folder).signatures['serving_default']
    many, none = (serve(question=tf.constant(q, tf.string), context=tf.constant(c, tf.string))
        for q, c in ((questions, contexts), ((), ())))
    assert all(value.shape[0] == 0 for value in none.values()), none
    assert not any(name.endswith('_bytes') for name in many)
    raw = serve(question=tf.constant([b'the \\xff film']), context=tf.constant([b'a \\xff\\xfe film \\xe2\\x82 runs \\xff']))
    raw['text'].numpy()[0].decode()
    print(json.dumps({name: [each.decode() if name == 'text' else each for each in value.numpy().tolist()]
        for name, value in many.items()}))
"""
PHONE = """
import sys, json
from kerasbert.mobile.runtime import load
for path in sys.argv[2:]:
    answers = load(path, cache=False)([tuple(pair) for pair in json.loads(sys.argv[1])])
    print(json.dumps([answer.to_json() for answer in answers]))
assert not {'tensorflow', 'keras'} & set(sys.modules)
"""


def told(code, *arguments):
    return [json.loads(line) for line in python("-c", code, json.dumps(TEXTS), *arguments).stdout.splitlines()]


@pytest.mark.full
def test_python_equals_the_server_equals_the_phone(tmp_path):
    from kerasbert import mobile

    expected, shorter = {}, []
    for name, tokenizer in TOKENIZERS.items():
        options = {"max_answer": 4} | ({"unanswerable": True, "null_threshold": -0.5} if name == "bpe" else {})
        model = kb.load(directory(tmp_path / name, tokenizer(), **options))
        encoded = predict.encoded_for(model, TEXTS, None)
        assert max(np.bincount(encoded.owners)) > 64
        expected[name] = [answer.to_json() for answer in kb.predict(model, TEXTS)]
        for answer, (_, context) in zip(expected[name], TEXTS):
            assert answer["text"] == context[answer["start"] : answer["end"]] == answer["text"].strip()
        assert len({each["text"] for each in expected[name]}) >= 4
        kb.export(model, tmp_path / f"{name}-saved")
        card = (tmp_path / f"{name}-saved" / "MODEL_CARD.md").read_text()
        assert f"A context of any length is read, in windows of {LENGTH} tokens" in card
        longest = 24 if name == "unigram" else LENGTH  # other windows than the model's own
        shorter.append([answer.to_json() for answer in kb.predict(model, TEXTS, length=longest)])
        report = mobile.compress(
            model,
            "float32",
            tmp_path / f"{name}.tflite",
            lengths=[16, longest] if name == "wordpiece" else [longest],
            texts=TEXTS,
            golden=tmp_path / f"{name}.golden",
        )
        assert report["agreement"] == 1
        runner = load(tmp_path / f"{name}.tflite", cache=False, windows=3)
        with pytest.raises(InputError, match=r"takes \d+ rows of \d+ tokens, expected at most 3: split it"):
            runner(TEXTS)
        runner.windows = 1024
        assert verify(runner, tmp_path / f"{name}.golden") == (report["golden_texts"], "")
        for wrong, said in (("a text", "text 0 has 1 parts, expected 2"), (("a", "b", "c"), "text 0 has 3 parts")):
            with pytest.raises(InputError, match=said):  # parts of another kind
                runner([wrong])
        asked = " ".join(["what"] * 300)  # a question that is longer than the file
        assert runner([(asked, "the film is good")])[0].truncated
        assert runner([("what", "")])[0] == Span("", 0, 0, 0.0)
    for wanted, served in zip(
        expected.values(), told(SERVE, *(tmp_path / f"{name}-saved" for name in expected)), strict=True
    ):
        for i, answer in enumerate(wanted):
            received = {name: value[i] for name, value in served.items()}
            assert received == pytest.approx({name: answer[name] for name in served}, abs=1e-5)
    for wanted, received in zip(shorter, told(PHONE, *(tmp_path / f"{name}.tflite" for name in expected)), strict=True):
        for answer, other in zip(wanted, received, strict=True):
            more = [[each["text"] for each in each.pop("alternatives", [])] for each in (answer, other)]
            assert other == pytest.approx(answer, abs=1e-5)
            assert more[0] == more[1]
