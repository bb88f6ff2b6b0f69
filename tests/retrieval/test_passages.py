"""Texts of tables: several columns as one text, and columns that are not read."""

import json

import pytest

from kerasbert.errors import InputError
from kerasbert.retrieval import judging
from kerasbert.retrieval.passages import Source

CORPUS = [
    {"_id": "d1", "title": "Whales", "text": "They swim.", "views": 3},
    {"_id": "d2", "title": "", "text": "They sail.", "views": 4},
]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_several_columns_are_one_text(tmp_path):
    path = lines(tmp_path / "corpus.jsonl", CORPUS)
    joined = Source(path, "title,text", "_id", default=False)
    assert [tuple(each) for each in joined] == [("d1", "Whales They swim."), ("d2", "They sail.")]
    assert joined.left == []
    with pytest.raises(InputError, match="no column 'author'. .*It has: _id, title, text"):
        Source(path, "title,author", default=False)


def test_columns_of_text_that_are_not_read_are_known(tmp_path):
    path = lines(tmp_path / "corpus.jsonl", CORPUS)
    assert Source(path).left == ["_id", "title"]
    assert Source(path, id_column="_id").left == ["title"]
    assert Source(["a film"]).left == []


def test_relevant_texts_in_the_layout_of_beir(tmp_path):
    """qrels/test.tsv has numbers; corpus.jsonl and queries.jsonl stand in the folder above."""
    folder = tmp_path / "beir/qrels"
    folder.mkdir(parents=True)
    path = folder / "test.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n")
    with pytest.raises(InputError, match=r"test.tsv has the numbers of queries, expected queries.jsonl beside it"):
        judging.read(path)
    queries = lines(tmp_path / "beir/queries.jsonl", [{"_id": "q1", "text": "ocean"}, {"_id": "q2", "text": "ships"}])
    assert judging.read(path) == {"ocean": {"d1": 2, "d2": 0}, "ships": {"d2": 1}}
    lines(queries, [{"_id": "q1", "text": "ocean"}])
    with pytest.raises(InputError, match=r"test.tsv, line 4: queries.jsonl has no query 'q2'"):
        judging.read(path)
    (folder / "wrong.tsv").write_text("query-id\tdocument\nq1\td1\n")
    with pytest.raises(InputError, match=r"line 2: no column 'corpus-id'"):
        judging.read(folder / "wrong.tsv")


TEXTS = ["the cat sees", "old river", "a film"]


def test_texts_in_memory_are_a_list_a_table_or_read_once():
    frame = {"text": TEXTS, "id": ["a", "b", "c"]}
    assert list(Source(text for text in TEXTS)) == list(Source(frame)) == list(Source(TEXTS))
    with pytest.raises(InputError, match="texts is a int, expected a list of texts"):
        Source(5)
    with pytest.raises(InputError, match="has no column 'text'"):
        Source({"said": TEXTS})
