"""`kerasbert pretrain | replay | finetune | evaluate`."""

import argparse
import os
import sys
from typing import Any

from kerasbert import registry
from kerasbert.cli.parser import Declare, changes_of, chosen, column_options, out_options, set_option, show
from kerasbert.errors import InputError
from kerasbert.training import interruption


def _pretrain(options: argparse.Namespace) -> None:
    settings = _training(options) | chosen(options, "data init held_out evaluate_every skip_bad_steps profile")
    if options.model and not os.path.exists(options.model):
        registry.check_name("model", options.model)
    if options.recipe:
        from kerasbert.training.recipe import read_recipe

        settings = read_recipe(options.recipe).pretrain | settings
    if options.model:
        settings["model"] = options.model
    missing = [name for name in ("model", "data", "steps", "out") if settings.get(name) is None]
    if missing:
        raise InputError(f"pretrain needs {', '.join(missing)}: on the command line or in a --recipe")
    from kerasbert.training.pretrain import pretrain

    if options.set:
        settings["changes"] = settings.get("changes", {}) | changes_of(options.set)
    masking = {"static": options.static_masks, "select": options.select}
    if any(masking.values()):
        given = {name: value for name, value in masking.items() if value}
        settings["masking"] = settings.get("masking", {}) | given
    if "profile" in settings:
        settings["profile"] = read_profile(settings["profile"])
    if hasattr(options, "peak_tflops"):
        settings["peak"] = options.peak_tflops * 1e12
    pretrain(**settings, plugin=options.plugins)
    print(settings["out"])


def _replay(options: argparse.Namespace) -> None:
    from kerasbert.training.replay import lines, replay

    found = replay(options.dump)
    show(found, options.json, "\n".join(lines(found)))


def _training(options: argparse.Namespace) -> dict[str, Any]:
    interruption.listen()
    names = "steps batch strategy learning_rate warmup accumulate optimizer schedule precision seed weight_decay clip"
    found = chosen(options, f"{names} save_every keep_every log_every keep_head")
    return found | {name: getattr(options, name) for name in ("out", "overwrite", "quiet") if getattr(options, name)}


def _finetune(options: argparse.Namespace) -> None:
    settings = _training(options)
    from kerasbert.training.finetune import finetune

    if bool(options.data) == bool(options.train):
        raise InputError("give --data PATH, or --train FILE and, if there is one, --dev FILE")
    finetune(
        options.model,
        options.task,
        options.data or {"train": options.train, "dev": options.dev},
        epochs=options.epochs,
        length=options.length,
        patience=options.patience,
        metric=options.metric,
        changes=changes_of(options.set),
        text_column=options.text_column,
        text_b_column=options.text_b_column,
        label_column=options.label_column,
        **settings,
    )
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
    add.add_argument("--recipe", metavar="FILE", help="settings in YAML; what the command line gives goes before")
    add.add_argument("--data", metavar="DIR", default=argparse.SUPPRESS, help="records of `kerasbert data`")
    add.add_argument("--steps", type=int, default=argparse.SUPPRESS)
    add.add_argument("--init", metavar="RUN", default=argparse.SUPPRESS, help="start from these weights")
    add.add_argument(
        "--static-masks", type=int, metavar="N", help="N fixed sets of masks per example, not new ones each step"
    )
    add.add_argument("--select", metavar="NAME", help="what is masked: tokens, words, entities, ngrams or spans")
    hidden = {"default": argparse.SUPPRESS}  # so that a recipe's value holds where none is given
    add.add_argument("--evaluate-every", type=int, **hidden, help="updates between evaluations on held-out records")
    add.add_argument(
        "--held-out",
        metavar="DIR",
        **hidden,
        help="records for it; by default the last shard, or the last rows of a single one",
    )
    add.add_argument("--skip-bad-steps", type=int, **hidden, metavar="N", help="leave out N updates that explode")
    add.add_argument("--profile", metavar="START:COUNT", **hidden, help="trace these updates for TensorBoard")
    add.add_argument("--peak-tflops", type=float, **hidden, help="of all devices, to tell the utilisation")
    _training_options(add, required=False)

    add = command("replay", _replay, "run an update that exploded again and tell where the first nan or inf appears")
    add.add_argument("dump", metavar="DUMP", help="a run's dumps/step_N")
    add.add_argument("--json", action="store_true")

    add = command("finetune", _finetune, "train a task on labelled texts; the same command resumes")
    add.add_argument("model", metavar="RUN", help="a model or run directory")
    add.add_argument("--task", required=True, metavar="TASK", help=f"one of {', '.join(registry.shipped()['tasks'])}")
    add.add_argument("--data", metavar="PATH", help="a folder with train and dev files, or one file")
    add.add_argument("--train", metavar="FILE")
    add.add_argument("--dev", metavar="FILE")
    column_options(add)
    add.add_argument("--epochs", type=int, default=3)
    add.add_argument("--steps", type=int, help="instead of --epochs")
    add.add_argument("--length", type=int, help="longest text in tokens, here and in every answer (default: 128)")
    add.add_argument("--patience", type=int, help="evaluations without improvement before it stops")
    add.add_argument("--metric", help="what the best weights are chosen by")
    keep = {"action": "store_true", "default": argparse.SUPPRESS}
    add.add_argument(
        "--keep-head", **keep, help="go on with the head of a fine-tuned RUN (after pruning or trimming it)"
    )
    _training_options(add)

    add = command("evaluate", _evaluate, "metrics of a fine-tuned model")
    add.add_argument("model", metavar="RUN")
    add.add_argument("--data", required=True, metavar="PATH", help="a file, or a folder with a dev or test file")
    add.add_argument("--split", choices=("train", "dev", "test"), help="the part of the data that is wanted")
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--batch", type=int, default=64, help="texts at once")
    add.add_argument("--json", action="store_true")
    column_options(add)


def _training_options(add: argparse.ArgumentParser, required: bool = True) -> None:
    """Options of a training run; one that is not given is absent, and the function's own default or a recipe's holds."""
    out_options(add, required)
    set_option(add)

    def option(name: str, kind: type = str, text: str | None = None) -> None:
        add.add_argument(name, type=kind, default=argparse.SUPPRESS, help=text)

    option("--batch", int, "rows in a global batch")
    option("--accumulate", int, "micro-batches per update")
    option(
        "--strategy",
        text="auto (the GPUs, else the CPU), cpu, cpu:N, gpu, gpu:N, tpu:local, tpu:NAME[@ZONE] or multiworker",
    )
    option("--learning-rate", float, "peak of the schedule")
    option("--warmup", int, "updates; a tenth of all by default")
    option("--optimizer", text="adamw, lamb or adafactor")
    option("--schedule", text="linear, polynomial, cosine, inverse_square_root or slanted_triangular")
    option("--weight-decay", float)
    option("--clip", float, "largest global norm of the gradient")
    option("--precision", text="float32, mixed_bfloat16 or mixed_float16")
    option("--seed", int)
    option("--save-every", int, "updates between checkpoints")
    option("--keep-every", int, "updates whose checkpoints are kept for good, beside the newest two")
    option("--log-every", int)
    add.add_argument("--quiet", action="store_true")


def read_profile(given: str) -> tuple[int, int]:
    """`START:COUNT` -> (first update from 0, number of updates)."""
    start, colon, count = given.partition(":")
    if not (colon and start.isdecimal() and count.isdecimal()):
        raise InputError(f"--profile {given!r}, expected START:COUNT such as 100:5")
    return int(start), int(count)
