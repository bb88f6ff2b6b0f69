"""`kerasbert-mobile prune | trim`; nothing heavy is imported before a command runs."""

import argparse
import json

from kerasbert.cli.given import Fields, check_read
from kerasbert.cli.options import Keywords, add_options, flags, given, numbered
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.training import interruption
from kerasbert.training.config import LabelledConfig
from .distill import TAUGHT, add_teacher, taught

TRAINING = tuple(name for name, _, _ in flags(LabelledConfig) if name not in ("out", "overwrite", "length", "schedule"))
KINDS = {  # --schedule is the pruning's
    "sparsity": " ".join(("sparsity structure scope schedule begin end frequency pattern", *TRAINING, *TAUGHT)),
    "heads": "rounds rows",
    "width": "rounds rows",
    "layers": "",
}


def add(declare: Declare) -> None:
    """Declare the two commands."""
    missing: Keywords = {"default": argparse.SUPPRESS}
    part = declare("prune", _prune, "take weights, heads, neurons or layers out of a model")
    part.add_argument("run", metavar="RUN", help="directory of a fine-tuned model")
    writes(part.add_argument("--out", required=True, metavar="DIR"), _made)
    part.add_argument("--data", metavar="PATH", help="labelled rows of the task, as for `kerasbert finetune`")
    numbered(part, "--length", 3, **missing, help="longest text in tokens")
    part.add_argument("--overwrite", action="store_true", help="replace DIR")
    zero = part.add_argument_group("zeros, while it is fine-tuned further (a smaller download, no faster)")
    zero.add_argument("--sparsity", type=float, **missing, metavar="SHARE", help="of the kernels' weights, in [0, 1)")
    zero.add_argument("--structure", **missing, metavar="none|4x1|2:4", help="2:4 needs no --sparsity")
    zero.add_argument("--scope", **missing, metavar="layer|global")
    zero.add_argument("--schedule", **missing, metavar="polynomial|constant")
    zero.add_argument(
        "--pattern", action="append", **missing, metavar="REGEX", help="names of the kernels; may be repeated"
    )
    for name, least in (("begin", 0), ("end", 0), ("frequency", 1)):
        numbered(zero, f"--{name}", least, **missing, metavar="UPDATES")
    add_options(zero, LabelledConfig, required=False)
    add_teacher(zero)
    less = part.add_argument_group("less of it (faster; `kerasbert finetune --keep-head` repairs it)")
    less.add_argument("--heads", type=float, **missing, metavar="SHARE", help="of the attention heads, by importance")
    less.add_argument(
        "--width", type=float, **missing, metavar="SHARE", help="of the feed-forward neurons, by importance"
    )
    numbered(less, "--rounds", 1, **missing, metavar="N", help="measure the importance N times")
    numbered(less, "--rows", 1, **missing, metavar="N", help="labelled texts that it is measured on")
    less.add_argument("--layers", type=_numbers, **missing, metavar="0,2,4", help="the layers that stay")

    part = declare("trim", _trim, "keep the pieces of the vocabulary that a corpus uses")
    part.add_argument("run", metavar="RUN", help="a model directory")
    writes(part.add_argument("--out", required=True, metavar="DIR"), "folder")
    part.add_argument("--texts", nargs="+", metavar="FILE", help="the corpus: a text a line, or tables of the task")
    part.add_argument("--data", metavar="PATH", help="the corpus, rows of the model's task")
    numbered(part, "--size", 1, metavar="PIECES", help="at most so many, the most frequent")
    part.add_argument("--overwrite", action="store_true", help="replace DIR")


def _made(options: argparse.Namespace) -> str:
    """What `prune` writes: a run, or a model directory alone."""
    return "folder" if {"heads", "width", "layers"} & vars(options).keys() else "run"


def _numbers(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if min(found) < 0:
        raise ValueError(text)
    return found


def _prune(options: argparse.Namespace) -> None:
    kind = _kind(options)
    settings = _settings(options, kind)
    from .. import prune
    from . import early

    if kind == "sparsity":
        early.check_magnitude(options.run, options.data, settings)
    elif kind == "layers":
        early.check_layers(options.run, options.layers)
    else:
        early.check_share(kind, Fields(options)[kind], options.run, options.data, settings.get("length"))
    common = {"out": options.out, "overwrite": options.overwrite}
    check_read(options, kind, *(() if kind == "layers" else ("data",)))
    if kind == "sparsity":
        interruption.listen()
        prune.magnitude(options.run, options.data, **common, **settings)
        chosen = {"patterns": settings["patterns"]} if "patterns" in settings else {}
        report = {"out": options.out} | prune.sparsity_of(options.out, **chosen)
    elif kind == "layers":
        report = prune.layers(options.run, keep=options.layers, **common)
    else:
        share = Fields(options)[kind]
        report = getattr(prune, kind)(options.run, options.data, share=share, **common, **settings)
    print(json.dumps(report) if options.json else _told(kind, report))


def _kind(options: argparse.Namespace) -> str:
    """What is taken out, by the option that says how much.

    Raises:
        InputError: none of them or several, or an option of another.
    """
    found = Fields(options)
    kinds = [kind for kind in KINDS if kind in found or (kind == "sparsity" and found.get("structure") == "2:4")]
    if len(kinds) != 1:
        raise InputError(
            f"{len(kinds)} of --sparsity (or --structure 2:4), --heads, --width, --layers given, expected one"
        )
    (kind,) = kinds
    every = {name for names in KINDS.values() for name in names.split()}
    if wrong := sorted(name for name in every - set(KINDS[kind].split()) if name in found):
        raise InputError(f"--{wrong[0].replace('_', '-')} does not go with --{kind}: leave it out")
    if kind != "layers" and not options.data:
        raise InputError(f"--{kind} needs --data: labelled rows of the task")
    return kind


def _settings(options: argparse.Namespace, kind: str) -> Json:
    """The arguments of the function of that kind, but model, data, out and share."""
    found, allowed = Fields(options), (*KINDS[kind].split(), "length")
    settings = {name: found[name] for name in allowed if name in found and name not in TAUGHT}
    settings |= {name: value for name, value in given(options, LabelledConfig).items() if name in TRAINING}
    settings |= taught(found)
    if kind == "sparsity":
        settings |= {"patterns": settings.pop("pattern")} if "pattern" in settings else {}
        settings["quiet"] = options.json or settings.get("quiet", False)
    return settings


def _told(kind: str, report: JsonMap) -> str:
    """What was taken out, in two lines."""
    if kind == "sparsity":
        return (
            f"{report['out']}: {report['sparsity']:.1%} of {len(report['kernels'])} kernels is zero\n"
            f"{report['nonzero']:,} of {report['parameters']:,} parameters are not zero"
        )
    before, after = report["parameters"]
    return (
        f"{report['out']}: {before:,} -> {after:,} parameters\nheads {report['heads']}, feed-forward {report['width']}"
    )


def _trim(options: argparse.Namespace) -> None:
    from . import early

    check_read(options, "texts", "data", "out", "size", "overwrite")
    early.check_trim(options.run, options.texts, options.data)
    from .. import trim
    from ..vocabulary.trimming import texts_of

    texts = options.texts and texts_of(options.run, options.texts)
    report = trim(
        options.run, texts, data=options.data, out=options.out, size=options.size, overwrite=options.overwrite
    )
    if options.json:
        print(json.dumps(report))
        return
    print(f"{report['out']}: {report['texts']} texts, {report['words']} words")
    for name, form in (
        ("vocabulary", ",d"),
        ("parameters", ",d"),
        ("unknown", ".2%"),
        ("split", ".2%"),
        ("tokens", ".2f"),
    ):
        before, after = report[name]
        what = {"unknown": "unknown words", "split": "split words", "tokens": "tokens a text"}.get(name, name)
        print(f"{what:14} {before:{form}} -> {after:{form}}")
