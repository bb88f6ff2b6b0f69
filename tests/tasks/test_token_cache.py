"""Tokens in a file: the same batches, no tokenizer where there is one, and a damaged file is not believed."""

import hashlib
import re
import threading

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import progress
from kerasbert.layers.naming import values
from kerasbert.tasks import token_cache
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import encode_texts, ordered_batches
from kerasbert.tasks.token_cache import HEADER, MAGIC, Recording, TokenCache
from kerasbert.testing.battery import eagerly
from tests import tiny

TEXTS = ["the cat", "", "a very long text of the dog and the cat " * 3, "zoe \ud800 ab", "the cat", b"a \xff dog"]
PAIRS = [(one, "the dog " * i) for i, one in enumerate(TEXTS)]
KINDS = {
    "classification": PAIRS,
    "vector": PAIRS,
    "span": [("who sees", "the cat sees the dog " * 12), ("who", "the cat"), ("", "the cat"), ("zoe", "the cat")],
    "tags": [(("the", "cat", "zoe \u200b"),), "the cat sees", (("dog",) * 40,)],
    "choice": [("the cat", ("sees", "the dog", "x")), ("zoe", ("a", "b", "c"))],
    "tokens": ["the [MASK] sees " * 12, "[MASK]"],
}


def encode(folder, texts=TEXTS, kind=None, **call):
    cache = TokenCache(folder, always=True)
    encoded = encode_texts(tiny.tokenizer(), texts, 24, kind=find(kind or "classification"), cache=cache, **call)
    cache.write()
    return encoded


def unable(monkeypatch):
    """No tokenizer reads a text from here on."""

    def fail(*_):
        raise AssertionError("the tokenizer is called")

    for name in ("encode_plain", "tokenize_plain"):
        monkeypatch.setattr(type(tiny.tokenizer()), name, fail)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_the_same_batches_and_needs_no_tokenizer(kind, tmp_path, monkeypatch):
    plain = encode_texts(tiny.tokenizer(), KINDS[kind], 24, kind=find(kind))
    encode(tmp_path, KINDS[kind], kind)
    (path,) = tmp_path.iterdir()
    before = path.stat().st_mtime_ns
    unable(monkeypatch)
    again = encode(tmp_path, KINDS[kind], kind)
    assert path.stat().st_mtime_ns == before
    assert [(row.values, row.length, row.truncated) for row in again.rows] == [
        (row.values, row.length, row.truncated) for row in plain.rows
    ]
    np.testing.assert_array_equal(again.owners, plain.owners)
    abouts = [[row.about for row in each.rows] for each in (again, plain)]
    if kind != "tokens":  # its rows hold the tokenizer
        assert repr(abouts[0]) == repr(abouts[1])
    for (order, one), (other_order, other) in zip(ordered_batches(again, 24, 3), ordered_batches(plain, 24, 3)):
        np.testing.assert_array_equal(order, other_order)
        for name in one.keys() | other.keys():
            np.testing.assert_array_equal(one[name], other[name])


def test_other_texts_lengths_and_options_have_files_of_their_own(tmp_path):
    cache = TokenCache(tmp_path, always=True)
    for texts, length, kind in (
        (["the cat"], 24, find("span")),
        (["the cat"], 16, find("span")),
        (["the cat "], 24, find("span")),
        (["the cat"], 24, find("span").configured({"stride": 8})),
    ):
        encode_texts(tiny.tokenizer(), [("who", text) for text in texts], length, kind=kind, cache=cache)
    cache.write()
    assert len(list(tmp_path.iterdir())) == 4


def resealed(content: bytes) -> bytes:
    """The same with the digest of what it holds: what no accident leaves."""
    _, _, *sizes = HEADER.unpack_from(content)
    return HEADER.pack(MAGIC, hashlib.sha256(content[HEADER.size :]).digest(), *sizes) + content[HEADER.size :]


def changed(place: int, number: int):
    def change(content: bytes) -> bytes:
        return resealed(content[:place] + number.to_bytes(4, "little", signed=True) + content[place + 4 :])

    return change


CALLS, IDS = HEADER.size, HEADER.size + 12 * 6  # a call for each text, of the truncated third too


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda content: b"", "it is no file of tokens"),
        (lambda content: b"PK" + content, "it is no file of tokens"),
        (lambda content: content[:-1], "it is truncated"),
        (lambda content: content + b"\0", "it is truncated"),
        (lambda content: content[:60] + b"\xff" * 8 + content[68:], "it is truncated"),  # sizes of 2^63
        (lambda content: content[:-1] + b"\7", "it is damaged"),
        (changed(IDS, 10**6), "it holds token 1000000, the vocabulary has"),
        (changed(IDS, -5), "it holds token "),
        (changed(IDS - 4, 2**31 - 1), "its counts are not those of its tokens"),
        (changed(IDS - 4, -2), "its counts are not those of its tokens"),
        (changed(CALLS, 7), "is of other texts"),
    ],
)
def test_a_damaged_file_is_a_line_and_is_made_again(damage, told, tmp_path, capsys):
    plain = encode(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = encode(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert "tokenized again" in line
    assert [row.values for row in again.rows] == [row.values for row in plain.rows]
    assert path.read_bytes() == whole


def test_characters_of_tokens_are_checked():
    ids = np.array([5, 6], "int32")
    for starts, ends in (([0, 4], [3, 3]), ([-1, 4], [3, 5])):
        counts, texts = np.array([-3], "int32"), np.zeros(1, "uint64")
        content = Recording(texts, counts, ids, *(np.array(each, "int32") for each in (starts, ends))).to_bytes()
        with pytest.raises(ValueError, match="its tokens end before they begin"):
            Recording.from_bytes(content, 10)


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    encode(tmp_path / "file")
    (line,) = capsys.readouterr().err.splitlines()
    assert "the tokens are not kept, another start tokenizes the texts again: cannot write" in line


def test_two_may_write_and_read_at_once(tmp_path, capsys):
    plain, wrong = encode_texts(tiny.tokenizer(), TEXTS, 24), []

    def work():
        for _ in range(15):
            if [row.values for row in encode(tmp_path).rows] != [row.values for row in plain.rows]:
                wrong.append("rows")
            for path in tmp_path.glob("tokens*"):
                path.unlink(missing_ok=True)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, capsys.readouterr().err) == ([], "")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_progress_is_told_where_it_takes_long(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENT", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    encode_texts(tiny.tokenizer(), ["the cat"] * 100, 16)
    assert capsys.readouterr().err == ""
    encode_texts(tiny.tokenizer(), ["the cat"] * 100, 16, what="train")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "train: 0 of 100 texts are tokenized"
    assert re.fullmatch(r"train: 64 of 100 texts are tokenized, [\d,.]+ a second, 1 s left", lines[64])


@pytest.mark.slow
def test_a_run_that_goes_on_reads_its_tokens(pretrained, tmp_path, monkeypatch):
    path = tiny.labelled(tmp_path / "my.tsv", 40)
    call = {"batch": 8, "length": 12, "quiet": True, "learning_rate": 1e-2}
    monkeypatch.setattr(token_cache, "LEAST", 0.0)
    with eagerly():
        plain = kb.finetune(pretrained, "classification", path, out=tmp_path / "plain", epochs=2, **call)
        held = tmp_path / "plain" / "cache"
        assert len(list(held.glob("tokens-*.bin"))) == 2  # train and dev
        unable(monkeypatch)
        with pytest.raises(AssertionError, match="the tokenizer is called"):
            kb.finetune(pretrained, "classification", path, out=tmp_path / "run", epochs=2, **call)
        again = kb.finetune(pretrained, "classification", path, out=tmp_path / "run", epochs=2, cache=held, **call)
        assert not (tmp_path / "run" / "cache").exists()
        # more epochs of the first run
        kb.finetune(pretrained, "classification", path, out=tmp_path / "plain", epochs=3, **call)
    expected = values(plain)
    assert all((value == expected[name]).all() for name, value in values(again).items())
