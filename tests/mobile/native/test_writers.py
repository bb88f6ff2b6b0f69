"""Texts that are generated in other languages == what the Python runtime generates, in pieces, cancelled."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kerasbert.mobile import compress
from kerasbert.mobile.runtime import load
from tests.mobile.native.runners import ARGUMENT, CANCELLED, litert
from tests.mobile.native.script import word
from tests.mobile.native.test_answers import close
from tests.mobile.native.test_generation import FAMILIES, OPTIONS, prompts
from tests.mobile.native.test_typed import plain

pytestmark = pytest.mark.native
LANGUAGES = ("cpp", "java", "node")
NODE = {"rel": 1e-4, "most": 1e-4}  # it sums in another order than the machine's own code
REFUSED = {
    "beams 0": "beams is out of range, expected a whole number from 1 to 256",
    "beams 2 temperature 0.5": "tokens are drawn for one text at a time",
    "temperature -1": "temperature is out of range, expected a number above 0",
    "temperature nan": "temperature is out of range, expected a number above 0",
    "top_p inf": "top_p is out of range, expected a number above 0, at most 1",
    "max_tokens 21": "max_tokens is 21, expected 1 to target_length, 20",
    "seed -1": "seed is out of range, expected a whole number from 0",
    "early_stopping soon": "early_stopping is out of range, expected true, false or never",
    "suppress_tokens 1000000": "token 1000000 is none of the vocabulary's",
    "bad_words_ids 3;": None,
    "separator 0a226c5c": None,  # a line's end, a quote and a backslash in a text
}


class Asked(NamedTuple):
    """A file that generates, lines of a driver and the answers that they must have."""

    family: str
    path: Path
    lines: list[str]
    answers: list[Any]


def value(given: Any) -> str:
    """A setting's value as a driver reads it."""
    if isinstance(given, list):
        return (";" if given and isinstance(given[0], list) else ",").join(map(value, given))
    return str(given).lower() if isinstance(given, bool) else str(given)


def wanted(python: Any, text: str, options: dict[str, Any]) -> tuple[str, list]:
    """How a driver listens, and what it prints."""
    answer = python.generate(text, **options).to_json()
    several = max(options.get("beams", 1), options.get("num_return_sequences", 1)) > 1
    sequences = [[each["text"], each["score"]] for each in answer.get("sequences", [answer])]
    pieces = [] if several else list(python.stream(text, **options))
    return "-" if several else "0", [answer["text"], answer["score"], sequences, pieces, "truncated" in answer]


@pytest.fixture(scope="module", params=("gpt2", "t5", "bart"))
def file(request, tmp_path_factory) -> Asked:
    """A file of a family; 40 prompts and one that is too long, with every setting."""
    from tests.mobile.generation.test_phone import TEXTS, writer

    folder, lines, answers = tmp_path_factory.mktemp("written"), [], []
    out = folder / "x.tflite"
    compress(writer(request.param, folder), "float32", out, texts=TEXTS[:8], length=FAMILIES[request.param])
    with load(out, cache=False) as python:
        for options in OPTIONS:
            settings = [f"{name} {value(given)}" for name, given in options.items()]
            for text in [*prompts(41), "the " * 60]:
                listens, answer = wanted(python, text, options)
                lines.append(" ".join([listens, word(text), *settings]))
                answers.append(answer)
    return Asked(request.param, out, lines, answers)


def said(command: list, path: Path, lines: list[str]) -> list[str]:
    """What a driver says."""
    line = [*command, "Writer", path, litert()]
    done = subprocess.run(line, input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8", timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_are_those_of_python(language, file, request):
    found = said(request.getfixturevalue(language), file.path, file.lines)
    assert len(found) == len(file.answers), found[-1:]
    for line, asked, answer in zip(found, file.lines, file.answers):
        assert not line.startswith("error"), f"{asked}: {line}"
        close(answer, plain(json.loads(line)), asked, **(NODE if language == "node" else {}))
    print(f"\n{len(found)} texts")


@pytest.mark.parametrize("language", LANGUAGES)
def test_scores_are_those_of_python(language, file, request):
    """Of a decoder alone; another file, and a text of one token, are refused."""
    texts = [*prompts(41), "the " * 60]
    found = said(request.getfixturevalue(language), file.path, [f"score {word(text)}" for text in [*texts, "."]])
    if file.family != "gpt2":
        expected = f"error {ARGUMENT} 0 the file scores no texts, expected a file of a decoder alone, such as GPT-2"
        assert set(found) == {expected}
        return
    with load(file.path, cache=False) as python:
        for line, text in zip(found, texts, strict=False):
            score = python.score(text)
            answer = [list(score.tokens), list(score.log_probabilities), score.score, score.perplexity, score.truncated]
            close(answer, plain(json.loads(line)), text, rel=1e-4, most=1e-4)
    assert found[-1] == f"error {ARGUMENT} 0 a text has 1 tokens, expected at least two"


@pytest.mark.parametrize("language", LANGUAGES)
def test_who_listens_may_end_a_text(language, file, request):
    """By its answer, by `cancel` of its own or of another thread, by an exception; the next text is whole again."""
    number = next(i for i, answer in enumerate(file.answers) if len(answer[3]) > 3)
    text = file.lines[number].split()[1]
    found = said(
        request.getfixturevalue(language),
        file.path,
        [f"1 {text}", f"2 {text}", f"cancel {text}", f"throw {text}", f"other {text}", f"0 {text}"],
    )
    cancelled = f"error {CANCELLED} %d the answer was cancelled"
    assert found[:4] == [cancelled % 1, cancelled % 2, cancelled % 2, "thrown 2 of the listener"]
    assert found[4].startswith(f"error {CANCELLED} ")
    close(file.answers[number], plain(json.loads(found[5])), "after all", **(NODE if language == "node" else {}))


@pytest.mark.parametrize("language", LANGUAGES)
def test_settings_that_cannot_be(language, file, request):
    """Each is refused in a line; others behind it are not."""
    text = word("the cat")
    found = said(request.getfixturevalue(language), file.path, [f"- {text} {settings}" for settings in REFUSED])
    assert len(found) == len(REFUSED)
    for line, (settings, expected) in zip(found, REFUSED.items()):
        if expected is None:
            assert not line.startswith("error"), f"{settings}: {line}"
        else:
            assert line.startswith(f"error {ARGUMENT} 0 "), f"{settings}: {line}"
            assert expected in line
    (line,) = said(request.getfixturevalue(language), file.path, [f"0 {text} beams 3"])
    assert "beams is 3, expected 1: a text is known at its end alone" in line
    (line,) = said(request.getfixturevalue(language), file.path, ["- 20"])
    assert "a source is empty, expected a text to write from" in line
