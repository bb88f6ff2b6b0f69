"""What is told of a mistake before TensorFlow is imported: the boundaries, by hand."""

import json
import re

import pytest

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.tasks import early_checks
from kerasbert.tasks.base import Task

TASK = Task("x", text="text", label="label")


def test_the_least_numbers():
    early_checks.check_numbers(None)
    early_checks.check_numbers(3, 1)
    with pytest.raises(InputError, match="length must be at least 3. Received: 2"):
        early_checks.check_numbers(2)
    for batch in (0, -1, 1.0, True, "2"):
        with pytest.raises(InputError, match="batch must be a whole number of at least 1"):
            early_checks.check_numbers(3, batch)
    for pooling in (None, *early_checks.POOLINGS):
        early_checks.check_pooling(pooling)
    early_checks.check_pooling("cls+weighted_mean")
    for pooling in ("median", "mean+median", "mean+pooled", "mean+", ""):
        with pytest.raises(
            InputError, match=f"no pooling '{re.escape(pooling)}'.*Expected one of: mean, first, last, .* pooled"
        ):
            early_checks.check_pooling(pooling)
    early_checks.check_dims(None), early_checks.check_dims(1)
    for dims in (0, -1, 2.0, True):
        with pytest.raises(InputError, match="dims must be a whole number of at least 1. Received: "):
            early_checks.check_dims(dims)


def test_the_numbers_of_a_static_embedding(tmp_path):
    for dims, sif in ((0, 0), (1, 1e-4), (256, 0.5)):
        early_checks.check_static(dims, sif)
    folder = model(tmp_path, spec={"hidden": 8, "attention": {"heads": 2}})
    early_checks.check_static(8, 0, folder)
    with pytest.raises(InputError, match="dims is 9, and a vector of this model has 8 numbers"):
        early_checks.check_static(9, 0, folder)
    for sif in (-1e-9, -1, 1, 1.0, 2, float("nan"), True, False, "0.1", None):
        with pytest.raises(InputError, match="sif must be a number from 0 to below 1, such as 1e-4.*Received: "):
            early_checks.check_static(0, sif)
    for dims in (-1, 2.0, True, None, "3"):
        with pytest.raises(InputError, match="dims must be a whole number, 0 for all of the encoder. Received: "):
            early_checks.check_static(dims, 0)


def model(folder, **content):
    (folder / "model.json").write_text(
        json.dumps({"format": 1, "family": "bert", "name": "bert/tiny", "spec": {}} | content)
    )
    return folder


def test_the_task_of_a_directory(tmp_path):
    said = {"name": "mine", "kind": "classification", "text": "text", "label": "label"}
    task = early_checks.task_of(model(tmp_path, task=said, labels=["no", "yes"]), {})
    assert (task.name, task.labels) == ("mine", {"no": "no", "yes": "yes"})
    first = early_checks.task_of(model(tmp_path, task=said, labels=[]), {"pooling": "first"})
    assert first.options["pooling"] == "first"
    with pytest.raises(InputError, match="label_smoothing is an option of training alone"):
        early_checks.task_of(model(tmp_path, task=said, labels=[]), {"label_smoothing": 0.25})
    with pytest.raises(InputError, match="the model has no task, expected a fine-tuned one"):
        early_checks.task_of(model(tmp_path), {})
    assert early_checks.task_of(model(tmp_path, task=said | {"kind": "no such kind"}), {}) is None
    for damaged in ("classification", [], 7):
        assert early_checks.task_of(model(tmp_path, task=damaged), {}) is None
    with pytest.raises(InputError, match="no option of a classification 'beams'"):
        early_checks.task_of(model(tmp_path, task=said, labels=[]), {"beams": 3})


def test_other_columns():
    assert early_checks.with_columns(None, {"text": "a"}) is None
    changed = early_checks.with_columns(TASK, {"text": "body", "text_b": None, "label": ""})
    assert (changed.text, changed.text_b, changed.label) == ("body", TASK.text_b, "label")


def test_rows_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="no file or folder .*none. Check the path"):
        early_checks.check_rows(TASK, str(tmp_path / "none"))
    early_checks.check_rows(None, str(tmp_path))
    (tmp_path / "train.tsv").write_text("text\tlabel\na\tb\n")
    (tmp_path / "dev.tsv").write_text("txt\tlabel\na\tb\n")
    early_checks.check_rows(TASK, str(tmp_path), "train")
    for split in (None, "dev", "test"):  # the dev rows, where no other are asked for
        with pytest.raises(InputError, match="has no column 'text'"):
            early_checks.check_rows(TASK, str(tmp_path), split)
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\tb\n")
    early_checks.check_rows(TASK, str(tmp_path))


def test_a_large_file_is_not_read_twice(tmp_path, monkeypatch):
    (tmp_path / "x.tsv").write_text("txt\tlabel\n")
    monkeypatch.setattr(early_checks, "LARGEST", 10)
    with pytest.raises(InputError, match="has no rows|has no column"):
        early_checks.check_rows(TASK, str(tmp_path / "x.tsv"))
    monkeypatch.setattr(early_checks, "LARGEST", 9)
    early_checks.check_rows(TASK, str(tmp_path / "x.tsv"))


def test_settings_of_families_with_a_spec_of_their_own(tmp_path):
    """They are read of the json; the Spec's class would need Keras."""
    own = model(tmp_path, family="roformer", spec={"hidden": 8, "blocks": {"layers": 4}, "rotary": {"values": True}})
    assert early_checks.spec_of(own) is None
    assert (early_checks.setting_of(own, "blocks.layers"), early_checks.hidden_of(own)) == (4, 8)
    with pytest.raises(InputError, match="dims is 9, and a vector of this model has 8 numbers"):
        early_checks.check_dims(9, own)
    early_checks.check_dims(16, own, "mean+max")
    assert early_checks.hidden_of(model(tmp_path, family="elmo", spec={"hidden": 8})) is None
    early_checks.check_dims(9, tmp_path)


def run(folder, name="run", **task):
    """The json of a run of BERT's sizes with two labels."""
    (folder / name).mkdir()
    said = {"name": "t", "kind": "classification", "inputs": "text"} | task
    return model(folder / name, spec=specs.to_dict(specs.Spec()), task=said, labels=["no", "yes"])


def test_models_that_do_not_answer_alike(tmp_path):
    one, two = run(tmp_path), run(tmp_path, "two")
    early_checks.check_ensemble([one])
    early_checks.check_ensemble([one, two])
    for name, changes, fact in (
        ("labels", {"labels": {"0": "a", "1": "b"}}, "set of labels"),
        ("pair", {"text_b": "b", "inputs": "pair"}, "number of texts"),
        ("kind", {"kind": "regression", "labels": {}}, "kind of task"),
    ):
        other = run(tmp_path, name, **changes)
        with pytest.raises(
            InputError, match=f"an ensemble needs one {fact}: .* has .*, .*{name} has .*: leave one out"
        ):
            early_checks.check_ensemble([one, two, other])


def test_a_language_or_a_prompt_that_a_model_does_not_read(tmp_path):
    path = run(tmp_path)
    early_checks.check_call(path, None, None)
    early_checks.check_call(path, "", "")
    with pytest.raises(InputError, match="the model takes no language. Received: 'en'. Leave --language out"):
        early_checks.check_call(path, "en", None)
    with pytest.raises(InputError, match="prompt_name is 'query', and the model has no prompts: leave it out"):
        early_checks.check_call(path, None, "query")
    vector = run(tmp_path, "vector", kind="vector", options={"prompts": {"query": "Q: "}})
    early_checks.check_call(vector, None, "query")
    with pytest.raises(InputError, match="prompt"):
        early_checks.check_call(vector, None, "other")


def test_texts_are_no_longer_than_the_positions(tmp_path):
    path = run(tmp_path)
    most = early_checks.spec_of(path).longest
    for length in (None, 3, most):
        early_checks.check_positions(path, length)
    with pytest.raises(
        InputError, match=f"length must be between 3 and {most}, the model's positions. Received: {most + 1}"
    ):
        early_checks.check_positions(path, most + 1)
    content = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(content | {"family": "of a plug-in"}))
    early_checks.check_positions(path, most + 1)
    assert early_checks.spec_of(path) is None
