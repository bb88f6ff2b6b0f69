"""What a program hands over is taken as it is meant, or refused in one line: not dropped, not read otherwise, no traceback."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import source
from kerasbert.errors import InputError
from kerasbert.export import load as requests
from kerasbert.mobile import golden, prune
from kerasbert.mobile.options import CompressConfig
from kerasbert.options import checked
from kerasbert.retrieval import judging
from kerasbert.storage import places
from kerasbert.tasks import load, tables
from kerasbert.tasks.datasets import plain
from kerasbert.tasks.task import find_task, split_files
from kerasbert.training import splits
from kerasbert.training.early import check_train
from tests import tiny

ROWS = [("a good film", "pos"), ("a bad film", "neg")] * 4
COLUMNS = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}
TASK = find_task("classification")


class Arrow:
    """What a table of pyarrow has; an array of it has `to_pylist`."""

    columns = ()

    def to_pydict(self):
        return COLUMNS

    def __getitem__(self, name):
        raise TypeError("Index must either be string or integer")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The directory of an encoder."""
    made = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tiny.tokenizer().size})
    made.tokenizer = tiny.tokenizer()
    kb.save(made, place := tmp_path_factory.mktemp("models") / "encoder")
    return place


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (set(ROWS), "data holds a set, which has no order: give a list"),  # each run read them in another order
        ({"train": frozenset(ROWS)}, "data holds a set"),
        ("", "data holds an empty name"),  # train.tsv of the current directory
        ({"train": ROWS, "dev": ""}, "data holds an empty name"),  # rows were held out in its place
        ({"train": ROWS, "dev": ROWS, "validation": ROWS}, "data has dev and validation, which are one"),
    ],
)
def test_data_that_would_be_taken_otherwise(data, told):
    with pytest.raises(InputError, match=told):
        split_files(data)


def test_rows_of_bytes_and_of_pyarrow_are_rows():
    """Bytes were "40 files", a table of pyarrow a traceback."""
    data = split_files([(text.encode(), label) for text, label in ROWS])
    _, row = data["train"].table(("text", "label"), ("text", "label"))[0]
    assert row == {"text": "a good film", "label": "pos"}
    assert tables.is_table(Arrow())
    assert tables.in_memory(Arrow()).rows[1] == {"text": "a bad film", "label": "neg"}
    assert plain(type("Array", (), {"to_pylist": lambda self: ["a"]})()) == ["a"]


def test_dev_rows_alone_have_no_train_rows():
    """It said that the label of the first one is unknown, expected one of none."""
    with pytest.raises(InputError, match="data has no train file"):
        check_train(splits.split(TASK, {"dev": ROWS}), {"dev": ROWS})


def test_columns_are_measured_on_as_rows_are():
    """They were called training rows."""
    task = dataclasses.replace(TASK, labels={"neg": "neg", "pos": "pos"})
    rows, told = splits.measured(task, COLUMNS)
    assert (len(rows.texts), told) == (8, "8 rows of the rows in memory")


def test_an_iterator_is_kept_for_all_runs_of_a_grid():
    """The first run had the rows, and the second one none."""
    data = tables.kept(iter(ROWS))
    assert split_files(data)["train"].rows == split_files(data)["train"].rows == tuple(ROWS)
    both = tables.kept({"train": iter(ROWS), "dev": ROWS})
    assert [split_files(both)["train"].rows for _ in range(2)] == [tuple(ROWS)] * 2
    assert split_files(tables.kept((iter(ROWS), ROWS)))["dev"].rows == tuple(ROWS)
    assert tables.kept("rows.tsv") == "rows.tsv"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 2**40}, "seed must be at most 4,294,967,295"),
        ({"metric": ""}, "metric is empty: leave it out"),
        ({"text_column": ""}, "text_column is empty"),
        ({"out": ""}, "out is empty, expected a path"),
    ],
)
def test_options_that_were_passed_over_or_a_traceback(options, told):
    with pytest.raises(InputError, match=told):
        kb.finetune("run", "classification", ROWS, **{"out": "o", **options})


def test_a_file_where_a_folder_is_wanted(encoder, tmp_path):
    (tmp_path / "cache").write_text("mine")
    with pytest.raises(InputError, match="cache is no folder, expected one to write files into"):
        kb.finetune(encoder, "classification", ROWS, out=tmp_path / "o", cache=tmp_path / "cache")


@pytest.mark.parametrize(("name", "kind"), [("grid.json", "grid"), ("folds.json", "folds")])
def test_a_file_of_somebody_else_is_kept(tmp_path, name, kind):
    """A grid wrote its results over any grid.json."""
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(InputError, match=f"{name} is not a {name} of kerasbert: it is kept"):
        places.check_file(tmp_path / name, True, kind)
    held = {"grid": "runs", "folds": "folds"}[kind]
    (tmp_path / name).write_text(json.dumps({"task": "ner", "rows": 1, held: [{"run": "a"}]}, indent=2))
    places.check_file(tmp_path / name, True, kind)


def test_numbers_of_numpy_are_numbers():
    @checked
    def given(value: object, *, on: bool = False, more: object = None) -> list:
        return [type(each) for each in (value, on, more["a"])]

    assert given(np.int64(3), on=np.bool_(True), more={"a": np.float32(1)}) == [int, bool, float]
    assert kb.Spec().derive({"hidden": np.int64(24)}).hidden == 24


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: kb.Spec(hidden="3"), "hidden must be a whole number. Received: '3'"),
        (lambda: kb.Spec(attention={"heads": 2}), "attention must be a Attention"),
        (lambda: kb.Spec().derive(None), "changes must be a mapping"),
        (lambda: kb.merged("run"), "model is the path run, expected a loaded model"),
        (lambda: kb.load_tokenizer({"tokenizer.json": "{}"}), "the mapping of files holds other than bytes"),
        (lambda: kb.load(""), "directory is empty, expected a path"),
        (lambda: source.check(""), "the name of the model is empty"),  # the current directory
        (lambda: kb.finetune_tasks("run", None, out="o"), "tasks is a NoneType"),
        (lambda: kb.list_models("bert"), "list_models takes no argument by place"),
        (lambda: kb.fill_mask("run", ["a"], batch=0), "batch must be a whole number of at least 1"),
        (lambda: kb.zero_shot("run", ["a"], ["b"], batch=0), "batch must be a whole number of at least 1"),
        (lambda: requests.measure(None, [{"t": "a"}], requests=0), "requests must be a whole number of at least 1"),
        (lambda: golden.verify("a.tflite", "x"), "runner is a str, expected what load.FILE. gives"),
    ],
)
def test_a_line_in_the_place_of_a_traceback_or_of_silence(call, told):
    with pytest.raises(InputError, match=told):
        call()


def test_ids_that_are_numbers():
    """The id 0 was none of the index's, which passed: every metric was 0."""
    assert judging.graded({"a": [0, np.int64(1)], "b": {2: 1.0}}) == {"a": {"0": 1.0, "1": 1.0}, "b": {"2": 1.0}}
    with pytest.raises(InputError, match="the index holds no text '', which is to be relevant"):
        judging.check({"a": {"": 1.0}}, ["0"])
    with pytest.raises(InputError, match="holds None, expected ids of texts"):
        judging.graded({"a": [None]})


def test_an_index_is_not_written_into_its_model(encoder):
    with pytest.raises(InputError, match="which is read and stays as it is"):
        kb.Index.build(encoder, ["a"], encoder / "index")
    assert not Path(encoder, "index").exists()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (3, "files is 3, expected one path or several"),
        (b"a.txt", "files is b'a.txt'"),
        ([""], "files hold '', expected paths"),
    ],
)
def test_files_that_are_no_paths(files, told):
    with pytest.raises(InputError, match=told):
        kb.train_tokenizer(files)
    with pytest.raises(InputError, match=told):
        kb.write_records(files, tiny.tokenizer(), "o")


def test_an_iterator_of_files(tmp_path):
    """The place was looked at first, which read the iterator: the corpus was empty."""
    (tmp_path / "a.txt").write_text("the cat sees the dog\n")
    learnt = kb.train_tokenizer(iter([tmp_path / "a.txt"]), size=60, out=tmp_path / "t")
    assert kb.write_records(iter([tmp_path / "a.txt"]), learnt, tmp_path / "r", length=16).examples
    with pytest.raises(InputError, match="tokenizer is 't', expected a tokenizer: kb.load_tokenizer"):
        kb.write_records(tmp_path / "a.txt", "t", tmp_path / "s")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lengths": []}, "lengths is empty: leave it out"),
        ({"length": "8"}, "length must be a whole number of at least 3"),
        ({"min_agreement": float("nan")}, "min_agreement must be a number of at least 0"),
        ({"min_agreement": 98.5}, "min_agreement must be at most 1"),
        ({"max_drop": "1"}, "max_drop must be a number of at least 0"),
        ({"texts": {"a"}}, "texts is a set, which has no order"),
        ({"golden": "new.tflite"}, "out and golden are both new.tflite, expected a place for each"),
        ({"quantize": ""}, "no quantization ''"),
    ],
)
def test_options_of_compress(tmp_path, monkeypatch, options, told):
    """Defaults were taken in the place of some; the golden file was written over the model."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=told):
        kb.mobile.compress("run", **{"out": "new.tflite", **options})
    assert not list(tmp_path.iterdir())


def test_an_iterator_of_lengths_is_read_once():
    """The lengths were the usual ones: the first look had read it."""
    config = CompressConfig(lengths=iter([16, 8]), texts=iter(["a"]))
    assert (config.lengths, config.texts) == ([16, 8], ["a"])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda run, out: kb.mobile.trim(run, [None], out=out), "text 0 is a NoneType, expected str"),
        (lambda run, out: prune.layers(run, out=out, keep=0), "keep must be a list of whole numbers. Received: 0"),
        (lambda run, out: prune.layers(run, out=out, keep=["0"]), "keep must be a list of whole numbers"),
        (lambda run, out: kb.mobile.run_plan(None, out), "plan is None, expected a Plan or the file of one"),
        (lambda run, out: kb.mobile.run_plan("", out), "plan is '', expected"),
        (lambda run, out: kb.pretrain("bert/tiny", "r", steps=1, out=out, phases="x"), "phases must be a list"),
    ],
)
def test_a_line_of_functions_that_write(encoder, tmp_path, call, told):
    with pytest.raises(InputError, match=told):
        call(encoder, tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_model_knows_its_directory_from_everywhere(encoder, monkeypatch):
    """Its run's dev rows were not found after os.chdir, and its file was judged by made-up texts."""
    monkeypatch.chdir(encoder.parent)
    place = load._place("encoder")
    assert place == str(encoder)
    assert load._place("encoder@last") == f"{encoder}@last"
    assert load._place("org/name") == "org/name"
    assert load._place(encoder) is encoder
