"""Several labels as columns of 0 and 1 (Jigsaw's layout), and a run that reads its own rows as it was told to."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.data.dialects import default_reading
from kerasbert.errors import InputError
from kerasbert.tasks.tables import digest, in_memory, reading_of
from kerasbert.tasks.task import find_labels, find_task, read_rows
from kerasbert.training.early import labels_of
from kerasbert.training.splits import in_memory as again

TASK = find_task("multi_label", text="comment_text", label="toxic,spam,threat")
ROWS = [("bad spam", 1, 1, 0), ("fine", 0, 0, 0), ("spam", 0, 1, 0)]
NAMES = ("comment_text", "toxic", "spam", "threat")


def written(path, rows=ROWS, names=NAMES, delimiter=","):
    path.write_text("".join(delimiter.join(map(str, row)) + "\n" for row in (names, *rows)))
    return path


def test_columns_of_0_and_1_are_labels_in_their_order(tmp_path):
    dicts = [dict(zip(NAMES, row)) for row in ROWS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row | {"toxic": bool(row["toxic"])}) + "\n" for row in dicts))
    for source in (written(tmp_path / "a.csv"), tmp_path / "a.jsonl", in_memory(dicts), in_memory(ROWS)):
        task = find_labels(TASK, source)
        assert list(task.labels) == ["toxic", "spam", "threat"]  # one that no row has too
        rows = read_rows(task, source)
        np.testing.assert_array_equal(rows.targets, [[1, 1, 0], [0, 0, 0], [0, 1, 0]])
        assert rows.labels == [["toxic", "spam"], [], ["spam"]]
        assert read_rows(task, again(rows, "held out")).targets.tolist() == rows.targets.tolist()
    cells = find_task("multi_label", labels={name: name for name in NAMES[1:]})
    assert read_rows(cells, in_memory([("x", "spam|toxic")])).targets.tolist() == [[1, 1, 0]]
    assert find_task("multi_label", label=["toxic", "spam"]).label_columns == ("toxic", "spam")
    assert find_task("classification", label="a,b").label_columns == ("a,b",)


def test_names_of_numbers_are_a_list_or_have_commas_between_them():
    assert labels_of("O,B-X") == labels_of(["O", "B-X"]) == {"0": "O", "1": "B-X"}
    assert labels_of(None) == {}


@pytest.mark.parametrize("value", ["2", "-1", "", "yes", "0.5"])
def test_other_values_are_refused_with_the_line(value, tmp_path):
    path = written(tmp_path / "a.csv", [*ROWS, ("odd", 0, value, 1)])
    with pytest.raises(InputError, match=rf"a.csv, line 5: column 'spam' is '{value}', expected 0 or 1"):
        find_labels(TASK, path)
    if value in ("-1", ""):
        with default_reading({"skip_unlabelled": True}):
            assert len(read_rows(find_labels(TASK, path), path).texts) == 3
    with pytest.raises(InputError, match="no column 'obscene'"):
        find_labels(find_task("multi_label", text="comment_text", label="toxic,obscene"), path)


def test_a_runs_own_rows_are_read_as_it_read_them(tmp_path):
    own, other = written(tmp_path / "a.csv"), written(tmp_path / "b.csv", ROWS[:2])
    said = {"settings": {"reading": {"delimiter": ";", "columns": ["a", "b"]}, "data": {"train": digest(own)}}}
    from kerasbert.data.dialects import current

    for described, source, found in (
        (said, own, ";"),
        (said, other, None),
        (None, own, None),
        ({"settings": {}}, own, None),
    ):
        with reading_of(described, source):
            assert current().delimiter == found


@pytest.mark.slow
def test_a_csv_without_a_header_goes_the_whole_way(pretrained, tmp_path, capsys):
    draw = np.random.default_rng(0)
    rows = [
        (f"the {'good' if i % 2 else 'bad'} {'cat' if draw.random() < 0.5 else 'dog'} x{i}", i % 2) for i in range(60)
    ]
    lines = [f'"{text}";{label if number % 6 else ""}' for number, (text, label) in enumerate(rows)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines) + "\n")
    run = tmp_path / "run"
    command = ["finetune", pretrained, "--task", "classification", "--data", path, "--columns", "text,label"]
    command += ["--skip-unlabelled", "--label-names", "bad,good", "--steps", 2, "--batch", 8, "--length", 12, "--quiet"]
    assert cli.main([str(each) for each in [*command, "--out", run]]) == 0
    told = capsys.readouterr().err
    assert "10 of 60 rows have no label and are left out" in told
    assert "the delimiter is ';' (2 columns)" in told
    reading = json.loads((run / "run.json").read_text())["settings"]["reading"]
    assert reading == {"columns": ["text", "label"], "skip_unlabelled": True}
    assert kb.load(run).labels == ("bad", "good")
    assert cli.main(["evaluate", str(run), "--data", str(path)]) == 0
    assert "5 rows held out of a.csv" in capsys.readouterr().out
    assert kb.evaluate(run, None)["examples"] == kb.evaluate(run, path)["examples"] == 5
    out = tmp_path / "answers.csv"
    assert cli.main(["predict", str(run), "--data", str(path), "--columns", "text,label", "--out", str(out)]) == 0
    assert out.read_text().splitlines()[0] == "text;label;predicted_label;score"


@pytest.mark.slow
def test_annotations_go_the_whole_way(pretrained, tmp_path, capsys):
    texts = [f"the {'cat' if i % 3 else 'dog'}, x{i} sees" for i in range(60)]
    path = tmp_path / "doccano.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": [[4, 7, "PET"]]}) + "\n" for text in texts))
    settings = ["--steps", "30", "--batch", "10", "--learning-rate", "1e-2", "--length", "16", "--quiet"]
    run, out = tmp_path / "run", tmp_path / "a.html"
    assert (
        cli.main(["finetune", str(pretrained), "--task", "ner", "--data", str(path), "--out", str(run), *settings]) == 0
    )
    assert kb.evaluate(run, path)["metrics"]["f1"] > 0.9
    capsys.readouterr()
    assert cli.main(["predict", str(run), "the cat, x1 sees", "the dog"]) == 0
    first, blank, second = capsys.readouterr().out.splitlines()
    assert (first.split("\t")[:2], blank, second.split("\t")[:2]) == (["cat", "PET"], "", ["dog", "PET"])
    assert cli.main(["predict", str(run), "--data", str(path), "--out", str(out)]) == 0
    assert out.read_text().count("<mark") == 60
    assert cli.main(["predict", str(run), "--data", str(path), "--out", str(out), "--overwrite"]) == 0
    assert cli.main(["predict", str(run), "--data", str(path), "--out", str(tmp_path / "a.conll")]) == 0
    assert kb.evaluate(run, tmp_path / "a.conll")["metrics"]["f1"] == 1.0
