"""The splits of byte-level BPE by hand (as tokenizers 0.23.3 gives them), in its graph, and in files."""

import itertools
import json

import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.text import BytePairEncoding, load_tokenizer, save_hf
from kerasbert.text.bpe_words import SPLITS, split_words
from kerasbert.text.bpe_words_graph import class_table, word_starts
from kerasbert.text.words_graph import decode
from tests.text.kinds import byte_level_reference, split_bpe
from tests.text.strings import generate

# text -> words by llama3, and by qwen2 where those differ
WORDS = [
    ("don'T x'LL 'RE", ["don", "'T", " x", "'LL", " '", "RE"], None),
    ("'\u017fabc", ["'\u017f", "abc"], None),
    ("x  12345", ["x", " ", " ", "123", "45"], ["x", " ", " ", "1", "2", "3", "4", "5"]),
    ("!\n\n \n a", ["!\n\n", " \n", " a"], None),
    ("\x85a \x85\x85b \u2028\n", ["\x85a", " \x85", "\x85b", " \u2028\n"], None),
    ("x\r\n  \r\n  y", ["x", "\r\n  \r\n", " ", " y"], None),
    ("!abc !!abc \t!abc", ["!abc", " !!", "abc", " ", "\t", "!abc"], None),
    (" !\r a\u0301b  ", [" !\r", " a", "\u0301b", "  "], None),
    ("", [], None),
]


def in_graph(texts: list[str], name: str) -> list[list[str]]:
    codes, (blocks, entries) = decode(tf.constant(texts)), class_table()
    flat = codes.flat_values
    kinds = tf.gather(entries, tf.gather(blocks, tf.bitwise.right_shift(flat, 8)) + (flat & 255))
    begins = codes.with_flat_values(word_starts(SPLITS[name].digits, flat, kinds, codes.row_splits))
    found = []
    for text, row in zip(texts, begins.to_list()):
        places = [i for i, begin in enumerate(row) if begin] + [len(text)]
        found.append([text[first:last] for first, last in itertools.pairwise(places)])
    return found


@pytest.mark.parametrize("name", ["llama3", "qwen2"])
def test_words_by_hand(name):
    wanted = [(by_qwen or words) if name == "qwen2" else words for _, words, by_qwen in WORDS]
    texts = [text for text, *_ in WORDS]
    assert [split_words(text, name) for text in texts] == wanted
    assert in_graph(texts, name) == wanted


@pytest.mark.parametrize("name", SPLITS)
def test_words_of_a_batch_are_those_of_each_text(name):
    texts = [text for text in generate(40, seed=8) if len(text) < 2000]
    assert in_graph(texts, name) == [split_words(text, name) for text in texts]


def test_a_word_that_is_a_piece_is_that_piece_where_merges_are_ignored():
    made = split_bpe("llama3")
    merging = BytePairEncoding(made.vocabulary, made.merges, **made.settings() | {"ignore_merges": False})
    word = next(
        text
        for i, piece in enumerate(made.vocabulary)
        if (text := made.whole(piece)) and split_words(text, "llama3") == [text] and merging.encode(text) != [i]
    )
    assert len(made.encode(word)) == 1 < len(merging.encode(word))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3", "qwen2"])
def test_splits_are_those_of_tokenizers(name):
    from tests.text.test_parity_kinds import differences

    assert differences(split_bpe(name), generate(300, seed=7)) == ([], 0)


@pytest.mark.parametrize("name", ["llama3", "qwen2"])
@pytest.mark.parametrize("way", [("Isolated", False), ("Removed", True)])
def test_a_split_is_read_by_its_expression_and_written_again(name, way, tmp_path):
    save_hf(split_bpe(name), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    split, level = content["pre_tokenizer"]["pretokenizers"]
    assert (split["pattern"], level["use_regex"]) == ({"Regex": SPLITS[name].expression}, False)
    split["behavior"], split["invert"] = way
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    read = load_tokenizer(tmp_path)
    assert read.digest() == split_bpe(name).digest()
    reference = byte_level_reference(read)
    text = "It's 12345 o'CLOCK:\n\n  naïve\u0301 x"
    assert read.encode(text) == reference.encode(text, add_special_tokens=False).ids
    read.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").digest() == read.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": {"Regex": r"\w+"}}, r"pre_tokenizer splits at '\\\\w\+', expected the expression of gpt2, llama3"),
        ({"pattern": {"String": " "}}, "pre_tokenizer splits at None"),
        ({"behavior": "MergedWithNext"}, "Split has behavior and invert"),
        ({"invert": True}, "Split has behavior and invert"),
    ],
)
def test_other_splits_are_refused(change, message, tmp_path):
    save_hf(split_bpe("llama3"), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["pre_tokenizer"]["pretokenizers"][0] |= change
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_a_blank_before_every_word_is_refused():
    made = split_bpe("llama3")
    with pytest.raises(InputError, match="add_prefix_space beside the split 'llama3'"):
        BytePairEncoding(made.vocabulary, made.merges, **made.settings() | {"add_prefix_space": True})
    with pytest.raises(InputError, match="no split 'lama3'. Nearest: 'llama3'"):
        BytePairEncoding(made.vocabulary, made.merges, **made.settings() | {"split": "lama3"})
