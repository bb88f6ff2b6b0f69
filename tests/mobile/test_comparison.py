"""What a file is judged by: the model at its own length, read as the file's reader reads."""

import random

import numpy as np
import pytest

from kerasbert.errors import InputError
from tests.mobile.conftest import TEXTS, WORDS, make_run

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def data(run, tmp_path_factory):
    """Path of 40 rows of up to 30 words with the labels that the model gives them: every other label is a loss."""
    from kerasbert.tasks.predict import predict

    draw = random.Random(5)
    texts = [" ".join(draw.choices(WORDS[:12], k=draw.randint(2, 30))) for _ in range(40)]
    lines = [f"{text}\t{answer.label}" for text, answer in zip(texts, predict(run, texts))]
    path = tmp_path_factory.mktemp("data") / "own.tsv"
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


@pytest.mark.slow
def test_texts_that_lose_their_end_are_a_cost(run, data, tmp_path):
    """Compared with the model cut to the same length, a file that cut 30 of 40 texts had agreement 1 and lost nothing."""
    import kerasbert as kb
    from kerasbert.mobile import compress
    from kerasbert.mobile.judging import verdict
    from kerasbert.tasks.load import load

    report = compress(run, "float32", tmp_path / "x.tflite", lengths=[8], data=data, min_agreement=0)
    assert (report["cut"], report["model_length"]) == (30, 40)
    assert report["accuracy"]["keras"] == 1
    assert report["accuracy"]["tflite"] == pytest.approx(kb.evaluate(run, data, length=8)["metrics"]["accuracy"])
    assert report["agreement"] == report["accuracy"]["tflite"] < 0.9
    assert report["max_difference"] > 0.1
    text = "30 of these texts have more than 8 tokens and lose their end"
    with pytest.raises(
        InputError, match=f"accuracy falls by more than chance; agreement 0.* expected at least 0.985.*{text}"
    ):
        verdict.check(report, load(run).task, None, None)


def test_a_budget_that_reading_alone_breaks_is_refused_before_the_work(run, data, tmp_path, monkeypatch):
    """`--lengths 8 --max-drop 1` reported a drop of 0.00."""
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import convert

    monkeypatch.setattr(convert, "named", lambda *a: pytest.fail("converted"))
    text = r"max_drop is 1 points, and reading alone loses \d+\.\d\d: 30 of these texts have more than 8 tokens"
    with pytest.raises(InputError, match=text):
        compress(run, out=tmp_path / "x.tflite", lengths=[8], max_drop=1, data=data)
    assert not list(tmp_path.iterdir())


def test_random_texts_fit_in_the_file(run):
    """How long real texts are they cannot tell; the first of them stay what they were."""
    from kerasbert.mobile.samples import generated
    from kerasbert.tasks.load import load

    tokenizer = load(run).tokenizer
    for pair in (False, True):
        free, fit = generated(tokenizer, 50, pair), generated(tokenizer, 50, pair, longest=12)
        lengths = [len(tokenizer.pack(*(text if pair else (text,)))[0]) for text in fit]
        assert max(lengths) == 12
        assert all(
            short in ([long] if isinstance(long, str) else long) for short, long in zip(fit, free) if short == long
        )
        assert sum(short == long for short, long in zip(fit, free)) == sum(
            len(tokenizer.pack(*(text if pair else (text,)))[0]) <= 12 for text in free
        )


def test_the_longest_bucket_is_the_tasks_length():
    """A model that was fine-tuned with 256 tokens was compressed to 128 without a word."""
    from kerasbert.mobile.tflite.buckets import choose

    dense = (8, 16, 24, 32, 40, 48, 64, 68, 80, 84, 96, 100, 112, 116, 128, 144, 160, 176, 192, 208, 224, 256)
    assert choose(512, "kerasbert", None, None, 256) == dense
    assert choose(512, "kerasbert", None, None, 20) == (8, 16, 20)
    assert choose(512, "mediapipe", None, None, 256) == (256,)
    assert choose(512, "kerasbert", 64, None, 256)[-1] == 64
    assert choose(512, "kerasbert", None, None, None)[-1] == 128


def test_pairs_of_a_file(tmp_path):
    """`compress --texts` read a line as one text, which a model of pairs refuses."""
    from kerasbert.mobile.model_and_texts import cases_of

    (tmp_path / "pairs.txt").write_text("a good film\tdull\n\nthe plot\tnot bad\n")
    found = cases_of(None, True, tmp_path / "pairs.txt", None, 16)
    assert found == ([("a good film", "dull"), ("the plot", "not bad")], None, "pairs.txt")
    with pytest.raises(InputError, match=r"no file .*absent\.txt"):
        cases_of(None, True, tmp_path / "absent.txt", None, 16)


def test_mediapipe_keeps_accents_and_all_capitals_but_asciis():
    from kerasbert.mobile.mediapipe import tokenizer
    from kerasbert.text import WordPiece
    from kerasbert.text.wordpiece import SPECIALS

    own = WordPiece([*SPECIALS, "cafe", "café", "élan", "elan", "x", "##y", "!", "中", "б"])
    theirs = tokenizer(own)

    def pieces(text):
        return [theirs.vocabulary[i] for i in theirs.encode(text)]

    assert own.encode("CAFÉ Élan") == own.encode("cafe elan")
    assert pieces("CAFE CAFé CAFÉ Élan élan") == ["cafe", "café", "[UNK]", "[UNK]", "élan"]
    assert pieces("xy!x中\tx") == ["x", "##y", "!", "x", "中", "x"]
    # a no-break space and an invisible mark belong to the word; a null character ends the text; 100 bytes are a word
    assert pieces("x\xa0x \u200fx xy\0x") == ["[UNK]", "[UNK]", "x", "##y"]
    assert pieces("x" + "y" * 99 + " x" + "y" * 100)[-2:] == ["##y", "[UNK]"]
    assert theirs.pack("É", length=3)[0] == [own.cls_id, own.unk_id, own.sep_id]


@pytest.mark.slow
def test_a_file_for_mediapipe_is_judged_by_mediapipes_ids(tmp_path):
    """Judged by our runtime's ids it agreed on all texts, and MediaPipe gave other labels to a third of accented ones."""
    from kerasbert.mobile import compress
    from kerasbert.mobile.judging.comparison import remarks
    from kerasbert.mobile.judging.verdict import check
    from kerasbert.tasks.load import load

    model = load(make_run(tmp_path / "run", words=["café", "cafe", "über", "uber"]))
    options = {"target": "mediapipe", "length": 32, "out": tmp_path / "x.tflite"}
    texts = [*TEXTS[:2], "a CAFÉ", "über film", "the Café is very bad", "dull Über plot"]
    report = compress(model, "float32", texts=texts, min_agreement=0, **options)
    assert (report["other_ids"], report["cut"]) == (4, 0)
    text = r"4 of these texts \(66.7%\) get other ids from MediaPipe, which lower-cases ASCII alone"
    with pytest.raises(InputError, match=rf"not worth the Keras model: agreement 0.*{text}"):
        check(report, model.task, None, None)
    assert model.tokenizer.encode("É") == model.encoder.tokenizer.encode("e")  # its own again
    report |= {"other_ids": 0, "texts_from": "generated from the vocabulary"}
    assert "only real texts can show (--texts, --data)" in remarks(report)[-1]


@pytest.mark.parametrize("label", ["so\nso", "so\r", "", "so\0so"])
def test_a_label_that_mediapipe_cannot_read_is_refused(label, tmp_path):
    """It reads labels.txt line by line: one line too many, and it fails at the first text."""
    from kerasbert.mobile.targets import check
    from kerasbert.tasks.load import load

    model = load(make_run(tmp_path / "run", labels={"0": "good", "1": label, "2": "bad"}))
    with pytest.raises(InputError, match="is empty or holds a line break or a null character, expected a line of text"):
        check(model, "mediapipe")
    check(model, "kerasbert")


def test_agreement_of_numbers_that_are_not_finite_is_none():
    from kerasbert.mobile.judging.verdict import compare
    from kerasbert.tasks.base import find

    expected = np.eye(3, dtype="float32")
    assert compare(expected, expected * np.nan, find("classification"), None)["agreement"] == 0
    assert compare(expected, expected, find("classification"), np.arange(3))["accuracy"] == {"keras": 1, "tflite": 1}


def test_metrics_of_a_kind_without_accuracy_and_the_tasks_own():
    """Exact match and F1 of spans, by the answers that both decode; of tags F1 beside the accuracy."""
    from kerasbert.mobile.judging.verdict import compare
    from kerasbert.tasks.batches import encode_texts
    from kerasbert.tasks.span import Target
    from kerasbert.tasks.task import find_task
    from tests import tiny

    task = find_task("squad")
    encoded = encode_texts(tiny.tokenizer(), [("cat", "the old cat"), ("dog", "a dog")], 16, kind=task.how)
    golds = [Target(("old cat",)), Target(("dog",))]
    places = [[(4, 5), (4, 4)], [(4, 4), (4, 4)]]  # right and right; half of the first and right

    def said(numbers):
        outputs = []
        for row, (first, last) in zip(encoded.rows, numbers):
            outputs.append(np.zeros((row.length, 2), "float32"))
            outputs[-1][first, 0] = outputs[-1][last, 1] = 9
        return outputs

    found = compare(*map(said, places), task.how, golds, task, (encoded, encoded))
    assert found["metrics"]["exact_match"] == {"keras": 1.0, "tflite": 0.5}
    assert found["change"]["by"] == pytest.approx(-1 / 6)
    assert found["metrics"]["f1"] == {"keras": 1.0, "tflite": pytest.approx((2 / 3 + 1) / 2)}
    assert "accuracy" not in found


def test_a_question_that_is_cut_names_the_option_that_helps():
    from kerasbert.tasks.batches import encode_texts
    from kerasbert.tasks.task import find_task
    from tests import tiny

    how, texts = find_task("squad").optioned({"question": 3}).how, [("the old cat runs", "a cat"), ("cat", "a cat")]
    (line,) = encode_texts(tiny.tokenizer(), texts, 32, kind=how).told("train: ", 32)
    assert line == (
        "train: 1 of 2 questions (50.0%) have more than 3 tokens, or than half a row, and are truncated (finetune --set "
        "task.question=N)"
    )
