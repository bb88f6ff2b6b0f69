"""BPE within words: answers by hand, tokenizers' answers, files in and out, what is refused."""

import json

import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer, save_hf
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.word_bpe import SPECIALS, WordPairEncoding
from tests.text.kinds import small_word_bpe, within_words_reference
from tests.text.strings import generate

MERGES = [("l", "o"), ("lo", "w"), ("lo", "w</w>"), ("e", "r</w>"), ("low", "er</w>")]
PIECES = [*SPECIALS.values(), *"lower", *(f"{c}</w>" for c in "lower!"), "lo", "low", "low</w>", "er</w>", "lower</w>"]
TOKENIZER = WordPairEncoding(PIECES, MERGES)
TEXTS = [
    "",
    " ",
    "Low lower!",
    "don't\tstop",
    "café CAFÉ",
    "中国 low",
    "lowé",
    "\u0301",
    "a\u200bb",
    "low</w>",
    "<unk> low",
    "e\u0323\u0301r",
]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Lower low", ["lower</w>", "low</w>"]),
        ("LÖWe", ["low", "e</w>"]),
        ("low!low", ["low</w>", "!</w>", "low</w>"]),
        ("lo l", ["l", "o</w>", "l</w>"]),
        ("lowx xx", ["low", "<unk>", "<unk>", "<unk>"]),
        ("", []),
    ],
)
def test_by_hand(text, pieces):
    found = TOKENIZER.tokenize(text)
    assert found.pieces == pieces
    assert TOKENIZER.encode(text) == found.ids == [PIECES.index(piece) for piece in pieces]


def test_offsets_and_back_to_text():
    found = TOKENIZER.tokenize(" Lówe, x low")
    assert list(zip(found.pieces, found.starts, found.ends)) == [
        ("low", 1, 4),
        ("e</w>", 4, 5),
        ("<unk>", 5, 6),
        ("<unk>", 7, 8),
        ("low</w>", 9, 12),
    ]
    assert TOKENIZER.decode(TOKENIZER.encode("Lower, low")) == "lower <unk>low"
    assert TOKENIZER.decode([0, *TOKENIZER.encode("low"), 2]) == "low"
    assert TOKENIZER.pack("low", "lower")[0] == TOKENIZER.encode("low lower")


@pytest.mark.parametrize("tokenizer", [TOKENIZER, small_word_bpe()])
def test_ids_offsets_and_text_are_those_of_tokenizers(tokenizer):
    reference = within_words_reference(tokenizer)
    texts = [*TEXTS, *generate(150, seed=11)]
    for text, expected in zip(texts, reference.encode_batch(texts)):
        found = tokenizer.tokenize(text)
        assert found.ids == expected.ids, text
        assert list(zip(found.starts, found.ends)) == expected.offsets, text
        assert tokenizer.decode(found.ids) == reference.decode(found.ids)
    ids, starts, ends = (part.to_list() for part in graph_tokenizer(tokenizer).tokenize(tf.constant(texts)))
    assert [*zip(ids, starts, ends)] == [tuple(tokenizer.tokenize(text)[i] for i in (0, 2, 3)) for text in texts]


def test_what_ids_stand_for_is_the_same_text_in_the_graph():
    tokenizer = small_word_bpe()
    rows = [tokenizer.encode(text) for text in (*TEXTS, *generate(20, seed=2))] + [[0, 1, 2], [*range(tokenizer.size)]]
    parts = [[part for part in map(tokenizer.spelling, row) if part is not None] for row in rows]
    found = graph_tokenizer(tokenizer).text_of(tf.ragged.constant(parts, tf.string))
    assert [text.decode() for text in found.numpy()] == [tokenizer.decode(row) for row in rows]


def test_further_special_tokens_stand_behind_the_pieces():
    extended = TOKENIZER.extended(["<extra_id_1>", "<extra_id_0>"])
    size = TOKENIZER.size
    assert extended.encode("low<extra_id_0> er") == [*TOKENIZER.encode("low"), size + 1, *TOKENIZER.encode("er")]
    assert extended.special_ids == (*TOKENIZER.special_ids, size, size + 1)
    found = graph_tokenizer(extended).tokenize(["low<extra_id_0> er"])
    expected = extended.tokenize("low<extra_id_0> er")
    assert [part.to_list()[0] for part in found] == [expected.ids, expected.starts, expected.ends]


def theirs(folder, content=None, **config):
    """A folder with the files of OpenAI's GPT: <unk> is its one special token."""
    pieces = ["<unk>", *PIECES[3:]]
    (folder / "vocab.json").write_text(json.dumps(content or {piece: i for i, piece in enumerate(pieces)}))
    lines = ["#version: 0.2", *(" ".join(merge) for merge in MERGES), ""]
    (folder / "merges.txt").write_text("\n".join(lines))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("config", [{}, {"tokenizer_class": "OpenAIGPTTokenizerFast"}])
def test_gpts_own_files(config, tmp_path):
    tokenizer = load_tokenizer(theirs(tmp_path, **config))
    assert (tokenizer.kind, tokenizer.special_ids, tokenizer.cls_id, tokenizer.mask_id) == (
        "word_bpe",
        (0,),
        None,
        None,
    )
    assert tokenizer.tokenize("Lower low x").pieces == ["lower</w>", "low</w>", "<unk>"]
    reference = within_words_reference(tokenizer)
    reference.save(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path)  # without a post_processor the second text is of the second segment
    assert again.template == ("$A", "$A $B:1")
    assert again.settings() | {"template": ["$A", "$A $B"]} == tokenizer.settings()
    assert (again.vocabulary, again.merges) == (tokenizer.vocabulary, tokenizer.merges)
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()


@pytest.mark.parametrize("tokenizer", [TOKENIZER, small_word_bpe()])
def test_a_tokenizer_json_goes_out_and_comes_back(tokenizer, tmp_path):
    from tokenizers import Tokenizer

    save_hf(tokenizer, tmp_path / "tokenizer.json")
    reference = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in (text for text in TEXTS if "<unk>" not in text):
        # without special tokens a row of nothing holds one token of padding here
        assert (reference.encode(text).ids or [tokenizer.pad_id]) == tokenizer.pack(text)[0]
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert again.digest() == tokenizer.digest()


def changed(**model):
    """A tokenizer.json of it with other settings of the model."""
    content = json.loads(within_words_reference(TOKENIZER).to_str())
    return content | {"model": content["model"] | model}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            changed(end_of_word_suffix="</end>"),
            "model.end_of_word_suffix is '</end>', expected '</w>': only BPE within words",
        ),
        (changed(fuse_unk=True), "model.fuse_unk is True, expected False"),
        (
            changed() | {"pre_tokenizer": {"type": "Whitespace"}},
            "pre_tokenizer.type is 'Whitespace', expected 'BertPreTokenizer'",
        ),
        (changed() | {"normalizer": None}, "normalizer.type is None, expected 'BertNormalizer'"),
    ],
)
def test_what_is_not_gpts_is_refused(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_files_that_are_none_of_gpts(tmp_path):
    with pytest.raises(InputError, match="merges end words with </w>: fastBPE as in XLM"):
        load_tokenizer(theirs(tmp_path, {piece: i for i, piece in enumerate(["<unk>", "<s>", *PIECES[3:]])}))
    (tmp_path / "merges.txt").write_text("l o\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "OpenAIGPTTokenizer"}))
    with pytest.raises(
        InputError, match="tokenizer_class is 'OpenAIGPTTokenizer', which reads vocab.json in a way of its own"
    ):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="none of the 4 pieces ends with </w>, expected pieces that end words"):
        WordPairEncoding([*SPECIALS.values(), "a"], [])
    (tmp_path / "source.spm").write_bytes(b"")
    with pytest.raises(
        InputError, match="Marian's tokenizer .* is two SentencePiece models over one vocabulary, which is not read"
    ):
        load_tokenizer(tmp_path)


def test_trimming_keeps_what_words_are_made_of():
    from collections import Counter

    from kerasbert.mobile.vocabulary.trimming import keep, smaller_tokenizer

    ids = keep(TOKENIZER, Counter(TOKENIZER.encode("lower")))
    smaller = smaller_tokenizer(TOKENIZER, ids)
    assert smaller.tokenize("lower low").pieces == ["lower</w>", "lo", "w</w>"]
