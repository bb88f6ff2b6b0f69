"""`kerasbert pretrain | replay | finetune | evaluate`."""

import argparse
import os
import sys

from kerasbert import registry
from kerasbert.cli.options import add_options, given
from kerasbert.cli.parser import Declare, changes_of, column_options, encoding_option, objective_of, set_option, show
from kerasbert.errors import InputError
from kerasbert.training import interruption
from kerasbert.training.config import FinetuneConfig, PretrainConfig


def _pretrain(options: argparse.Namespace) -> None:
    interruption.listen()
    settings, recipe = given(options, PretrainConfig), {}
    settings |= {"data": options.data} if hasattr(options, "data") else {}
    if options.model and not os.path.exists(options.model):
        registry.check_name("model", options.model)
    if options.recipe:
        from kerasbert.training.recipe import read_recipe

        recipe = read_recipe(options.recipe).pretrain
        settings = recipe | settings
    if options.model:
        settings["model"] = options.model
    missing = [name for name in ("model", "data", "steps", "out") if settings.get(name) is None]
    if missing:
        raise InputError(f"pretrain needs {', '.join(missing)}: on the command line or in a --recipe")
    from kerasbert.training.pretrain import pretrain

    changes, objective = objective_of(options, recipe.get("objective"))
    if changes:
        settings["changes"] = settings.get("changes", {}) | changes
    if objective:
        settings["objective"] = objective
    pretrain(**settings, plugin=options.plugins)
    print(settings["out"])


def _replay(options: argparse.Namespace) -> None:
    from kerasbert.training.replay import lines, replay

    found = replay(options.dump)
    show(found, options.json, "\n".join(lines(found)))


def _finetune(options: argparse.Namespace) -> None:
    interruption.listen()
    from kerasbert.training.finetune import finetune

    if bool(options.data) == bool(options.train):
        raise InputError("give --data PATH, or --train FILE and, if there is one, --dev FILE")
    data = options.data or {"train": options.train, "dev": options.dev}
    finetune(options.model, options.task, data, changes=changes_of(options.set), **given(options, FinetuneConfig))
    print(options.out)


def _evaluate(options: argparse.Namespace) -> None:
    from kerasbert.tasks.load import load
    from kerasbert.training.evaluation import evaluate, with_columns

    columns = {"text": options.text_column, "text_b": options.text_b_column, "label": options.label_column}
    model = load(options.model)
    found = evaluate(
        with_columns(model, **columns) if any(columns.values()) else model,
        options.data,
        length=options.length,
        batch=options.batch,
        split=options.split,
        language=options.language,
    )
    for line in found["remarks"]:
        print(line, file=sys.stderr)
    lines = [
        f"{found['task']}, {found['rows']}",
        *(f"  {k}: {v:.4f}" for k, v in found["metrics"].items()),
    ]
    show(found, options.json, "\n".join(lines))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("pretrain", _pretrain, "train an encoder on records; the same command resumes")
    add.add_argument("model", metavar="MODEL/SIZE", nargs="?", help="or a model directory (continued pretraining)")
    add.add_argument("--recipe", metavar="FILE", help="settings in YAML; command-line options override them")
    add.add_argument("--data", metavar="DIR", default=argparse.SUPPRESS, help="records of `kerasbert data`")
    add.add_argument(
        "--static-masks", type=int, metavar="N", help="N fixed sets of masks per example, not new ones each step"
    )
    add.add_argument("--select", metavar="NAME", help="what is masked: tokens, words, entities, ngrams or spans")
    set_option(add)
    add_options(add, PretrainConfig, required=False)

    add = command(
        "replay", _replay, "run an update that was not finite again and tell where the first nan or inf appears"
    )
    add.add_argument("dump", metavar="DUMP", help="a run's dumps/step_N")
    add.add_argument("--json", action="store_true")

    add = command("finetune", _finetune, "train a task on labelled texts; the same command resumes")
    add.add_argument("model", metavar="RUN", help="a model or run directory")
    add.add_argument("--task", required=True, metavar="TASK", help=f"one of {', '.join(registry.shipped()['tasks'])}")
    add.add_argument("--data", metavar="PATH", help="a folder with train and dev files, or one file")
    add.add_argument("--train", metavar="FILE")
    add.add_argument("--dev", metavar="FILE")
    encoding_option(add)
    set_option(add)
    add_options(add, FinetuneConfig)

    add = command("evaluate", _evaluate, "metrics of a fine-tuned model")
    add.add_argument("model", metavar="RUN")
    add.add_argument("--data", required=True, metavar="PATH", help="a file, or a folder with a dev or test file")
    add.add_argument("--split", choices=("train", "dev", "test"), help="the part of the data that is wanted")
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help="of the texts; that of the training by default")
    add.add_argument("--batch", type=int, default=64, help="texts at once")
    add.add_argument("--json", action="store_true")
    column_options(add)
