"""Texts that hold nothing to read: one rule in Python, SavedModel and phone, and in both commands; and what is no text at all."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.blanks import blank
from kerasbert.errors import InputError
from kerasbert.tasks.given import check_texts
from kerasbert.testing import battery
from kerasbert.text.bpe import BytePairEncoding
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.support import often
from tests.tasks import test_every_kind as every
from tests.tasks.test_tables import Frame

BLANK = ["", " ", "\n", "\t \r\n", "\u200b", "\u00ad\u200d\ufeff", "\u3000", "\x00"]


def bare() -> BytePairEncoding:
    """A tokenizer without special tokens around a text, as GPT-2's."""
    pieces = battery.tokenizer("bpe")
    return BytePairEncoding(pieces.vocabulary, pieces.merges, specials=pieces.specials, template=("$A", "$A $B:1"))


def test_a_row_holds_a_token_whatever_its_text_holds():
    """GPT-2's "" was a row of no token: an IndexError alone, another answer in a batch than in a SavedModel."""
    tokenizer, graph = bare(), graph_tokenizer(bare())
    pad = tokenizer.pad_id
    assert tokenizer.pack("") == tokenizer.pack("", "", length=3) == ([pad], [0])
    packed = {name: value.numpy().tolist() for name, value in graph.pack(["", "a", ""], length=3).items()}
    assert packed["token_ids"] == [[pad] * 3, [*tokenizer.pack("a")[0], pad, pad], [pad] * 3]
    assert packed["padding_mask"] == [[1, 0, 0]] * 3
    pairs = {name: value.numpy().tolist() for name, value in graph.pack(["", "a", ""], ["", "b", "b"], 3).items()}
    assert pairs["padding_mask"] == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert pairs["segment_ids"] == [[0, 0, 0], [0, 1, 0], [1, 0, 0]]


# kind, whether the tokenizer has special tokens (a span answers nothing by one): every other kind in CI
EVERY = [(kind, specials) for kind in every.KINDS for specials in (True, False) if (kind, specials) != ("span", False)]


@pytest.mark.parametrize(
    ("kind", "specials"),
    often(EVERY, ("span", True)),
)
def test_python_saved_model_and_phone_answer_alike(kind, specials, tmp_path):
    inputs = {
        "regression": [*zip(BLANK, reversed(BLANK)), ("the cat", "")],
        "span": [("what", text) for text in BLANK] + [("", "the old cat"), ("who", "the cat runs")],
        "choice": [(text, ("the cat", "a dog")) for text in BLANK],
    }.get(kind, [*BLANK, "the happy cat"])
    pieces = tiny.tokenizer() if specials else bare()
    every.agrees("bert", kind, pieces, tmp_path, inputs)
    model = every.made("bert", kind, pieces, tmp_path)
    if kind == "vector":
        alone, together = kb.encode(model, inputs[:1]), kb.encode(model, inputs)[:1]
        np.testing.assert_allclose(alone, together, atol=1e-5)
    elif kind == "classification":
        (alone,), together = kb.predict(model, inputs[:1]), kb.predict(model, inputs)
        assert list(alone.scores.values()) == pytest.approx(list(together[0].scores.values()), abs=1e-5)


def test_blank_is_what_has_nothing_to_read():
    assert all(map(blank, [*BLANK, ("", "\n"), ("", ("", " ")), b" \n"]))
    assert not any(map(blank, ["x", "\u0301", ".", "\U0001f600", ("", "x"), ("", ("", "x")), b"\xff"]))


MISSING = [None, float("nan"), np.float64("nan"), 3, np.int64(3), ["a", None]]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_what_is_no_text_is_refused_with_its_number(missing, classifier):
    model = kb.load(classifier)
    for call in (kb.predict, kb.encode, lambda model, texts: kb.search(model, texts, "x")):
        with pytest.raises(InputError, match="text 1 (is|has|holds)") as error:
            call(model, ["x", missing])
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="others: text 1 is"):
        kb.similarity(model, ["x", "y"], ["x", missing])


def test_tables_for_predictions_and_training_hold_texts(classifier):
    model = kb.load(classifier)
    for value in (
        None,
        float("nan"),
        type("NAType", (), {})(),
        type("NaTType", (), {})(),
    ):  # the last two are pandas' names
        frame = Frame(text=["the cat", value], label=["pos", "neg"])
        with pytest.raises(InputError, match="text 1 is a .*, expected str: .* is no text. Drop the row or fill it"):
            kb.predict(model, frame)
        with pytest.raises(InputError, match="row 1: column 'text' is .*, expected a text. Drop the row or fill it"):
            kb.evaluate(model, frame)
    assert check_texts(model, {"text": ["a", "b"]}) == ["a", "b"]
    for wrong in ({"text": "a"}, None, 3, {}):
        with pytest.raises(InputError, match="texts is a .*, expected a list of texts"):
            kb.predict(model, wrong)
    with pytest.raises(InputError, match="texts has no column 'text'. Nearest: 'txt'. It has: txt"):
        kb.predict(model, {"txt": ["a"]})


def test_what_is_no_model_is_refused_in_a_line():
    import keras

    mine = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    for call in (
        lambda model: kb.predict(model, ["x"]),
        lambda model: kb.encode(model, ["x"]),
        lambda model: kb.similarity(model, ["x"], ["x"]),
        lambda model: kb.search(model, ["x"], "x"),
        lambda model: kb.mobile.compress(model),
    ):
        for model in (mine, None, 3, {}):
            with pytest.raises(InputError, match=f"model is a {type(model).__name__}, expected a directory or a model"):
                call(model)


def test_commands_give_no_answer_of_nothing(classifier, capsys):
    """`predict RUN ""` was "Doyle 0.4573" while `--data` left the cell empty."""
    from kerasbert import cli

    assert cli.main(["predict", str(classifier), *BLANK[:3], "the good cat", "\u200b", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) is None for line in out.splitlines()] == [True, True, True, False, True]
    assert "4 of 5 texts hold nothing to read and have no answer: 1, 2, 3, 5" in err
