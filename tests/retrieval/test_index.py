"""An index: as search without one, kept over kills, refused where it is another's, damaged or in the way."""

import dataclasses
import json
import os
import resource
import shutil
import signal

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.retrieval import building, encoding, exact, graph, lexical
from kerasbert.retrieval.passages import Source
from kerasbert.retrieval.vector_file import VectorFile
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from tests import tiny

TEXTS = tiny.sentences(90, seed=3)


def encoder(seed=0):
    import keras

    keras.utils.set_random_seed(seed)
    model = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    model.tokenizer = tiny.tokenizer()
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Directory of an encoder."""
    folder = tmp_path_factory.mktemp("model") / "run"
    kb.save(encoder(), folder)
    return folder


@pytest.fixture(scope="module")
def index(model, tmp_path_factory):
    """Directory of an index of TEXTS."""
    folder = tmp_path_factory.mktemp("index") / "index"
    kb.Index.build(model, TEXTS, folder)
    return folder


def test_a_folder_of_documents_is_searched_and_a_hit_tells_where_it_stands(model, tmp_path, capsys):
    docs, out = tmp_path / "docs", tmp_path / "docs" / "index"
    docs.mkdir()
    (docs / "a.txt").write_text("the cat\nruns\n\na happy dog\n")
    (docs / "b.csv").write_text("who,what\ncat,sings\n")
    (docs / "c.pdf").write_bytes(b"%PDF-1.7")
    for _ in range(2):  # the second time its own index lies there
        assert main(["index", str(model), str(docs), "--out", str(out), "--overwrite"]) == 0
        assert (
            "2 documents\n1 files are no documents by their endings and are left out: c.pdf" in capsys.readouterr().err
        )
    assert main(["search", str(out), "a happy dog", "--top", "1"]) == 0
    said = capsys.readouterr().out
    assert said == "1.0000\ta happy dog\ta.txt:4\n"
    assert main(["search", str(model), str(docs), "a happy dog", "--top", "1"]) == 0
    found = capsys.readouterr()
    assert found.out == said
    assert "1 files are no documents by their endings and are left out: c.pdf" in found.err
    assert kb.Index(out).search("who: cat; what: sings", 1)[0].id == "b.csv:2"
    assert main(["encode", str(model), "--data", str(docs), "--out", str(tmp_path / "v.npy")]) == 2
    assert "is a directory, expected a file" in capsys.readouterr().err


def test_what_it_finds_is_what_search_finds(model, index):
    held = kb.Index(index)
    assert len(held) == 90
    for query in ("the cat", "a sad dog sees the river"):
        found, wanted = held.search(query, 7), kb.search(model, TEXTS, query, top=7)
        assert [hit.index for hit in found] == [hit.index for hit in wanted]
        np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in wanted], atol=1e-6)
        assert [hit.text for hit in found] == [TEXTS[int(hit.id)] for hit in found]
    for one, other in zip(held.search(["the cat", "the dog"], 2)[0], held.search("the cat", 2), strict=True):
        assert one == dataclasses.replace(other, score=pytest.approx(other.score, abs=1e-6))
    assert held.search([]) == []


def test_a_table_with_ids_and_blank_rows(model, tmp_path, capsys):
    table = tmp_path / "rows.csv"
    table.write_text('key,title\nx,the cat runs\ny,""\nz,"a dog,\nhappy"\n')
    out = tmp_path / "index"
    assert (
        main(["index", str(model), str(table), "--text-column", "title", "--id-column", "key", "--out", str(out)]) == 0
    )
    said = capsys.readouterr()
    assert "2 texts, vectors of 16 numbers as float32" in said.err
    assert "1 texts hold nothing to read and are left out: 2" in said.err
    assert main(["search", str(out), "happy dog", "the cat runs", "--json"]) == 0
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert {hit["id"] for hit in one["hits"]} == {"x", "z"}
    assert other["hits"][0] == {"index": 0, "text": "the cat runs", "score": pytest.approx(1, abs=1e-5), "id": "x"}
    assert main(["search", str(out), "the cat runs"]) == 0
    assert [line[7:] for line in capsys.readouterr().out.splitlines()] == ["the cat runs\tx", "a dog, happy\tz"]
    table.write_text("key,text\n17,the cat runs\n4,a dog\n")  # numbers of a column are ids, those of lines are none
    for names, ids in ((["--id-column", "key"], ["\t17", "\t4"]), ([], ["", ""])):
        assert main(["index", str(model), str(table), *names, "--out", str(out), "--overwrite"]) == 0
        capsys.readouterr()
        assert main(["search", str(out), "the cat runs", "a dog", "--top", "1"]) == 0
        first, hit, second, other = capsys.readouterr().out.splitlines()
        assert (first, hit[7:]) == ("# the cat runs", f"the cat runs{ids[0]}")
        assert (second, other[7:]) == ("# a dog", f"a dog{ids[1]}")


@pytest.mark.parametrize(
    ("content", "option", "line"),
    [
        ("key,text\nx,a\nx,b\n", "key", "the id 'x' is there twice, expected each once"),
        ("key,text\nx,a\n,b\n", "key", "line 3: column 'key' holds '', expected an id"),
        ("key,text\nx,a\n", "kay", "line 2: no column 'kay'. Nearest: 'key'"),
        ("\n \n", None, "holds no text, expected at least one"),
        ("a\nb\n", "key", "is plain text, which has no column 'key'"),
    ],
)
def test_bad_files_are_one_line(model, tmp_path, capsys, content, option, line):
    file = tmp_path / ("rows.csv" if "," in content else "rows.txt")
    file.write_text(content)
    options = ["--id-column", option] if option else []
    assert main(["index", str(model), str(file), "--out", str(tmp_path / "out"), *options]) == 2
    assert line in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]


def test_a_killed_run_goes_on(model, index, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "BLOCK", 32)
    made, add = [], VectorFile.add

    def killed(self, vectors):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(len(vectors))
        add(self, vectors)

    monkeypatch.setattr(VectorFile, "add", killed)
    with pytest.raises(
        KeyboardInterrupt, match="^interrupted: 64 of 90 vectors are kept in .*: the same command goes on$"
    ):
        kb.Index.build(model, TEXTS, tmp_path / "index")
    (partial,) = tmp_path.iterdir()
    with partial.open("ab") as file:
        file.write(b"torn")
    made.clear()
    monkeypatch.setattr(VectorFile, "add", lambda self, vectors: (made.append(len(vectors)), add(self, vectors)))
    kb.Index.build(model, TEXTS, tmp_path / "index")
    assert made == [26]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    one, other = (np.load(folder / "vectors.npy") for folder in (index, tmp_path / "index"))
    np.testing.assert_allclose(one, other, atol=1e-6)  # other rows beside a text


def test_what_is_in_the_way_is_kept(model, index, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("x")
    with pytest.raises(InputError, match="was not written by kerasbert"):
        kb.Index.build(model, TEXTS, tmp_path / "thesis", overwrite=True)
    copy = shutil.copytree(index, tmp_path / "copy")
    with pytest.raises(InputError, match="exists already"):
        kb.Index.build(model, TEXTS[:3], copy)
    assert len(kb.Index.build(model, iter(TEXTS[:3]), copy, overwrite=True)) == 3
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds notes.txt, which is not kerasbert's"):
        kb.Index.build(model, TEXTS, copy, overwrite=True)


def test_another_model_is_refused(index):
    with pytest.raises(InputError, match="was built by another model"):
        kb.Index(index, encoder(seed=1))
    assert kb.Index(index, encoder(seed=0)).search("the cat", 1)


def test_a_model_in_memory_must_be_given(tmp_path):
    held = encoder()
    assert kb.Index.build(held, TEXTS[:5], tmp_path / "index").search("the cat", 1)
    with pytest.raises(InputError, match="was built by a model in memory"):
        kb.Index(tmp_path / "index")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("index.json", lambda content: content[:20]),
        ("index.json", lambda content: content.replace(b'"float32"', b'"float8"')),
        ("index.json", lambda content: b"[]"),
        ("vectors.npy", lambda content: content[:-8]),
        ("vectors.npy", lambda content: b""),
        ("texts.jsonl", lambda content: content[:-1]),
        ("places.npy", lambda content: content[:-8]),
        ("vectors.npy", lambda content: b"PK" + content[2:]),
        ("vectors.npy", lambda content: b"x" + content[1:]),
        ("vectors.npy", lambda content: content[:-4] + b"\xff\xff\xff\xff"),  # not a number
        ("texts.jsonl", lambda content: b"\0" + content[1:]),
        ("texts.jsonl", lambda content: content[:6] + b"\xff" + content[7:]),
        ("texts.jsonl", lambda content: b"7" + b" " * (content.index(b"\n") - 1) + content[content.index(b"\n") :]),
        ("places.npy", lambda content: content[:136] + b"\xff" * 8 + content[144:]),
        ("index.json", lambda content: content.replace(b'"query_prompt"', b'"query_prompts"')),
        ("index.json", lambda content: content.replace(b'"language"', b'"tongue"')),
        ("vectors.npy", None),
        ("texts.jsonl", None),
        ("places.npy", None),
    ],
)
def test_a_damaged_index_is_one_line(index, tmp_path, capsys, name, damage):
    copy = shutil.copytree(index, tmp_path / "copy")
    content = (copy / name).read_bytes()
    (copy / name).unlink()
    if damage is not None:
        (copy / name).write_bytes(damage(content))
    assert main(["search", str(copy), "the cat", "--top", "999"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {copy} is damaged ({name}")
    assert line.endswith("): build it again with --overwrite")
    assert "pickle" not in line


def test_a_full_disk_is_told_with_the_file_and_what_to_do(model, tmp_path):
    """What the disk did not take is still in the file's buffer when it is closed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (60, 5000):  # of nothing, which is seen before the work; of the first vectors
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
        try:
            with pytest.raises(
                InputError, match=r"cannot write .*(index|partial): File too large. (Choose|Free space)"
            ):
                kb.Index.build(model, TEXTS, tmp_path / "index")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert list(tmp_path.iterdir()) == []
    assert len(kb.Index.build(model, TEXTS, tmp_path / "index")) == len(TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["the cat", "--length", "9"], "--length would not be used"),
        (["the cat", "--top", "0"], "--top must be at least 1"),
        ([" "], "holds nothing to read"),
        (["the cat", "--prompt-name", "query"], "the model has no prompts"),
    ],
)
def test_what_an_index_cannot_use_is_refused(index, capsys, arguments, line):
    assert main(["search", str(index), *arguments]) == 2
    assert line in capsys.readouterr().err


def test_prompts_for_texts_and_for_queries(tmp_path):
    prompts = {"query": "the film ", "passage": "the house "}
    task = Task("v", "vector", options={"pooling": "mean", "prompts": prompts, "prompt_name": ""})
    model = TaskModel(encoder(), task)
    model.build()
    model.tokenizer = tiny.tokenizer()
    index = kb.Index.build(model, TEXTS, tmp_path / "index")
    assert (index.about["settings"]["prompt_name"], index.about["query_prompt"]) == ("passage", "query")
    plain = kb.encode(model, ["the house " + text for text in TEXTS], prompt_name="")
    query = kb.encode(model, ["the film the cat"], prompt_name="")[0]
    cosines = plain @ query / np.linalg.norm(plain, axis=1) / np.linalg.norm(query)
    hits = index.search("the cat", 5)
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1][:5], atol=1e-5)


def test_hits_are_ordered_by_a_model_of_pairs(index, tmp_path):
    task = Task("r", "regression", text_b="other", metric="spearman")
    judge = TaskModel(encoder(2), task)
    judge.build()
    judge.tokenizer = tiny.tokenizer()
    held = kb.Index(index)
    hits = held.search("the cat", 3, rerank=judge, candidates=20)
    first = held.search("the cat", 20)
    values = [answer.value for answer in kb.predict(judge, [("the cat", hit.text) for hit in first])]
    assert [hit.score for hit in hits] == pytest.approx(sorted(values, reverse=True)[:3], abs=1e-6)
    assert [hit.index for hit in hits] == [first[i].index for i in np.argsort(-np.array(values), kind="stable")[:3]]
    with pytest.raises(InputError, match="rerank needs a model of pairs with one score .* received an encoder"):
        held.search("the cat", rerank=encoder())


def test_vectors_of_a_file(model, tmp_path, capsys):
    file, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    file.write_text("\n".join(["the cat", "", *TEXTS]) + "\n")
    assert main(["encode", str(model), "--data", str(file), "--out", str(out)]) == 0
    assert "92 vectors of 16 numbers; the n-th is the n-th text's" in capsys.readouterr().err
    np.testing.assert_allclose(np.load(out), kb.encode(model, ["the cat", "", *TEXTS]), atol=1e-5)
    assert main(["encode", str(model), "--data", str(file), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["encode", str(model), "--data", str(file), "--out", str(out), "--overwrite", "--dtype", "binary"]) == 0
    assert np.load(out).shape == (92, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "vectors.npy"]
    assert main(["encode", str(model), "--data", str(file), "--out", str(out), "--overwrite", "--dims", "5"]) == 0
    np.testing.assert_allclose(np.load(out), kb.encode(model, ["the cat", "", *TEXTS])[:, :5], atol=1e-5)
    assert main(["index", str(model), str(file), "--out", str(tmp_path / "five"), "--dims", "5"]) == 0
    hit = kb.Index(tmp_path / "five").search("the cat", top=1)[0]
    assert (hit.text, kb.Index(tmp_path / "five").vectors.shape[1]) == ("the cat", 5)
    assert hit.score == pytest.approx(1, abs=1e-5)
    for arguments in (["--data", str(file)], ["x", "--out", str(out)], ["--data", str(file), "--out", "v.txt"]):
        assert main(["encode", str(model), *arguments]) == 2


def test_a_list_is_checked():
    with pytest.raises(InputError, match="text 1 is a int, expected str"):
        Source(["a", 3])
    with pytest.raises(InputError, match="texts holds no text"):
        Source([])


def test_without_faiss_a_graph_is_refused_in_one_line(model, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "library", lambda: None)
    with pytest.raises(InputError, match="a graph of neighbours needs faiss: pip install"):
        kb.Index.build(model, TEXTS, tmp_path / "index", neighbours=True)
    monkeypatch.setattr(building.graph, "FROM", 50)
    told = kb.Index.build(model, TEXTS, tmp_path / "index").told
    assert told[-1].startswith("each query is compared with all 90")


@pytest.mark.slow
def test_a_graph_finds_nearly_all_of_the_nearest(model, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    index = kb.Index.build(model, tiny.sentences(3000, seed=5), tmp_path / "index", neighbours=True)
    assert index.about["graph"]["recall"] >= 0.9
    queries = tiny.sentences(50, seed=6)
    near, all_ = index.search(queries, 10), index.search(queries, 10, exact=True)
    scores = (
        [np.mean([hit.score for hit in hits]) for hits in zip(*near)],
        [np.mean([hit.score for hit in hits]) for hits in zip(*all_)],
    )
    np.testing.assert_allclose(*scores, atol=2e-3)
    with open(tmp_path / "index/graph.faiss", "r+b") as file:
        file.seek(100)
        file.write(os.urandom(8))
    with pytest.raises(InputError, match="is damaged .graph.faiss is not the file"):
        kb.Index(tmp_path / "index")


def test_blocks_are_read_one_after_the_other():
    vectors = np.arange(30, dtype="float32").reshape(10, 3)
    assert [(start, len(block)) for start, block in exact.blocks(vectors, "float32", 3, 4)] == [(0, 4), (4, 4), (8, 2)]


@pytest.fixture(scope="module")
def worded(model, tmp_path_factory):
    """An index of four texts, with words."""
    pytest.importorskip("bm25s")
    texts = ["the cat sees a ship", "the dog runs", "ship and SHIP", "old stone \u9be8"]
    return kb.Index.build(model, texts, tmp_path_factory.mktemp("words") / "index", words=True)


@pytest.mark.slow
def test_words_and_both(worded):
    assert [hit.index for hit in worded.search("(SHIP)!", how="words")] == [2, 0]
    assert [hit.index for hit in worded.search("\u9be8", how="words")] == [3]
    assert worded.search("nothing", how="words") == []
    with pytest.raises(InputError, match="query 0 holds nothing to read"):
        worded.search(" ", how="words")
    by_vectors = [hit.index for hit in worded.search("the ship", 4, how="vectors")]
    by_words = [hit.index for hit in worded.search("the ship", 4, how="words")]
    scores = {n: sum(1 / (61 + each.index(n)) for each in (by_vectors, by_words) if n in each) for n in range(4)}
    hits = worded.search("the ship", 4)
    assert [hit.score for hit in hits] == pytest.approx(sorted(scores.values(), reverse=True))
    assert [hit.index for hit in hits] == sorted(scores, key=lambda n: (-scores[n], n))
    with pytest.raises(InputError, match="how must be one of vectors, words, both. Received: 'bm25'"):
        worded.search("a", how="bm25")


@pytest.mark.slow
def test_words_that_were_changed_are_damage(worded):
    path = worded.path / "words/vocab.index.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"cat", b"dog"))
    with pytest.raises(InputError, match="is damaged .words/vocab.index.json is not the file"):
        kb.Index(worded.path)
    path.write_bytes(content)


def test_an_index_without_words_says_so(index, model, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="has vectors alone: build it with words"):
        kb.Index(index).search("the cat", how="both")
    monkeypatch.setattr(lexical, "library", lambda: None)
    with pytest.raises(InputError, match="an index of words needs bm25s: pip install"):
        kb.Index.build(model, TEXTS, tmp_path / "index", words=True)
