"""Where a run's rows lie: told while they are there and the same."""

import json

import pytest

from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.training.run_differences import differences


def test_data_are_found_while_they_are_the_same(tmp_path):
    from kerasbert.training.runs import DataPlaces, data_of, open_run

    paths = {"train": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}
    for split, path in paths.items():
        path.write_text(split)
    settings = {"steps": 1, "data": {split: files.sha256(path) for split, path in paths.items()}}
    open_run(tmp_path / "run", "finetune", settings, data=DataPlaces(paths))
    assert data_of(tmp_path / "run") == paths
    moved = tmp_path / "moved.tsv"
    paths["train"].rename(moved)
    assert data_of(tmp_path / "run") == {}
    paths["train"].write_text("other rows")
    assert data_of(tmp_path / "run") == {}
    # another place is no other run
    run = open_run(tmp_path / "run", "finetune", settings, data=DataPlaces(paths | {"train": moved}))
    assert json.loads((run.directory / "run.json").read_text())["data"]["train"] == str(paths["train"])
    assert data_of(tmp_path) == {}


def test_damaged_lines_of_metrics_are_passed_over(tmp_path):
    from kerasbert.training.runs import open_run

    run = open_run(tmp_path / "run", "pretrain", {"steps": 9})
    bad = [b"\xff\xfe", b"[" * 100_000, b"5", b'{"step": "x"}', b'{"step": 1, "lo']
    good = [b'{"step": 2, "loss": 1.5}', b'{"step": 4, "loss": 1.0}']
    (run.directory / "metrics.jsonl").write_bytes(b"\n".join([good[0], *bad, good[1]]))
    run.rewind(3)
    assert (run.directory / "metrics.jsonl").read_bytes() == good[0] + b"\n"


def test_a_damaged_run_json_is_one_line(tmp_path):
    from kerasbert.training.runs import open_run

    run = open_run(tmp_path / "run", "pretrain", {"steps": 9})
    (run.directory / "run.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"run.json is damaged \([^\n]*$"):
        open_run(tmp_path / "run", "pretrain", {"steps": 9})
    (run.directory / "run.json").write_text(
        json.dumps({"kind": "pretrain", "settings": {"steps": 9, "model": "x" * 9999}})
    )
    with pytest.raises(InputError, match=r"holds another run: model is 'x{150,200} there, None asked for"):
        open_run(tmp_path / "run", "pretrain", {"steps": 9})


def test_a_run_of_other_data_names_the_file(tmp_path):
    """It said two sha256."""
    from kerasbert.training.runs import DataPlaces, open_run

    paths = {split: tmp_path / f"{split}.tsv" for split in ("train", "dev")}
    settings = {"steps": 1, "data": {"train": "a", "dev": "b"}}
    open_run(tmp_path / "run", "finetune", settings, data=DataPlaces(paths))
    changed = settings | {"data": {"train": "c", "dev": "b"}}
    with pytest.raises(
        InputError, match=rf"another run: the train rows in {paths['train']} are not those of the run\."
    ):
        open_run(tmp_path / "run", "finetune", changed, data=DataPlaces(paths))
    moved = paths | {"train": tmp_path / "new.tsv"}
    with pytest.raises(
        InputError, match=r"the train rows are .*train\.tsv there, .*new\.tsv asked for, with other content"
    ):
        open_run(tmp_path / "run", "finetune", changed, data=DataPlaces(moved))


def test_steps_that_a_run_does_not_say_are_a_difference():
    held = {"kind": "pretrain", "settings": {"steps": None}}
    asked = {"kind": "pretrain", "settings": {"steps": 9}}
    assert differences(held, asked) == ["steps is None there, 9 asked for"]
    assert differences({"kind": "pretrain", "settings": {"steps": 3}}, asked) == []
