"""Which rows a model is measured on: those that its run held out, and always said."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.task import find_task, held_out, read_rows
from kerasbert.training.runs import DataPlaces, description_of, open_run
from kerasbert.training.splits import measured, numbers_of, split, training_texts
from tests import tiny


@pytest.fixture
def place(tmp_path):
    """A folder with a file of a run, others of the same columns, and the run's run.json."""
    for name, seed in (("mine.tsv", 0), ("other.tsv", 1)):
        tiny.labelled(tmp_path / name, 60, seed=seed)
    task = find_task("classification")
    known = split(task, tmp_path / "mine.tsv")
    settings = {"steps": 1, "seed": 7, "data": known.digests, "task": known.task.to_json()}
    open_run(tmp_path / "run", "finetune", settings, data=DataPlaces(known.sources, known.held_out))
    return tmp_path, known


def test_a_file_of_the_run_is_measured_on_what_it_held_out(place):
    folder, known = place
    run, task = folder / "run", known.task
    rows, told = measured(task, folder / "mine.tsv", run=run)
    assert told == f"{len(known.dev.texts)} rows held out of mine.tsv"
    assert rows.texts == known.dev.texts
    assert measured(task, run=run)[0].texts == known.dev.texts
    rows, told = measured(task, folder / "mine.tsv", run=run, split="train")
    assert told == f"{60 - len(known.dev.texts)} rows of mine.tsv that the model was trained on"
    assert rows.texts == known.train.texts == training_texts(run, task)
    assert measured(task, folder / "other.tsv", run=run)[1] == "60 rows of other.tsv"
    assert measured(task, folder / "mine.tsv")[1] == "60 rows of mine.tsv"
    assert measured(task, [("the cat", "pos"), ("x", "neg")], run=run)[1] == "2 rows of the rows in memory"


def test_a_folder_is_measured_on_dev_then_held_out_then_test_and_never_on_train_unasked(place):
    folder, known = place
    run, task = folder / "run", known.task
    data = folder / "data"
    data.mkdir()
    (folder / "other.tsv").rename(data / "train.tsv")
    with pytest.raises(InputError, match=r"data has no dev or test rows: give a file; for .* pass --split train"):
        measured(task, data, run=run)
    assert measured(task, data, run=run, split="train")[1] == "60 rows of train.tsv"
    tiny.labelled(data / "test.tsv", 10)
    assert measured(task, data, run=run)[1] == "10 rows of test.tsv"
    (folder / "mine.tsv").rename(data / "train.tsv")
    assert measured(task, data, run=run)[1] == f"{len(known.dev.texts)} rows held out of train.tsv"
    assert measured(task, data, run=run, split="test")[1] == "10 rows of test.tsv"
    tiny.labelled(data / "val.tsv", 12)
    assert measured(task, data, run=run)[1] == "12 rows of val.tsv"
    with pytest.raises(InputError, match="no split 'tests'"):
        measured(task, data, run=run, split="tests")


def test_rows_that_a_run_learned_with_dev_rows_beside_them_are_called_so(tmp_path):
    paths = {name: tiny.labelled(tmp_path / f"{name}.tsv", 20 + i, seed=i) for i, name in enumerate(("train", "dev"))}
    known = split(find_task("classification"), paths)
    assert known.held_out is None
    settings = {"steps": 1, "data": known.digests}
    open_run(tmp_path / "run", "finetune", settings, data=DataPlaces(known.sources, known.held_out))
    told = measured(known.task, paths["train"], run=tmp_path / "run")[1]
    assert told == "20 rows of train.tsv, which the model was trained on"
    assert measured(known.task, paths["dev"], run=tmp_path / "run")[1] == "21 rows of dev.tsv"
    assert len(training_texts(tmp_path / "run", known.task)) == 20


def test_a_test_file_chooses_no_weights(tmp_path):
    tiny.labelled(tmp_path / "train.tsv", 40)
    tiny.labelled(tmp_path / "test.tsv", 20, seed=3)
    known = split(find_task("classification"), tmp_path)
    assert list(known.sources) == ["train"]
    assert len(known.train.texts) + len(known.dev.texts) == 40
    (line,) = known.lines
    assert "held out to choose the best weights (the same for every seed)" in line
    assert line.endswith(f"{tmp_path / 'test.tsv'} is not used")


def test_a_run_that_starts_from_another_keeps_its_rows_held_out(place):
    folder, known = place
    other = np.setdiff1d(np.arange(60), held_out(read_rows(known.task, folder / "mine.tsv")))[:5]
    description = description_of(folder / "run") | {"held_out": " ".join(map(str, other))}
    assert numbers_of(description, known.digests["train"], 60).tolist() == other.tolist()
    from kerasbert.storage import files

    files.write_json(folder / "run" / "run.json", description)
    again = split(find_task("classification"), folder / "mine.tsv", start=folder / "run")
    assert again.held_out == description["held_out"]
    assert split(find_task("classification"), folder / "other.tsv", start=folder / "run").held_out is not None
    with pytest.raises(InputError, match="run.json is damaged: held_out"):
        numbers_of({"settings": description["settings"]}, known.digests["train"], 60)
    for wrong in ("1 2 60", "1 x", ""):
        with pytest.raises(InputError, match="run.json is damaged: held_out"):
            numbers_of(description | {"held_out": wrong}, known.digests["train"], 60)


def test_rows_held_out_can_stand_apart(place):
    _, known = place
    parts = known.apart()
    for name, rows in (("train", known.train), ("dev", known.dev)):
        found = read_rows(known.task, parts[name])
        assert (found.texts, found.targets.tolist()) == (rows.texts, rows.targets.tolist())
    assert str(parts["dev"]) == "the rows held out of mine.tsv"
