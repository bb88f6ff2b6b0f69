"""What all kinds of tokenizers share, on a small WordPiece by hand: added tokens, offsets, rows, copies with other pieces."""

import pytest

from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.text.added import AddedToken
from kerasbert.text.wordpiece import SPECIALS

PIECES = [*SPECIALS, "the", "cat", "runs", "new", "york", "##s", "x"]
ADDED = [AddedToken("[E1]"), AddedToken("New York", normalized=True)]
TOKENS = WordPiece([*PIECES, "[E1]", "New York"], added=ADDED)
CAT, NEW_YORK, E1 = (TOKENS.vocabulary.index(piece) for piece in ("cat", "New York", "[E1]"))


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("the cats", ["the", "cat", "##s"], [(0, 3), (4, 7), (7, 8)]),
        ("[E1]the", ["[E1]", "the"], [(0, 4), (4, 7)]),
        ("the [E1] cat", ["the", "[E1]", "cat"], [(0, 3), (4, 8), (9, 12)]),
        ("NEW YORK cat", ["New York", "cat"], [(0, 8), (9, 12)]),
        ("the new york", ["the", "New York"], [(0, 3), (4, 12)]),
        ("the new york cat", ["the", "New York", "cat"], [(0, 3), (4, 12), (13, 16)]),
        ("x [E1] New  York", ["x", "[E1]", "new", "york"], [(0, 1), (2, 6), (7, 10), (12, 16)]),
        ("Ne\u0301w York the", ["New York", "the"], [(0, 9), (10, 13)]),
        ("", [], []),
    ],
)
def test_added_tokens_stand_among_pieces(text, pieces, spans):
    found = TOKENS.tokenize(text)
    assert [TOKENS.vocabulary[i] for i in found.ids] == pieces
    assert found.pieces == pieces
    assert list(zip(found.starts, found.ends)) == spans
    assert TOKENS.encode(text) == found.ids
    assert TOKENS.encode(text.encode()) == found.ids


def test_tokens_that_are_not_normalised_leave_the_rest_its_places():
    tokenizer = WordPiece([*PIECES, "[E1]"], added=ADDED[:1])
    found = tokenizer.tokenize("the [E1] cats[E1]")
    assert found.pieces == ["the", "[E1]", "cat", "##s", "[E1]"]
    assert list(zip(found.starts, found.ends)) == [(0, 3), (4, 8), (9, 12), (12, 13), (13, 17)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("new york cat", [(" cat", False)]),
        ("the new york cat", [("the ", True), (" cat", False)]),
        ("[E1]the new york", [("the ", False)]),
        ("the [E1]new york cat", [("the ", True), (" cat", False)]),
        (" the", [(" the", True)]),
        ("[E1]", []),
    ],
)
def test_what_stands_first_is_told_that_it_does(text, told):
    """A tokenizer that puts a blank before a text does so before its first part alone."""
    seen = []

    class Noted(WordPiece):
        def tokenize_form(self, form, first):
            seen.append((form, first))
            return super().tokenize_form(form, first)

    Noted(TOKENS.vocabulary, added=ADDED).tokenize(text)
    assert seen == told


def test_invalid_bytes_are_a_replacement_character():
    assert TOKENS.encode(b"cat \xff cat") == TOKENS.encode("cat \ufffd cat")
    assert TOKENS.to_text(b"\xff") == "\ufffd"


def test_rows_by_hand():
    cls, sep = TOKENS.cls_id, TOKENS.sep_id
    assert TOKENS.pack("cat [E1]") == ([cls, CAT, E1, sep], [0, 0, 0, 0])
    assert TOKENS.pack("cat", "new york") == ([cls, CAT, sep, NEW_YORK, sep], [0, 0, 0, 1, 1])
    assert TOKENS.pack("cat cat cat", length=4) == ([cls, CAT, CAT, sep], [0] * 4)
    assert TOKENS.pack("cat cat cat", "cat", length=6) == ([cls, CAT, CAT, sep, CAT, sep], [0, 0, 0, 0, 1, 1])
    with pytest.raises(InputError, match="length"):
        TOKENS.pack("cat", length=1)
