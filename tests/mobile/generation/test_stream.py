"""Texts in pieces as their tokens come: joined they are the whole, whatever the tokenizer; what a call may ask for."""

import contextlib
import dataclasses
import itertools
import json
import math
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest

from kerasbert import inputs
from kerasbert.answers.generation import About, text_of
from kerasbert.errors import InputError
from kerasbert.mobile import cli
from kerasbert.mobile.runtime import Runner, load
from kerasbert.mobile.runtime.writing.stream import UNFINISHED, Stream, scored
from kerasbert.registry import TOKENIZERS
from kerasbert.text import BytePairEncoding, Unigram, WordPiece
from kerasbert.text.bpe import ALPHABET, SPECIALS
from kerasbert.text.sentencepiece import BYTE
from kerasbert.text.wordpiece import SPECIALS as WORDPIECE
from tests.mobile.generation.test_writing import END, SIZE, writer
from tests.text.kinds import of_kind, small_bpe, small_word_bpe


def unigram_of_bytes(tokenizer):
    """What T5's later relatives have: a character that is no piece is its bytes."""
    model, more = tokenizer.model, [f"<0x{byte:02X}>" for byte in range(256)]
    added = {"pieces": more, "scores": [0.0] * 256, "types": [BYTE] * 256}
    return Unigram(model._replace(**{name: (*getattr(model, name), *values) for name, values in added.items()}))


MORE = {"bpe": lambda _: small_bpe(), "unigram": unigram_of_bytes, "word_bpe": lambda _: small_word_bpe()}


def streamed(tokenizer, ids):
    """The pieces of some ids, and the text that the whole is."""
    row = inputs.row([1], [0], about=About(tokenizer))
    stream = Stream(((ids[: i + 1], -1.0) for i in range(len(ids))), row, contextlib.nullcontext)
    pieces = list(stream)
    assert stream.answer.text == text_of(tokenizer, ids)
    return pieces, stream.answer.text


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_pieces_are_the_text_of_every_tokenizer(kind):
    """Of any ids, most of them no text that a tokenizer gives: bytes that are no UTF-8, "##" in front, special tokens."""
    first = of_kind(kind)
    for tokenizer in (first, *(make(first) for name, make in MORE.items() if name == kind)):
        draw = np.random.default_rng(5)
        for length in (0, 1, 2, 3, 30, 60):
            for _ in range(12):
                pieces, whole = streamed(tokenizer, draw.integers(0, tokenizer.size, length).tolist())
                assert "".join(pieces) == whole
                assert all(pieces)


def spelled(text: bytes) -> list[list[int]]:
    """What is printed after each byte of a text: of a tokenizer of bytes, [piece, ...]."""
    tokenizer = BytePairEncoding([*SPECIALS.values(), *ALPHABET], [])
    return streamed(tokenizer, [len(SPECIALS) + byte for byte in text])[0]


def test_characters_come_whole():
    assert spelled("aé😀b".encode()) == ["a", "é", "😀", "b"]
    assert spelled("é".encode()[:1]) == [UNFINISHED]  # at the end: no byte is to come
    assert spelled(b"\xf0\x9fa") == [f"{UNFINISHED}a"]
    assert "".join(spelled(b"\xff\xff\xffa")) == f"{UNFINISHED * 3}a"
    assert spelled("\u0301\u200d".encode()) == ["\u0301", "\u200d"]  # characters, not what a reader sees as one


def test_the_end_token_is_no_piece():
    tokenizer = small_bpe()
    ids = [*tokenizer.encode("the cat"), tokenizer.sep_id]
    assert "".join(streamed(tokenizer, ids)[0]) == "the cat"


ARRAYS = {"token_ids": np.array([[5, 3, 0, 0, 0, 0, 0, 0]], "int32")}
ROW = inputs.row([5, 3], [0, 0])


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "seed": 3}], ids=["greedy", "drawn"])
@pytest.mark.parametrize("role", ["encode", "prefill"])
def test_growing_texts_are_those_that_are_written(role, options):
    """Two at a time, token by token; one that is left gives its buffers back."""
    at = writer(role)
    kind = at.asked(options)
    wanted = at.write(ROW, ARRAYS, 8, 0, kind)
    pairs = list(itertools.zip_longest(at.grow(ROW, ARRAYS, 8, kind), at.grow(ROW, ARRAYS, 8, kind)))
    for (ids, score), other in zip(pairs[-1], reversed(pairs[-1])):
        assert [score, *ids, *[END] * (6 - len(ids))] == pytest.approx(wanted.tolist(), abs=1e-6)
        assert (ids, score) == other
    assert len(pairs) == len(ids) > 1
    begun = at.grow(ROW, ARRAYS, 8, kind)
    assert next(begun)[0] == ids[:1]
    assert at.programs.live > 0
    begun.close()
    assert at.programs.live == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "beams must be a whole number of at least 1. Received: 0"),
        ({"beams": SIZE + 1}, f"beams is {SIZE + 1}, expected at most the vocabulary's {SIZE} tokens"),
        ({"temperature": -1.0}, "temperature must be a number above 0"),
        ({"top_p": 1.5}, "top_p must be a number above 0 and at most 1"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"max_tokens": 7}, "max_tokens is 7, expected 1 to target_length, 6"),
        ({"bems": 2}, "no option of a generation 'bems'. Nearest: 'beams'"),
        ({"target_length": 3}, "target_length is the file's own, 6: max_tokens says how many"),
        ({"smoothing": 0.1}, "smoothing is an option of training alone"),
        ({"beams": 2, "coverage_penalty": 0.2}, "coverage_penalty is 0.2, expected 0"),
        ({"beams": 2, "temperature": 0.5}, "beams is 2 and temperature, top_k or top_p is given"),
        ({"suppress_tokens": [SIZE]}, f"the suppressed token {SIZE} is none of the vocabulary's"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        writer("encode").asked(options)


def test_beams_do_not_stream():
    at = writer("prefill")
    for options in ({"beams": 2}, {"temperature": 1.0, "num_return_sequences": 2}):
        with pytest.raises(InputError, match="is 2, expected 1: a text is known at its end alone"):
            at.grow(ROW, ARRAYS, 8, at.asked(options))
    assert at.programs.ran == []


PIECES = (*WORDPIECE, "the", "cat", "old", "house", "##s", ".", "sees")


@pytest.fixture
def runner(monkeypatch):
    """A Runner over programs in numpy, which the command opens whatever file it is given."""
    at, tokenizer = writer("prefill", places=(2, 4, 8, 16), separator=" ."), WordPiece([*PIECES])
    assert tokenizer.size == SIZE
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    bundle = dataclasses.replace(at.bundle, tokenizer=files, options=dict(at.kind.options))
    made = Runner(bundle, types.SimpleNamespace(programs=at.programs, close=lambda: None), Path("x.tflite"))
    monkeypatch.setattr(cli, "load", lambda options: made)
    return made


def test_the_command_prints_a_text_as_it_comes(runner, capsys):
    command = ["run", "x.tflite", "the cat", "old house", "--set", "task.temperature=1.5", "--set", "task.seed=4"]
    assert cli.main(command) == 0
    whole = capsys.readouterr().out
    assert cli.main([*command, "--stream"]) == 0
    assert capsys.readouterr().out == whole
    options = {"temperature": 1.5, "seed": 4}
    texts = [runner.generate(text, **options).text for text in ("the cat", "old house")]
    assert whole.splitlines() == [f"{texts[0]}\tthe cat", f"{texts[1]}\told house"]
    assert len(texts[0].split()) > 2
    assert cli.main(["run", "x.tflite", "the cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == runner.generate("the cat").to_json()
    for more, message in (
        (["--set", "task.beams=2", "--stream"], "beams is 2, expected 1"),
        (["--set", "task.bems=2"], "Nearest: 'beams'"),
        (["--top", "2", "--stream"], "a generation ranks nothing"),
    ):
        assert cli.main(["run", "x.tflite", "the cat", *more]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert (said.err.count("\n"), said.out) == (1, "")


def test_a_prompt_is_gone_on_from(runner):
    """With an empty separator the row is the prompt's own tokens."""
    asked = []
    runner.writer.programs.run, run = (
        lambda name, given: asked.append((name, given)) or run(name, given),
        runner.writer.programs.run,
    )
    runner.generate("the cat sees", separator="", max_tokens=1)
    ids = runner.tokenizer.encode("the cat sees")
    assert [name for name, _ in asked] == ["prefill_8", "decode_step_4"]
    assert asked[0][1]["token_ids"][0, : len(ids)].tolist() == ids
    assert (asked[1][1]["token_ids"], asked[1][1]["column"]) == (ids[-1], len(ids) - 1)


def test_a_closed_file_streams_no_more(runner):
    stream = runner.stream("the cat")
    assert next(stream)
    runner.close()
    with pytest.raises(InputError, match="x.tflite is closed: load it again"):
        list(stream)


def test_a_file_that_generates_nothing_says_so(float_file):
    runner = load(float_file[0], cache=False)
    for call, text in (
        (lambda: runner(["a film"], options={"beams": 2}), "beams is given, and .* answers with a classification"),
        (lambda: runner.generate("a film"), "float.tflite answers with a classification: it generates no texts"),
        (lambda: runner.stream("a film", seed=1), "seed is given, and .* it generates no texts"),
        (lambda: runner.score("a film"), "scores no texts, expected a file of a decoder alone, such as GPT-2"),
    ):
        with pytest.raises(InputError, match=text):
            call()


def test_a_score_by_hand():
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], "float32")) + 3
    found = scored(type("Tokenizer", (), {"vocabulary": ("a", "b")}), [0, 1, 0], iter(logits), False)
    assert found.tokens == ("b", "a")
    assert found.log_probabilities == pytest.approx([math.log(0.75), math.log(0.5)], abs=1e-6)
    assert found.score == pytest.approx(math.log(0.375), abs=1e-6)
    assert found.perplexity == pytest.approx(0.375**-0.5, abs=1e-6)
