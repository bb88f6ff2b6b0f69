"""`kerasbert-mobile quantize-aware`; nothing heavy is imported before it runs."""

import argparse
import json
from typing import Any

from kerasbert.cli.parser import Declare
from kerasbert.mobile.distill.command import add_teacher, taught
from kerasbert.training import interruption

SETTINGS = "per delay steps epochs batch learning_rate length seed strategy"


def add(declare: Declare) -> None:
    """Declare the command."""
    missing: dict[str, Any] = {"default": argparse.SUPPRESS}
    part = declare("quantize-aware", _aware, "train a model further with the rounding of its int8 file")
    part.add_argument("run", metavar="RUN", help="directory of a fine-tuned model")
    part.add_argument(
        "--data", required=True, metavar="PATH", help="labelled rows of the task, as for `kerasbert finetune`"
    )
    part.add_argument("--out", required=True, metavar="DIR")
    part.add_argument("--per", **missing, metavar="channel|tensor", help="for dynamic_int8 (default) or static_int8")
    part.add_argument("--delay", type=int, **missing, metavar="UPDATES", help="before anything is rounded")
    for name in ("steps", "epochs", "batch", "seed"):
        part.add_argument(f"--{name}", type=int, **missing, help="as for `kerasbert finetune`")
    part.add_argument("--length", type=int, **missing, help="longest text in tokens")
    part.add_argument("--learning-rate", type=float, **missing)
    part.add_argument("--strategy", **missing, help="auto (the GPUs, else the CPU), cpu, cpu:2, gpu or tpu:NAME")
    add_teacher(part)
    part.add_argument("--overwrite", action="store_true", help="replace DIR")


def _aware(options: argparse.Namespace) -> None:
    interruption.listen()
    given = vars(options)
    settings = {name: given[name] for name in SETTINGS.split() if name in given} | taught(given)
    from kerasbert.mobile import quantize

    quantize.aware(
        options.run, options.data, out=options.out, overwrite=options.overwrite, quiet=options.json, **settings
    )
    form = "static_int8" if settings.get("per") == "tensor" else "dynamic_int8"
    if options.json:
        print(json.dumps({"out": options.out, "quantize": form}))
    else:
        print(f"{options.out}: kerasbert-mobile compress {options.out} --quantize {form} --out FILE")
