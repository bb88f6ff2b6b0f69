"""Damaged and hostile tokenizer files: an error of one line or a tokenizer that works; never a traceback, never a hang.

Mutations are drawn with a fixed seed: bytes flipped, cut, repeated, inserted; json values exchanged for others of every type.
"""

import contextlib
import json
import random
import signal
from pathlib import Path

import pytest

from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer, save_hf
from kerasbert.text.added import AddedToken
from tests import tiny
from tests.text.kinds import small_bpe, small_unigram
from tests.text.test_added import with_added

SECONDS = 5
TEXTS = ["", "the unaffable cat", "ÉÀ 中国 ﬁ \u0301 😀 @USER [E1]", "x" * 300, "a\tb\n c  d \u3000 ``e''"]
NUMBERS = [0, -1, 1, 2**31, 2**63, -(10**30), 1e308, 0.5, float("nan"), float("inf")]
ODD = [None, True, "", "\u0000", "a" * 5000, "\ud800", [], {}, [[]], {"type": "Sequence"}, *NUMBERS]


def unigram():
    """A model of few pieces, and rules with it, so that mutations meet every part."""
    model = small_unigram(True).model
    kept = [i for i, piece in enumerate(model.pieces) if model.types[i] != 1 or len(piece) < 2 or i % 3 == 0]
    return with_added(small_unigram(True).renumbered(kept), [AddedToken("[E1]"), AddedToken("@USER", normalized=True)])


def tokenizers():
    """By kind, with added tokens."""
    tokens = [AddedToken("[E1]", lstrip=True), AddedToken("@USER", normalized=True, single_word=True)]
    return {
        "wordpiece": with_added(tiny.tokenizer(), tokens),
        "bpe": with_added(small_bpe(True), tokens),
        "unigram": unigram(),
    }


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Bytes with one to three faults."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data) + 1)
        size = draw.choice([1, 1, 2, 4, 8, 64])
        some = draw.choice(
            [bytes(size), b"\xff" * size, draw.randbytes(size), data[at : at + size] * 3, b'"', b"[" * 3000]
        )
        data = draw.choice(
            [
                data[:at] + some + data[at + len(some) :],
                data[:at] + some + data[at:],
                data[:at] + data[at + size :],
                data[:at],
                data[:at] + bytes([data[at % len(data)] ^ 1 << draw.randrange(8)]) + data[at + 1 :] if data else b"x",
            ]
        )
    return data


def mutated_json(content, draw: random.Random):
    """A json value with one value, key or number of entries changed; lists and objects are copied on the way."""
    if isinstance(content, dict) and content and draw.random() < 0.95:
        key = draw.choice(list(content))
        change = draw.random()
        if change < 0.06:
            return {name: value for name, value in content.items() if name != key}
        if change < 0.1:
            return content | {draw.choice(["", "x", "type", "kind"]): draw.choice(ODD)}
        return content | {key: mutated_json(content[key], draw)}
    if isinstance(content, list) and content and draw.random() < 0.9:
        at = draw.randrange(len(content))
        change = draw.random()
        if change < 0.1:
            return content[:at] + content[at + 1 :]
        if change < 0.2:
            return content[: at + 1] + content[at:]
        return [*content[:at], mutated_json(content[at], draw), *content[at + 1 :]]
    if isinstance(content, str) and content and draw.random() < 0.6:
        at = draw.randrange(len(content))
        return draw.choice([content[:at], content[:at] + draw.choice("Aa$[:\u0301 ") + content[at + 1 :], content * 2])
    if type(content) is int and draw.random() < 0.5:
        return content + draw.choice([-1, 1, 2, 1000])
    return draw.choice(ODD)


@contextlib.contextmanager
def alarm(what: str):
    """Fail after SECONDS."""

    def ring(*_):
        raise TimeoutError(f"{what} took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_line(error: InputError, number: int) -> None:
    """An error's text is one line that a terminal can show."""
    assert "\n" not in str(error), number
    assert len(str(error)) < 1500, number


def prepared(name: str, folder: Path) -> Path:
    """A whole folder, and the file of it that is damaged."""
    kind, _, file = name.partition(" ")
    tokenizer = tokenizers()[kind]
    tokenizer.save(folder)
    if file.startswith("their"):
        save_hf(tokenizer, folder / "tokenizer.json")
        return folder / "tokenizer.json"
    if file.startswith("our"):
        return folder / "tokenizer.json"
    (folder / "tokenizer.json").unlink()
    return folder / file


def run(name: str, count: int, folder: Path) -> dict[str, int]:
    """Load `count` mutations and use what loads."""
    file = prepared(name, folder)
    good = file.read_bytes()
    outcomes = {"refused": 0, "loaded": 0, "refused a text": 0}
    for number in range(count):
        draw = random.Random(f"{name} {number}")
        if file.suffix == ".json" and draw.random() < 0.8:
            content = json.loads(good)
            for _ in range(draw.randint(1, 2)):
                content = mutated_json(content, draw)
            data = json.dumps(content).encode()
        else:
            data = mutated(good, draw)
        file.write_bytes(data)
        with alarm(f"{name} {number}"):
            try:
                tokenizer = load_tokenizer(folder)
            except InputError as error:
                check_line(error, number)
                outcomes["refused"] += 1
                continue
            try:
                for text in TEXTS:
                    tokens = tokenizer.tokenize(text)
                    assert tokenizer.encode(text) == tokens.ids, number
                    assert all(0 <= i < tokenizer.size for i in tokens.ids), number
                    assert all(0 <= a <= b <= len(text) for a, b in zip(tokens.starts, tokens.ends)), number
                    tokenizer.pack(text, text)
                    tokenizer.decode(tokens.ids)
                outcomes["loaded"] += 1
            except InputError as error:
                check_line(error, number)
                outcomes["refused a text"] += 1
    return outcomes


FILES = [
    "wordpiece our tokenizer.json",
    "bpe our tokenizer.json",
    "unigram our tokenizer.json",
    "wordpiece their tokenizer.json",
    "bpe their tokenizer.json",
    "unigram their tokenizer.json",
    "wordpiece vocab.txt",
    "bpe vocab.json",
    "bpe merges.txt",
    "unigram spiece.model",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_end_in_one_line(name, tmp_path):
    outcomes = run(name, 20, tmp_path)
    assert outcomes["refused"] > 0


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_500_damaged_files_end_in_one_line(name, tmp_path):
    print(name, run(name, 500, tmp_path))
