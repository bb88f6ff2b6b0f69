"""A label for every word: windows, first tokens, decoding, spans, by hand and against seqeval."""

import json
import random

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from kerasbert import answers
from kerasbert.answers import Entity
from kerasbert.answers.schemes import entities_of, has_spans, mended
from kerasbert.answers.tags import room_of, window_of, windows
from kerasbert.errors import InputError
from tests import tiny
from tests.text.kinds import small_bpe, small_unigram

LABELS = ("B-PER", "I-PER", "O")


def answer(text, length=16, tokenizer=None, numbers=None, **options):
    """The answer where each word's label is that of its first token: token id modulo 3, or `numbers` by token."""
    kind, tokenizer = answers.find("tags"), tokenizer or tiny.tokenizer()
    rows = (kind.configured(options) if options else kind).rows(tokenizer, (text,), length)
    outputs = [np.eye(3, dtype="float32")[np.array(row.token_ids) % 3] * 0.5 + 0.1 for row in rows]
    return kind.decode((text,), rows, outputs, LABELS), rows


def test_a_raw_text_and_its_words():
    found, (row,) = answer("The  cat,\u00a0Zoe sees")
    assert found.words == ("The", "cat", ",", "Zoe", "sees")
    assert [("The  cat,\u00a0Zoe sees"[a:b]) for a, b in zip(found.starts, found.ends)] == list(found.words)
    assert row.about.tokens.tolist() == [1, 2, 3, 4, 7]  # z ##o ##e
    assert row.token_ids[4:7] == tiny.tokenizer().encode("zoe")
    ids = [row.token_ids[at] for at in row.about.tokens]
    assert found.labels == tuple(LABELS[i % 3] for i in ids)
    assert found.scores == pytest.approx([0.6] * 5)
    assert json.loads(json.dumps(found.to_json()))["words"] == list(found.words)
    assert "truncated" not in found.to_json()


def test_a_list_of_words_is_one_text():
    found, (row,) = answer(("the", "New  old", "", "\u200b", "cat\ud800"))
    assert found.words == ("the", "New  old", "", "\u200b", "cat\ufffd")
    assert (found.starts, found.ends) == ((0, 4, 13, 14, 16), (3, 12, 13, 15, 20))
    assert row.about.words.tolist() == [0, 1, 4]
    assert (found.labels[2:4], found.scores[2:4]) == (("O", "O"), (0.0, 0.0))  # no token stands for them
    names = ("words", "labels", "starts", "ends", "scores", "entities")
    assert answer("")[0].to_json() == {name: [] for name in names}
    assert answer(())[0].words == answer(" \t ")[0].words == ()


def test_entities_are_characters_of_the_text():
    kind, text = answers.find("tags"), "New  York and Zoe"
    (row,) = kind.rows(tiny.tokenizer(), (text,), 32)
    output = np.tile([0.0, 0.0, 1.0], (row.length, 1))
    for token, label in zip(row.about.tokens, (1, 1, 2, 0)):
        output[token] = np.eye(3)[label]
    found = kind.decode((text,), [row], [output], LABELS)
    assert found.entities == (Entity("PER", 0, 9, "New  York", 1.0), Entity("PER", 14, 17, "Zoe", 1.0))
    assert kind.text(found.to_json()) == "New York (PER); Zoe (PER)"
    assert kind.lines(found.to_json()) == ["New York\tPER\t1.0000", "Zoe\tPER\t1.0000"]
    nothing = answer("Zoe")[0].to_json() | {"labels": ["O"], "entities": []}
    assert kind.text(nothing) == "(no entities)"
    assert kind.lines(nothing | {"labels": ["NOUN"], "scores": [0.5]}) == ["Zoe\tNOUN\t0.5000"]


def test_windows_by_hand():
    assert [each.tolist() for each in windows(0, 4, 2)] == [[0], [0]]
    assert [each.tolist() for each in windows(4, 4, 2)] == [[0], [4]]
    assert [each.tolist() for each in windows(5, 4, 2)] == [[0, 2], [4, 5]]
    assert [each.tolist() for each in windows(9, 4)] == [[0, 2, 4, 6], [4, 6, 8, 9]]
    assert [each.tolist() for each in windows(9, 4, 100)] == [[0, 4, 8], [4, 8, 9]]
    # of two windows the one with more on the poorer side, else the first
    assert window_of(np.arange(9), 9, 4).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    for count, room, stride in ((30, 7, 3), (9, 4, 1), (20, 5, 5), (3, 8, 0), (50, 16, 7)):
        begins, ends = windows(count, room, stride)
        at = np.arange(count)[:, None]
        assert (window_of(at[:, 0], count, room, stride) == np.minimum(at - begins, ends - 1 - at).argmax(1)).all()


@pytest.mark.parametrize("stride", [0, 1, 3, 50])
@pytest.mark.parametrize("length", [3, 4, 7, 12])
def test_no_word_of_a_long_text_is_lost(length, stride):
    text = " ".join(random.Random(1).choices([*tiny.WORDS, "abc", "zz"], k=40))
    whole, _ = answer(text, 200)
    cut, rows = answer(text, length, stride=stride)
    assert (cut.words, cut.labels) == (whole.words, whole.labels)
    assert sorted(number for row in rows for number in row.about.words.tolist()) == list(range(40))
    assert all(row.length <= length for row in rows)
    assert not any(row.truncated for row in rows)


def test_a_length_without_room():
    with pytest.raises(InputError, match="length is 2, expected at least 3: room for a token between the specials"):
        answer("the cat", 2)
    with pytest.raises(InputError, match="stride is -1, expected a number of tokens, or 0"):
        answer("the cat", 8, stride=-1)


@pytest.mark.parametrize("tokenizer", [tiny.tokenizer(), small_bpe(), small_bpe(True), small_unigram()])
def test_a_token_answers_for_the_first_word_that_it_covers(tokenizer):
    words = ("don't", "unaffable", "Zoë", "1 000", ".", "!", "été", "cat")
    kind = answers.find("tags")
    (row,) = kind.rows(tokenizer, (words,), 200)
    joined = " ".join(words)
    tokens = tokenizer.tokenize(joined)
    lead = row.length - len(tokens.ids) - 1  # the template ends in one special token
    begin = 0
    for number, word in enumerate(words):
        covering = [
            i
            for i, (a, b) in enumerate(zip(tokens.starts, tokens.ends))
            if any(begin <= at < begin + len(word) and joined[at] != " " for at in range(a, b))
        ]
        expected = [i for i in covering if not any(joined[at] != " " for at in range(tokens.starts[i], begin))][:1]
        assert [at - lead for at, which in zip(row.about.tokens, row.about.words) if which == number] == expected
        begin += len(word) + 1


def test_spans_equal_seqeval_on_any_sequence():
    draw = random.Random(0)
    labels = ["O", *(f"{tag}-{kind}" for tag in "BIES" for kind in ("PER", "LOC", "x-y")), "B", "I"]
    for _ in range(2000):
        tags = draw.choices(labels, k=draw.randrange(1, 9))
        assert entities_of(tags) == get_entities(tags)


def test_forms_of_labels():
    assert has_spans(["O", "B-PER", "L-PER", "U-x"])
    assert not has_spans(["O"])
    assert not has_spans(["O", "B-PER", "NOUN"])
    assert entities_of(["B-X", "L-X", "U-X", "U-X", "O", "L-X"]) == entities_of(
        ["B-X", "E-X", "S-X", "S-X", "O", "E-X"]
    )
    assert mended(["O", "I-X", "I-X", "I-Y", "E-Y", "E-Y", "B-Y"]) == 3


def test_agreement_asks_words_alone():
    kind = answers.find("tags")
    rows = kind.rows(tiny.tokenizer(), ("the zoe cat",), 16)  # z ##o ##e
    one = np.eye(3)[[0, 0, 1, 2, 2, 2, 0]]
    other = np.eye(3)[[1, 0, 1, 1, 1, 0, 0]]
    assert kind.agreement([one], [other], np.zeros(1, int), rows) == pytest.approx(2 / 3)
    assert kind.agreement([one], [other]) == pytest.approx(3 / 7)
    assert kind.agreement([one], [other * np.nan], np.zeros(1, int), rows) == 0.0
    assert kind.agreement([], []) == 1.0


@pytest.mark.parametrize("low", range(5))
def test_a_threshold_is_of_the_words_of_an_entity_alone(low):
    """Words touch: `(`, `New`, `York`, `)`, `!`; one is less probable than the threshold."""
    kind, text = answers.find("tags"), "(New York)!"
    (row,) = kind.rows(tiny.tokenizer(), (text,), 32)
    output = np.tile([0.0, 0.0, 1.0], (row.length, 1))
    for number, (token, label) in enumerate(zip(row.about.tokens, (2, 0, 1, 2, 2))):
        output[token] = 0.75 * np.eye(3)[label] if number != low else 0.5 * np.eye(3)[label]
    found = kind.decode((text,), [row], [output], LABELS)
    assert [each.text for each in found.entities] == ["New York"]
    assert [each.text for each in kind.limited(found, None, 0.75).entities] == ([] if low in (1, 2) else ["New York"])
    assert kind.limited(found, None, 0.5) == found


def test_the_room_of_a_row_is_what_special_tokens_and_branches_leave():
    items = tiny.tokenizer().single  # [CLS], the text, [SEP]
    assert (room_of(items, 18), room_of(items, 18, trees=True), room_of(items, 3)) == ((1, 16), (1, 12), (1, 1))
