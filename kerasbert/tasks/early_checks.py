"""What can be told of a mistake from the files alone, before TensorFlow is imported: 2 to 4 seconds."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert import answers, registry
from kerasbert import spec as specs
from kerasbert.answers.tokens import between_masks
from kerasbert.answers.vector import check_size, check_width, width_of
from kerasbert.checkpoints import source
from kerasbert.checkpoints.directory import head_names
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.data.sources import check_files
from kerasbert.errors import InputError, nearest, no_file, of_text
from kerasbert.storage.json_view import Json
from kerasbert.tasks import tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.entailment import columns
from kerasbert.tasks.task import by_number, read_rows, split_files, table, task_with
from kerasbert.text.files import held_tokenizer
from kerasbert.value_types import check_whole

POOLINGS = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean", "pooled")  # of `predict.encode`
PRECISIONS = ("float32", "bfloat16")  # of a model that answers, and of an exported SavedModel
LARGEST = 16 * 2**20  # bytes of a file that is read here, and once more by `evaluate`
NO_HEAD = "{} has no head {}, which {} needs: expected a run of pretraining, or an import, with one"
NO_TASK = "the model has no task, expected a fine-tuned one: kerasbert finetune makes it"


def task_of(model: str | os.PathLike, options: Mapping[str, object]) -> Task | None:
    """The task that a model directory names, with options of its kind; None where only loading it tells.

    Raises:
        InputError: no model there, or one without a task; options that the kind does not take.
    """
    if source.check(model) != "model":
        source.check_tokenizer(model)
        return None
    content = read_json(Path(model) / "model.json")
    task, labels = content.get("task"), content.get("labels")
    if task is None:
        raise InputError(NO_TASK)
    if not isinstance(task, dict) or task.get("kind") not in answers.KINDS:
        return None
    try:
        found = task_with(task, labels).answering(options)
    except (TypeError, AttributeError):  # a damaged file, which loading tells of
        return None
    check_vector(model, found)
    return found


def some_task(model: str | os.PathLike) -> Task | None:
    """As `task_of`, None of an encoder too: of what is answered without a task."""
    if source.check(model) == "model" and read_json(Path(model) / "model.json").get("task") is None:
        return None
    return task_of(model, {})


def check_numbers(length: int | None, batch: int = 1) -> None:
    """Refuse numbers that no model takes."""
    if length is not None and length < 3:
        raise InputError(f"length must be at least 3. Received: {length}")
    check_whole("batch", batch)


def check_length(model: str | os.PathLike, length: int | None) -> None:
    """Refuse a model that is not there, and texts that are longer than it reads."""
    check_numbers(length)
    source.check_tokenizer(model)
    if source.check(model) == "model":
        check_positions(model, length)


def check_precision(model: str | os.PathLike, precision: str) -> None:
    """Refuse bfloat16 for a model directory whose answers it may change."""
    if precision != "float32" and source.check(model) == "model" and (task := some_task(model)) is not None:
        check_rounded(precision, task.how)


def check_rounded(precision: str, kind: TaskKind) -> None:
    """Refuse a precision that is none, and bfloat16 for a kind whose answers are more than numbers."""
    check_name_of_precision(precision)
    if precision == "bfloat16" and type(kind).served is not TaskKind.served:
        raise InputError(
            f"precision bfloat16 is for labels, numbers and vectors: the answers of {kind.name} are decoded in the graph, "
            "where rounding may change a text. Leave it out"
        )


def check_name_of_precision(precision: str) -> None:
    """Refuse a precision in which no model answers."""
    if precision not in PRECISIONS:
        raise InputError(f"precision is one of {', '.join(PRECISIONS)}. Received: {precision!r}")


def check_positions(model: str | os.PathLike, length: int | None) -> None:
    """Refuse texts that are longer than the positions of a model directory of ours; of others only loading tells."""
    spec = spec_of(model)  # a damaged file is told without a length too
    if (
        spec is None
        or length is None
        or read_json(Path(model) / "model.json").get("family") in registry.shipped()["unbounded"]
    ):
        return
    try:
        most = spec.longest
    except (AttributeError, TypeError):
        return
    if length > most:
        raise InputError(f"length must be between 3 and {most}, the model's positions. Received: {length}")


def spec_of(model: str | os.PathLike) -> specs.Spec | None:
    """The Spec of a model directory of a family of ours; None of others, and where only loading tells."""
    content = read_json(Path(model) / "model.json")
    if content.get("family") not in registry.shipped()["families"]:
        return None
    try:
        return specs.from_dict(content["spec"])
    except (InputError, AttributeError, KeyError, TypeError):  # a Spec of another class, or a damaged file
        return None


def setting_of(model: str | os.PathLike, path: str) -> Any:
    """A setting at a dotted path of a model directory of any family; None of others, and where only loading tells."""
    if source.check(model) != "model":
        return None
    held = spec_of(model)
    return specs.leaves(tree_of(model)).get(path) if held is None else specs.maybe(held, path)


def tree_of(model: str | os.PathLike) -> Json:
    """The settings of a model directory as nested plain values, whatever its family; {} where only loading tells."""
    if source.check(model) != "model":
        return {}
    held = spec_of(model)
    tree = read_json(Path(model) / "model.json").get("spec") if held is None else specs.to_dict(held)
    return tree if isinstance(tree, dict) else {}


def hidden_of(model: str | os.PathLike) -> int | None:
    """H of a directory of a model of blocks; None where only loading tells."""
    hidden, layers = (setting_of(model, path) for path in ("hidden", "blocks.layers"))
    return hidden if type(hidden) is int and type(layers) is int else None


def check_vector(model: str | os.PathLike, task: Task) -> None:
    """Refuse dimensions of a task of vectors that are more than the model's vectors have; another task is none."""
    if "dense" in task.how.options and (hidden := hidden_of(model)) is not None:
        check_width(task.how.options, width_of(task.how.options, hidden))


def check_ensemble(models: Sequence[str | os.PathLike]) -> None:
    """Refuse model directories that do not answer alike, as far as their json tells."""
    tasks = [task for task in map(some_task, models) if task is not None] if len(models) > 1 else []
    if len(tasks) < len(models):
        return
    facts = [
        {"kind of task": task.kind, "set of labels": ", ".join(task.labels.values()) or "none", "number of texts": n}
        for task, n in ((task, len(task.asked)) for task in tasks)
    ]
    for model, other in zip(models, facts):
        for name, value in facts[0].items():
            if other[name] != value:
                raise InputError(
                    f"an ensemble needs one {name}: {models[0]} has {value}, {model} has {other[name]}: leave one out"
                )


def check_head(model: str | os.PathLike, task: str) -> None:
    """Refuse a model directory without the head that a task needs which it was not trained for."""
    known = registry.task(task)
    weights = Path(model) / source.WEIGHTS
    if source.check(model) != "model" or "prefix" in known.how.options or not weights.is_file():
        return
    if known.how.head not in head_names(Safetensors(weights)):
        raise InputError(NO_HEAD.format(model, known.how.head, task))


def check_fill_mask(model: str | os.PathLike, texts: Sequence[str]) -> None:
    """Refuse texts without a mask, and a model directory without the head that fills one."""
    if source.check(model) != "model":
        return
    check_head(model, "fill-mask")
    tokenizer = held_tokenizer(model)
    if tokenizer is None:
        return
    for number, text in enumerate(texts):
        with of_text(number):
            between_masks(tokenizer, text)


def check_zero_shot(model: str | os.PathLike, entailment: str | None) -> None:
    """Refuse a model directory that tells no entailment."""
    if (known := _task_and_labels(model)) is not None:
        columns(*known, entailment)


def check_judge(model: str | os.PathLike, what: str) -> None:
    """Refuse a model directory that gives pairs of texts no single score; `what` the model is given as."""
    if (known := _task_and_labels(model)) is not None:
        judging(known[0], len(known[1]), what)


def _task_and_labels(model: str | os.PathLike) -> tuple[Task | None, list[str]] | None:
    """The task of a model directory, None of an encoder, and its labels; None where only loading tells."""
    if source.check(model) != "model":
        return None
    labels, task = read_json(Path(model) / "model.json").get("labels"), some_task(model)
    return None if task is None and spec_of(model) is None else (task, labels if isinstance(labels, list) else [])


def judging(task: Task | None, labels: int, what: str) -> None:
    """Refuse what gives pairs of texts no single score: it is to be a regression, or a classification of two labels.

    Args:
        task: of the model, None of an encoder. labels: how many it has. what: str, what the model is given as.

    Raises:
        InputError: of one line.
    """
    kind = None if task is None else task.answer_kind
    if task is None or kind is None or not task.pair:
        received = "an encoder" if task is None else f"a {task.kind} of one text"
    elif "value" in kind.columns or (kind.labelled and not kind.per_token and labels == 2):
        return
    else:
        received = f"a {task.kind}" + f" of {labels} labels" * kind.labelled
    raise InputError(
        f"{what} needs a model of pairs with one score (a regression, or two labels), received {received}: "
        "kerasbert import CROSS_ENCODER --pair --out RUN"
    )


def check_call(model: str | os.PathLike, language: str | None, prompt_name: str | None) -> None:
    """Refuse a language or a prompt's name for a model directory that reads none."""
    if not (language or prompt_name) or source.check(model) != "model" or spec_of(model) is None:
        return
    content = read_json(Path(model) / "model.json")
    if language and content["family"] not in registry.shipped()["languages"]:
        raise InputError(f"the model takes no language. Received: {language!r}. Leave --language out")
    if not prompt_name:
        return
    task = some_task(model)
    if task is None or "prompts" not in task.how.options:
        raise InputError(f"prompt_name is {prompt_name!r}, and the model has no prompts: leave it out")
    task_of(model, {"prompt_name": prompt_name})


def check_pooling(pooling: str | None) -> None:
    """Refuse an unknown pooling, or one of "mean+max" that is none; None is the model's own."""
    names = [] if pooling is None else str(pooling).split("+")
    for name in names:
        if name not in (*POOLINGS, "cls") or (name == "pooled" and len(names) > 1):
            close = nearest(name, POOLINGS)
            meant = f" Nearest: {close!r}." if close else ""
            known = f"one of: {', '.join(POOLINGS)}; or some with + between them, without pooled"
            raise InputError(f"no pooling {pooling!r}.{meant} Expected {known}")


def check_dims(dims: int | None, model: str | os.PathLike | None = None, pooling: str | None = None) -> None:
    """Refuse what is no number of dimensions, or more than a vector of a model directory has; None is all of them.

    Args:
        pooling: of the vectors; None for the model's own.
    """
    if dims is None:
        return
    check_whole("dims", dims)
    hidden = None if model is None else hidden_of(model)
    if model is None or hidden is None:
        return
    width = hidden * len((pooling or "").split("+"))
    if pooling is None and (task := some_task(model)) is not None and "dense" in task.how.options:
        options = task.how.options
        width = options["dimensions"] or width_of(options, hidden)
    check_size("dims", [dims], width)


def check_static(dims: object, sif: object, model: str | os.PathLike | None = None) -> None:
    """Refuse numbers of which no static embedding is made."""
    hidden = None if model is None else hidden_of(model)
    if type(dims) is not int or dims < 0:
        raise InputError(f"dims must be a whole number, 0 for all of the encoder. Received: {dims!r}")
    if hidden is not None:
        check_size("dims", [dims], hidden)
    if isinstance(sif, bool) or not isinstance(sif, int | float) or not 0 <= sif < 1:
        raise InputError(
            f"sif must be a number from 0 to below 1, such as 1e-4; 0 for equal weights. Received: {sif!r}"
        )


def with_columns(task: Task | None, columns: Mapping[str, str | None]) -> Task | None:
    """The task, reading other columns (text, text_b, label) where given."""
    given = {name: value for name, value in columns.items() if value}
    return task and (by_number(task, given) or dataclasses.replace(task, **given))


def check_rows(task: Task | None, data: str, split: str | None = None, run: str | os.PathLike = "") -> None:
    """Refuse labelled rows that `evaluate` cannot read: no file, no such column or label, another number of fields.

    Args:
        task: as of `task_of`; without one it is only seen whether there are files.
        split: as of `evaluate`. run: the model's directory, whose run.json may say how its own rows are read.
    """
    if not Path(data).exists():
        raise no_file(data)
    if task is None:
        return
    sources = split_files(data, test=True, task=task)
    if split is not None and split in sources:
        sources = {split: sources[split]}
    elif "dev" in sources:
        sources = {"dev": sources["dev"]}
    described = read_json(Path(run) / "run.json") if run and (Path(run) / "run.json").is_file() else None
    for file in sources.values():
        if isinstance(file, Path):
            check_files([file])
            if file.stat().st_size <= LARGEST:
                known = task.labels or not task.answer_kind.labelled  # else only a loaded model tells its labels
                with tables.reading_of(described, file):
                    read_rows(task, file) if known else table(task, file, task.columns)
