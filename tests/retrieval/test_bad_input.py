"""Bad input of an index: other files in its folder, and what a caller of Python gives, are refused in a line."""

import json
import os
import shutil

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.retrieval import encoding, folder, forms, graph, judging
from kerasbert.retrieval.passages import Source
from tests import tiny

TEXTS = tiny.sentences(30, seed=3)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """An index, and beside it `other` of the same model and shape."""
    import keras

    keras.utils.set_random_seed(0)
    model = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    model.tokenizer = tiny.tokenizer()
    place = tmp_path_factory.mktemp("indexes")
    kb.save(model, place / "model")
    kb.Index.build(place / "model", tiny.sentences(30, seed=4), place / "other")
    return kb.Index.build(place / "model", TEXTS, place / "index")


def changed(held, tmp_path, name, change):
    """A copy of the index with one file changed."""
    copy = shutil.copytree(held.path, tmp_path / "copy")
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(change(content))
    return copy


def edited(**changes):
    """What sets values of index.json."""
    return lambda content: json.dumps({**json.loads(content), **changes}).encode()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("index.json", edited(count=30.0)),
        ("index.json", edited(settings=dict.fromkeys(folder.SETTINGS) | {"dims": 4})),
        ("index.json", edited(settings=dict.fromkeys(folder.SETTINGS) | {"pooling": "max"})),
        ("index.json", edited(files={})),
        ("index.json", edited(graph=None)),
        ("index.json", lambda content: b"[" * 100_000),
        ("index.json", lambda content: b"\xef\xbb\xbf" + content),
        ("texts.jsonl", lambda content: content.replace(b"the", b"one")),
        ("texts.jsonl", lambda content: content.replace(b"[", b"{", 1)),
        ("places.npy", lambda content: content.replace(b"<u8", b"<f8")),
        ("vectors.npy", lambda content: content.replace(b"<f4", b">f4")),
        ("vectors.npy", lambda content: content[:-4] + bytes(4)),
    ],
)
def test_a_folder_that_was_changed_is_refused(held, tmp_path, name, change):
    with pytest.raises(InputError, match=rf"is damaged \({name}.*\): build it again with --overwrite"):
        kb.Index(changed(held, tmp_path, name, change))


@pytest.mark.parametrize("name", ["vectors.npy", "texts.jsonl", "places.npy", "index.json"])
def test_a_file_of_another_index_is_refused(held, tmp_path, name):
    with pytest.raises(InputError, match="is not the file that was written"):
        kb.Index(changed(held, tmp_path, name, lambda _: (held.path.parent / "other" / name).read_bytes()))


def test_what_is_left_of_an_index_is_no_model(held, tmp_path, capsys):
    copy = shutil.copytree(held.path, tmp_path / "copy")
    (copy / "index.json").unlink()
    assert main(["search", str(copy), "the cat"]) == 2
    assert "copy is damaged (index.json is missing): build it again" in capsys.readouterr().err


def test_a_model_may_move_and_an_older_format_is_told(held, tmp_path):
    copy = changed(held, tmp_path, "index.json", lambda content: content.replace(b"/model", b"/moved"))
    with pytest.raises(InputError, match="no model directory .*moved"):
        kb.Index(copy)
    assert kb.Index(copy, held.model).search(TEXTS[3], 1)[0].score == pytest.approx(1, abs=1e-5)
    (copy / "index.json").write_bytes(edited(index=1)((copy / "index.json").read_bytes()))
    with pytest.raises(InputError, match="has the format 1 of an index, this kerasbert reads 2: build it again"):
        kb.Index(copy)


def test_large_texts_and_graphs_are_known_by_pieces_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "PIECES", 4)
    monkeypatch.setattr(folder, "PIECE", 8)
    content = bytes(range(100))
    for name, at, same in (
        ("texts.jsonl", 50, True),
        ("texts.jsonl", 99, False),
        ("graph.faiss", 50, True),
        ("vocab.json", 50, False),
    ):
        (tmp_path / name).write_bytes(content)
        about = folder.sealed(tmp_path, {"model": {"path": None}})
        (tmp_path / name).write_bytes(content[:at] + b"x" + content[at + 1 :])
        if same:
            folder.check_files(tmp_path, about)
        else:
            with pytest.raises(InputError, match=f"{name} is not the file"):
                folder.check_files(tmp_path, about)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda index: index.search(None), "queries is a NoneType, expected a list of texts"),
        (lambda index: index.search({"a": 1}), "queries is a dict, expected a list of texts"),
        (lambda index: index.search(["a", None]), "query 1 is a NoneType, expected str"),
        (lambda index: index.search("a", rerank=5), "model is a int, expected a directory or a model"),
        (lambda index: index.nearest(np.ones((1, 5)), 3), r"of the shape \(n, 16\). Received: \(1, 5\)"),
        (lambda index: index.nearest(np.ones(16), 3), r"of the shape \(n, 16\). Received: \(16,\)"),
        (lambda index: index.nearest(np.full((1, 16), np.nan), 3), "expected finite vectors"),
        (lambda index: index.nearest(np.ones((1, 16)), 0), "top must be a whole number of at least 1"),
        (lambda index: index.evaluate([]), "relevant is a list, expected {query: ids} or the path of a table"),
        (lambda index: index.evaluate({"a": None}), r"relevant\['a'\] is a NoneType, expected a list of ids"),
        (lambda index: index.evaluate({"a": {"1": "x"}}), r"relevant\['a'\]\['1'\] is 'x', expected a number"),
        (lambda index: index.evaluate({"a": {"1": float("nan")}}), "is nan, expected a number of at least 0"),
        (lambda index: index.build(index.model, {"a", "b"}, "x"), "texts is a set, which has no order"),
        (lambda index: index.build(index.model, np.array("a"), "x"), "texts is a ndarray, expected a list"),
        (lambda index: index.build(index.model, ["a"], "x", words="no"), "words must be True or False. Received: 'no'"),
        (lambda index: index.search("cat", topp=1), "Index.search has no option 'topp'. Nearest: 'top'"),
        (lambda index: index.search("cat", exact="no"), "exact must be True or False. Received: 'no'"),
        (lambda index: index.nearest("cat", 1), "vectors are no numbers, expected the shape"),
        (lambda index: index.evaluate({"cat": ["0"]}, excat=True), "Nearest: 'exact'"),
        (
            lambda index: index.evaluate({"cat": ["0"]}, top="3"),
            "top must be a whole number of at least 1. Received: '3'",
        ),
        (lambda index: index.build(index.model, ["a"], "x", dtype=[]), "dtype must be text. Received: .."),
        (
            lambda index: index.build(index.model, ["a"], "x", length="9"),
            "length must be between 3 and .*Received: '9'",
        ),
    ],
)
def test_what_a_caller_gives_is_checked(held, call, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=line):
        call(held)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_reaches_too_few_gives_fewer(held, monkeypatch):
    monkeypatch.setattr(held, "_graph", object())
    scores, numbers = np.float32([[0.5, -1]]), np.array([[7, -1]])
    monkeypatch.setattr("kerasbert.retrieval.graph.nearest", lambda *_: (scores, numbers))
    assert [(hit.index, hit.score) for hit in held.search("the cat", 2)] == [(7, 0.5)]


def test_long_texts_are_encoded_in_smaller_blocks(held, tmp_path, monkeypatch):
    sizes = []
    encoded = encoding.predict.vectors_and_rows

    def counted(model, texts, **settings):
        sizes.append(sum(map(len, texts)))
        return encoded(model, texts, **settings)

    monkeypatch.setattr("kerasbert.answers.vector.CHARACTERS", 300)
    monkeypatch.setattr(encoding.predict, "vectors_and_rows", counted)
    again = kb.Index.build(held.model, TEXTS, tmp_path / "again")
    assert len(sizes) > 2
    assert max(sizes) < 400
    np.testing.assert_allclose(again.vectors, held.vectors, atol=1e-6)


def test_a_number_that_float16_does_not_hold_is_refused():
    with pytest.raises(InputError, match="above 65,504, the largest of float16: keep them as float32"):
        forms.stored(np.float32([[1, 7e4]]), "float16")


def test_a_column_whose_name_has_a_comma(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"a,b": "whole", "a": "one", "b": "two", "id": "\ud800"}) + "\n")
    source = Source(path, "a,b", "id", default=False)
    assert [tuple(each) for each in source] == [("\ufffd", "whole")]
    assert source.told() == ["columns that are not read: a, b. --text-column NAME,NAME joins several"]
    assert [each.text for each in Source(path, "b,a", default=False)] == ["two one"]
    with pytest.raises(InputError, match="'a,a' names a column twice, expected each once"):
        Source(path, "a,a", default=False)


def test_columns_of_later_rows_are_told_by_search_too(held, tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "the cat"}\n{"text": "", "title": "a dog"}\n')
    assert main(["search", str(held.path.parent / "model"), str(path), "cat"]) == 0
    said = capsys.readouterr().err
    assert "columns that are not read: title. --text-column NAME,NAME joins several" in said
    assert "1 texts hold nothing to read and are left out: 2" in said


def test_grades_of_a_caller():
    assert judging.graded({"a": "1", "b": {"x": np.int64(2)}}) == {"a": {"1": 1.0}, "b": {"x": 2}}


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 8, 90, 0.4, 0.7])  # the kind, the width, levels, links
def test_a_damaged_graph_is_refused_whatever_is_damaged(tmp_path, at):
    faiss = pytest.importorskip("faiss")
    about = graph.build(
        np.random.default_rng(0).normal(size=(200, 4)).astype("float32"), "float32", 4, tmp_path / folder.GRAPH
    )
    assert graph.opened(tmp_path, {"graph": about}).ntotal == 200
    assert isinstance(graph.opened(tmp_path, {"graph": about}), faiss.IndexHNSWFlat)
    with open(tmp_path / folder.GRAPH, "r+b") as file:
        file.seek(int(at * os.path.getsize(file.name)) if at and at < 1 else at)
        file.write(b"\x7f" * 8)
    with pytest.raises(InputError, match="is damaged .graph.faiss.: build it again"):
        graph.opened(tmp_path, {"graph": about})


def test_one_query_is_one_vector(held):
    """encode("cat") was three vectors, of its letters; a number of numpy is a number."""
    np.testing.assert_array_equal(held.encode("the cat"), held.encode(["the cat"]))
    assert held.encode("the cat").shape == (1, held.width)
    assert held.search("the cat", np.int64(2)) == held.search("the cat", 2)
