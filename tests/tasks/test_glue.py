"""GLUE's files, made here in the official layouts, and those beside the project, whose layouts differ."""

import json

import pytest

from kerasbert.answers import Classification, Regression
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks import glue_files
from kerasbert.tasks.glue_files import SUBMISSIONS, submission
from kerasbert.tasks.task import find_task, read_rows, split_files
from tests.support import shared

MNLI = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 "
    "sentence2 label1"
).split()
JUDGES = [f"label{i}" for i in range(2, 6)]
MRPC = ["#1 ID", "#2 ID", "#1 String", "#2 String"]
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2".split()
TEXT = ('He said "no', "'no' he said\" ")  # literal quotes, one of a pair


def mnli(label, *judges):
    return [*(f"cell {i}" for i in range(8)), *TEXT, label, *judges]


# task, file, header, a row, its texts, its target (None: the file has no labels)
OFFICIAL = [
    ("cola", "train.tsv", None, ["gj04", "0", "*", TEXT[0]], TEXT[0], 0),
    ("cola", "train.tsv", None, ["gj04", "1", "", TEXT[0]], TEXT[0], 1),
    ("cola", "test.tsv", ["index", "sentence"], ["0", TEXT[0]], TEXT[0], None),
    ("sst2", "train.tsv", ["sentence", "label"], [TEXT[0], "1"], TEXT[0], 1),
    ("sst2", "test.tsv", ["index", "sentence"], ["0", TEXT[0]], TEXT[0], None),
    ("mrpc", "train.tsv", ["\ufeffQuality", *MRPC], ["1", "7", "8", *TEXT], TEXT, 1),
    ("mrpc", "test.tsv", ["index", *MRPC], ["0", "7", "8", *TEXT], TEXT, None),
    ("stsb", "train.tsv", [*STSB, "score"], [*"0123456", *TEXT, "3.800"], TEXT, 3.8),
    ("stsb", "test.tsv", STSB, [*"0123456", *TEXT], TEXT, None),
    ("qqp", "train.tsv", "id qid1 qid2 question1 question2 is_duplicate".split(), ["3", "1", "2", *TEXT, "1"], TEXT, 1),
    ("qqp", "test.tsv", "id question1 question2".split(), ["3", *TEXT], TEXT, None),
    ("mnli", "train.tsv", [*MNLI, "gold_label"], mnli("neutral", "contradiction"), TEXT, 2),
    ("mnli", "dev_matched.tsv", [*MNLI, *JUDGES, "gold_label"], mnli(*["entailment"] * 5, "neutral"), TEXT, 1),
    (
        "mnli_mismatched",
        "dev_mismatched.tsv",
        [*MNLI, *JUDGES, "gold_label"],
        mnli(*["neutral"] * 5, "entailment"),
        TEXT,
        0,
    ),
    ("mnli", "test_matched.tsv", MNLI[:-1], mnli("x")[:-1], TEXT, None),
    ("qnli", "train.tsv", ["index", "question", "sentence", "label"], ["0", *TEXT, "not_entailment"], TEXT, 1),
    ("qnli", "test.tsv", ["index", "question", "sentence"], ["0", *TEXT], TEXT, None),
    ("rte", "dev.tsv", ["index", "sentence1", "sentence2", "label"], ["0", *TEXT, "entailment"], TEXT, 0),
    ("wnli", "dev.tsv", ["index", "sentence1", "sentence2", "label"], ["0", *TEXT, "1"], TEXT, 1),
    ("wnli", "test.tsv", ["index", "sentence1", "sentence2"], ["0", *TEXT], TEXT, None),
]


def write(path, *rows):
    path.write_text("\n".join("\t".join(row) for row in rows if row is not None) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "file", "header", "row", "texts", "target"), OFFICIAL)
def test_the_official_layouts_are_read_without_quoting(tmp_path, name, file, header, row, texts, target):
    task, path = find_task(f"glue/{name}"), write(tmp_path / file, header, row, row)
    split = "dev" if "dev" in file else "test" if "test" in file else "train"
    assert split_files(tmp_path, test=True, task=task) == {split: path}
    rows = read_rows(task, path, targets=target is not None)
    assert rows.texts == [texts, texts]
    if target is None:
        with pytest.raises(InputError, match="label|score"):
            read_rows(task, path)
    else:
        assert rows.targets.tolist() == pytest.approx([target] * 2)
    if header is not None:
        write(path, header, row, row[1:])
        with pytest.raises(InputError, match=rf"{file}, line 3: {len(row) - 1} fields, expected {len(row)}"):
            read_rows(task, path, targets=target is not None)


def test_each_of_mnlis_dev_files_is_its_tasks(tmp_path):
    for name in ("matched", "mismatched"):
        write(tmp_path / f"dev_{name}.tsv", [*MNLI, *JUDGES, "gold_label"], mnli(*["neutral"] * 6))
    for name, file in (("mnli", "dev_matched.tsv"), ("mnli_mismatched", "dev_mismatched.tsv")):
        assert split_files(tmp_path, task=find_task(f"glue/{name}")) == {"dev": tmp_path / file}


def test_a_line_break_in_one_of_qqps_questions_is_mended(tmp_path):
    header = "id qid1 qid2 question1 question2 is_duplicate".split()
    rows = [["0", "1", "2", "who was", ""], ['"', "was he real?", "0"], ["1", "3", "4", "a", "b", "1"]]
    found = read_rows(find_task("glue/qqp"), write(tmp_path / "train.tsv", header, rows[0][:4], *rows[1:]))
    assert found.texts == [('who was "', "was he real?"), ("a", "b")]
    assert found.targets.tolist() == [0, 1]


def test_numbers_in_the_place_of_words_are_hugging_faces(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"premise": "a", "hypothesis": "b", "label": i}) + "\n" for i in (2, 0, 1)))
    assert read_rows(find_task("glue/mnli"), path).targets.tolist() == [2, 0, 1]
    path.write_text('{"premise": "a", "hypothesis": "b", "label": -1}\n')
    with pytest.raises(
        InputError, match=r"train.jsonl: no row has a label \(column 'label' is '-1'\): predict such a file"
    ):
        read_rows(find_task("glue/mnli"), path)


def test_another_tasks_file_is_refused_by_its_columns(tmp_path):
    path = write(tmp_path / "dev.tsv", ["index", "question", "sentence", "label"], ["0", "a", "b", "entailment"])
    with pytest.raises(InputError, match=r"has no column 'sentence1' or '#1 String'.*It has: index, question"):
        read_rows(find_task("glue/rte"), path)
    (tmp_path / "x.json").write_text('{"qqp": [1], "b": 2}')
    with pytest.raises(
        InputError, match=r"x.json is no json that is known here .*Expected an array of objects, or one"
    ):
        read_rows(find_task("glue/qqp"), tmp_path / "x.json")


# folder, task, rows of train, dev and test, and how many of the first with labels have the first label
SHARED = [
    ("CoLA", "cola", {"train": 8551, "dev": 264}),
    ("SST-2", "sst2", {"train": 6920, "dev": 436}),
    ("MRPC", "mrpc", {"train": 4076, "test": 862}),
    ("STS-B", "stsb", {"train": 5749, "dev": 1500}),
    ("QQP", "qqp", {"dev": 78}),
    ("MNLI", "mnli", {"train": 9921, "dev": 3743}),
    ("QNLI", "qnli", {"train": 2707, "dev": 906}),
    ("WNLI", "wnli", {"train": 635, "dev": 71}),
]


@pytest.mark.parametrize(("folder", "name", "counts"), SHARED)
def test_the_folders_beside_the_project_are_read_whole(folder, name, counts):
    task = find_task(f"glue/{name}")
    sources = split_files(shared(f"data/glue/{folder}"), test=True, task=task)
    found = {split: read_rows(task, source) for split, source in sources.items()}
    assert {split: len(rows.texts) for split, rows in found.items()} == counts
    for rows in found.values():
        assert all(part.strip() for text in rows.texts for part in ((text,) if isinstance(text, str) else text))


def test_submissions_are_named_and_written_as_glues_server_has_them(tmp_path):
    def answers(*labels):
        return [Classification(label, 1.0, {}) for label in labels]

    mrpc = find_task("glue/mrpc")
    path, content = submission(tmp_path, mrpc, tmp_path / "test.tsv", answers("equivalent", "not_equivalent"))
    assert (path, content) == (tmp_path / "MRPC.tsv", "index\tprediction\n0\t1\n1\t0\n")
    for file, name in (("test_matched", "MNLI-m"), ("test_mismatched", "MNLI-mm"), ("diagnostic", "AX")):
        found = submission(tmp_path, find_task("glue/mnli"), tmp_path / f"{file}.tsv", answers("neutral"))
        assert (found[0].name, found[1]) == (f"{name}.tsv", "index\tprediction\n0\tneutral\n")
    scores = [Regression(value) for value in (-0.2, 2.71828, 5.1)]
    path, content = submission(tmp_path, find_task("glue/stsb"), tmp_path / "test.tsv", scores)
    assert (path.name, content) == ("STS-B.tsv", "index\tprediction\n0\t0.000\n1\t2.718\n2\t5.000\n")
    with pytest.raises(InputError, match=r"--submission is for GLUE's tasks .*the model's task is classification"):
        submission(tmp_path, find_task("classification"), tmp_path / "x.tsv", [])
    assert set(SUBMISSIONS) == {f"glue/{case[0]}" for case in OFFICIAL}


def test_a_submission_is_written_for_every_row(classifier, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(glue_files.SUBMISSIONS, "classification", "SST-2.tsv")
    (tmp_path / "test.tsv").write_text("index\ttext\n0\tthe happy cat\n1\t\n2\ta sad dog\n")
    arguments = [
        "predict",
        str(classifier),
        "--data",
        str(tmp_path / "test.tsv"),
        "--submission",
        str(tmp_path / "out"),
    ]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'SST-2.tsv'}\n"
    lines = (tmp_path / "out" / "SST-2.tsv").read_text().splitlines()
    assert (lines[0], lines[1], lines[3]) == ("index\tprediction", "0\tpos", "2\tneg")
    assert main(arguments) == 2
    assert "SST-2.tsv exists already. Choose another place or pass --overwrite" in capsys.readouterr().err
    assert main([*arguments[:2], "--submission", "x", "text"]) == 2
    assert "--submission FOLDER goes with --data FILE" in capsys.readouterr().err
