"""Where a run's rows lie: told while they are there and the same."""

import json

from kerasbert import files


def test_data_are_found_while_they_are_the_same(tmp_path):
    from kerasbert.training.runs import data_of, open_run

    paths = {"train": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}
    for split, path in paths.items():
        path.write_text(split)
    settings = {"steps": 1, "data": {split: files.sha256(path) for split, path in paths.items()}}
    open_run(tmp_path / "run", "finetune", settings, data=paths)
    assert data_of(tmp_path / "run") == paths
    moved = tmp_path / "moved.tsv"
    paths["train"].rename(moved)
    assert data_of(tmp_path / "run") == {}
    paths["train"].write_text("other rows")
    assert data_of(tmp_path / "run") == {}
    # another place is no other run
    run = open_run(tmp_path / "run", "finetune", settings, data=paths | {"train": moved})
    assert json.loads((run.directory / "run.json").read_text())["data"]["train"] == str(paths["train"])
    assert data_of(tmp_path) == {}
