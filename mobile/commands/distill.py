"""`kerasbert-mobile distill`: the options, and the call; TensorFlow is imported by the call alone."""

import argparse
import json
from collections.abc import Iterable

from kerasbert.cli.given import Fields, check_read
from kerasbert.cli.options import Keywords, add_options, given
from kerasbert.cli.parser import Declare
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.training import interruption
from ..distill.recipes import LOSSES, DistillConfig

TAUGHT = ("teacher", "unlabelled", "loss")  # options of `add_teacher`


def add(declare: Declare) -> None:
    """Declare the command."""
    part = declare("distill", run, "a small model learns from a large one (TensorFlow)")
    part.add_argument("teacher", metavar="TEACHER", help="directory of a fine-tuned model; for records of an encoder")
    part.add_argument(
        "--student", required=True, metavar="X", help="family/size, a model directory, half, or a number of layers"
    )
    part.add_argument("--data", required=True, metavar="PATH", help="train and dev files, or records")
    part.add_argument("--unlabelled", nargs="+", default=[], metavar="FILE", help="texts for the teacher to label")
    part.add_argument("--loss", action="append", metavar="NAME=WEIGHT", help=f"over the recipe's: {', '.join(LOSSES)}")
    part.add_argument("--layers", metavar="2,4,6", help="the teacher's layer for each of the student's")
    part.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the student's Spec")
    add_options(part, DistillConfig)


def run(options: argparse.Namespace) -> None:
    """Distil, then print the run's directory."""
    interruption.listen()
    changes = {name: parsed(value) for name, value in map(pair, options.set)}
    layers = None if options.layers is None else [parsed(layer) for layer in options.layers.split(",")]
    settings = given(options, DistillConfig) | {"layers": layers, "changes": changes, "unlabelled": options.unlabelled}
    settings["losses"] = losses(options.loss or []) or None
    check_read(options, "student", "data")
    from . import early

    early.check_distill(options.teacher, options.student, options.data, settings)
    from kerasbert.training.job import unloaded
    from ..distill.teach import distill

    with unloaded():
        distill(options.teacher, options.student, options.data, **settings)
    print(json.dumps({"out": options.out}) if options.json else options.out)


def add_teacher(part: argparse._ActionsContainer) -> None:
    """The options of a command that trains by labels or by a teacher."""
    missing: Keywords = {"default": argparse.SUPPRESS}
    part.add_argument(
        "--teacher", **missing, metavar="RUN", help="imitated in the place of the labels, such as RUN itself"
    )
    part.add_argument("--unlabelled", nargs="+", **missing, metavar="FILE", help="texts for the teacher to label")
    part.add_argument(
        "--loss", action="append", **missing, metavar="NAME=WEIGHT", help="what is imitated, as for `distill`"
    )


def taught(options: Fields) -> Json:
    """What these options say, as arguments of `distill`; nothing without a teacher.

    Raises:
        InputError: an option that needs a teacher.
    """
    if "teacher" not in options:
        if alone := next((name for name in TAUGHT if name in options), None):
            raise InputError(f"--{alone} needs --teacher: without one the labels teach")
        return {}
    found = {name: options[name] for name in ("teacher", "unlabelled") if name in options}
    return found | {"losses": losses(options["loss"])} if "loss" in options else found


def losses(texts: Iterable[str]) -> Json:
    """NAME=WEIGHT of each loss."""
    return {name: parsed(value) for name, value in map(pair, texts)}


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE -> both."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{text!r} has no '=', expected NAME=VALUE such as soft=1 or dropout=0")
    return name, value


def parsed(text: str) -> object:
    """What a text means as json, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
