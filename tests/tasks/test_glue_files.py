"""Files of GLUE in their forms, and the files for its server, by hand."""

import json

import pytest

from kerasbert import registry
from kerasbert.answers import Classification, Regression
from kerasbert.errors import InputError
from kerasbert.tasks.glue_files import read, submission

MRPC, COLA, STSB, MNLI, QQP = (registry.task(f"glue/{name}") for name in ("mrpc", "cola", "stsb", "mnli", "qqp"))


def rows(tmp_path, task, content, name="x.tsv"):
    (tmp_path / name).write_text(content)
    return read(tmp_path / name, task)


def test_columns_by_their_other_names(tmp_path):
    wanted = [(2, {"sentence1": "a", "sentence2": "b", "label": "1"})]
    assert rows(tmp_path, MRPC, "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n") == wanted
    assert rows(tmp_path, MRPC, "sentence1,sentence2,label\na,b,1\n", "x.csv") == wanted
    assert rows(tmp_path, MRPC, "sentence1\tsentence2\na\tb\n") == [(2, {"sentence1": "a", "sentence2": "b"})]
    with pytest.raises(InputError, match="has no column 'sentence2' or '#2 String' or 'hypothesis'"):
        rows(tmp_path, MRPC, "sentence1\tlabel\na\t1\n")


def test_files_without_a_header(tmp_path):
    assert rows(tmp_path, COLA, "gj04\t1\t\ta film\ngj04\t0\t*\tfilm a\n") == [
        (1, {"sentence": "a film", "label": "1"}),
        (2, {"sentence": "film a", "label": "0"}),
    ]
    assert rows(tmp_path, STSB, "a,b,1.5\nc,d,2\n", "x.csv")[0] == (
        1,
        {"sentence1": "a", "sentence2": "b", "score": "1.5"},
    )


def test_lines_that_are_no_rows(tmp_path):
    assert len(rows(tmp_path, COLA, "gj04\t1\t\ta film\r\n\n  \ngj04\t0\t*\tfilm a\r\n")) == 2
    for content, message in (
        ("", "has no rows"),
        ("sentence1\tsentence2\tlabel\n", "has no rows, expected at least one below the header"),
        ("sentence1\tsentence2\tlabel\na\tb\n", r"line 2: 2 fields, expected 3 \(sentence1, sentence2, label\)"),
        ("sentence1\tsentence2\tlabel\na\tb\t1\tc\n", "line 2: 4 fields, expected 3"),
    ):
        with pytest.raises(InputError, match=message):
            rows(tmp_path, MRPC, content)


def test_a_question_of_two_lines(tmp_path):
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    found = rows(tmp_path, QQP, f"{head}1\t2\t3\twho\nsees?\twhy\t1\n4\t5\t6\ta\tb\t0\n")
    assert [row["question1"] for _, row in found] == ["who sees?", "a"]
    assert [row["label"] for _, row in found] == ["1", "0"]
    with pytest.raises(InputError, match="line 2: 4 fields, expected 6"):
        rows(tmp_path, QQP, f"{head}1\t2\t3\twho\n")


def test_json_holds_one_list_and_numbers_of_labels(tmp_path):
    content = json.dumps(
        {"mnli": [{"premise": "a", "hypothesis": "b", "label": 2}, {"premise": "c", "hypothesis": "d", "label": 0}]}
    )
    words = list(MNLI.labels)
    assert rows(tmp_path, MNLI, content, "x.json") == [
        (1, {"sentence1": "a", "sentence2": "b", "label": words[2]}),
        (2, {"sentence1": "c", "sentence2": "d", "label": words[0]}),
    ]
    for wrong in ('{"a": [], "b": []}', "{", '{"a": [1]}'):
        with pytest.raises(InputError, match="is no json that is known here"):
            rows(tmp_path, MNLI, wrong, "x.json")


def test_files_for_the_server(tmp_path):
    answers = [
        Classification(list(MRPC.labels.values())[1], 0.5, {}),
        Classification(next(iter(MRPC.labels.values())), 0.5, {}),
    ]
    assert submission(tmp_path, MRPC, "test.tsv", answers) == (tmp_path / "MRPC.tsv", "index\tprediction\n0\t1\n1\t0\n")
    scores = [Regression(value) for value in (-0.5, 2.71828, 7.0)]
    assert submission(tmp_path, STSB, "test.tsv", scores)[1] == "index\tprediction\n0\t0.000\n1\t2.718\n2\t5.000\n"
    names = {
        "test.tsv": "MNLI-m.tsv",
        "test_matched.tsv": "MNLI-m.tsv",
        "test_mismatched.tsv": "MNLI-mm.tsv",
        "diagnostic.tsv": "AX.tsv",
    }
    assert {source: submission(tmp_path, MNLI, source, [])[0].name for source in names} == names
    with pytest.raises(InputError, match="--submission is for GLUE's tasks"):
        submission(tmp_path, registry.task("classification"), "test.tsv", [])
