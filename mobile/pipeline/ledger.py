"""The ledger of a compression: what each artefact is worth and what it costs, measured on the artefact itself.

An artefact is a model directory (measured by Keras) or a .tflite (measured by the phone's runtime, without TensorFlow). Times
and memory are of a process of its own, one thread, one text at a time. Zeros gain no time in any interpreter, so nothing here
is worked out from another number: `gzip` is what they gain.
"""

import dataclasses
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import checkpoints, registry, report
from kerasbert.answers.base import Outputs
from kerasbert.errors import InputError
from kerasbert.export import bundle
from kerasbert.quickstart import measure as processes
from kerasbert.storage import files, scratch
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import predict
from kerasbert.tasks.batches import Encoded, encode_texts
from kerasbert.tasks.load import load, task_of
from kerasbert.tasks.task import Rows, Task
from kerasbert.training.splits import measured
from .. import mediapipe, samples
from ..model_and_texts import sources
from ..runtime import load as load_runtime
from ..samples import Sample
from ..tflite import repack

if TYPE_CHECKING:
    from kerasbert.tasks.tables import Data


TIMED = 200  # texts
TIMES = ("p50_ms", "p90_ms", "peak_memory_mb")


def measure(artefact: str | os.PathLike, task: Task, rows: Rows, name: str | None = None) -> Json:
    """One row of the ledger.

    Args:
        artefact: a model directory of the task, or a .tflite made of one.
        task: whose metric is taken.
        rows: labelled texts; the first TIMED of them are timed.
        name: what the row is called; the artefact's own name by default.

    Returns:
        {"artefact", the metric by its name, "parameters" and "nonzero" (of a .tflite the numbers of its float and int8
        constants), "bytes", "gzip_bytes" (of the weights), "p50_ms", "p90_ms", "peak_memory_mb"}.

    Raises:
        InputError: no artefact there, or one that cannot be read.
    """
    path = Path(artefact)
    if path.is_dir():
        model = load(path)
        if getattr(model, "task", None) is None or model.task.how.name != task.how.name:
            raise InputError(f"{path} is not fine-tuned for {task.name}, expected a model of the task that is measured")
        encoded, (parameters, nonzero) = predict.encoded_rows(model, rows.texts, None), _counted(_tensors(path))
        outputs = predict.outputs_of(model, encoded, predict.longest(model))
        data, options = (path / "weights.safetensors").read_bytes(), model.task.options
    else:
        data = path.read_bytes() if path.is_file() else b""
        (outputs, encoded, options), (parameters, nonzero) = _answers(path, task, rows), _counted(_constants(data))
    task = dataclasses.replace(task, options=options)  # each artefact answers by its own
    task.how.check_metric(task)
    metrics = task.measured(outputs, rows.targets, encoded)
    row = {"artefact": name or path.name, task.metric: metrics[task.metric]}
    row |= {"parameters": parameters, "nonzero": nonzero, "bytes": len(data), "gzip_bytes": len(gzip.compress(data, 6))}
    return row | {key: value for key, value in _times(path, _asked(task, rows)).items() if key in TIMES}


def find_task(directory: str | os.PathLike) -> Task:
    """The task of a model directory.

    Raises:
        InputError: the directory is no fine-tuned model.
    """
    task = task_of(checkpoints.read_model_json(directory))
    if task is None:
        raise InputError(f"{directory} is not fine-tuned: the ledger puts costs beside a task's metric")
    return task


def labelled(directory: str | os.PathLike, data: "Data") -> tuple[Task, Rows]:
    """The task of a model directory, and the labelled rows that `evaluate` would measure it on.

    Raises:
        InputError: the directory is no fine-tuned model; a folder with training rows alone.
    """
    task = find_task(directory)
    return task, measured(task, data, run=directory)[0]


def show(rows: Sequence[Mapping[str, object]]) -> str:
    """The ledger as text."""
    return report.table(*_cells(rows))


def write(rows: Sequence[JsonMap], folder: str | os.PathLike) -> Path:
    """ledger.json, ledger.txt and ledger.html (the table, and the metric over size and over time) in a folder.

    Returns:
        the page.
    """
    folder, (header, cells) = Path(folder), _cells(rows)
    files.write_json(folder / "ledger.json", list(rows))
    files.write_atomic(folder / "ledger.txt", show(rows) + "\n")
    metric = header[1]
    parts = [report.html_table(header, cells)]
    for key, unit, factor in (("bytes", "MB", 1e-6), ("p50_ms", "ms a text (p50)", 1)):
        points = {row["artefact"]: (row[key] * factor, row[metric]) for row in rows}
        parts.append(report.scatter(points, unit, metric))
    page = folder / "ledger.html"
    files.write_atomic(page, report.page("Ledger", parts))
    return page


def _cells(rows: Sequence[JsonMap]) -> tuple[list[str], list[list[str]]]:
    metric = list(rows[0])[1]
    header = ["artefact", metric, "parameters", "not zero", "MB", "gzip MB", "p50 ms", "p90 ms", "peak MB"]
    return header, [
        [
            row["artefact"],
            f"{row[metric]:.4f}",
            f"{row['parameters']:,}",
            f"{row['nonzero']:,}",
            f"{row['bytes'] / 1e6:.2f}",
            f"{row['gzip_bytes'] / 1e6:.2f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p90_ms']:.2f}",
            "" if row["peak_memory_mb"] is None else f"{row['peak_memory_mb']:.0f}",
        ]
        for row in rows
    ]


def _answers(path: Path, task: Task, rows: Rows) -> tuple[Outputs, Encoded, Json]:
    """What a .tflite says, as the metrics take it, the rows that it says it of, and its options."""
    runner, how = load_runtime(path, cache=False), task.how
    if runner.kind.name == how.answers.name:
        how = how.configured(runner.kind.options)
    if runner.kind.name != how.answers.name or list(runner.labels) != list(task.labels.values()):
        raise InputError(f"{path} answers with {', '.join(runner.labels) or runner.kind.name}, expected {task.name}")
    if runner.bundle.target != "kerasbert":  # which does not read as our runtime does
        runner.tokenizer = mediapipe.tokenizer(runner.tokenizer) or runner.tokenizer
    encoded = encode_texts(runner.tokenizer, rows.texts, runner.bundle.longest, kind=how)
    return how.from_exported(runner.outputs(_asked(task, rows))), encoded, dict(how.options)


def _asked(task: Task, rows: Rows) -> Sequence[Sample]:
    """The rows' texts, without targets that are texts themselves."""
    return rows.texts if task.how.answers.reader == "answer" else sources(task, rows.texts)


def _tensors(directory: Path) -> Iterator[np.ndarray]:
    tensors = checkpoints.read_tensors(directory)
    return (tensors.read(name) for name in tensors.names())


def _constants(data: bytes) -> Iterator[np.ndarray]:
    """The weights of a .tflite, those that signatures share once; their bytes as numbers of their type."""
    model, kinds = repack.read(data), repack.schema().TensorType
    types = {kinds.FLOAT32: "<f4", kinds.FLOAT16: "<f2", kinds.INT8: "i1"}
    seen: dict[int, np.ndarray] = {}
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        buffer = model.buffers[tensor.buffer].data
        if buffer is not None and tensor.type in types:
            seen[tensor.buffer] = np.frombuffer(buffer.tobytes(), types[tensor.type])
    return iter(seen.values())


def _counted(tensors: Iterable[np.ndarray]) -> tuple[int, int]:
    """(how many numbers, how many are not zero)."""
    found = [(value.size, int(np.count_nonzero(value))) for value in tensors]
    return sum(size for size, _ in found), sum(kept for _, kept in found)


def _times(path: Path, texts: Sequence[Sample]) -> Json:
    """What `kerasbert-mobile benchmark` says in a process of its own; a .tflite's cannot import TensorFlow."""
    columns = find_task(path).asked if path.is_dir() else samples.columns(bundle.read(path))
    rows = (dict(zip(columns, (text,) if isinstance(text, str) else text)) for text in texts[:TIMED])
    with scratch.folder() as folder:
        sample = Path(folder) / "texts.jsonl"
        sample.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        plugins = (part for file in registry.plugin_files() for part in ("--plugin", file))
        plain = () if path.is_dir() else ("--no-cache",)  # of a .tflite
        arguments = ("--texts", sample, "--rounds", 2, "--json", *plain, *plugins)
        return json.loads(processes.mobile("benchmark", path, *arguments, tensorflow=path.is_dir()))
