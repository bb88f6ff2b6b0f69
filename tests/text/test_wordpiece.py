"""The pure-Python tokenizer: answers worked out by hand, relations, errors."""

import pytest

from kerasbert.errors import InputError
from kerasbert.text import WordPiece, load_tokenizer
from kerasbert.text.base import CACHED_LENGTH
from kerasbert.text.normalize import Normalizer
from kerasbert.text.wordpiece import SPECIALS
from tests.support import python, shared

PIECES = [
    "un",
    "##aff",
    "##able",
    "h",
    "##yp",
    "##ati",
    "##a",
    "naive",
    "cafe",
    "!",
    ",",
    "中",
    "文",
    "strasse",
    "i",
    "[",
    "mask",
    "]",
]
TOKENIZER = WordPiece([*SPECIALS, *PIECES])
ID = {piece: i for i, piece in enumerate(TOKENIZER.vocabulary)}


def pieces(text: str | bytes, tokenizer: WordPiece = TOKENIZER) -> list[str]:
    """Pieces of a text."""
    return tokenizer.tokenize(text).pieces


def test_the_papers_word():
    assert TOKENIZER.encode("unaffable") == [ID["un"], ID["##aff"], ID["##able"]] == [5, 6, 7]


def test_hypatia():
    tokens = TOKENIZER.tokenize("Hypatia!")
    assert tokens.pieces == ["h", "##yp", "##ati", "##a", "!"]
    assert (tokens.starts, tokens.ends) == ([0, 1, 3, 6, 7], [1, 3, 6, 7, 8])


def test_hypatia_with_bert_base_uncased():
    tokenizer = load_tokenizer(shared("data/vocab/bert-base-uncased/vocab.txt"))
    assert pieces("Hypatia", tokenizer) == ["h", "##yp", "##ati", "##a"]
    assert tokenizer.encode("Hypatia") == [1044, 22571, 10450, 2050]
    assert tokenizer.pack("hello world") == ([101, 7592, 2088, 102], [0, 0, 0, 0])


def test_greedy_takes_the_longest_piece_and_gives_up_on_the_whole_word():
    tokenizer = WordPiece([*SPECIALS, "a", "ab", "##b", "##bc", "##d"])
    assert pieces("abc", tokenizer) == ["[UNK]"]  # ab, then no ##c: a + ##bc is not tried
    assert pieces("abd", tokenizer) == ["ab", "##d"]
    assert pieces("x abd", tokenizer) == ["[UNK]", "ab", "##d"]


@pytest.mark.parametrize(
    ("text", "starts", "ends"),
    [
        ("cafe\u0301,", [0, 5], [4, 6]),  # the accent belongs to no piece
        ("caf\u00e9,", [0, 4], [4, 5]),
        (" \u0301cafe", [2], [6]),  # nor at the beginning
        ("na\u00adive", [0], [6]),  # a soft hyphen is dropped, the piece reaches across it
        ("a\u0000 \t cafe", [0, 5], [1, 9]),
        ("中文", [0, 1], [1, 2]),
        ("\U0001f600 cafe", [0, 2], [1, 6]),  # characters, neither bytes nor UTF-16 units
    ],
)
def test_offsets_are_characters_of_the_original_text(text, starts, ends):
    tokens = TOKENIZER.tokenize(text)
    assert (tokens.starts, tokens.ends) == (starts, ends)


def test_no_compatibility_folding_and_no_final_sigma():
    assert pieces("straße") == ["[UNK]"]
    sigma = WordPiece([*SPECIALS, "σ", "##σ", "ς"])
    assert pieces("ΣΣ", sigma) == ["σ", "##σ"]


def test_a_special_token_typed_by_a_user_is_text():
    assert pieces("[MASK]") == ["[", "mask", "]"]
    assert not set(TOKENIZER.special_ids) & set(TOKENIZER.encode("[MASK]"))


def test_the_long_word_limit_counts_characters():
    tokenizer = WordPiece([*SPECIALS, "é", "##é"], strip_accents=False)
    assert tokenizer.encode("é" * 100) == [5] + [6] * 99
    assert tokenizer.encode("é" * 101) == [tokenizer.unk_id]
    assert WordPiece([*SPECIALS, "aaa"], max_word_chars=2).encode("aaa") == [1]


@pytest.mark.parametrize(
    ("data", "replaced"),
    [(b"un\xffaffable", 1), (b"un\xe4\xb8affable", 1), (b"un\xed\xa0\x80affable", 3), (b"un\xc0\xafaffable", 2)],
)
def test_invalid_bytes_count_as_one_replacement_character_each_and_are_dropped(data, replaced):
    tokens = TOKENIZER.tokenize(data)
    assert tokens.pieces == ["un", "##aff", "##able"]
    assert tokens.starts == [0, 2 + replaced, 5 + replaced]


def test_lone_surrogates_are_dropped():
    assert TOKENIZER.tokenize("un\ud800affable").starts == [0, 3, 6]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Un-affable!! [x]", ["un", "-", "affable", "!", "!", "[", "x", "]"]),
        ("un\tAffable", ["un", "affable"]),
        ("a~b\x7fc^", ["a", "~", "bc", "^"]),
        ("caf\u00e9 Un\u2019s", ["cafe", "un", "\u2019", "s"]),
        ("\u4e2dun!", ["\u4e2d", "un", "!"]),
        ("q\u0315\u1b44", ["q\u1b44"]),  # a character that NFD may move
        (" ", []),
    ],
)
def test_words_alone_are_those_with_places(text, words):
    normalizer = Normalizer(True, True, True)
    found = list(normalizer.words(text))
    assert normalizer.split(text) == [word for word, _ in found] == words
    assert all(len(word) == len(places) and max(places) < len(text) for word, places in found)


def test_the_cache_changes_nothing():
    text = "Unaffable, unaffable! " + "naïve" * 30
    fresh = WordPiece(TOKENIZER.vocabulary)
    first, second = fresh.tokenize(text), fresh.tokenize(text)
    assert first == second
    assert all(len(chunk) <= CACHED_LENGTH for chunk in fresh._chunks)


@pytest.mark.parametrize(
    ("length", "a", "b"),
    # a has 3 tokens, b has 6: the longer loses its end until both are equal, then a keeps the odd one
    [(12, 3, 6), (11, 3, 5), (9, 3, 3), (8, 3, 2), (7, 2, 2), (4, 1, 0), (3, 0, 0)],
)
def test_pack_truncates_as_bert_does(length, a, b):
    token_ids, segment_ids = TOKENIZER.pack("unaffable", "unaffable unaffable", length)
    first = [2, *[5, 6, 7][:a], 3]
    second = [*[5, 6, 7, 5, 6, 7][:b], 3]
    assert token_ids == first + second
    assert segment_ids == [0] * len(first) + [1] * len(second)


@pytest.mark.parametrize(("length", "truncated"), [(None, False), (12, False), (11, True), (3, True)])
def test_a_text_is_read_once_and_its_loss_is_told(length, truncated, monkeypatch):
    texts, asked, encode = ("unaffable", "unaffable unaffable"), [], TOKENIZER.encode
    packed = TOKENIZER.pack(*texts, length)
    monkeypatch.setattr(TOKENIZER, "encode", lambda text: asked.append(text) or encode(text))
    assert TOKENIZER.cut_to(*texts, length) == (*packed, truncated)
    assert asked == list(texts)


def test_pack_of_one_text():
    assert TOKENIZER.pack("unaffable") == ([2, 5, 6, 7, 3], [0] * 5)
    assert TOKENIZER.pack("unaffable", length=4) == ([2, 5, 6, 3], [0] * 4)
    assert TOKENIZER.pack("", "") == ([2, 3, 3], [0, 0, 1])


def test_pack_without_room():
    with pytest.raises(InputError, match="length is 2, expected at least 3"):
        TOKENIZER.pack("a", "b", 2)


def test_decode():
    ids, _ = TOKENIZER.pack("Unaffable, café!")
    assert TOKENIZER.decode(ids) == "unaffable , cafe !"
    assert TOKENIZER.continues(ID["##a"])
    assert not TOKENIZER.continues(ID["un"])


@pytest.mark.parametrize("missing", SPECIALS)
def test_a_vocabulary_without_a_special_token(missing):
    with pytest.raises(
        InputError, match=rf"the vocabulary of 22 pieces has no \{missing[:-1]}\], expected \[PAD\] \[UNK\]"
    ):
        WordPiece([piece for piece in TOKENIZER.vocabulary if piece != missing])


def test_an_empty_vocabulary():
    with pytest.raises(InputError, match="the vocabulary is empty"):
        WordPiece([])


def test_a_piece_twice():
    with pytest.raises(InputError, match="1 pieces occur more than once in the vocabulary, first 'un'"):
        WordPiece([*TOKENIZER.vocabulary, "un"])


def test_digest_knows_settings_and_vocabulary():
    same = WordPiece(TOKENIZER.vocabulary, lowercase=True, strip_accents=True)
    assert same.digest() == TOKENIZER.digest()
    assert WordPiece(TOKENIZER.vocabulary, lowercase=False).digest() != TOKENIZER.digest()
    assert WordPiece([*TOKENIZER.vocabulary, "x"]).digest() != TOKENIZER.digest()


def test_the_phone_side_imports_the_standard_library_only():
    code = "import sys; from kerasbert import text; print({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    assert eval(python("-S", "-c", code).stdout) <= {"kerasbert", "__main__"}
