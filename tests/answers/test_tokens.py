"""What stands behind a mask: rows around it, decoding, the text that is filled in, by hand."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers.tokens import Filling, FillMask, filling, pattern, spelled
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from tests import tiny
from tests.text.kinds import small_bpe, small_word_bpe

KIND = answers.find("tokens")
TOKENIZER = tiny.tokenizer()


def ids(pieces):
    return [TOKENIZER.vocabulary.index(piece) for piece in pieces.split()]


def test_a_row_for_each_mask_with_its_place():
    rows = KIND.rows(TOKENIZER, ("the [MASK] sees <mask>",), 16)
    assert [row.token_ids for row in rows] == [ids("[CLS] the [MASK] sees [MASK] [SEP]")] * 2
    assert [row.values["positions"] for row in rows] == [[2], [4]]
    assert not any(row.truncated for row in rows)
    assert KIND.rows(TOKENIZER, (b"[MASK]",), 3)[0].token_ids == ids("[CLS] [MASK] [SEP]")


def test_of_a_long_text_the_tokens_around_the_mask():
    """Six tokens of room for eight and a mask: half of them before it, but none of the room is left empty."""
    text = "the cat dog sees runs happy sad film good".split()
    for at, begin in ((0, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3), (8, 3)):
        words = [*text]
        words[at] = "[MASK]"
        (row,) = KIND.rows(TOKENIZER, (" ".join(words),), 8)
        assert row.token_ids == ids(" ".join(["[CLS]", *words[begin : begin + 6], "[SEP]"])), at
        assert row.values["positions"] == [1 + at - begin]
        assert row.truncated
        assert row.token_ids[row.values["positions"][0]] == TOKENIZER.mask_id
    assert not KIND.rows(TOKENIZER, (" ".join(["[MASK]", *text[1:]]),), 11)[0].truncated


def test_texts_and_lengths_that_have_no_answer():
    with pytest.raises(InputError, match=r"'the cat' has no mask, expected \[MASK\] where a token is to be filled in"):
        KIND.rows(TOKENIZER, ("the cat",), 8)
    with pytest.raises(InputError, match="length is 2, expected at least 3: a mask and the special tokens"):
        KIND.rows(TOKENIZER, ("[MASK]",), 2)
    with pytest.raises(InputError, match="the tokenizer has no mask token"):
        KIND.rows(small_word_bpe(), ("[MASK]",), 8)


def test_blanks_before_a_mask_are_taken_in_and_those_behind_it_are_not():
    tokenizer = small_bpe()
    (row,) = KIND.rows(tokenizer, ("the  <mask> film ",), 16)
    wanted = [*tokenizer.encode("the"), tokenizer.mask_id, *tokenizer.encode(" film ")]
    assert row.token_ids == tokenizer.join(wanted)[0]


def test_the_best_tokens_and_the_text():
    scores = np.zeros(TOKENIZER.size + 3)
    scores[ids("cat ##s dog")] = 0.5, 0.25, 0.25
    scores[TOKENIZER.size] = 0.9  # a row of the table that no token has
    text = "The [MASK]  sees [MASK]."
    rows = KIND.rows(TOKENIZER, (text,), 16)
    answer = KIND.decode((text,), rows, [scores, scores[::1]], ())
    assert answer.text == "The cat  sees cat."
    assert [(each.token, each.score) for each in answer.tokens[0][:3]] == [("cat", 0.5), ("dog", 0.25), ("##s", 0.25)]
    assert [len(mask) for mask in answer.tokens] == [5, 5]
    assert answer.tokens[0][0] == Filling("cat", 0.5, ids("cat")[0])
    assert not answer.truncated
    scores[ids("##s")] = 1.0
    assert KIND.decode((text,), rows, [scores, scores], ()).text == "Thes  seess."
    (cut,) = KIND.rows(TOKENIZER, ("the cat sees [MASK]",), 5)
    assert KIND.decode(("the cat sees [MASK]",), [cut], [scores], ()).truncated


def test_json_ranking_and_lines():
    answer = FillMask("a cat", ((Filling("cat", 0.5, 6), Filling("dog", 0.25, 7)),), True)
    assert answer.to_json() == {
        "text": "a cat",
        "tokens": [[{"token": "cat", "score": 0.5, "id": 6}, {"token": "dog", "score": 0.25, "id": 7}]],
        "truncated": True,
    }
    assert KIND.text(answer.to_json()) == KIND.line(answer.to_json(), "x") == "a cat"
    assert KIND.limited(answer, 1, None) is answer
    assert KIND.limited(answer, None, 0.25).tokens == answer.tokens
    assert KIND.limited(answer, None, 0.3).tokens == (answer.tokens[0][:1],)
    assert KIND.ranking(2, None).options["top"] == 2
    assert KIND.ranking(None, 0.5) is KIND
    np.testing.assert_allclose(KIND.probabilities(np.log([1.0, 3.0])), [0.25, 0.75])
    assert KIND.signal([]).shape == (0, 1)
    np.testing.assert_allclose(KIND.signal([np.array([0.5, 0.5])]), [[np.log(0.5)] * 2], rtol=1e-6)


def test_spellings():
    assert KIND.example("the cat sees") == "the [MASK] sees"
    assert KIND.example("") == "[MASK]"
    assert KIND.example("the cat") == "the [MASK]"
    assert spelled(TOKENIZER, ids("##s")[0]) == "##s"
    assert spelled(TOKENIZER, ids("[SEP]")[0]) == "[SEP]"
    assert filling(TOKENIZER, ids("##s")[0]) == "s"
    bpe = small_bpe()
    of_the = bpe.encode("a the")[-1]
    assert (spelled(bpe, of_the), filling(bpe, of_the)) == (" the", "the")
    assert pattern(TOKENIZER) == r"\[MASK\]|<mask>"
    other = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "*", "a"], specials={**TOKENIZER.specials, "mask": "*"})
    assert pattern(other) == r"\*|\[MASK\]|<mask>"
