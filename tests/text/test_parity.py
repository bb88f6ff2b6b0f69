"""Pure Python == graph == 512-line batches in tf.data == Hugging Face `tokenizers`: ids and character offsets.

Nothing is skipped and no difference is allowed for: the tables are pinned to Hugging Face's (make_text_tables.py), so no
code point depends on a Unicode version, and the graph counts the long-word limit in characters. What tensorflow-text
itself would do otherwise is listed in `test_tables.py`, by code point.
"""

import json
import unicodedata

import pytest

from kerasbert.text import WordPiece, load_tokenizer
from kerasbert.text.wordpiece import SPECIALS
from tests.support import shared
from tests.text.strings import generate, hugging_face, reference_tokens

SETTINGS = [
    {"lowercase": True},
    {"lowercase": False},
    {"lowercase": True, "strip_accents": False, "split_cjk": False},
    {"lowercase": False, "strip_accents": True, "max_word_chars": 9},
]


def differences(tokenizer: WordPiece, texts: list[str]) -> list[str]:
    """Texts on which the four do not agree, in words."""
    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    graph = graph_tokenizer(tokenizer)
    lines = tf.data.Dataset.from_tensor_slices([text.encode() for text in texts]).batch(512)
    batches = lines.map(lambda batch: (graph.encode(batch), *graph.tokenize(batch)))
    in_graph = [row for batch in batches for row in zip(*(part.to_list() for part in batch))]
    wrong = []
    for text, reference, (encoded, *tokenized) in zip(
        texts, reference_tokens(hugging_face(tokenizer), texts), in_graph
    ):
        ours = tokenizer.tokenize(text)
        expected = [reference.ids, reference.starts, reference.ends]
        if ours != reference or tokenizer.encode(text) != reference.ids:
            wrong.append(f"python: {text[:80]!r}")
        if encoded != reference.ids or tokenized != expected:
            wrong.append(f"graph: {text[:80]!r}")
    assert len(in_graph) == len(texts)
    return wrong


def character_vocabulary(texts: list[str]) -> list[str]:
    """Every character a piece, alone and inside words, so that each shows in the ids; and pieces no text can reach."""
    characters = {c for text in texts for c in text}
    characters |= {x for c in characters for x in unicodedata.normalize("NFD", c)}
    characters |= {c.lower() for c in characters if len(c.lower()) == 1}
    unreachable = [
        "",
        "##",
        "####",
        "a b",
        "e.g",
        "##n't",
        "[M",
        "##[MA",
        "中国",
        "\x00a",
        "##\ue000",
        "\U000f0000",
        "A\u0301",
    ]
    return [*SPECIALS, *unreachable, *(mark + c for mark in ("", "##") for c in sorted(characters))]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_generated_strings(settings):
    texts = generate(400, seed=7)
    assert differences(WordPiece(character_vocabulary(texts), **settings), texts) == []


def test_one_string_at_a_time_gives_what_a_batch_gives():
    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    texts = generate(40, seed=8)
    tokenizer = WordPiece(character_vocabulary(texts))
    graph = graph_tokenizer(tokenizer)
    encode = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)])
    for text in texts:
        assert encode(tf.constant([text])).to_list() == [tokenizer.encode(text)]


def corpus() -> list[str]:
    """Every line of ../shared/data/lm, every context and question of ../shared/data/xquad."""
    lines = []
    for file in sorted(shared("data/lm").rglob("*")):
        if file.is_file() and file.suffix != ".md":
            lines += file.read_bytes().decode("utf-8", "replace").split("\n")
    for file in sorted(shared("data/xquad").glob("*.json")):
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                lines.append(paragraph["context"])
                lines += [question["question"] for question in paragraph["qas"]]
    return lines


# in CI every tenth line and string of one vocabulary, all of them under `full`
SHARES = [
    pytest.param("bert-base-uncased", 10, marks=pytest.mark.slow),
    *(
        pytest.param(name, 1, marks=pytest.mark.full)
        for name in ("bert-base-uncased", "bert-base-cased", "bert-base-chinese")
    ),
]


@pytest.mark.parametrize(("name", "step"), SHARES)
def test_lines_of_the_corpora_and_generated_strings(name, step):
    tokenizer = load_tokenizer(shared(f"data/vocab/{name}/vocab.txt"))
    lines = corpus()
    assert len(lines) > 120_000
    assert differences(tokenizer, lines[::step]) == []
    assert differences(tokenizer, generate(10_000, seed=1)[::step]) == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_generated_strings_by_character(settings):
    texts = generate(10_000, seed=2)[::5]
    assert differences(WordPiece(character_vocabulary(texts), **settings), texts) == []
