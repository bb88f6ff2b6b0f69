"""An index of a device: the hits of int8 vectors by definition, what is damaged or another file's told in a line."""

import json
import struct

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.answers.vector import blocks, quantized
from kerasbert.errors import InputError
from kerasbert.mobile import compress
from kerasbert.mobile.cli import main
from kerasbert.mobile.runtime import Index, StoredIndex, load
from kerasbert.mobile.runtime.stored_index import EXACT, inverse, write
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests.mobile.conftest import TEXTS

NOTES = [
    "a good film",
    "the cat 😀 sat",
    "",
    "the cat 😀 sat",
    "un film très sad",
    "a bad dog runs",
    "\u200b",
    "the river",
]


@pytest.fixture(scope="module")
def file(run, tmp_path_factory):
    """A file of the encoder's vectors."""
    path = tmp_path_factory.mktemp("vectors") / "x.tflite"
    compress(kb.load(run).encoder, "float32", path, lengths="any", length=24, texts=TEXTS)
    return path


@pytest.fixture(scope="module")
def stored(file, tmp_path_factory):
    """An index of NOTES, by the command."""
    folder = tmp_path_factory.mktemp("index")
    rows = [{"text": text, "name": f"n{i}"} for i, text in enumerate(NOTES)]
    (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = folder / "notes.kbindex"
    command = ["index", str(file), str(folder / "notes.jsonl"), "--out", str(out), "--id-column", "name", "--no-cache"]
    assert main(command) == 0
    return out


def test_hits_are_the_cosines_of_int8_vectors(file, stored):
    runner = load(file, cache=False)
    index, kept = StoredIndex(runner, stored), [0, 1, 3, 4, 5, 7]  # without those that hold nothing to read
    assert len(index) == 6
    rows = [np.rint(row / np.abs(row).max() * np.float32(127)) for row in runner.outputs([NOTES[i] for i in kept])]
    query = runner.outputs(["a sad film"])[0]
    query = np.rint(query / np.abs(query).max() * np.float32(127)).astype("float64")
    cosines = np.array([row @ query / np.linalg.norm(row) / np.linalg.norm(query) for row in np.float64(rows)])
    order = np.argsort(-cosines, kind="stable")
    found = index.nearest("a sad film", 4)
    assert [hit.index for hit in found] == order[:4].tolist()
    assert [(hit.id, hit.text) for hit in found] == [(f"n{kept[i]}", NOTES[kept[i]]) for i in order[:4]]
    np.testing.assert_allclose([hit.score for hit in found], cosines[order[:4]], atol=1e-7)
    both = index.nearest("the cat 😀 sat", 2)
    assert [(hit.id, round(hit.score, 6)) for hit in both] == [("n1", 1.0), ("n3", 1.0)]  # equals in their order
    assert len(index.nearest("a", 99)) == 6
    assert isinstance(runner.index(NOTES[:2]), Index)
    with pytest.raises(InputError, match="k must be a whole number of at least 1. Received: 0"):
        index.nearest("a", 0)
    for each in (index, runner.index(NOTES[:2])):
        with pytest.raises(InputError, match="the query holds nothing to read. Received: ' '"):
            each.nearest(" ")


def test_blocks_of_long_texts_make_the_same_file(file, stored, tmp_path, monkeypatch):
    whole = stored.read_bytes()
    monkeypatch.setattr("kerasbert.answers.vector.CHARACTERS", 20)
    passages = [(f"n{i}", text) for i, text in enumerate(NOTES) if i not in (2, 6)]
    sizes = [len(block) for block in blocks(passages, 1024)]
    assert (sum(sizes), max(sizes)) == (6, 2)
    assert write(load(file, cache=False), iter(passages), tmp_path / "again.kbindex") == 6
    assert (tmp_path / "again.kbindex").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["again.kbindex"]


def test_sums_of_the_widest_vectors_are_exact():
    """In float32, up to EXACT numbers; halves are rounded to even, and nothing stays nothing."""
    ones = np.full(EXACT, 127, "float32")
    assert float(ones @ ones) == EXACT * 127**2 < 2**24
    assert quantized(np.array([[0.5, 1.5, -127.0], [0.0, 0.0, 0.0]], "float32")).tolist() == [[0, 2, -127], [0, 0, 0]]
    assert inverse(np.array([[3, 4], [0, 0]], "int8")).tolist() == [0.2, 0.0]


def test_nearest_takes_the_file_in_the_place_of_texts(file, stored, capsys):
    assert main(["nearest", str(file), "a film", "--among", str(stored), "--top", "2", "--json", "--no-cache"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    given = ["nearest", str(file), "a film", "--among", str(stored), "--no-cache", "--text-column", "x"]
    assert main(given) == 2
    assert capsys.readouterr() == (
        "",
        "error: --text-column would not be used with the other options given: leave it out\n",
    )
    hits = StoredIndex(load(file, cache=False), stored).nearest("a film", 2)
    assert [(row["id"], row["text"], row["index"]) for row in found] == [(hit.id, hit.text, hit.index) for hit in hits]


def changed(stored, tmp_path, change):
    data = bytearray(stored.read_bytes())
    change(data)
    (tmp_path / "x.kbindex").write_bytes(data)
    return tmp_path / "x.kbindex"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.__delitem__(slice(-1, None)), "is damaged: it has"),
        (lambda data: data.__delitem__(slice(40, None)), "is no index, expected a file that"),
        (lambda data: data.__setitem__(slice(0, 8), b"KBINDEX\x02"), "is no index"),
        (lambda data: data.__setitem__(slice(8, 16), struct.pack("<Q", 2**60)), "is damaged: it has"),
        (lambda data: data.__setitem__(slice(24, 28), bytes(4)), "is damaged: it has"),
        (lambda data: data.__setitem__(slice(32, 64), bytes(32)), "was made by another file than"),
        (lambda data: data.__setitem__(data.index(b"n0a good") - 8, 255), "its texts are not in their places"),
        (
            lambda data: data.__setitem__(slice(64, 68), struct.pack("<f", np.nan)),
            "its content is not what was written",
        ),
        (lambda data: data.__setitem__(slice(64, 68), struct.pack("<f", 99)), "its content is not what was written"),
        (
            lambda data: data.__setitem__(64 + 4 * 6 + 5, data[64 + 4 * 6 + 5] ^ 64),
            "its content is not what was written",
        ),
        (lambda data: data.__setitem__(-1, data[-1] ^ 1), "its content is not what was written"),
        (lambda data: data.__setitem__(28, data[28] ^ 1), "its content is not what was written"),
    ],
)
def test_what_is_damaged_or_of_another_file_is_told(file, stored, tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        StoredIndex(load(file, cache=False), changed(stored, tmp_path, change))


def test_what_cannot_become_an_index_is_told(file, float_file, stored, tmp_path, capsys):
    with pytest.raises(InputError, match="answers with a classification of its inputs, expected a vector of one text"):
        write(load(float_file[0], cache=False), [("1", "a")], tmp_path / "x")
    with pytest.raises(InputError, match="there is no text to put into the index"):
        write(load(file, cache=False), [], tmp_path / "x")
    with pytest.raises(InputError, match="no index .*missing.kbindex. Check the path"):
        StoredIndex(load(file, cache=False), tmp_path / "missing.kbindex")
    (tmp_path / "thesis.txt").write_text("mine")
    given = ["index", str(file), str(tmp_path / "thesis.txt"), "--out", str(tmp_path / "thesis.txt"), "--overwrite"]
    assert main(given) == 2
    (tmp_path / "notes.txt").write_text("a\nb\n")
    for extra in ([], ["--overwrite"]):
        target = stored if not extra else tmp_path / "thesis.txt"
        assert main(["index", str(file), str(tmp_path / "notes.txt"), "--out", str(target), *extra]) == 2
    assert "is not an index of a device: it is kept" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "mine"


PROMPTS = {"query": "the film ", "passage": "not a plot of "}


@pytest.fixture(scope="module")
def prompted(run, tmp_path_factory):
    """A model with prompts, and its file."""
    options = {"pooling": "mean", "prompts": PROMPTS, "prompt_name": "passage"}
    model = TaskModel(kb.load(run).encoder, Task("v", "vector", options=options))
    model.build()
    path = tmp_path_factory.mktemp("prompts") / "x.tflite"
    compress(model, "float32", path, lengths="any", length=24, texts=TEXTS)
    return model, path


def test_a_file_has_the_prompts_of_its_model(prompted, file, float_file):
    """Keras = .tflite for each name; another name is refused with those there are."""
    model, path = prompted
    runner, texts = load(path, cache=False), ["a good film", "", "very bad " * 20]
    assert runner.bundle.options == {"prompts": PROMPTS, "prompt_name": "passage"}
    for name in (None, "query", "passage", ""):
        wanted = kb.encode(model, texts, length=24, prompt_name=name)
        np.testing.assert_allclose(runner.outputs(texts, prompt_name=name), wanted, atol=1e-5)
        np.testing.assert_allclose([each.values for each in runner(texts, prompt_name=name)], wanted, atol=1e-5)
    assert not np.allclose(runner.outputs(texts), runner.outputs(texts, prompt_name="query"), atol=1e-3)
    with pytest.raises(InputError, match="no prompt 'document'.*All: passage, query"):
        runner(texts, prompt_name="document")
    with pytest.raises(InputError, match="no prompt 'query'.*All: none"):
        load(file, cache=False)(texts, prompt_name="query")
    with pytest.raises(InputError, match="prompt_name is 'query', and a classification has no prompts"):
        load(float_file[0], cache=False)(texts, prompt_name="query")


def test_an_index_has_the_prompt_for_passages_and_a_query_its_own(prompted, tmp_path, capsys):
    model, path = prompted
    texts = ["a good film", "it was great", "the plot"]
    (tmp_path / "notes.txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "notes.kbindex"
    assert main(["index", str(path), str(tmp_path / "notes.txt"), "--out", str(out), "--no-cache"]) == 0
    runner = load(path, cache=False)
    stored, held = StoredIndex(runner, out), runner.index(texts)
    passages = kb.encode(model, texts, length=24, prompt_name="passage")
    np.testing.assert_array_equal(stored._vectors, quantized(runner.outputs(texts, prompt_name="passage")))
    np.testing.assert_allclose(held.vectors, passages, atol=1e-5)
    for name in (None, "passage", ""):
        (query,) = kb.encode(model, ["a film"], length=24, prompt_name="query" if name is None else name)
        cosines = passages @ query / np.linalg.norm(passages, axis=-1) / np.linalg.norm(query)
        for index, within in ((stored, 2e-2), (held, 1e-5)):
            found = {hit.index: hit.score for hit in index.nearest("a film", 3, name)}
            np.testing.assert_allclose([found[i] for i in range(3)], cosines, atol=within)
    capsys.readouterr()
    given = ["nearest", str(path), "a film", "--among", str(out), "--no-cache"]
    for words, name in (([], "query"), (["--prompt-name", ""], "")):
        assert main([*given, *words]) == 0
        scores = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
        assert scores == [f"{hit.score:.4f}" for hit in stored.nearest("a film", 5, name)]
    assert main([*given, "--prompt-name", "document"]) == 2
    assert capsys.readouterr().err.startswith("error: no prompt 'document'. All: passage, query")
    assert main(["run", str(path), "a film", "--prompt-name", "query", "--no-cache", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    wanted = kb.encode(model, ["a film"], length=24, prompt_name="query")[0]
    np.testing.assert_allclose(json.loads(line)["values"], wanted, atol=1e-5)


def test_notes_and_queries_that_lose_tokens_are_told(file, tmp_path, capsys):
    long = " ".join(["the cat"] * 20)
    (tmp_path / "notes.txt").write_text(f"a good film\n{long}\n")
    out = tmp_path / "notes.kbindex"
    assert main(["index", str(file), str(tmp_path / "notes.txt"), "--out", str(out), "--no-cache"]) == 0
    assert capsys.readouterr().err == "1 of 2 texts have more than 24 tokens: truncated\n"
    for among, said in ((out, "1 of 2 texts have"), (tmp_path / "notes.txt", "2 of 4 texts have")):
        assert main(["nearest", str(file), long, "the river", "--among", str(among), "--no-cache"]) == 0
        assert capsys.readouterr().err == f"{said} more than 24 tokens: truncated\n"


def test_what_a_folder_of_documents_leaves_out_is_told(file, tmp_path, capsys):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("the cat\n")
    (docs / "c.pdf").write_bytes(b"%PDF-1.7")
    assert main(["index", str(file), str(docs), "--out", str(tmp_path / "a.kbindex"), "--no-cache"]) == 0
    assert "left out: c.pdf" in capsys.readouterr().err
