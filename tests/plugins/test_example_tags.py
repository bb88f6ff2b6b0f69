"""A third party's task in one file makes the whole journey: a label for every word."""

import json
import random
from pathlib import Path

import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.testing import check_kind
from tests import tiny
from tests.support import forgotten, python

PLUGIN = Path(__file__).with_name("example_tags.py")
NOUNS = ("cat", "dog", "film", "house", "river", "stone")


def rows(path, count, seed):
    """Nouns and other words; a word that is no piece of the vocabulary is one too."""
    draw, lines = random.Random(seed), ["text\tlabel"]
    for _ in range(count):
        words = draw.choices([*tiny.WORDS, "abc"], k=draw.randint(2, 7))
        lines.append(f"{' '.join(words)}\t{' '.join('NOUN' if word in NOUNS else 'O' for word in words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags")
    files = {"train": rows(folder / "train.tsv", 200, 0), "dev": rows(folder / "dev.tsv", 40, 1)}
    with forgotten():
        registry.load_plugin(PLUGIN)
        settings = {"epochs": 4, "batch": 20, "learning_rate": 1e-2, "length": 16, "quiet": True}
        kb.finetune(pretrained, "example_tags", files, out=folder / "run", **settings)
        yield folder / "run"


@pytest.mark.slow
def test_words_are_labelled(run, capsys):
    assert len(PLUGIN.read_text().splitlines()) <= 120
    found = kb.evaluate(run, run.parent / "dev.tsv")
    assert found["metrics"]["accuracy"] > 0.95
    model = kb.load(run)
    (answer, empty, long) = kb.predict(model, ["the  abc dog", "", "cat " * 30])
    assert (answer.words, answer.labels) == (("the", "abc", "dog"), ("O", "O", "NOUN"))
    assert (empty.words, empty.labels, long.truncated) == ((), (), True)
    assert long.labels[:14] + long.labels[14:] == ("NOUN",) * 14 + (None,) * 16
    assert main(["predict", str(run), "the old river", "--plugin", str(PLUGIN)]) == 0
    assert capsys.readouterr().out == "O O NOUN\n"


def test_its_two_sides_agree(tmp_path):
    rows = [{"text": "the cat sees", "label": "O NOUN O"}, {"text": "a dog", "label": "O NOUN"}] * 4
    with forgotten():
        registry.load_plugin(PLUGIN)
        check_kind("example_tags", tmp_path, rows)
        with pytest.raises(
            AssertionError,
            match=r"reading made-up rows \(data= takes rows of the task\) is refused by TagsTask.targets",
        ):
            check_kind("example_tags", tmp_path)


def test_a_label_too_few_is_named(run, tmp_path):
    (tmp_path / "x.tsv").write_text("text\tlabel\nthe cat\tO\n")
    with pytest.raises(InputError, match=r"x.tsv, line 2: 'O', expected a known label for each word of 'the cat'"):
        kb.evaluate(run, tmp_path / "x.tsv")


@pytest.mark.slow
def test_it_goes_to_the_server_and_to_the_phone(run, tmp_path):
    from kerasbert import mobile
    from kerasbert.answers.base import softmax
    from kerasbert.tasks import predict

    model, texts = kb.load(run), ["the abc dog", "a very old river runs", "stone"]
    kb.export(run, tmp_path / "saved")
    code = "import sys, json, tensorflow as tf, tensorflow_text; sys.modules['kerasbert'] = None\n"
    code += "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
    code += "print(json.dumps(serve(text=tf.constant(sys.argv[2:]))['probabilities'].numpy().tolist()))"
    served = json.loads(python("-c", code, tmp_path / "saved", *texts).stdout)
    for row, expected in zip(served, predict.outputs(model, texts)):
        assert abs(softmax(expected) - row[: len(expected)]).max() < 1e-5
    report = mobile.compress(run, "dynamic_int8", tmp_path / "x.tflite", data=run.parent / "dev.tsv")
    assert report["agreement"] > 0.985
    assert report["accuracy"]["tflite"] > 0.95
    code = "import sys, json; from kerasbert.mobile.runtime import load\n"
    code += "answers = load(sys.argv[1], cache=False, plugin=sys.argv[2])(sys.argv[3:])\n"
    code += "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    code += "print(json.dumps([answer.to_json() for answer in answers]))"
    answers = json.loads(python("-c", code, tmp_path / "x.tflite", PLUGIN, *texts).stdout)
    assert answers == [answer.to_json() for answer in kb.predict(model, texts)]
    arguments = ["-m", "kerasbert.mobile.cli", "run", tmp_path / "x.tflite", "the old river"]
    assert python(*arguments, "--plugin", PLUGIN, "--no-cache").stdout == "O O NOUN\tthe old river\n"
    said = python(*arguments, "--no-cache", check=False)
    assert said.returncode == 2
    assert "answers with 'example_tags', which the plug-in 'example_tags.py' brings" in said.stderr
