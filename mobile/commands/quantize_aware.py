"""`kerasbert-mobile quantize-aware`; nothing heavy is imported before it runs."""

import argparse
import json

from kerasbert.cli.given import Fields, check_read
from kerasbert.cli.options import Keywords, add_options, given, numbered
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.training import interruption
from kerasbert.training.config import LabelledConfig
from .distill import add_teacher, taught


def add(declare: Declare) -> None:
    """Declare the command."""
    missing: Keywords = {"default": argparse.SUPPRESS}
    part = declare("quantize-aware", _aware, "train a model further with the rounding of its int8 file")
    part.add_argument("run", metavar="RUN", help="directory of a fine-tuned model")
    part.add_argument(
        "--data", required=True, metavar="PATH", help="labelled rows of the task, as for `kerasbert finetune`"
    )
    writes(part.add_argument("--out", required=True, metavar="DIR"), "run")
    part.add_argument("--per", **missing, metavar="channel|tensor", help="for dynamic_int8 (default) or static_int8")
    numbered(part, "--delay", 0, **missing, metavar="UPDATES", help="before anything is rounded")
    add_teacher(part)
    add_options(part, LabelledConfig, required=False)
    part.defaults = {}  # they are another's with a teacher


def _aware(options: argparse.Namespace) -> None:
    interruption.listen()
    settings = {name: getattr(options, name) for name in ("per", "delay") if hasattr(options, name)}
    settings |= given(options, LabelledConfig) | taught(Fields(options))
    settings["quiet"] = options.json or settings.get("quiet", False)
    from .. import quantize
    from . import early

    check_read(options, "data")
    early.check_aware(options.run, options.data, settings)
    quantize.aware(options.run, options.data, **settings)
    form = "static_int8" if settings.get("per") == "tensor" else "dynamic_int8"
    if options.json:
        print(json.dumps({"out": options.out, "quantize": form}))
    else:
        print(f"{options.out}: kerasbert-mobile compress {options.out} --quantize {form} --out FILE")
