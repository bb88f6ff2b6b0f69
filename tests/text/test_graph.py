"""The forms of the tokenizers in the graph: what Python gives, packing, invalid bytes, empty batches, SavedModels, the phone."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.text import BytePairEncoding, WordPiece, load_tokenizer
from kerasbert.text.added import AddedToken
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.wordpiece import SPECIALS
from tests import tiny
from tests.support import often, python
from tests.text.kinds import nfc_bpe, small_bpe, small_metaspace, small_unigram, small_word_bpe, split_bpe, with_added
from tests.text.saved import assert_it_loads_without_kerasbert
from tests.text.strings import generate

KINDS = {
    "bpe": small_bpe,
    "bpe with prefix": lambda: small_bpe(True),
    "bpe nfc": nfc_bpe,
    "bpe llama3": lambda: split_bpe("llama3"),
    "word_bpe": small_word_bpe,
    "metaspace_bpe": small_metaspace,
    "unigram": small_unigram,
    "wordpiece": lambda: WordPiece([*SPECIALS, "un", "##aff", "##able", "a", "##a", "cafe", ",", "中"]),
}
ADDED = [
    AddedToken("unaffable"),
    AddedToken("the", single_word=True, lstrip=True, rstrip=True),
    AddedToken("Naïve", normalized=True),
    AddedToken("中", normalized=True, lstrip=True),
]


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request):
    """(pure-Python tokenizer, its graph form)."""
    tokenizer = KINDS[request.param]()
    return tokenizer, graph_tokenizer(tokenizer)


@pytest.mark.parametrize("added", [[], ADDED], ids=["plain", "added"])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_all_sorts_in_one_batch_are_read_as_by_python(kind, added):
    tokenizer = KINDS[kind]()
    tokenizer = with_added(tokenizer, [*added]) if added else tokenizer
    graph = graph_tokenizer(tokenizer)
    runs = [
        "\0the\0unaffable \0naïve\0中",
        "aaaa aaaaaaa",
        "llllll sss ee",
        "un" * 9,
        "中中 the\u3000the naïve naïvenaïve unaffable中",
        " the  naïve 中 ",
        "e\u0301 \u0323the nai\u0308ve\u0301 \u1100\u1161\u11a8",
    ]
    texts = [
        *runs,
        *generate(20, seed=5)[:-1],
        *(f"  {text} naïve  the 中{text}" for text in generate(11, seed=6)[:-1]),
    ]
    ids, starts, ends = (part.to_list() for part in graph.tokenize(texts))
    encoded = graph.encode(texts).to_list()
    for row, text in enumerate(texts):
        expected = tokenizer.tokenize(text)
        assert (ids[row], starts[row], ends[row]) == (expected.ids, expected.starts, expected.ends), text
        assert encoded[row] == tokenizer.encode(text) == expected.ids, text


@pytest.mark.parametrize("length", [4, 7, 12, 30])
def test_pack_equals_pure_python(pair, length):
    tokenizer, graph = pair
    texts = [("the " * a, "un " * b) for a, b in itertools.product([0, 1, 2, 5, 9], repeat=2)]
    for second in (None, [b for _, b in texts]):
        packed = graph.pack([a for a, _ in texts], second, length)
        assert all(part.shape == (25, length) and part.dtype == tf.int32 for part in packed.values())
        for row, (a, b) in enumerate(texts):
            token_ids, segment_ids = tokenizer.pack(a, None if second is None else b, length)
            padding = [0] * (length - len(token_ids))
            pads = [tokenizer.pad_id] * len(padding)
            assert packed["token_ids"][row].numpy().tolist() == token_ids + pads
            assert packed["segment_ids"][row].numpy().tolist() == segment_ids + padding
            assert packed["padding_mask"][row].numpy().tolist() == [1] * len(token_ids) + padding


def test_rows_that_lost_tokens_are_told(pair):
    tokenizer, graph = pair
    texts = [("a " * a, "un " * b) for a, b in itertools.product([0, 1, 2, 3, 5, 9], repeat=2)]
    for count, length in itertools.product((1, 2), (4, 7, 30)):
        packed, lost = graph.cut_to(*([row[i] for row in texts] for i in range(count)), length=length)
        assert lost.numpy().tolist() == [len(tokenizer.pack(*row[:count])[0]) > length for row in texts]
        kept = packed["padding_mask"].numpy().sum(1).tolist()
        assert kept == [len(tokenizer.pack(*row[:count], length=length)[0]) for row in texts]


def test_pack_pads_with_the_vocabularys_own_id():
    tokenizer = WordPiece(["a", *SPECIALS])
    assert graph_tokenizer(tokenizer).pack(["a"], length=5)["token_ids"].numpy().tolist() == [[3, 0, 4, 1, 1]]


def test_pack_without_room(pair):
    tokenizer, graph = pair
    room = len(tokenizer.single) - 1
    assert room == (0 if tokenizer.kind == "word_bpe" else 2)
    for length in range(room):
        with pytest.raises(InputError, match=f"length is {length}, expected at least {room}"):
            graph.pack(["a"], length=length)


def test_invalid_utf8_as_python_replaces_it(pair):
    """Every pair of bytes where the rules of UTF-8 change, and three and four of some."""
    tokenizer, graph = pair
    edges = [0x00, 0x20, 0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]
    data = [bytes(some) for n in (2, 3) for some in itertools.product(edges, repeat=n)]
    ids, starts, ends = (part.to_list() for part in graph.tokenize(tf.constant(data)))
    encoded = graph.encode(tf.constant(data)).to_list()
    for row, some in enumerate(data):
        expected = tokenizer.tokenize(some)
        assert (ids[row], starts[row], ends[row]) == (expected.ids, expected.starts, expected.ends), some
        assert encoded[row] == tokenizer.encode(some) == expected.ids, some


@pytest.mark.slow
def test_more_invalid_utf8_as_python_replaces_it():
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
    tokenizer = KINDS["wordpiece"]()
    graph = graph_tokenizer(tokenizer)
    ids, starts, ends = (part.to_list() for part in graph.tokenize(tf.constant(data)))
    encoded = graph.encode(tf.constant(data)).to_list()
    for row, some in enumerate(data):
        expected = tokenizer.tokenize(some)
        assert (ids[row], starts[row], ends[row]) == (expected.ids, expected.starts, expected.ends), some
        assert encoded[row] == expected.ids, some


@pytest.mark.parametrize("kind", KINDS)
def test_what_ids_stand_for_is_the_same_text(kind):
    """Any ids, special ones, halves of characters and bytes that are none among them, and those of texts."""
    tokenizer = tiny.tokenizer() if kind == "wordpiece" else KINDS[kind]()
    graph = graph_tokenizer(tokenizer)
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, tokenizer.size, draw.integers(0, 12)).tolist() for _ in range(3000)]
    rows += [
        tokenizer.encode(text)
        for text in ("a gripping film", "", "Ünïcödé, naïve café!", "一二三 four", "  a \U0001f600b")
    ]
    rows += [list(range(tokenizer.size)), [tokenizer.size - 1]]
    found = graph.detokenize(tf.ragged.constant(rows, dtype=tf.int32))
    assert [text.decode() for text in found.numpy()] == [tokenizer.decode(row) for row in rows]
    assert len({*found.numpy()}) > 2000


@pytest.mark.parametrize("texts", [[], [""], ["", " ", "\u0301", "\ufffd"], ["", "a", ""]])
def test_empty_texts_and_batches(pair, texts):
    tokenizer, graph = pair
    batch = tf.constant(texts, tf.string, shape=[len(texts)])
    expected = [tokenizer.tokenize(text) for text in texts]
    assert graph.encode(batch).to_list() == [tokens.ids for tokens in expected]
    ids, starts, ends = graph.tokenize(batch)
    assert [ids.to_list(), starts.to_list(), ends.to_list()] == [
        [getattr(tokens, name) for tokens in expected] for name in ("ids", "starts", "ends")
    ]
    assert ids.dtype == starts.dtype == tf.int32


def test_rows_do_not_leak_into_each_other(pair):
    """Combining characters, words and long words end with their row."""
    tokenizer, graph = pair
    texts = ["a", "\u302e", "\U0001d165a", "a" * 60, "a" * 60, "\u0334a"]
    assert graph.encode(texts).to_list() == [tokenizer.encode(text) for text in texts]


def test_one_string_at_a_time_gives_what_a_batch_gives(pair):
    tokenizer, graph = pair
    encode = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    for text in generate(40, seed=8):
        assert encode(tf.constant([text])).to_list() == [tokenizer.encode(text)]


def test_merges_out_of_order_and_a_piece_made_twice():
    """abc is made of a bc and of ab c: then one pair a round is merged."""
    merges = [("b", "c"), ("a", "bc"), ("ab", "c"), ("abc", "ab"), ("a", "b"), ("a", "a")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *ALPHABET, "bc", "abc", "abcab", "ab", "aa", "<mask>"]
    tokenizer = BytePairEncoding(pieces, merges)
    texts = ["".join(some) for n in range(8) for some in itertools.product("abc", repeat=n)]
    assert graph_tokenizer(tokenizer).encode(texts).to_list() == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize("pair", often(KINDS, "bpe", "unigram"), indirect=True)
def test_a_saved_model_loads_without_kerasbert(pair, tmp_path):
    assert_it_loads_without_kerasbert(*pair, ["the unaffable, Café", "中 e.g.", ""], tmp_path)


def test_the_phone_loads_every_kind_with_the_standard_library_only(tmp_path):
    texts = ["the unaffable, Café 中", "don't"]
    expected = []
    for name, make in KINDS.items():
        make().save(tmp_path / name)
        expected.append([make().pack(text) for text in texts])
    code = f"""
import sys
from kerasbert.text import load_tokenizer
found = [[load_tokenizer({str(tmp_path)!r} + "/" + name).pack(text) for text in {texts!r}] for name in {list(KINDS)!r}]
print((found, {{m.split('.')[0] for m in sys.modules}} - sys.stdlib_module_names))
"""
    found, modules = eval(python("-S", "-c", code).stdout)
    assert found == expected
    assert modules <= {"kerasbert", "__main__"}
    assert load_tokenizer(tmp_path / "unigram").kind == "unigram"


def test_a_kind_without_a_graph():
    class Other:
        kind = "words"

    with pytest.raises(InputError, match="no graph tokenizer 'words'"):
        graph_tokenizer(Other())
