"""The ledger: numbers of the artefact itself, by hand."""

import gzip
import json

import numpy as np
import pytest

from kerasbert.checkpoints import read_tensors
from kerasbert.errors import InputError
from kerasbert.mobile.cli import main
from tests.mobile.conftest import rows as labelled


@pytest.fixture(scope="module")
def ledger():
    """The module; it needs TensorFlow."""
    from kerasbert.mobile.pipeline import ledger

    return ledger


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    return labelled(tmp_path_factory.mktemp("dev") / "dev.tsv", 40, seed=1)


@pytest.fixture(scope="module")
def file(int8_buckets):
    return int8_buckets[0]


INPUTS = {
    "classification": " a  b\n",
    "glue/mrpc": ("a b", "c"),
    "ner": (("EU", "rejects"),),
    "choice": ("a b", ("c d", "e")),
    "squad": ("who?", "a captain"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("exported", [False, True])
def test_the_inputs_of_every_kind_are_timed(ledger, tmp_path, monkeypatch, name, exported):
    """Words of a tagger and choices are lists within an input: the process that is timed reads what the metric is of."""
    from kerasbert.export.bundle import Bundle
    from kerasbert.mobile import samples
    from kerasbert.mobile.model_and_texts import columns_of
    from kerasbert.tasks.task import find_task

    task, timed = find_task(name), []
    kind, path = task.answer_kind, tmp_path / "model.tflite" if exported else tmp_path
    names = {"parts": task.asked} if kind.named else {"columns": columns_of(task)}
    bundle = Bundle(task.kind, {}, (), (), pair=task.pair, **names)
    monkeypatch.setattr(ledger, "find_task", lambda path: task)
    monkeypatch.setattr(ledger.bundle, "read", lambda path: bundle)

    def benchmark(command, artefact, _, file, *options, **how):
        timed.extend(samples.opened(file, bundle, kind).texts() if exported else samples.read(file, task))
        return "{}"

    monkeypatch.setattr(ledger.processes, "mobile", benchmark)
    ledger._times(path, [INPUTS[name]])
    assert timed == [INPUTS[name]]


@pytest.mark.slow
def test_rows_of_a_directory_and_of_a_file(ledger, run, file, dev):
    import kerasbert as kb

    task, rows = ledger.labelled(run, dev)
    keras, phone = (ledger.measure(path, task, rows) for path in (run, file))
    tensors = read_tensors(run)
    values = [tensors.read(name) for name in tensors.names()]
    assert keras["accuracy"] == kb.evaluate(run, dev)["metrics"]["accuracy"]
    assert keras["parameters"] == sum(value.size for value in values)
    assert keras["nonzero"] == sum(np.count_nonzero(value) for value in values)
    data = (run / "weights.safetensors").read_bytes()
    assert (keras["bytes"], keras["gzip_bytes"]) == (len(data), len(gzip.compress(data, 6)))
    assert phone["bytes"] == file.stat().st_size
    from kerasbert.mobile import load

    answers = load(file, cache=False)(rows.texts)
    names = list(task.labels.values())
    assert phone["accuracy"] == np.mean([names.index(answer.label) == y for answer, y in zip(answers, rows.targets)])
    # every weight once, though the file has two lengths; a pooler and constants of the graph aside
    assert 0.8 * keras["parameters"] < phone["parameters"] < 1.2 * keras["parameters"]
    for row in (keras, phone):
        assert 0 < row["p50_ms"] <= row["p90_ms"]
    assert phone["peak_memory_mb"] < keras["peak_memory_mb"]


@pytest.mark.slow
def test_zeros_are_counted_where_they_are(ledger, run, tmp_path):
    import kerasbert as kb
    from kerasbert import mobile
    from kerasbert.layers.naming import names

    model = kb.load(run)
    kernel = next(weight for name, weight in names(model).items() if name.endswith("block_0/feedforward/inner/kernel"))
    before = mobile.compress(model, "float32", tmp_path / "a.tflite", lengths=[16])
    value = kernel.value.numpy()
    value[: len(value) // 2] = 0
    kernel.assign(value)
    mobile.compress(model, "float32", tmp_path / "b.tflite", lengths=[16])
    one, two = (ledger._counted(ledger._constants((tmp_path / name).read_bytes())) for name in ("a.tflite", "b.tflite"))
    assert one[0] == two[0] > 0
    assert one[1] - two[1] == value.size // 2
    assert before["bytes"] == (tmp_path / "b.tflite").stat().st_size  # zeros gain nothing until the file is zipped


@pytest.mark.slow
def test_the_command_writes_table_json_and_page(run, file, dev, tmp_path, capsys):
    arguments = [str(file), str(run), "--data", str(dev), "--out", str(tmp_path / "out")]
    assert main(["ledger", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [file.name, "classifier"]
    rows = json.loads((tmp_path / "out/ledger.json").read_text())
    assert [row["artefact"] for row in rows] == [file.name, "classifier"]
    assert (tmp_path / "out/ledger.txt").read_text().splitlines() == lines
    assert (tmp_path / "out/ledger.html").read_text().count("<svg") == 2


def test_what_cannot_be_measured_is_one_line(ledger, run, file, dev, tmp_path, capsys):
    from kerasbert.checkpoints import load_encoder, save_model

    task, rows = ledger.labelled(run, dev)
    encoder = tmp_path / "encoder"
    save_model(encoder, encoder=load_encoder(run)[0], name="bert/tiny")
    with pytest.raises(InputError, match="is not fine-tuned"):
        ledger.labelled(encoder, dev)
    with pytest.raises(InputError, match="is not fine-tuned for"):
        ledger.measure(encoder, task, rows)
    with pytest.raises(InputError, match="no file"):
        ledger.measure(tmp_path / "absent.tflite", task, rows)
    assert main(["ledger", str(file), "--data", str(dev)]) == 2
    assert "give one by --task" in capsys.readouterr().err
