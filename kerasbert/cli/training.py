"""`kerasbert pretrain | replay | finetune | evaluate`."""

import argparse
import itertools
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kerasbert import registry
from kerasbert.cli import tables
from kerasbert.cli.answers import early_task, opened
from kerasbert.cli.changes import changes_of, objective_of
from kerasbert.cli.given import check_read
from kerasbert.cli.options import Keywords, add_options, flags, given, numbered
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import (
    answer_options,
    answer_options_of,
    base_option,
    column_options,
    ensemble_option,
    precision_option,
    set_option,
    task_option,
)
from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonMap
from kerasbert.training import interruption
from kerasbert.training.config import FinetuneConfig, TasksConfig
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    from kerasbert.tasks.tables import Data


RECIPES = Path(__file__).resolve().parents[2] / "tpu_scripts" / "recipes"  # in a checkout
SHOWN = 20  # labels of which a terminal has room


def _pretrain(options: argparse.Namespace) -> None:
    interruption.listen()
    settings, recipe = given(options, PretrainConfig), {}
    settings |= {"data": options.data} if hasattr(options, "data") else {}
    if options.graph:
        raise InputError(
            "records hold no texts, in which a graph is found: pretrain without --graph, K-BERT reads it in fine-tuning "
            "(Liu et al., 2019): kerasbert finetune RUN --graph FILE"
        )
    if options.model and not os.path.exists(options.model):
        registry.check_name("model", options.model)
    if options.recipe:
        from kerasbert.training.recipe import read_recipe

        recipe = read_recipe(_recipe(options.recipe)).pretrain
        settings = recipe | settings
    if options.model:
        settings["model"] = options.model
    needed = ("model", "data", "out") if settings.get("on_task") else ("model", "data", "steps", "out")
    missing = [name for name in needed if settings.get(name) is None]
    if missing:
        raise InputError(f"pretrain needs {', '.join(missing)}: on the command line or in a --recipe")
    changes, objective = objective_of(options, recipe.get("objective"))
    if changes:
        settings["changes"] = settings.get("changes", {}) | changes
    if objective:
        settings["objective"] = objective
    check_read(options)
    from kerasbert.training import early

    early.check_pretrain(settings["model"], settings, settings.get("changes"))
    from kerasbert.training.pretrain import pretrain

    pretrain(**settings, plugin=options.plugins)
    print(settings["out"])


def _recipe(name: str) -> str:
    """The path of a recipe; of the name of one that stands beside the scripts for a TPU, where it stands."""
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    if not os.path.exists(name) and os.path.basename(name).removesuffix(".yaml") in known:
        found = RECIPES / f"{os.path.basename(name).removesuffix('.yaml')}.yaml"
        raise InputError(f"no recipe {name} here: --recipe {os.path.relpath(found)} is one of that name")
    if not os.path.exists(name):
        held = f"; tpu_scripts/recipes has {', '.join(known)}" if known else ""
        raise InputError(f"no recipe {name}, expected a file of YAML{held}")
    return name


def _replay(options: argparse.Namespace) -> None:
    from kerasbert.training import early

    early.check_dump(options.dump)
    from kerasbert.training.replay import lines, replay

    found = replay(options.dump)
    show(found, options.json, "\n".join(lines(found)))


def _finetune(options: argparse.Namespace) -> None:
    interruption.listen()
    data = options.data or ()
    if len(options.task) > 1:
        _finetune_tasks(options, data)
        return
    for name in ("sampling", "sampling_limit", "sampling_temperature"):
        if hasattr(options, name):
            raise InputError(f"--{name.replace('_', '-')} is of several tasks, received one --task: leave it out")
    if data and options.dev and not options.train:
        raise InputError(f"--dev goes with --train: write --train {data[0]} --dev {options.dev}")
    if len(data) > 1 or bool(data) == bool(options.train) or (data and options.dev):
        raise InputError(
            "give --data PATH, a folder with train and dev files or one file, or --train FILE and, if there is one, --dev FILE"
        )
    options.task, options.data = options.task[0], data[0] if data else None
    data = options.data or {"train": options.train, "dev": options.dev}
    if options.folds and options.grid:
        raise InputError("--folds and --grid are both given, expected one of them")
    if options.seeds is not None and not options.grid:
        raise InputError("--seeds goes with --grid: one run has one --seed")
    if options.folds or options.grid:
        (_folds if options.folds else _grid)(options, data)
        return
    settings = _settings(options, data)
    from kerasbert.training.finetune import finetune
    from kerasbert.training.job import unloaded

    with unloaded():
        finetune(options.model, options.task, data, **settings)
    print(options.out)


def _settings(
    options: argparse.Namespace, data: "Data", searched: Mapping[str, Sequence[object]] = MappingProxyType({})
) -> Keywords:
    """The options of a fine-tuning; what is wrong with them, or with small files, is refused before TensorFlow is imported.

    Args:
        searched: name -> values that a grid gives.
    """
    settings = {"changes": changes_of(options.set), **given(options, FinetuneConfig)}
    check_read(options, "folds", "grid", "seeds")
    from kerasbert.training import early

    early.check_finetune(options.model, options.task, data, FinetuneConfig(**settings))
    for values in itertools.product(*searched.values()) if searched else ():
        tried = {**settings, **dict(zip(searched, values))}
        early.check_options(options.model, options.task, FinetuneConfig(**tried))
    return settings


def _finetune_tasks(options: argparse.Namespace, data: Sequence[str]) -> None:
    if len(data) != len(options.task) or options.train or options.dev:
        raise InputError(
            f"{len(options.task)} tasks, {len(data)} --data, expected --data PATH for each --task, in order"
        )
    for name in ("folds", "grid", "seeds"):
        if getattr(options, name):
            raise InputError(f"--{name} is of one task, received several: take them one by one")
    if twice := next((name for i, name in enumerate(options.task) if name in options.task[:i]), None):
        raise InputError(
            f"two tasks are called {twice!r}, expected each once: join their files, or name one in a --plugin"
        )
    tasks = list(zip(options.task, data, strict=True))
    settings = {"changes": changes_of(options.set), **given(options, TasksConfig)}
    check_read(options)
    from kerasbert.training import early, sampling

    sampling.check(settings.get("sampling"))
    early.check_together(_alone(settings))
    for task, rows in tasks:
        early.check_finetune(options.model, task, rows, _alone(settings))
    from kerasbert.training.several import finetune_tasks

    for name in finetune_tasks(options.model, tasks, **settings):
        print(os.path.join(options.out, "tasks", name))


def _alone(settings: Keywords) -> TasksConfig:
    """The options of one of several tasks: of the changes those that are of it alone are another's to check."""
    changes = {path: value for path, value in settings["changes"].items() if not path.startswith("pals.")}
    return TasksConfig(**{**settings, "changes": changes})


def _folds(options: argparse.Namespace, data: "Data") -> None:
    from kerasbert import report
    from kerasbert.training.folds import cross_validate

    settings = _settings(options, data) | {"folds": options.folds}
    found = cross_validate(options.model, options.task, data, **settings)
    folds = [fold["metrics"] for fold in found["folds"]]
    rows = [(f"fold {i}", metrics) for i, metrics in enumerate(folds, 1)]
    rows += [(name.replace("_", " "), found[name]) for name in ("mean", "median", "standard_deviation")]
    cells = [[name, *(f"{value:.4f}" for value in metrics.values())] for name, metrics in rows]
    print(report.table([f"{found['task']}, {found['rows']} rows", *folds[0]], cells))
    print(options.out)


def _grid(options: argparse.Namespace, data: "Data") -> None:
    from kerasbert import report
    from kerasbert.training.grid import FUNCTIONS, check_grid, grid, searchable

    values, known = {}, searchable()
    for pair in options.grid:
        name, equals, said = pair.partition("=")
        name = name.replace("-", "_")
        if not equals or name in values:
            raise InputError(f"--grid {pair!r}, expected NAME=VALUE,VALUE, each name once: learning_rate=5e-5,3e-5")
        values[name] = [_value(each, known.get(name, (str,))) for each in said.split(",") if each]
    if options.seeds is not None:
        check_whole("seeds", options.seeds)
    check_grid(values, given(options, FinetuneConfig))
    settings = _settings(options, data, values)
    settings |= {"grid": values, "seeds": 1 if options.seeds is None else options.seeds}
    found = grid(options.model, options.task, data, **settings)
    metric, cells = found["metric"], []
    for row in found["settings"]:
        numbers = [f"{row[name][metric]:.4f}" if name in row else "not finite" for name in FUNCTIONS]
        cells.append([", ".join(f"{name}={value}" for name, value in row["settings"].items()), *numbers])
    header = [f"{found['task']}, {metric}", *(name.replace("_", " ") for name in FUNCTIONS)]
    print(report.table(header, cells))
    print(f"best: {_command(options, found['best']['settings'] | {'seed': found['best']['seed']})}")
    print(options.out)


def _value(said: str, kinds: tuple[type, ...]) -> float | str:
    """A value of the grid: a number where the option takes one."""
    for kind in [kind for kind in (int, float) if kind in kinds]:
        try:
            return kind(said)
        except ValueError:
            continue
    return said


def _command(options: argparse.Namespace, chosen: JsonMap) -> str:
    """The line that makes one run of a grid again."""
    words = ["kerasbert", "finetune", options.model, "--task", options.task]
    for name, flag in {"data": "--data", "train": "--train", "dev": "--dev"}.items():
        words += [flag, getattr(options, name)] if getattr(options, name) else []
    for name in ("set", "plugin"):
        words += [word for each in getattr(options, name) for word in (f"--{name}", each)]
    for name, flag, field in flags(FinetuneConfig):
        value = chosen.get(name, getattr(options, name, None))
        if name == "out":
            words += [flag, os.path.join(options.out, "best")]
        elif field.type is bool:
            words += [flag] if value and name not in ("overwrite", "quiet") else []
        elif name == "profile" and value:
            words += [flag, ":".join(map(str, value))]
        elif isinstance(value, list | tuple) and field.metadata["read"]:
            words += [flag, ",".join(value)]
        elif value is not None:
            words += [str(word) for each in (value if isinstance(value, list) else [value]) for word in (flag, each)]
    return shlex.join(map(str, words))


def _evaluate(options: argparse.Namespace) -> None:
    if options.clusters:
        _evaluate_clusters(options)
        return
    from kerasbert import report
    from kerasbert.data.texts import check_second
    from kerasbert.tasks import early_checks

    columns = {"text": options.text_column, "text_b": options.text_b_column, "label": options.label_column}
    declared = early_task(options)  # a mistake is told before TensorFlow's import
    if declared is not None:
        check_second(options.text_b_column, [each for each in (declared.text, declared.text_b) if each])
    early_checks.check_rows(early_checks.with_columns(declared, columns), options.data, options.split, options.model)
    from kerasbert.training.evaluation import evaluate, with_columns

    settings = {name: getattr(options, name) for name in ("length", "batch", "split", "language")}
    settings["options"] = answer_options_of(options)
    model = opened(options)
    check_read(options)
    found = evaluate(with_columns(model, **columns) if any(columns.values()) else model, options.data, **settings)
    for line in found["remarks"]:
        print(line, file=sys.stderr)
    lines = [
        f"{found['task']}, {found['rows']}",
        *(f"  {k}: {v:.4f}" for k, v in found["metrics"].items()),
    ]
    for title, header, cells in report.label_tables(found):
        if len(cells) <= SHOWN:
            lines += ["", f"{title}:", report.table(header, cells)]
    show(found, options.json, "\n".join(lines))


def _evaluate_clusters(options: argparse.Namespace) -> None:
    """Clusters of the vectors of --data beside its labels."""
    from kerasbert.retrieval import clustering
    from kerasbert.tasks import early_checks

    early_checks.check_length(options.model, options.length)
    rows = clustering.read(options.data, options.text_column or "text", options.label_column or "label")
    settings = {"length": options.length, "language": options.language}
    check_read(options, "rounding")
    from kerasbert.tasks.predict import as_model

    with tables.telling_truncated():
        found = clustering.evaluate(as_model(options.model, options.rounding), rows, **settings)
    lines = [f"{found['examples']:,} texts, {found['clusters']} clusters"]
    lines += [f"  {name}: {value:.4f}" for name, value in found["metrics"].items()]
    show(found, options.json, "\n".join(lines))


def _pretrain_options(add: argparse.ArgumentParser) -> None:
    """Which encoder on which records, and the fields of PretrainConfig."""
    add.add_argument("model", metavar="MODEL/SIZE", nargs="?", help="or a model directory (continued pretraining)")
    add.add_argument("--recipe", metavar="FILE", help="settings in YAML; command-line options override them")
    add.add_argument("--data", metavar="DIR", default=argparse.SUPPRESS, help="records of `kerasbert data`")
    add.add_argument(
        "--static-masks", type=int, metavar="N", help="N fixed sets of masks per example, not new ones each step"
    )
    add.add_argument(
        "--select",
        metavar="NAME",
        help="what is masked: tokens, token_ngrams, words, entities, ngrams, fourgrams or spans",
    )
    add.add_argument("--graph", metavar="FILE", help=argparse.SUPPRESS)  # refused, with what to do
    set_option(add)
    add_options(add, PretrainConfig, required=False)


def _replay_options(add: argparse.ArgumentParser) -> None:
    """Which update."""
    add.add_argument("dump", metavar="DUMP", help="a run's dumps/step_N")
    add.add_argument("--json", action="store_true")


def _finetune_options(add: argparse.ArgumentParser) -> None:
    """Which model on which tasks and data, and the fields of TasksConfig."""
    add.add_argument("model", metavar="RUN", help="a model or run directory")
    tasks = (
        "classification, regression, multi_label, ner, squad, sts, summarization, ... (kerasbert list tasks); several, each "
        "with its --data, are learnt together"
    )
    add.add_argument("--task", required=True, action="append", metavar="TASK", help=tasks)
    add.add_argument("--data", action="append", metavar="PATH", help="a folder with train and dev files, or one file")
    add.add_argument("--train", metavar="FILE")
    add.add_argument("--dev", metavar="FILE")
    numbered(add, "--folds", 2, metavar="N", help="cross-validation: N runs in --out, each judged by a share")
    add.add_argument(
        "--grid", nargs="+", metavar="NAME=VALUES", help="a run in --out for every combination: learning_rate=5e-5,3e-5"
    )
    numbered(add, "--seeds", 1, most=1000, metavar="N", help="runs of each combination of --grid (1 without it)")
    set_option(add)
    add_options(add, TasksConfig)


def _evaluate_options(add: argparse.ArgumentParser) -> None:
    """Which model on which data."""
    add.add_argument("model", metavar="RUN")
    base_option(add)
    ensemble_option(add)
    add.add_argument("--data", required=True, metavar="PATH", help="a file, or a folder with a dev or test file")
    text = (
        "of a file with labels: k-means of the texts' vectors, one cluster a label, and their V-measure; of any encoder"
    )
    add.add_argument("--clusters", action="store_true", help=text)
    add.add_argument("--split", choices=("train", "dev", "test"), help="the part of the data that is wanted")
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help="of the texts; that of the training by default")
    precision_option(add)
    task_option(add)
    answer_options(add)
    add.add_argument("--batch", type=int, default=64, help="texts at once")
    add.add_argument("--json", action="store_true")
    column_options(add)
    tables.dialect_options(add, unlabelled=True)


def add(command: Declare) -> None:
    """Declare the commands."""
    replay = "run an update that was not finite again and tell where the first nan or inf appears"
    _pretrain_options(command("pretrain", _pretrain, "train an encoder on records; the same command resumes"))
    _replay_options(command("replay", _replay, replay))
    _finetune_options(command("finetune", _finetune, "train a task on labelled texts; the same command resumes"))
    _evaluate_options(command("evaluate", _evaluate, "metrics of a fine-tuned model"))
