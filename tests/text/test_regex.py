"""MediaPipe's regex tokenizer: its rule as measured, the graph's equality, its files."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer
from kerasbert.text.regex import RegexWords, train_regex
from kerasbert.text.split import splitter
from tests.text.strings import generate

WORDS = ["<PAD>", "<START>", "<UNKNOWN>", "a", "gripping", "film", "GRIPPING", "don't", "_x1", "'", "terribl"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a gripping film", ["a", "gripping", "film"]),
        ("A GRIPPING-film!", ["<UNKNOWN>", "GRIPPING", "film"]),  # nothing is lower-cased
        ("terribleé film", ["<UNKNOWN>", "film"]),
        ("terriblé film", ["terribl", "film"]),  # a letter outside ASCII parts words
        ("don't ' _x1 é", ["don't", "'", "_x1"]),
        ("don’t", ["<UNKNOWN>", "<UNKNOWN>"]),  # that apostrophe does not belong to words
        ("<PAD> <START>", ["<UNKNOWN>", "<UNKNOWN>"]),  # typed by a user, ordinary words
        ("日本a٣a", ["a", "a"]),
        ("", []),
    ],
)
def test_rule(text, words):
    tokenizer = RegexWords(WORDS)
    assert tokenizer.tokenize(text).pieces == words
    assert tokenizer.pack(text)[0] == [1, *tokenizer.encode(text)]
    assert splitter("regex", False)(text) == [text[a:b] for a, b in zip(*tokenizer.tokenize(text)[2:])]


def test_the_graph_gives_the_same_ids_and_offsets():
    from kerasbert.text.graph import graph_tokenizer

    texts = [*generate(300, seed=5), "", "a", "'", "a\0b", "\U0001f600film", "a gripping film"]
    tokenizer = RegexWords([*WORDS, "b", "film2"])
    graph = graph_tokenizer(tokenizer)
    found = [part.to_list() for part in graph.tokenize([text.encode("utf-8", "replace") for text in texts])]
    expected = [tokenizer.tokenize(text.encode("utf-8", "replace")) for text in texts]
    assert found == [
        [each.ids for each in expected],
        [each.starts for each in expected],
        [each.ends for each in expected],
    ]
    packed = graph.pack(texts[-2:], length=6)["token_ids"].numpy()
    np.testing.assert_array_equal(packed, [[1, 5, 0, 0, 0, 0], [1, 3, 4, 5, 0, 0]])


def test_files_are_mediapipes_lines(tmp_path):
    tokenizer = RegexWords(WORDS)
    tokenizer.save(tmp_path)
    lines = (tmp_path / "vocab.txt").read_text().splitlines()
    assert lines[:4] == ["<PAD> 0", "<START> 1", "<UNKNOWN> 2", "a 3"]
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()
    for content, message in {
        "<PAD> 0\n<START> 1\n<UNKNOWN> 1\n": r"vocab.txt, line 3: '<UNKNOWN> 1' is not a word, a blank and an id of its own",
        "<PAD> 0\n<START>\n": r"vocab.txt, line 2: '<START>' is not a word",
        "<PAD> 0\n<START> 1\n<UNKNOWN> 3\n": r"3 ids up to 3, expected each from 0 on once",
        "<PAD> 0\n<START> 1\na 2\n": r"has no <UNKNOWN>",
        **{
            f"<PAD> 0\n<START> {spelled}\n": f"vocab.txt, line 2: '<START> {spelled}' is not a word, a blank and an id"
            for spelled in ("one", "-1", "1.0", "\N{ARABIC-INDIC DIGIT ONE}", "\N{SUPERSCRIPT ONE}", "1" * 10, "0")
        },
    }.items():
        (tmp_path / "vocab.txt").write_text(content)
        with pytest.raises(InputError, match=message):
            load_tokenizer(tmp_path)
    with pytest.raises(InputError, match="the word 'a b' is empty or holds a blank"):
        RegexWords([*WORDS, "a b"])


def test_the_commonest_words_are_learned():
    tokenizer = train_regex(["b a b", "A b-a c"], 6)
    assert tokenizer.vocabulary == ("<PAD>", "<START>", "<UNKNOWN>", "b", "a", "A")
    for settings, message in (((["a"], 3), "size is 3, expected at least 4"), ((["é"], 9), "the text holds no words")):
        with pytest.raises(InputError, match=message):
            train_regex(*settings)
    with pytest.raises(InputError, match="--lowercase with --kind regex"):
        train_regex(["a"], 9, lowercase=True)
