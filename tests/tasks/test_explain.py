"""Integrated gradients and attention of a task's model: the numbers, the words, the page."""

import dataclasses
import html.parser
import re
import types

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import cli, registry
from kerasbert.cli import explanation
from kerasbert.errors import InputError
from kerasbert.layers.encoder import Encoder
from kerasbert.tasks import explain as explaining
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.explain import Explanation, Word
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from tests import tiny
from tests.tasks.test_every_kind import KINDS, made

TEXTS = ["the happy cat, sees-a zoe's dog", "Ünïcode Old River 一二"]


class Squares:
    """The sum over tokens s of s * x^2, where x is the token's id: what is worked out on paper."""

    tokenizer = types.SimpleNamespace(others=lambda ids: {}, special_ids=(0, 1, 2), unk_id=1, pad_id=0, mask_id=3)

    def __init__(self):
        self.body = self.network = self

    def embed(self, inputs, training):
        return tf.cast(inputs["token_ids"], "float32")[..., None]

    def queries(self, batch):
        return None

    def __call__(self, inputs, queries=None):
        return inputs["embedded"]

    def logits(self, outputs, inputs):
        places = tf.range(outputs.shape[1], dtype="float32")[None, :, None]
        return tf.reduce_sum(places * outputs**2, [1])


def test_integrated_gradients_by_hand():
    """s * (x^2 - 3^2) of each token; 3 is the mask. Special tokens stay, the unknown piece (1) is a word."""
    batch = {"token_ids": np.array([[2, 5, 1, 2]])}
    values, ends, special = explaining.integrated(Squares(), batch, lambda logits: logits[:, 0], 2)
    np.testing.assert_allclose(values, [0, 25 - 9, 2 * (1 - 9), 0], atol=1e-5)
    assert ends == (9 + 2 * 9 + 3 * 4, 25 + 2 * 1 + 3 * 4)
    assert special.tolist() == [True, False, False, True]


def check_family(family: str, folder) -> None:
    """Attributions add up to within 1% at 64 steps; `embedded` stands in for the ids; words are those of the text."""
    model = made(family, "classification", battery.tokenizer(registry.family(family).tokenizer), folder)
    batch = {name: tf.constant(value) for name, value in model.tokenizer(TEXTS, 32).items()}
    other = {**batch, "token_ids": tf.zeros_like(batch["token_ids"]), "embedded": model.encoder.embed(batch, False)}
    np.testing.assert_array_equal(model.encoder(other)["sequence"], model.encoder(batch)["sequence"])
    for text, told, answer in zip(TEXTS, kb.explain(model, TEXTS), kb.predict(model, TEXTS)):
        assert told.answer == answer
        # MobileBERT's ReLU bends the path; where parts cancel, the difference is smaller than what adds up to it
        added = np.abs(told.attributions).sum() if family == "mobilebert" else abs(told.score - told.baseline)
        assert abs(told.error) <= 0.01 * added
        assert told.attributions.sum() == pytest.approx(told.score - told.baseline + told.error, abs=1e-6)
        odds = np.log(answer.score) - np.log1p(-answer.score)
        assert told.score == pytest.approx(odds, abs=1e-6 / (1 - answer.score) + 1e-4)
        assert [i for word in told.words for i in word.tokens] == [*range(len(told.pieces))]
        assert sum(word.attribution for word in told.words) == pytest.approx(told.attributions.sum())
        words = [word for word in told.words if word.part is not None]
        assert [word.text for word in words] == [text[word.start : word.end] for word in words]
        assert "".join(word.text for word in words) == text.replace(" ", "")
        if not registry.family(family).has_blocks:  # nor attention
            assert told.attention is None
            continue
        layers, heads = told.attention.shape[:2]
        assert told.attention.shape == (layers, heads, len(told.pieces), len(told.pieces))
        np.testing.assert_allclose(told.attention.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_attributions_add_up(family, tmp_path):
    with battery.eagerly():
        check_family(family, tmp_path)


UNEXPLAINED = {"average": "no `embed`", "kbert": "not in the text", "reformer": "by leaps along a path"}


@pytest.mark.parametrize("family", UNEXPLAINED)
def test_families_without_a_path_are_refused(family, tmp_path):
    subject = battery.Subject(family, tmp_path)
    model = TaskModel(subject.encoder(), find_task("glue/sst2"))
    with pytest.raises(InputError, match=f"{UNEXPLAINED[family]}.*: its texts cannot be explained"):
        kb.explain(model, ["the cat"])


@pytest.mark.full
def test_attributions_add_up_for_every_family(tmp_path):
    with battery.eagerly():
        for family in set(battery.different("encoder", "tokenizer")) - {"bert", "mobilebert", *UNEXPLAINED}:
            if registry.family(family).one_stack:
                check_family(family, tmp_path)


def test_words_and_their_characters(tmp_path):
    model = made("bert", "classification", battery.tokenizer("wordpiece"), tmp_path)
    with battery.eagerly():
        (told,) = kb.explain(model, ["the happyx cat, "], steps=4)
    assert [(word.text, word.part, word.start, word.end, len(word.tokens), word.special) for word in told.words] == [
        ("[CLS]", None, 0, 0, 1, True),
        ("the", 0, 0, 3, 1, False),
        ("happyx", 0, 4, 10, len(model.tokenizer.encode("happyx")), False),
        ("cat", 0, 11, 14, 1, False),
        (",", 0, 14, 15, 1, False),
        ("[SEP]", None, 0, 0, 1, True),
    ]
    assert told.words[0].attribution == 0


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in ("classification", "vector")])
def test_every_kind_with_a_number(kind, tmp_path):
    model = made("bert", kind, battery.tokenizer("wordpiece"), tmp_path)
    texts = [each for each in KINDS[kind][2] if each and each[-1]][:3]
    with battery.eagerly():
        found = kb.explain(model, texts)
        answers = kb.predict(model, texts)
        page = explanation.page("title", zip("abc", found), kind_of(model).answers)
    for told, answer, text in zip(found, answers, texts):
        assert abs(told.error) <= 0.01 * abs(told.score - told.baseline) + 1e-5
        if hasattr(answer, "value"):
            assert told.score == pytest.approx(answer.value, abs=1e-4)
        if hasattr(answer, "index"):
            assert (told.row, told.what) == (answer.index, f"score of choice {answer.index}")
            assert answer.text in " ".join(word.text for word in told.words if word.part == 1)
        if hasattr(answer, "start") and answer.text:  # the window that answers
            shown = {place for word in told.words if word.part == 1 for place in range(word.start, word.end)}
            assert {*range(answer.start, answer.end)} - {i for i, c in enumerate(text[1]) if c == " "} <= shown
    assert page.count("<section>") == len(texts)


def test_another_label_and_another_word(tmp_path):
    model, tags = (
        made("bert", "classification", battery.tokenizer("wordpiece"), tmp_path),
        made("bert", "tags", battery.tokenizer("wordpiece"), tmp_path),
    )
    with battery.eagerly():
        whole = [kb.explain(model, ["the cat"], target=label, steps=8)[0] for label in model.labels]
        odds = np.array([told.score for told in whole])
        assert (1 / (1 + np.exp(-odds))).sum() == pytest.approx(1, abs=1e-5)
        (told,) = kb.explain(tags, ["the cat, sees"], target=2, steps=8)
        assert told.what.endswith("of word 2, ,")
        with pytest.raises(InputError, match="no word 9 with a token to explain among 4 words"):
            kb.explain(tags, ["the cat, sees"], target=9)
    with pytest.raises(InputError, match=r"no label 'yess'\. Nearest: 'yes'"):
        kb.explain(model, ["the cat"], target="yess")
    with pytest.raises(InputError, match="the target of tags is the number of a word, from 0"):
        kb.explain(tags, ["the cat"], target="PER")
    with pytest.raises(InputError, match="a regression is explained by its answer alone, received the target 'yes'"):
        kb.explain(made("bert", "regression", battery.tokenizer("wordpiece"), tmp_path), [("a", "b")], target="yes")
    with pytest.raises(InputError, match="steps must be a whole number from 1 to 1000. Received: 0"):
        kb.explain(model, ["the cat"], steps=0)


def test_what_has_no_number_is_refused(tmp_path):
    model = made("bert", "classification", battery.tokenizer("wordpiece"), tmp_path)
    vectors = dataclasses.replace(model.task, kind="vector", labels={})
    with pytest.raises(InputError, match="the model has no task"):
        kb.explain(model.encoder, ["the cat"])
    with pytest.raises(InputError, match="a vector is no single number to explain"):
        vectors.how.explained(vectors, None, None, None)
    assert isinstance(model.encoder, Encoder)


class Checker(html.parser.HTMLParser):
    """Whether the tags close in order; what they load."""

    def __init__(self, page: str):
        super().__init__()
        self.open, self.loads, self.text = [], [], ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        assert tag not in ("script", "link", "iframe", "base", "object")
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def explanation_of(length: int, layers: int = 12, heads: int = 12, text: str = "word") -> Explanation:
    generator = np.random.default_rng(0)
    values = generator.normal(size=length)
    words = tuple(Word(text, float(value), range(i, i + 1), 0, 5 * i, 5 * i + 4) for i, value in enumerate(values))
    weights = generator.exponential(size=(layers, heads, length, length))
    attention = (weights / weights.sum(-1, keepdims=True)).astype("float32")
    answer = types.SimpleNamespace(to_json=lambda: {"label": text, "score": 0.5})
    return Explanation(answer, text, 1.0, 0.0, words, (text,) * length, values, 0.4, 64, 0, 3, attention, True)


def test_the_page_loads_nothing_escapes_everything_and_is_small():
    evil = '<script>alert("x")</script>&\'"><img src=x onerror=y>'
    kind = kind_of(types.SimpleNamespace(task=None)).answers
    kind = type("Told", (type(kind),), {"text": lambda self, answer: answer["label"]})()
    page = explanation.page(evil, [(evil, explanation_of(128, text=evil))], kind)
    checked = Checker(page)
    assert len(checked.loads) == 145
    assert all(re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", each) for each in checked.loads)
    assert not re.search(r"https?:|@import|url\(", page)
    assert evil in checked.text
    plain = explanation.page("a", [("b", explanation_of(128))], kind)
    assert len(plain) < 1_000_000
    for line in (
        "The text is longer than the model reads: only 128 words of it are here.",
        "The model reads this input in 3 rows; this is row 1.",
        "The error is more than 5% of the difference: take more --explain-steps.",
        "Sundararajan",
    ):
        assert line in plain
    longer = Checker(explanation.page("a", [("b", explanation_of(129, 2, 2))], kind))
    assert "129 tokens: the large picture is left out, it is drawn up to 128." in longer.text
    assert len(longer.loads) == 4


def test_a_picture_is_a_png_of_the_weights():
    matplotlib = pytest.importorskip("matplotlib.image")
    import base64
    import io

    weights = np.array([[1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    data = base64.b64decode(explanation._picture(weights, 4).removeprefix("data:image/png;base64,"))
    pixels = matplotlib.imread(io.BytesIO(data))
    np.testing.assert_allclose(pixels[..., 3], np.sqrt(weights), atol=1 / 30)


def test_the_command_writes_a_page_and_says_what_is_wrong(classifier, tmp_path, capsys):
    run, page = str(classifier), tmp_path / "page.html"
    with battery.eagerly():
        assert not cli.main(["predict", run, "the good <b>cat</b>", "a bad dog " * 9, "--explain", str(page)])
    said = capsys.readouterr()
    assert said.out.startswith("pos\t")
    assert said.err.splitlines()[0] == str(page)
    assert "have more than 16 tokens and were truncated" in said.err
    text = Checker(page.read_text()).text
    assert "the good <b>cat</b>" in text
    assert "only 14 words of it are here" in text
    table = tiny.labelled(tmp_path / "dev.tsv", 4)
    new = str(tmp_path / "new.html")
    for arguments, told in (
        (
            ["the cat", "--explain", str(page)],
            "exists already. Choose another place or pass --overwrite",
        ),
        (["the cat", "--explain", str(tmp_path)], "is a folder, expected a file to write"),
        (["the cat", "--explain", str(page / "deeper.html")], "cannot write"),
        ([*"abcdefghijklmnopqrstu", "--explain", new], "--explain shows 20 texts at most, received 21: give fewer"),
        (
            ["--data", str(table), "--explain", new],
            "--explain shows a few texts: give them as arguments, by --pair or on",
        ),
        (["the cat", "--explain", new, "--explain-steps", "1001"], "steps must be a whole number from 1 to 1000"),
    ):
        with battery.eagerly():
            assert cli.main(["predict", run, *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert told in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.tsv", "page.html"]
