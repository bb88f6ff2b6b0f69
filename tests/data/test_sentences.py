"""Running text -> sentences, and lines that are too long for a pair of sentences."""

import importlib.util
import itertools
import json
import time

import numpy as np
import pytest

from kerasbert.cli import main
from kerasbert.data import write_records
from kerasbert.data.packing import PACKINGS, Fit
from kerasbert.data.sentences import split_sentences
from kerasbert.errors import InputError
from kerasbert.quickstart import books
from tests.data import corpus

PAIRS = [name for name, packing in PACKINGS.items() if packing.labels]


@pytest.fixture(autouse=True)
def pure_python(monkeypatch):
    """The pure-Python tokenizer: the bytes are the same (test_records), and TensorFlow is not loaded."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorflow_text" else real(name))


@pytest.mark.parametrize(
    "sentences",
    [
        ['He cried "Stop!" and left.', '"Why?" she asked.', '"Yes."', "He went."],
        ["J. S. Bach died in 1750.", "Dr. Watson paid 3.50, e.g. to Mr. Holmes.", "U.S. ships came."],
        ["Am 3. Oktober kam z.B. Hr. Müller.", "„Wirklich?“ fragte er.", "Ja!", "Nein …", "Doch."],
        ["¿Quién es?", "¡Ven!", "«Да!» — сказал А. С. Пушкин.", "Конец."],
        ["यह पहला वाक्य है।", "यह दूसरा है।", "तीसरा?"],
        ["هل أنت بخير؟", "نعم.", "أنا بخير۔", "شكرا."],
        ["Wait... what?!", "(Really.)", "No. 5 is one."],
    ],
)
def test_sentences_of_running_text(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_chinese_and_japanese_need_no_blank():
    sentences = ["吾輩は猫である。", "名前はまだ無い。", "你来了吗？！", "「好。」", "走吧"]
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("text", ["", "  ", ". . .", "...", "a. b. c.", "x" * 100, "!\u3000?"])
def test_nothing_but_white_space_is_lost(text):
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


@pytest.mark.parametrize("part", [".", ". ", '."', "。", ' "', ".\u3000", "a. B ", "( . "])
def test_the_time_is_linear(part):
    times = []
    for count in (20_000, 200_000):
        start = time.process_time()
        split_sentences(part * count)
        times.append(time.process_time() - start)
    assert times[1] < 40 * times[0] + 0.05


def novel(lines_of_a_document):
    """Documents of the text that ships with the package, put into lines: every token stays."""
    chapters = [chapter[:60] for author in ("austen", "carroll", "doyle") for chapter in books.chapters(author)[:8]]
    return [list(lines_of_a_document(chapter)) for chapter in chapters]


def paragraphs(chapter):
    return [" ".join(chapter[begin : begin + 6]) for begin in range(0, len(chapter), 6)]


SHAPES = {
    "a document a line": novel(lambda chapter: [" ".join(chapter)]),
    "a paragraph a line": novel(paragraphs),
    "a paragraph a document": [[line] for document in novel(paragraphs) for line in document],
}


def write(tmp_path, documents, packing, tokenizer=None, **settings):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "\n".join(lines)}) + "\n" for lines in documents))
    return write_records([tmp_path / "a.jsonl"], tokenizer or words(), tmp_path / "out", packing=packing, **settings)


def words():
    """Every word a token, but the commonest: what matters here is how long lines are."""
    from kerasbert.text import WordPiece

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*corpus.SPECIALS, *letters, *(f"##{letter}" for letter in letters), *".,;:!?'\"-()"]
    common = "the and of to in that he was it she her his you had with as for said not at but be on".split()
    return WordPiece([*pieces, *common])


@pytest.mark.parametrize("packing", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
def test_running_text_is_kept_and_its_labels_are_mixed(tmp_path, shape, packing):
    """Today a novel with one document a line keeps 3% of its tokens, with a paragraph a line 51 to 62%."""
    counts = write(tmp_path, SHAPES[shape], packing, length=256).manifest["counts"]
    assert counts["kept_tokens"] >= 0.9 * counts["source_tokens"]
    assert max(counts["labels"]) <= 0.75 * sum(counts["labels"])


@pytest.mark.parametrize("packing", [*PAIRS, "full", "doc", "packed"])
def test_lines_that_fit_are_left_as_they_are(tmp_path, monkeypatch, packing):
    documents = list(corpus.documents(60, words=(3, 6)))
    before = write(tmp_path, documents, packing, corpus.tokenizer(), length=32)
    monkeypatch.setattr("kerasbert.data.encode._split_long", None)
    monkeypatch.setattr(Fit, "of", lambda room: None)
    (tmp_path / "b").mkdir()
    after = write(tmp_path / "b", documents, packing, corpus.tokenizer(), length=32)
    assert [shard.sha256 for shard in before.shards] == [shard.sha256 for shard in after.shards]


def test_a_long_line_by_hand(tmp_path):
    # lines of more than 4 tokens are split, sentences of more than 6 cut into pieces of 3
    lines = ["w0 w1 w2", "w3 w4. W5 w6 w7 w8.", "w9 w10 w11 w12 w13 w14 w15"]
    tokenizer = corpus.tokenizer()
    from kerasbert.data import encode, spool

    assert [PACKINGS["pairs"].fit(length) for length in (5, 24, 128)] == [Fit(0, 1, 1), Fit(5, 10, 4), Fit(31, 41, 21)]
    assert PACKINGS["pairs"].fit(128, separators=2) == Fit(31, 41, 21)
    assert PACKINGS["full"].fit(128) is None
    made = encode.entries([lines, ["w50 w51. W52"]], 0, encode.batch_encoder(tokenizer), Fit(4, 6, 3))
    documents, _, _ = spool.gather(b"".join(made))
    segments = [documents.ids[begin:end].tolist() for begin, end in itertools.pairwise(documents.bounds.tolist())]
    stop = tokenizer.unk_id  # the vocabulary has no full stop
    long = [[5, 6, 7], [8, 9, stop], [10, 11, 12, 13, stop], [14, 15, 16], [17, 18, 19], [20]]
    one_line = [[55, 56, stop], [57]]
    assert segments in ([*long, *one_line], [*one_line, *long])
    assert sorted(np.diff(documents.firsts).tolist()) == [2, 6]


def test_what_is_lost_is_refused_unless_allowed(tmp_path):
    documents = [[f"w{i} w{j}"] for i in range(40) for j in range(2)]
    with pytest.raises(InputError, match=r"100\.0% of the pairs have next_label 1, expected 90% or less.*--allow-loss"):
        write(tmp_path, documents, "pairs", corpus.tokenizer(), length=32)
    assert not (tmp_path / "out").exists()
    records = write(tmp_path, documents, "pairs", corpus.tokenizer(), length=32, allow_loss=True)
    assert records.manifest["counts"]["labels"] == [0, 80]
    (tmp_path / "a.tsv").write_text("a\tb\n" + "".join(f"w{i} w1\t{'w2' if i < 20 else ''}\n" for i in range(60)))
    translations = {"packing": "translations", "text_field": "a,b", "length": 16}
    with pytest.raises(
        InputError, match=r"'translations' keeps 42\.9% of the 140 tokens, expected 90% or more: take a"
    ):
        write_records([tmp_path / "a.tsv"], corpus.tokenizer(), tmp_path / "two", **translations)


def test_a_token_counts_once_however_often_it_is_packed(tmp_path):
    documents = list(corpus.documents(60))
    once = write(tmp_path, documents, "order", corpus.tokenizer(), length=24, allow_loss=True).manifest["counts"]
    settings = {"length": 24, "overwrite": True, "dupe_factor": 6}
    often = write(tmp_path, documents, "order", corpus.tokenizer(), **settings).manifest["counts"]
    assert once["source_tokens"] == often["source_tokens"]
    assert once["kept_tokens"] < often["kept_tokens"] <= often["source_tokens"]


def test_the_command_says_what_is_kept(tmp_path, capsys):
    corpus.tokenizer().save(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text("\n".join(line for document in corpus.documents(30) for line in document))
    command = [
        "data",
        tmp_path / "a.txt",
        "--tokenizer",
        tmp_path / "tokenizer",
        "--length",
        64,
        "--out",
        tmp_path / "out",
    ]
    assert main([*map(str, command)]) == 0
    printed = capsys.readouterr().out
    assert "tokens kept (packing pairs)" in printed
    assert "next_label: 0 " in printed
    assert "the corpus is one document (no blank line, or one row)" in printed
