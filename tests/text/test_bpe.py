"""Byte-level BPE: answers worked out by hand, relations, errors."""

import pytest
from tokenizers import Tokenizer

from kerasbert.errors import InputError
from kerasbert.text import BytePairEncoding, load_tokenizer, save_hf
from kerasbert.text.bpe import ALPHABET, SPECIALS, split_words
from tests.support import shared
from tests.text.kinds import gpt2_bpe, small_bpe
from tests.text.strings import generate

MERGES = [("l", "o"), ("lo", "w"), ("e", "r"), ("Ġ", "low"), ("Ã", "©")]
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *ALPHABET, "lo", "low", "er", "Ġlow", "Ã©", "<mask>"]
TOKENIZER = BytePairEncoding(PIECES, MERGES)
ID = {piece: i for i, piece in enumerate(PIECES)}


def test_the_alphabet_is_gpt2s():
    assert len(set(ALPHABET)) == 256
    assert (ALPHABET[0x20], ALPHABET[0x0A], ALPHABET[0x41], ALPHABET[0xAD]) == ("Ġ", "Ċ", "A", "\u0143")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("lower low", ["low", "er", "Ġlow"]),
        ("slow", ["s", "low"]),
        (" lower", ["Ġlow", "er"]),
        ("é", ["Ã©"]),
        ("low  low\n", ["low", "Ġ", "Ġlow", "Ċ"]),
        ("", []),
        (" ", ["Ġ"]),
    ],
)
def test_merges(text, pieces):
    assert TOKENIZER.tokenize(text).pieces == pieces
    assert TOKENIZER.encode(text) == [ID[piece] for piece in pieces]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't stop", ["don", "'t", " stop"]),
        ("we'll've 'll", ["we", "'ll", "'ve", " '", "ll"]),
        ("a  b\n c", ["a", " ", " b", "\n", " c"]),
        ("x2 y!?", ["x", "2", " y", "!?"]),
        ("end  ", ["end", "  "]),
        ("\u00a0a\u3000 b", ["\u00a0", "a", "\u3000", " b"]),
        ("DON'T", ["DON", "'", "T"]),
    ],
)
def test_words(text, words):
    assert split_words(text) == words


def test_offsets_leave_blanks_out_and_hold_whole_characters():
    tokens = TOKENIZER.tokenize("low lower 中")
    assert list(zip(tokens.starts, tokens.ends)) == [(0, 3), (4, 7), (7, 9), (10, 10), (10, 11), (10, 11), (10, 11)]


def test_a_prefix_blank_makes_the_first_word_like_the_others():
    tokenizer = BytePairEncoding(PIECES, MERGES, add_prefix_space=True)
    tokens = tokenizer.tokenize("low low")
    assert tokens.pieces == ["Ġlow", "Ġlow"]
    assert (tokens.starts, tokens.ends) == ([0, 4], [3, 7])
    assert tokenizer.encode("") == []
    assert tokenizer.encode(" low") == tokenizer.encode("low")


def test_the_lowest_rank_wins_and_of_equal_ones_the_leftmost():
    tokenizer = BytePairEncoding(
        ["<s>", "<pad>", "</s>", "<unk>", *ALPHABET, "bc", "ab", "aa", "<mask>"], ["bc", "ab", "aa"]
    )
    assert tokenizer.tokenize("abc").pieces == ["a", "bc"]
    assert tokenizer.tokenize("aaa").pieces == ["aa", "a"]


def test_pack_is_robertas():
    a, b = TOKENIZER.encode("low"), TOKENIZER.encode("lower")
    assert TOKENIZER.pack("low") == ([0, *a, 2], [0] * 3)
    assert TOKENIZER.pack("low", "lower") == ([0, *a, 2, 2, *b, 2], [0] * 7)
    assert TOKENIZER.pack("low", "lower", length=6)[0] == [0, *a, 2, 2, b[0], 2]
    with pytest.raises(InputError, match="length is 3, expected at least 4"):
        TOKENIZER.pack("low", "lower", length=3)


def test_a_special_token_typed_by_a_user_is_text():
    assert not set(TOKENIZER.special_ids) & set(TOKENIZER.encode("<mask> <s></s>"))
    assert (TOKENIZER.pad_id, TOKENIZER.mask_id, TOKENIZER.cls_id) == (1, ID["<mask>"], 0)


def test_pieces_of_whole_characters_have_a_text():
    assert [TOKENIZER.whole(piece) for piece in ("Ġlow", "Ã©", "a", "")] == [" low", "é", "a", ""]
    # half of a character, and what stands for no bytes
    assert [TOKENIZER.whole(piece) for piece in ("Ã", "a b", "low日", "<mask>é日")] == [None] * 4


@pytest.mark.parametrize(
    ("text", "begin", "end", "span"),
    [
        ("a   <m> b", 1, 7, (4, 7)),
        ("a<m>   b", 1, 7, (1, 4)),
        ("a \t<m>\n b", 1, 8, (3, 6)),
        ("a<m>b", 1, 4, (1, 4)),
        (" <m>", 0, 4, (1, 4)),
        ("  ", 0, 2, (2, 2)),
    ],
)
def test_an_added_token_stands_without_the_blanks_that_it_took_in(text, begin, end, span):
    assert TOKENIZER.span(text, begin, end) == ([span[0]], [span[1]])
    first = 0 if text == " <m>" else span[0]  # a single blank in front may be one that the tokenizer put there itself
    assert small_bpe(True).span(text, begin, end) == ([first], [span[1]])


def test_decode_is_the_inverse():
    for text in generate(60, seed=4):
        assert TOKENIZER.decode(TOKENIZER.pack(text)[0]) == text
    assert TOKENIZER.decode([ID["Ã"]]) == "\ufffd"


def test_words_begin_with_a_blank():
    assert not TOKENIZER.continues(ID["Ġlow"])
    assert not TOKENIZER.continues(ID["Ċ"])
    assert not TOKENIZER.continues(TOKENIZER.mask_id)
    assert TOKENIZER.continues(ID["er"])


def test_lone_surrogates_and_invalid_bytes_are_replacement_characters():
    assert TOKENIZER.encode("a\ud800b") == TOKENIZER.encode("a\ufffdb") == TOKENIZER.encode(b"a\xffb")


def test_gpt2s_ids():
    tokenizer = gpt2_bpe()
    assert [i - 4 for i in tokenizer.encode("Hello world")] == [15496, 995]
    folder = shared("data/vocab/gpt2-roberta-bpe")
    theirs = load_tokenizer(folder)
    assert theirs.encode("Hello world") == [15496, 995]
    assert (theirs.mask_id, theirs.cls_id, theirs.sep_id, theirs.special_ids) == (None, None, 50256, (50256,))
    assert theirs.pack("Hello world", "Hello")[0] == [15496, 995, 15496]


@pytest.mark.parametrize("prefix", [False, True])
def test_save_load_and_hugging_faces_file(tmp_path, prefix):
    tokenizer = small_bpe(prefix)
    tokenizer.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").digest() == tokenizer.digest()
    save_hf(tokenizer, tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("the unaffable", "Embeddings don't", ""):
        one, two = theirs.encode(text), theirs.encode(text, "e.g. naïve")
        assert (one.ids, one.type_ids) == tokenizer.pack(text)
        assert (two.ids, two.type_ids) == tokenizer.pack(text, "e.g. naïve")
    (tmp_path / "plain").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "plain" / name).write_bytes((tmp_path / "ours" / name).read_bytes())
    assert load_tokenizer(tmp_path / "plain").encode(" the") == tokenizer.encode(" the")


def test_errors(tmp_path):
    with pytest.raises(
        InputError, match=r"merge 6 \(q x\) needs the piece 'qx', which the vocabulary of 266 pieces has not"
    ):
        BytePairEncoding(PIECES, [*MERGES, ("q", "x")])
    with pytest.raises(InputError, match="merge 'a b c' has 3 pieces, expected two"):
        BytePairEncoding(PIECES, [("a", "b", "c")])
    with pytest.raises(InputError, match=r"has no <mask>, expected <pad> <unk> <s> </s> <mask>"):
        BytePairEncoding(PIECES[:-1], MERGES)
    with pytest.raises(InputError, match=r"no piece for 1 of the 256 bytes, first 0x41 \('A'\)"):
        BytePairEncoding([piece for piece in PIECES if piece != "A"], MERGES)
    TOKENIZER.save(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nz z\n")
    with pytest.raises(InputError, match=r"tokenizer.json: merge 1 \(z z\) needs the piece 'zz'"):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="lowercase cannot be changed for a tokenizer of kind 'bpe'"):
        load_tokenizer(tmp_path, lowercase=True)
    assert set(SPECIALS) == {"pad", "unk", "cls", "sep", "mask"}
