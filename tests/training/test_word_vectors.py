"""`kerasbert vectors` and `nearest`: learned, written, read, and refused in one line."""

import gzip
import json
import random

import numpy as np
import pytest

from kerasbert.checkpoints.vectors import FastTextVectors, read_vectors
from kerasbert.cli import main

NEAR = (("cat", "dog", "horse"), ("red", "green", "blue"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Words of one list stand in the same company."""
    draw = random.Random(0)
    company = ("eats runs sleeps barks".split(), "wall paint colour light".split())
    lines = []
    for number in range(600):
        kind = number % 2
        lines.append(f"The {draw.choice(NEAR[kind])} {' '.join(draw.sample(company[kind], 2))}")
    path = tmp_path_factory.mktemp("vectors") / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps({"text": line}) + "\n" for line in lines).encode()))
    return path


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


SETTINGS = {
    "word2vec": ["--epochs", 20, "--learning-rate", 0.05],
    "fasttext": ["--epochs", 20, "--buckets", 500, "--learning-rate", 0.05],
    "glove": ["--epochs", 60, "--batch", 64],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_words_of_one_company_are_near(capsys, tmp_path, corpus, kind):
    out = tmp_path / "out"
    command = ["vectors", corpus, "--kind", kind, "--size", 12, "--window", 3, "--seed", 3, *SETTINGS[kind]]
    status, printed, err = run(capsys, *command, "--out", out)
    assert (status, printed, err) == (0, f"{out}: 15 words of 12 numbers\n", "")
    vectors = read_vectors(out)
    assert isinstance(vectors, FastTextVectors) == (kind == "fasttext")
    assert vectors.words[0] == "the"
    table = vectors.table / np.linalg.norm(vectors.table, axis=1, keepdims=True)
    cosine = {
        (one, other): table[vectors.index[one]] @ table[vectors.index[other]]
        for one in sum(NEAR, ())
        for other in sum(NEAR, ())
    }
    same = [value for (one, other), value in cosine.items() if one != other and (one in NEAR[0]) == (other in NEAR[0])]
    across = [value for (one, other), value in cosine.items() if (one in NEAR[0]) != (other in NEAR[0])]
    assert np.mean(same) > np.mean(across)
    assert run(capsys, *command, "--out", tmp_path / "again")[0] == 0
    assert read_vectors(tmp_path / "again").table.tobytes() == vectors.table.tobytes()
    status, printed, _ = run(capsys, "nearest", "cat", "--vectors", out, "--top", 2, "--json")
    found = json.loads(printed)
    assert (status, found["word"]) == (0, "cat")
    assert [hit["word"] for hit in found["nearest"]] == [word for word, _ in vectors.nearest("cat", 2)]
    if kind == "fasttext":  # of an unseen word too
        assert run(capsys, "nearest", "cats", "--vectors", out, "--top", 1)[1].split("\t")[1].strip() in vectors


def test_a_file_is_converted_without_a_kind(capsys, tmp_path):
    (tmp_path / "a.txt").write_text("sea 1 0.5\nland -1 1e-8\n")
    for format, name in (("bin", "vectors.bin"), ("vec", "vectors.vec"), ("glove", "vectors.txt")):
        out = tmp_path / format
        assert run(capsys, "vectors", tmp_path / "a.txt", "--format", format, "--out", out)[0] == 0
        assert {path.name for path in out.iterdir()} == {name, "vectors.json", ".kerasbert"}
        found = read_vectors(out)
        assert (found.words, found.table.tolist()) == (("sea", "land"), np.float32([[1, 0.5], [-1, 1e-8]]).tolist())
    assert (tmp_path / "glove/vectors.txt").read_bytes() == b"sea 1.0 0.5\nland -1.0 1e-08\n"


REFUSED = {
    "kind": (["vectors", "x", "--kind", "elmo"], "KIND must be one of word2vec, fasttext, glove|--kind must be one of"),
    "several": (["vectors", "a.txt", "b.txt"], "2 files and no --kind, expected --kind, or one file of vectors"),
    "size": (["vectors", "a.txt", "--size", "3"], "without --kind a file of vectors is converted"),
    "negative": (
        ["vectors", "a.txt", "--kind", "glove", "--size", "0"],
        "size must be a whole number of at least 1. Received: 0",
    ),
    "n-grams": (
        ["vectors", "a.txt", "--kind", "fasttext", "--ngrams", "6-3"],
        "ngrams must be two numbers such as 3-6",
    ),
    "no n-grams": (
        ["vectors", "a.txt", "--kind", "glove", "--format", "fasttext"],
        "--format fasttext holds n-grams, which glove",
    ),
    "format": (["vectors", "a.txt", "--format", "vex"], "Received: 'vex'. Nearest: 'vec'"),
    "absent": (["vectors", "none.txt", "--kind", "glove"], "no file none.txt"),
    "rare": (["vectors", "a.txt", "--kind", "glove", "--min-count", "9"], "no word of the text occurs 9 times"),
    "ragged": (["vectors", "ragged.vec"], r"ragged.vec, line 3: 1 numbers, expected 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_one_line_and_leaves_nothing(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("sea 1 0.5\n")
    (tmp_path / "b.txt").write_text("sea 1 0.5\n")
    (tmp_path / "ragged.vec").write_text("2 2\nsea 1 2\nland 1\n")
    arguments, message = REFUSED[name]
    try:
        status = main([*arguments, "--out", "out"])
    except SystemExit as error:
        status = error.code
    err = capsys.readouterr().err
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert any(part in err for part in message.split("|"))
    assert not (tmp_path / "out").exists()


def test_nearest_of_what_is_not_there(capsys, tmp_path):
    (tmp_path / "a.vec").write_text("1 1\nsea 1\n")
    status, _, err = run(capsys, "nearest", "Sea", "--vectors", tmp_path / "a.vec")
    assert (status, err) == (2, "error: no vector of the word 'Sea' among 1 words. Nearest: 'sea'\n")
