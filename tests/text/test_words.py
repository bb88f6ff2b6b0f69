"""Raw text -> words: the rule by hand, and the graph against pure Python."""

import random

import pytest

from kerasbert.text.normalize import TABLES
from kerasbert.text.words import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\u3000\x85 ", []),
        ("Don't stop", ["Don", "'", "t", "stop"]),
        ("U.S. 3.5% a_b", ["U", ".", "S", ".", "3", ".", "5", "%", "a_b"]),
        ("東京タワー2号", ["東", "京", "タワー2", "号"]),  # kana are letters, ideographs stand alone
        ("cafe\u0301s \u0301x", ["cafe\u0301s", "\u0301x"]),  # a mark stays with what is before it
        ("co\xadop \u200ebc", ["co\xadop", "\u200ebc"]),  # and so does what BERT drops
        ("❤\ufe0fyou 👩\u200d💻", ["❤\ufe0f", "you", "👩\u200d", "💻"]),
        ("हिन्दी", ["हिन्दी"]),
        ("...\ufffd", [".", ".", ".\ufffd"]),
    ],
)
def test_by_hand(text, words):
    found = split_words(text)
    assert [word for word, _, _ in found] == words
    assert all(text[start:end] == word for word, start, end in found)


def test_graph_equals_python():
    import tensorflow as tf

    from kerasbert.text.words_graph import decode
    from kerasbert.text.words_graph import split_words as in_graph

    draw = random.Random(0)
    bounds = [TABLES.letters, TABLES.numbers, TABLES.marks, TABLES.words, TABLES.cjk, TABLES.drop, TABLES.blanks]
    edges = sorted({code + step for each in bounds for code in each for step in (-1, 0)} - {-1, 0x110000})
    edges = [chr(code) for code in edges if not 0xD800 <= code < 0xE000]
    common = "ab1_ .,'\u0301\u200d\ufe0f中あ❤\t"
    texts = ["".join(edges), "", " ", "a" + " b".join(edges)]
    texts += ["".join(draw.choice(draw.choice((common, edges))) for _ in range(draw.randrange(12))) for _ in range(500)]
    raw = [text.encode() for text in texts] + [b"ab\xff\xfec", b"\xe4\xb8", b"x \xed\xa0\x80"]
    found = in_graph(decode(raw))
    told = [[each.decode() for each in row] for row in found.strings.to_list()]
    triples = [list(zip(*row)) for row in zip(told, found.starts.to_list(), found.ends.to_list())]
    assert triples == [split_words(text.decode("utf-8", "replace")) for text in raw]
    assert in_graph(decode(tf.zeros([0], tf.string))).strings.to_list() == []
