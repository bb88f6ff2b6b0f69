"""Task-adaptive pretraining: a task's own texts become records, and the run goes on with a trained model."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.training import on_task
from kerasbert.training.pretrain_config import PretrainConfig
from tests import tiny

PAIRS = {"text": ["the happy cat", "a  bad\nfilm"], "text_b": ["a good river", "the stone"]}


def test_texts_are_those_of_the_training_rows_without_their_labels(tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na happy cat\t1\nthe bad film\tnone at all\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na good stone\t0\n")
    assert list(on_task.texts("glue/sst2", tmp_path)) == [["a happy cat"], ["the bad film"]]
    pairs = Task("own", text_b="text_b")
    assert list(on_task.texts(pairs, PAIRS)) == [["the happy cat", "a good river"], ["a bad film", "the stone"]]
    (tmp_path / "words.tsv").write_text("the\tO\nhappy\tO\ncat\tO\n\na\tO\nfilm\tO\n")
    assert list(on_task.texts("ner", tmp_path / "words.tsv")) == [["the happy cat"], ["a film"]]


@pytest.mark.slow
def test_each_row_is_a_document_of_its_own(tmp_path):
    rows = tiny.labelled(tmp_path / "train.tsv", 20)
    made = on_task.records("classification", rows, tiny.tokenizer(), 16, tmp_path)
    different = {tuple(parts) for parts in on_task.texts("classification", rows)}
    assert made.length == 16
    assert made.examples == made.manifest["counts"]["documents"] == len(different)


@pytest.mark.slow
def test_one_command_goes_on_with_a_model_for_epochs_of_the_rows(pretrained, tmp_path, capsys, monkeypatch):
    assert on_task.EPOCHS == 100
    monkeypatch.setattr(on_task, "EPOCHS", 2)
    tiny.labelled(tmp_path / "train.tsv", 4)
    line = f"pretrain {pretrained} --on-task classification --data {tmp_path} --batch 4 --length 12 --save-every 1"
    main(f"{line} --out {tmp_path / 'run'}".split())
    capsys.readouterr()
    main(f"{line} --out {tmp_path / 'run'}".split())  # the records are made again, and are the same
    assert "is finished: 2 steps were made" in capsys.readouterr().err
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert (settings["on_task"], settings["steps"]) == ("classification", 2)
    before, after = read_tensors(pretrained), read_tensors(tmp_path / "run")
    moved = np.abs(before.read("block_0/attention/query/kernel") - after.read("block_0/attention/query/kernel")).max()
    assert 0 < moved < 1e-3


REFUSED = [
    ({"steps": 2, "length": 64}, "the records have their length: kerasbert data FILES --length N"),
    (
        {"on_task": "glue/sst2", "held_out": "records"},
        "held_out is of records, received on_task with the files of a task",
    ),
]


@pytest.mark.parametrize(("settings", "line"), REFUSED)
def test_what_does_nothing_is_refused(settings, line):
    with pytest.raises(InputError, match=line):
        PretrainConfig(out="run", **settings)


def test_a_new_model_and_data_without_training_rows_are_refused(tmp_path):
    tiny.labelled(tmp_path / "dev.tsv", 4)
    with pytest.raises(InputError, match="on_task goes on with a trained model, received bert/base, a new one"):
        kb.pretrain("bert/base", tmp_path, on_task="classification", out=tmp_path / "run")
    with pytest.raises(InputError, match="has no train file, whose texts are pretrained on"):
        list(on_task.texts("classification", tmp_path))
    with pytest.raises(InputError, match="on_task reads texts, and the model has no tokenizer"):
        on_task.records("classification", tmp_path, None, 16, tmp_path)
