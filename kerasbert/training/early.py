"""What can be told of a training from its options and files alone, before TensorFlow is imported: that takes 4 seconds.

The trainings check the same again, and what only a loaded model tells.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.answers.vector import check_depths
from kerasbert.checkpoints import source
from kerasbert.checkpoints.json_files import read_json
from kerasbert.data.dialects import default_reading
from kerasbert.data.records import Records
from kerasbert.data.sources import check_files, check_texts
from kerasbert.errors import InputError
from kerasbert.family import check_layers
from kerasbert.storage import places
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.storage.remote import is_remote
from kerasbert.tasks import early_checks
from kerasbert.tasks.early_checks import LARGEST, check_positions
from kerasbert.tasks.labels import names_of
from kerasbert.tasks.task import Task, find_task, split_files
from kerasbert.text.knowledge import graph_of
from kerasbert.training import adversarial, on_task, runs, splits
from kerasbert.training.config import FinetuneConfig, LabelledConfig, RunConfig
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.training.strategy import check_devices, check_strategy, parse

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.ensemble import Ensemble
    from kerasbert.tasks.tables import Data

DROPOUT = ("dropout", "attention.dropout")  # what may change of trained weights
TASK = "task."  # before the names of options of the task's kind, among the changes


def parted(changes: Mapping[str, object] | None) -> tuple[Json, Json]:
    """Settings at dotted paths -> those of the Spec, and by their names those of the task's kind (`task.NAME`)."""
    of_task = {name: value for name, value in (changes or {}).items() if name.startswith(TASK)}
    others = {name: value for name, value in (changes or {}).items() if name not in of_task}
    return others, {name.removeprefix(TASK): value for name, value in of_task.items()}


def labels_of(names: Sequence[str] | None) -> dict[str, str]:
    """Numbers in files -> the names of labels, from 0."""
    return {str(number): name for number, name in enumerate(names_of(names) if names else ())}


def declared(task: str | Task, config: FinetuneConfig) -> tuple[Task, Json]:
    """The task as the options of a fine-tuning change it, and what they change of the Spec.

    Raises:
        InputError: no such task, option of its kind or metric.
    """
    fields = {"text": config.text_column, "text_b": config.text_b_column, "label": config.label_column}
    fields |= {"layers": config.layers, "auxiliary_lm": config.auxiliary_lm, "labels": labels_of(config.label_names)}
    found = find_task(task, **fields, metric=registry.metric_name(config.metric))
    if config.label_column and "prefix" in found.how.options and not find_task(task).label:
        raise InputError(
            f"label_column is {config.label_column!r}, and a {found.name} has none: what it learns to write is text_b_column"
        )
    changes, options = parted(adversarial.parted(config.changes)[0])
    said = {"prefix": config.prefix, "loss": config.loss}
    said |= {"dims": config.dims and list(config.dims), "depths": config.depths and list(config.depths)}
    options |= {name: value for name, value in said.items() if value is not None}
    changes |= {"lora.rank": config.lora} if config.lora else {}
    changes |= {"adapters.width": config.adapters} if config.adapters else {}
    found = found.called_with(language=config.language).optioned(options)
    found.how.check_metric(found)
    if config.few_shot and (not found.how.few_shot or found.pair or changes):
        what = f"received {', '.join(changes)}" if changes else f"received the task {found.name} of kind {found.kind}"
        raise InputError(f"few_shot is of a classification of single texts, without changes of the model: {what}")
    if config.label_names and not found.answer_kind.labelled:
        raise InputError(f"label_names are given, and a {found.kind} has no labels of numbers: leave them out")
    return found, changes


def check_changes(changes: JsonMap) -> None:
    """Refuse changes of the Spec of trained weights."""
    if wrong := [path for path in changes if path not in DROPOUT and not path.startswith(("lora.", "adapters."))]:
        raise InputError(
            f"cannot change {', '.join(wrong)} of trained weights: dropout may change, lora.* and adapters.* may be added"
        )


def check_start(model: str | os.PathLike, task: Task, changes: JsonMap, config: FinetuneConfig) -> None:
    """Refuse what a model directory cannot be trained to, by its model.json."""
    content = read_json(Path(model) / "model.json")
    _check_spec(model, changes)
    layers = early_checks.setting_of(model, "blocks.layers")
    if type(layers) is int:
        check_layers(config.layers or "last", layers)
        if config.reinit and config.reinit > layers:
            raise InputError(f"reinit is {config.reinit}, and {model} has {layers} layers: take fewer")
    held = content.get("task")
    held = held if isinstance(held, dict) else {}
    if config.keep_head and not held:
        raise InputError("keep_head needs the directory of a fine-tuned model, received another model")
    if config.keep_head:
        check_head(model, held, task)
    if "dense" in task.how.options:
        early_checks.check_vector(model, task.how.started(task, held))
        if type(layers) is int:
            check_depths(task.how.options, layers)


def _check_spec(model: str | os.PathLike, changes: JsonMap) -> None:
    """Refuse changes of a Spec that it has not, or a second adaptation."""
    spec, tree = early_checks.spec_of(model), early_checks.tree_of(model)
    if tree:
        specs.check_changes(tree, changes)
    if spec is not None and spec != spec.base and (added := [path for path in changes if path not in DROPOUT]):
        raise InputError(f"{model} is adapted already: leave {', '.join(added)} out to train that further")


def check_devices_and_batch(config: RunConfig) -> None:
    """Refuse GPUs that there are not, and a batch that the devices cannot share."""
    check_devices(config.strategy)
    count = 1 if config.strategy in ("auto", "multiworker") else parse(config.strategy).count or 1
    if config.batch % (count * config.accumulate):
        raise InputError(
            f"batch {config.batch} is not a multiple of {count} devices x {config.accumulate} micro-batches: change --batch or "
            "--accumulate"
        )


def check_together(config: LabelledConfig) -> None:
    """Refuse options of one task where several are learnt together."""
    for option in ("keep_head", "few_shot", "constraint", "reinit", "adversarial"):
        if getattr(config, option, None):
            raise InputError(f"{option} is of one task, received several: leave it out, or fine-tune them one by one")


def check_train(split: splits.Split, data: "Data") -> None:
    """Refuse data without training rows."""
    if split.train is None:
        where = data if isinstance(data, str | os.PathLike) else "data"
        raise InputError(f"{where} has no train file, expected train.tsv, train.csv or train.jsonl")


def check_finetune(
    model: "str | os.PathLike | keras.Model | Ensemble", task: str | Task, data: "Data", config: FinetuneConfig
) -> None:
    """Refuse what a fine-tuning will refuse of its options, its task and rows in small files.

    Raises:
        InputError: as of `finetune`.
    """
    check_rows(check_options(model, task, config), data, config, model)


def check_options(
    model: "str | os.PathLike | keras.Model | Ensemble", task: str | Task, config: FinetuneConfig
) -> Task:
    """The task; what a fine-tuning will refuse of it, of its options and of its model is refused."""
    found, changes = declared(task, config)
    check_strategy("finetune", config.strategy)
    check_devices_and_batch(config)
    check_changes(changes)
    if config.graph is not None:
        if isinstance(config.graph, str | os.PathLike):
            check_files([config.graph])
        graph_of(config.graph)
    if config.cache is not None and not is_remote(config.cache):
        places.check_within(config.cache)
    if isinstance(model, str | os.PathLike):
        source.check_tokenizer(model)
        if source.check(model) == "model":
            check_positions(model, config.length)
            check_start(model, found, changes, config)
    return found


def check_rows(
    task: Task,
    data: "Data",
    config: LabelledConfig | None = None,
    model: "str | os.PathLike | keras.Model | None" = None,
) -> None:
    """Refuse labelled rows of small files that a training cannot read.

    Args:
        config: whose run may have been begun with these rows. model: path of the one that is trained further.
    """
    files = [path for path in split_files(data, test=True, task=task).values() if isinstance(path, Path)]
    check_files(files)
    if sum(path.stat().st_size for path in files if path.is_file()) > LARGEST:
        return
    begun = None if config is None or config.overwrite or is_remote(config.out) else runs.run_in(config.out)
    with default_reading(config.reading if isinstance(config, FinetuneConfig) else {}):
        few = isinstance(config, FinetuneConfig) and config.few_shot  # which holds nothing out
        kept = kept_labels(model) if isinstance(config, FinetuneConfig) and config.keep_head else ()
        found = splits.split(task, data, begun=begun, start=model, dev=not few, order=kept)
        check_train(found, data)
        if kept:
            check_labels(model, found.task, kept)


def kept_labels(model: object) -> tuple[str, ...]:
    """The labels of the head of a model directory, in its order; none of another model."""
    path = Path(model) / "model.json" if isinstance(model, str | os.PathLike) else None
    return tuple(read_json(path).get("labels") or ()) if path is not None and path.is_file() else ()


def check_head(model: object, held: JsonMap, task: Task) -> None:
    """Refuse a head of another kind than the task's; `held` is the json of its task."""
    if held.get("kind") != task.kind:
        raise InputError(
            f"the head of {model} is for {held.get('kind')}, expected {task.kind}: leave keep_head out to train a new one"
        )


def check_labels(model: object, task: Task, kept: Sequence[str]) -> None:
    """Refuse a task whose labels are not those of the head that is kept."""
    if list(kept) != (wanted := list(task.labels.values())):
        raise InputError(
            f"the head of {model} has the labels {', '.join(kept) or 'none'}, expected {', '.join(wanted) or 'none'}: leave "
            "keep_head out to train a new one"
        )


def check_further(
    model: str | os.PathLike, data: "Data | None", settings: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Refuse the rows that a fine-tuned model would be trained further, measured or compressed with, and how.

    Args:
        settings: of a training, those that were given: strategy, metric, length, teacher, unlabelled, cache.
    """
    check_strategy("finetune", settings.get("strategy", "auto"))
    check_devices(settings.get("strategy", "auto"))
    early_checks.check_numbers(settings.get("length"))
    if settings.get("unlabelled"):
        check_texts(settings["unlabelled"])
    if settings.get("teacher"):
        source.check(settings["teacher"])
    if settings.get("cache") and not is_remote(settings["cache"]):
        places.check_within(settings["cache"])
    found = early_checks.task_of(model, {}) if isinstance(model, str | os.PathLike) else None
    if found is None:
        return
    check_positions(model, settings.get("length"))
    if settings.get("metric"):
        judged = dataclasses.replace(found, metric=registry.metric_name(settings["metric"]))
        judged.how.check_metric(judged)
    if data is not None:
        check_rows(found, data, model=model)


def check_pretrain(
    model: "str | os.PathLike | keras.Model",
    settings: Mapping[str, Any],
    changes: JsonMap | None,
) -> None:
    """Refuse what a pretraining will refuse of its options, and records that are none.

    Args:
        settings: of `pretrain`, data among them. changes: of the Spec.
    """
    fields = {name: value for name, value in settings.items() if name not in ("model", "data")}
    config = PretrainConfig(**fields)
    check_strategy(None, config.strategy)
    if not config.phases:
        check_devices_and_batch(config)
    if config.warmup is not None and config.steps is not None and config.warmup > config.steps:
        raise InputError(
            f"warmup {config.warmup} is more than the {config.steps} steps: lower --warmup or raise --steps"
        )
    if isinstance(model, str | os.PathLike) and os.path.exists(model):
        source.check(model)
    elif isinstance(model, str) and (row := registry.shipped_model(model)):
        specs.check_changes(row["spec"], changes or {})
    if config.on_task is not None:
        known = find_task(config.on_task)
        check_files([path for path in split_files(settings["data"], task=known).values() if isinstance(path, Path)])
        given = model if config.init is None else config.init
        on_task.check_model(given)
        if isinstance(given, str | os.PathLike):
            source.check(given)
        return
    if config.strategy != "auto" and parse(config.strategy).remote:
        return  # a path of this machine is none of its own, which `preflight` says
    for path in {str(settings["data"]), *(str(path) for path in [config.held_out] if isinstance(path, str))}:
        if not is_remote(path):
            Records(path)


def check_dump(folder: str | os.PathLike) -> Json:
    """What dump.json holds of a non-finite update.

    Raises:
        InputError: no dump there.
    """
    if not (Path(folder) / "dump.json").is_file():
        raise InputError(f"no dump in {folder}: a run that explodes writes one into its dumps/step_N")
    return read_json(Path(folder) / "dump.json")
