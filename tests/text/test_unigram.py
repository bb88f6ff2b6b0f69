"""Unigram: answers worked out by hand, the .model file, character maps, relations, errors."""

import contextlib
import random

import pytest
import sentencepiece
from tokenizers import normalizers

from kerasbert.errors import InputError
from kerasbert.text import Unigram, load_tokenizer, save_hf, unigram
from kerasbert.text.base import Inseparable
from kerasbert.text.charsmap import Charsmap, compile_charsmap
from kerasbert.text.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Model,
    folded,
    preprocessed,
    read_model,
    write_model,
)
from kerasbert.text.unigram import ALBERT, XLM_R
from tests.support import shared
from tests.text.kinds import sentencepiece_tokens, shared_unigram, small_unigram
from tests.text.strings import generate

WORDS = {"▁": -6.0, "▁low": -3.0, "er": -4.0, "e": -3.5, "r": -3.5, "▁lower": -8.0, "l": -5.0, "o": -5.0, "w": -5.0}


def model(words: dict[str, float] = WORDS, **settings) -> Model:
    """A model with ALBERT's special tokens."""
    specials = tuple(ALBERT.specials.values())
    types = (CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL, *[NORMAL] * len(words))
    return Model((*specials, *words), (0.0,) * 5 + tuple(words.values()), types, **settings)


TOKENIZER = Unigram(model())


def test_the_best_path():
    """▁low er: -7; ▁lower: -8; ▁low e r: -10."""
    assert TOKENIZER.tokenize("lower").pieces == ["▁low", "er"]
    assert TOKENIZER.tokenize("lo").pieces == ["▁", "l", "o"]


def test_unknown_characters_in_a_row_are_one_token():
    tokens = TOKENIZER.tokenize("xyz low")
    assert (tokens.pieces, tokens.starts, tokens.ends) == (["▁", "<unk>", "▁low"], [0, 0, 3], [0, 3, 7])


def test_blanks():
    tokens = TOKENIZER.tokenize("  low   low ")
    assert (tokens.pieces, tokens.starts, tokens.ends) == (["▁low", "▁low"], [2, 5], [5, 11])
    assert TOKENIZER.encode("  low   low ") == tokens.ids
    assert TOKENIZER.encode(" ") == TOKENIZER.encode("") == []


def test_bytes_for_what_is_unknown():
    words = WORDS | {f"<0x{byte:02X}>": 0.0 for byte in range(256)}
    made = model(words, byte_fallback=True)
    made = made._replace(types=(*made.types[:-256], *[BYTE] * 256))
    tokenizer = Unigram(made)
    tokens = tokenizer.tokenize("é low")
    assert tokens.pieces == ["▁", "<0xC3>", "<0xA9>", "▁low"]
    assert tokens == sentencepiece_tokens(tokenizer, ["é low"])[0]
    assert tokenizer.decode(tokens.ids) == "é low"
    with pytest.raises(InputError, match="has 0 of the 256 byte pieces"):
        Unigram(model(byte_fallback=True))


def test_user_defined_pieces_have_nearly_the_best_score_for_each_byte():
    """4 * -0.01 - 0.1 for lowe: better than ▁low e, and worse than ▁low er."""
    made = model(WORDS | {"zz": -0.01, "lowe": 0.0})
    tokenizer = Unigram(made._replace(types=(*made.types[:-1], USER_DEFINED)))
    assert tokenizer.tokenize("lowe").pieces == ["▁", "lowe"]
    assert tokenizer.tokenize("lower").pieces == ["▁low", "er"]
    for text in ("lowe", "lower", "xlowe lowelowe"):
        assert tokenizer.tokenize(text) == sentencepiece_tokens(tokenizer, [text])[0]


def test_a_special_token_typed_by_a_user_is_text():
    made = model()
    tokenizer = Unigram(made._replace(types=(*made.types[:4], USER_DEFINED, *made.types[5:])))
    assert tokenizer.mask_id not in tokenizer.encode("[MASK] low")


def test_pack_is_alberts():
    a, b = TOKENIZER.encode("lower"), TOKENIZER.encode("low")
    assert TOKENIZER.pack("lower", "low") == ([2, *a, 3, *b, 3], [0, 0, 0, 0, 1, 1])
    assert TOKENIZER.special_ids == (0, 1, 2, 3, 4)


def test_words_begin_with_a_blank():
    assert not TOKENIZER.continues(TOKENIZER.vocabulary.index("▁low"))
    assert TOKENIZER.continues(TOKENIZER.vocabulary.index("er"))
    assert not TOKENIZER.continues(TOKENIZER.unk_id)


def test_the_cache_changes_nothing():
    """A near tie is decided by what stands before it: the text is then segmented as a whole."""
    tokenizer = small_unigram()
    for text in map(tokenizer.to_text, generate(150, seed=11)[:-1]):
        expected = tokenizer._in_places(tokenizer.normalize(text))
        assert tokenizer.tokenize_plain(text, True) == expected
        assert tokenizer.encode(text) == expected[0]


@pytest.mark.full
@pytest.mark.parametrize("name", ["t5-base", "sentencepiece-8k-ja"])
def test_the_cache_changes_nothing_on_100000_strings(name):
    tokenizer = shared_unigram(name)
    for seed in range(100):
        for text in map(tokenizer.to_text, generate(1000, seed)):
            assert tokenizer.tokenize_plain(text, True) == tokenizer._in_places(tokenizer.normalize(text)), text


RULES = compile_charsmap(
    {"§": "", "x": "a  ", "_": "▁", "\t": " ", "\u00a8": " \u0308", "L": "l", "½": "1⁄2", "q w": "low"}
)
PIECES = ["low", "er", "lower", "§", "x", "_", "\t", "\u00a8", "L", "½", "q", "w", " ", "  ", "▁", "字", "é"]


@pytest.mark.parametrize("charsmap", [b"", RULES])
def test_offsets_from_the_cache_are_those_of_the_whole_text(charsmap):
    """Rules that drop, grow, give blanks or reach across one, in any order; each text twice, the second time from the cache."""
    tokenizer, draw, cached = Unigram(model(charsmap=charsmap)), random.Random(5), 0
    for _ in range(3000):
        text = "".join(draw.choices(PIECES, k=draw.randint(0, 9)))
        expected = tokenizer._in_places(tokenizer.normalize(text))
        assert tokenizer.tokenize_plain(text, True) == expected, text
        assert tokenizer.encode(text) == expected[0], text
        with contextlib.suppress(Inseparable):
            cached += tokenizer._in_chunks(text) == expected
    assert cached > 300


def test_the_model_file_round_trip():
    again = read_model(write_model(TOKENIZER.model))
    assert again == TOKENIZER.model
    processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(TOKENIZER.model))
    assert processor.encode("lower low") == TOKENIZER.encode("lower low")


def test_a_map_is_folded_once_and_for_each_setting_anew():
    """Which takes a second of the map that nearly all models have."""
    both = (False, True)
    found = [folded(model(charsmap=RULES), lower, accents).charsmap for lower in both for accents in both]
    assert len(set(found)) == 4
    assert folded(model(charsmap=RULES), True, True).charsmap is found[-1]
    assert folded(model(charsmap=RULES), True, True, {"x": "y"}).charsmap != found[-1]
    assert Charsmap(found[-1]).longest("X", 0) == (1, "a  ")


def test_character_maps():
    rules = {"a": "b", "ab": "", "é": "e", "中文": "x y", "``": '"'}
    charsmap = Charsmap(compile_charsmap(rules))
    assert charsmap.rules() == rules
    assert [charsmap.longest("abc", 0), charsmap.longest("ac", 0), charsmap.longest("中", 0)] == [
        (2, ""),
        (1, "b"),
        (1, "中"),
    ]
    made = Unigram(model(charsmap=compile_charsmap({"L": "l", "é": "er"})))
    assert made.tokenize("Lowé").pieces == ["▁low", "er"]
    assert made.tokenize("Lowé") == sentencepiece_tokens(made, ["Lowé"])[0]


def test_preprocessing_is_alberts():
    """As Hugging Face's AlbertTokenizer builds it; tests/text/kinds.py compares the rest."""
    theirs = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ]
    )
    for text in ("``Naïve'' Ǆ", "ﬁ ½ Σς", "Å\u0301 İ", "한국"):
        assert preprocessed(text, True, True) == theirs.normalize_str(text)
    tokenizer, plain = small_unigram(True), small_unigram(True).model
    processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(plain))
    for text in generate(200, seed=5)[:-1]:
        assert processor.encode(text) == processor.encode(preprocessed(text, True, True)) or max(text) >= "\u1100"
    assert tokenizer.encode("``The NAÏVE''") == tokenizer.encode('"the naive"')


def test_xlm_rs_ids_are_one_more_than_the_files(tmp_path):
    name = shared("data/vocab/sentencepiece-1k/test_model.model")
    tokenizer = load_tokenizer(name)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(name))
    assert tokenizer.encode("I saw a girl.") == [i + 1 for i in theirs.encode("I saw a girl.")]
    assert tokenizer.size == 1002
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        1001,
    )
    assert (tokenizer.specials, tokenizer.template) == XLM_R


@pytest.mark.parametrize("name", ["ALBERT", "XLNET", "BERT", "XLM_R", "T5"])
def test_a_layout_is_told_by_its_special_tokens(name):
    """One that lacks a token is another one's, in the end XLM-R's, whose ids a file need not have."""
    layout, order = getattr(unigram, name), [ALBERT, unigram.XLNET, unigram.BERT, XLM_R, unigram.T5]
    own = [*layout.specials.values()]
    assert unigram.layout_of([*own, "a"]) is layout
    for missing in own:
        left = {*own} - {missing}
        expected = next((each for each in order if left >= {*each.specials.values()}), XLM_R)
        assert unigram.layout_of([*left, "a"]) is expected
    assert unigram.layout_of(["<unk>", "<s>", "</s>"]) is XLM_R


SETTINGS = {3: (2, "type 'bpe', expected 'unigram'"), 24: (1, "suffix mode")}  # field of the trainer -> what is refused


@pytest.mark.parametrize("field", SETTINGS)
def test_a_model_that_was_learned_in_another_way_is_refused(field):
    """The trainer's fields as sentencepiece_model.proto numbers them; their defaults are read."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(write_model(TOKENIZER.model))
    name = proto.trainer_spec.DESCRIPTOR.fields_by_number[field].name
    setattr(proto.trainer_spec, name, {3: 1, 24: False}[field])
    assert read_model(proto.SerializeToString()) == TOKENIZER.model
    wrong, message = SETTINGS[field]
    setattr(proto.trainer_spec, name, wrong)
    with pytest.raises(InputError, match=message):
        read_model(proto.SerializeToString())


def test_t5_has_no_mask():
    tokenizer = shared_unigram("t5-base")
    assert (tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 1, 2, None)
    assert tokenizer.pack("A film.")[0][-1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
def test_save_load_and_hugging_faces_file(tmp_path, lowercase):
    tokenizer = small_unigram(lowercase)
    tokenizer.save(tmp_path / "ours")
    again = load_tokenizer(tmp_path / "ours")
    assert again.digest() == tokenizer.digest()
    save_hf(tokenizer, tmp_path / "tokenizer.json")
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("the unaffable", "Embeddings ``don't''", "naïve  Straße", ""):
        assert theirs.encode(text).ids == tokenizer.pack(text)[0]
        assert theirs.encode(text, "the").type_ids == tokenizer.pack(text, "the")[1]
        assert load_tokenizer(tmp_path).encode(text) == tokenizer.encode(text)


def test_errors(tmp_path):
    data = write_model(TOKENIZER.model)
    for name, content, message in (
        ("empty.model", b"", "damaged: a SentencePiece model without pieces"),
        ("cut.model", data[:-3], "damaged: not a SentencePiece model"),
        ("text.model", b"not a model at all", "damaged: not a SentencePiece model"),
        ("cut.spm", write_model(model(charsmap=b"\x00\x01\x00\x00ab")), "damaged: the character map"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_tokenizer(tmp_path / name)
    with pytest.raises(InputError, match=r"has no \[MASK\], expected <pad> <unk> \[CLS\] \[SEP\] \[MASK\]"):
        Unigram(model()._replace(pieces=("<pad>", "<unk>", "[CLS]", "[SEP]", "x", *WORDS)))
    with pytest.raises(InputError, match="a SentencePiece model of type 'word', expected 'unigram'"):
        load_tokenizer(shared("data/vocab/albert-tiny-test/albert_test_vocab.spm"))
