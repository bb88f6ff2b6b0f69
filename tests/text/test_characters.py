"""ELMo's tokens: the characters of words against AllenNLP's rule, the graph's equality, files."""

import pickle

import numpy as np
import pytest

from kerasbert import inputs
from kerasbert.answers import tags
from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer
from kerasbert.text.characters import CHARACTERS, ORDER, CharacterWords, characters_of, train_characters
from tests.text.strings import generate

WORDS = [*ORDER, "a", "film", "café", "don", "'", "t"]


def allennlp(word: str) -> list[int]:
    """ELMoCharacterMapper.convert_word_to_char_ids (allennlp/data/token_indexers/elmo_indexer.py), written anew."""
    ids = [260] * 50
    ids[0] = 258
    if word in ("<S>", "</S>"):
        ids[1:3] = [256 if word == "<S>" else 257, 259]
    else:
        encoded = word.encode("utf-8", "ignore")[:48]
        ids[1 : 1 + len(encoded)] = encoded
        ids[1 + len(encoded)] = 259
    return [each + 1 for each in ids]


@pytest.mark.parametrize("word", ["a", "café", "東", "x" * 48, "x" * 49, "x" * 10_000, "é" * 100, "\0", "ÿ"])
def test_characters_are_allennlps(word):
    assert characters_of(word.encode()) == allennlp(word)


def test_by_hand():
    found = characters_of("é!".encode())  # é is c3 a9
    assert found[:6] == [259, 0xC3 + 1, 0xA9 + 1, 0x21 + 1, 260, 261]
    assert (len(found), set(found[5:])) == (50, {261})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a film", ["a", "film"]),
        ("A film, café", ["<UNK>", "film", "<UNK>", "café"]),  # nothing is lower-cased
        ("don't", ["don", "'", "t"]),
        ("<S> a", ["<UNK>", "<UNK>", "<UNK>", "a"]),  # typed by a user, ordinary characters
        ("", []),
        (" \t", []),
    ],
)
def test_rule(text, words):
    tokenizer = CharacterWords(WORDS)
    tokens = tokenizer.tokenize(text)
    assert tokens.pieces == words
    spelled = [text[a:b] for a, b in zip(tokens.starts, tokens.ends)]
    ids = tokenizer.pack(text)[0]
    assert ids == [1, *tokenizer.encode(text), 2]
    np.testing.assert_array_equal(tokenizer.characters(ids), list(map(allennlp, ["<S>", *spelled, "</S>"])))


def test_a_row_carries_the_characters_of_words_that_the_vocabulary_lacks():
    tokenizer = CharacterWords(WORDS)
    rows = [inputs.row(*tokenizer.pack(text)) for text in ("a zebra", "a")]
    arrays = inputs.arrays((*inputs.TEXT, CHARACTERS), rows, 5, count=3)
    assert (arrays["char_ids"].shape, arrays["char_ids"].dtype) == ((3, 5, 50), "int32")
    np.testing.assert_array_equal(arrays["char_ids"][0, 2], allennlp("zebra"))
    assert not arrays["char_ids"][0, 4].any()
    assert not arrays["char_ids"][2].any()
    assert arrays["token_ids"][0].tolist() == [1, 4, 3, 2, 0]
    np.testing.assert_array_equal(tokenizer(["a zebra", "a"], 5)["char_ids"], arrays["char_ids"][:2])
    np.testing.assert_array_equal(tokenizer.characters(np.array([[4, 1]])), [[allennlp("a"), allennlp("<S>")]])
    np.testing.assert_array_equal(tokenizer.characters(np.array([0])), np.zeros((1, 50)))
    with pytest.raises(InputError, match="reads words' characters, and got tokens of no text"):
        inputs.arrays((CHARACTERS,), [inputs.row([1, 2], [0, 0])], 5)
    assert (
        pickle.loads(pickle.dumps(tokenizer.encode("zebra")))[0].characters == tokenizer.encode("zebra")[0].characters
    )


def test_the_graph_gives_the_same_ids_offsets_and_characters():
    from kerasbert.text.graph import graph_tokenizer

    texts = [*generate(200, seed=6), "", "a", "x" * 10_000, "é" * 60, "a\0b", "\U0001f600film", "a new film"]
    raw = [text.encode("utf-8", "replace") for text in texts]
    tokenizer = CharacterWords(WORDS)
    graph = graph_tokenizer(tokenizer)
    found = [part.to_list() for part in graph.tokenize(raw)]
    expected = [tokenizer.tokenize(text) for text in raw]
    assert found == [[getattr(each, name) for each in expected] for name in ("ids", "starts", "ends")]
    assert graph.encode(raw).to_list() == [each.ids for each in expected]
    pairs = [(raw, None), (raw, raw[::-1])]
    for one, other in pairs:
        packed = graph.pack(one, other, length=9)
        rows = [inputs.row(*tokenizer.pack(*parts, length=9)) for parts in (zip(one, other) if other else zip(one))]
        arrays = inputs.arrays((*inputs.TEXT, CHARACTERS), rows, 9)
        assert packed.keys() == arrays.keys()
        for name, value in arrays.items():
            np.testing.assert_array_equal(packed[name], value)


def test_tags_answer_a_word_each_as_it_is_given():
    tokenizer, kind = CharacterWords(WORDS), tags.TagsKind()
    rows = kind.rows(tokenizer, (["U.S.", "film", "o'clock"],), 16)
    arrays = inputs.arrays((*inputs.TEXT, CHARACTERS), rows, 5)
    np.testing.assert_array_equal(arrays["char_ids"][0, 1], allennlp("U.S."))
    assert (rows[0].about.words.tolist(), rows[0].about.tokens.tolist()) == ([0, 1, 2], [1, 2, 3])
    raw = kind.rows(tokenizer, ("U.S. film",), 16)[0]
    assert raw.about.words.tolist() == [0, 1, 2, 3, 4]


def test_files(tmp_path):
    tokenizer = CharacterWords(WORDS)
    tokenizer.save(tmp_path)
    assert (tmp_path / "vocab.txt").read_text().splitlines() == WORDS
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()
    assert tokenizer.decode(tokenizer.pack("a café")[0]) == "a café"
    assert tokenizer.extended(["b"]).renumbered([0, 1, 2, 3, 10]).vocabulary == (*ORDER, "b")
    (tmp_path / "vocab.txt").write_text("\n".join([*ORDER, "a b"]))
    with pytest.raises(InputError, match="the word 'a b' is empty or holds a blank"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("<PAD>\n<S>\n</S>\n")
    with pytest.raises(InputError, match="has no <UNK>"):
        load_tokenizer(tmp_path)


def test_the_commonest_words_are_learned():
    assert train_characters(["b a b", "A b-a <S>"], 8).vocabulary == (*ORDER, "b", "a", "-", "<")
    for settings, message in (
        ((["a"], 4), "size is 4, expected at least 5"),
        (([" "], 9), "the text holds no words"),
    ):
        with pytest.raises(InputError, match=message):
            train_characters(*settings)
    with pytest.raises(InputError, match="--lowercase with --kind word_characters"):
        train_characters(["a"], 9, lowercase=True)
