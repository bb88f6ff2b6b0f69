"""The graph's tokenizer: packing, invalid bytes, empty batches, SavedModels."""

import itertools

import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.wordpiece import SPECIALS
from tests.text.saved import assert_it_loads_without_kerasbert

TOKENIZER = WordPiece([*SPECIALS, "un", "##aff", "##able", "a", "##a", "cafe", ",", "中"])
GRAPH = graph_tokenizer(TOKENIZER)


@pytest.mark.parametrize("length", [3, 4, 7, 8, 11, 30])
def test_pack_equals_pure_python(length):
    counts = [0, 1, 2, 5, 9]
    pairs = [("a " * a, "un " * b) for a, b in itertools.product(counts, counts)]
    for second in (None, [b for _, b in pairs]):
        packed = GRAPH.pack([a for a, _ in pairs], second, length)
        assert all(part.shape == (25, length) and part.dtype == tf.int32 for part in packed.values())
        for row, (a, b) in enumerate(pairs):
            token_ids, segment_ids = TOKENIZER.pack(a, None if second is None else b, length)
            padding = [0] * (length - len(token_ids))
            assert packed["token_ids"][row].numpy().tolist() == token_ids + padding
            assert packed["segment_ids"][row].numpy().tolist() == segment_ids + padding
            assert packed["padding_mask"][row].numpy().tolist() == [1] * len(token_ids) + padding


@pytest.mark.parametrize("length", [4, 7, 30])
def test_rows_that_lost_tokens_are_told(length):
    counts = [0, 1, 2, 3, 4, 5, 9]
    pairs = [("a " * a, "un " * b) for a, b in itertools.product(counts, counts)]
    for count in (1, 2):
        texts = [[pair[i] for pair in pairs] for i in range(count)]
        packed, lost = GRAPH.cut_to(*texts, length=length)
        assert lost.numpy().tolist() == [len(TOKENIZER.pack(*pair[:count])[0]) > length for pair in pairs]
        assert packed["padding_mask"].numpy().sum(1).tolist() == [
            len(TOKENIZER.pack(*pair[:count], length=length)[0]) for pair in pairs
        ]


def test_pack_pads_with_the_vocabularys_own_id():
    tokenizer = WordPiece(["a", *SPECIALS])
    assert graph_tokenizer(tokenizer).pack(["a"], length=5)["token_ids"].numpy().tolist() == [[3, 0, 4, 1, 1]]


def test_pack_without_room():
    with pytest.raises(InputError, match="length is 1, expected at least 2"):
        GRAPH.pack(["a"], length=1)


@pytest.mark.slow
def test_invalid_utf8_as_python_replaces_it():
    """Every pair of bytes, and every three and four of those where the rules of UTF-8 change."""
    edges = [
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF1,
        0xF4,
        0xF5,
        0xFF,
    ]
    data = [bytes(pair) for pair in itertools.product(range(256), repeat=2)]
    data += [bytes(some) for n in (3, 4) for some in itertools.product(edges, repeat=n)]
    data = [b"a " + some + b" a" for some in data]
    ids, starts, ends = (part.to_list() for part in GRAPH.tokenize(tf.constant(data)))
    encoded = GRAPH.encode(tf.constant(data)).to_list()
    for row, some in enumerate(data):
        expected = TOKENIZER.tokenize(some)
        assert (ids[row], starts[row], ends[row]) == (expected.ids, expected.starts, expected.ends), some
        assert encoded[row] == expected.ids, some


@pytest.mark.parametrize("texts", [[], [""], ["", " ", "\u0301", "\ufffd"], ["", "a", ""]])
def test_empty_texts_and_batches(texts):
    batch = tf.constant(texts, tf.string, shape=[len(texts)])
    expected = [TOKENIZER.tokenize(text) for text in texts]
    assert GRAPH.encode(batch).to_list() == [tokens.ids for tokens in expected]
    ids, starts, _ = GRAPH.tokenize(batch)
    assert (ids.to_list(), starts.to_list()) == ([t.ids for t in expected], [t.starts for t in expected])
    assert ids.dtype == starts.dtype == tf.int32


def test_rows_do_not_leak_into_each_other():
    """Combining characters, words and long words end with their row."""
    texts = ["a", "\u302e", "\U0001d165a", "a" * 60, "a" * 60, "\u0334a"]
    assert GRAPH.encode(texts).to_list() == [TOKENIZER.encode(text) for text in texts]


@pytest.mark.slow
def test_a_saved_model_loads_without_kerasbert(tmp_path):
    assert TOKENIZER.pad_id == 0
    texts = ["Unaffable, Café", "\U0001d165\u302ea 中", ""]
    assert_it_loads_without_kerasbert(TOKENIZER, GRAPH, texts, tmp_path)
