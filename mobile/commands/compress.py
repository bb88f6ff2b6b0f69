"""`kerasbert-mobile compress | ledger`: a model to a .tflite, alone or by a plan; nothing heavy is imported before they run."""

import argparse
import json
from pathlib import Path

from kerasbert.cli.given import Fields, check_read
from kerasbert.cli.options import Keywords, add_options, flags, given, label_names_of, label_names_option
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.errors import InputError
from kerasbert.options import options as fields
from kerasbert.storage.json_view import Json
from .. import quantize
from ..options import CompressConfig
from ..quantize.schemes import SCHEMES
from .distill import parsed

# flag -> the stage that it adds to the plan, the argument that it gives; in the order in which the stages are made
STAGES = {"trim": ("trim", "texts"), "student": ("distill", "student"), "heads": ("heads", "share")}
STAGES |= {"prune": ("prune", "sparsity")}
# what `compress` and the stage `quantize` take; one that is not given is absent
QUANTIZE = ("quantize", *(name for name, _, field in flags(CompressConfig) if field.metadata["recipe"]))
MISSING: Keywords = {"default": argparse.SUPPRESS}


def add(declare: Declare) -> None:
    """Declare the two commands."""
    part = declare("compress", _compress, "model directory -> .tflite (needs TensorFlow)")
    part.add_argument("run", nargs="?", metavar="RUN", help="directory of a fine-tuned model, or of an encoder")
    writes(
        part.add_argument("--out", required=True, metavar="FILE"),
        lambda given: "beside" if _planned_by(given) else "tflite",
    )
    part.add_argument(
        "--quantize",
        **MISSING,
        metavar="|".join(("none", *list(SCHEMES.rows)[1:])),
        help="default: dynamic_int8",
    )
    add_options(part, CompressConfig)
    label_names_option(part)
    golden = fields(CompressConfig)["golden"].metadata["help"]
    writes(part.add_argument("--golden", metavar="FILE", help=golden), "golden")
    _add_plan(part)
    _add_ledger(declare)


def _add_plan(part: argparse.ArgumentParser) -> None:
    """The options of the stages before the file."""
    plan = part.add_argument_group(
        "a plan: stages before it, trained on --data (by default what RUN was fine-tuned on)"
    )
    plan.add_argument("--plan", metavar="FILE", help="the stages in YAML, instead of the flags below")
    plan.add_argument("--trim", nargs="+", metavar="FILE", **MISSING, help="to the vocabulary of texts, one a line")
    plan.add_argument("--student", **MISSING, metavar="X", help="that imitates RUN, as for `distill`")
    plan.add_argument("--heads", type=float, **MISSING, metavar="SHARE", help="attention heads that go")
    plan.add_argument("--prune", type=float, **MISSING, metavar="SHARE", help="weights that become zero")
    plan.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.FIELD=VALUE",
        help="such as distill.epochs=10; of the task of the file task.beams=4; repeatable",
    )
    plan.add_argument("--strategy", help="of the stages that train: auto, cpu, cpu:2, gpu or tpu:NAME")
    text = "folder of the stages and of the ledger (default: FILE.plan)"
    writes(plan.add_argument("--work", metavar="DIR", help=text), "plan")


def _add_ledger(declare: Declare) -> None:
    """Declare the command `ledger`."""
    part = declare("ledger", _ledger, "what model directories and .tflite files are worth and cost")
    part.add_argument(
        "artefacts", nargs="+", metavar="ARTEFACT", help="model directories of one task and .tflite files"
    )
    part.add_argument("--data", required=True, metavar="PATH", help="labelled rows of the task")
    part.add_argument("--task", metavar="RUN", help="a model directory of the task, where all artefacts are files")
    text = "make a folder with ledger.json, ledger.txt and ledger.html"
    writes(part.add_argument("--out", metavar="DIR", help=text), "folder")
    part.add_argument("--overwrite", action="store_true", help="replace DIR")


def _planned_by(options: argparse.Namespace) -> bool:
    """Whether there are stages before the file."""
    return bool(options.plan) or any(flag in vars(options) for flag in STAGES)


def _stages(options: argparse.Namespace) -> list[tuple[str, Json]]:
    """The stages that the flags ask for."""
    found = Fields(options)
    made = [(stage, {name: found[flag]}) for flag, (stage, name) in STAGES.items() if flag in found]
    made.append(("quantize", {name: found[name] for name in QUANTIZE if name in found}))
    named = dict(made)
    for text in options.set:
        path, equals, content = text.partition("=")
        stage, dot, field = path.partition(".")
        if not (equals and dot):
            raise InputError(f"--set {text!r}: expected STAGE.FIELD=VALUE such as distill.epochs=10")
        if stage == "task":  # as of `kerasbert predict` and `export`
            named["quantize"].setdefault("options", {})[field] = parsed(content)
            continue
        if stage not in named:
            raise InputError(f"--set {text!r}: the plan has no stage {stage!r}, it has {', '.join(named)}")
        named[stage][field] = parsed(content)
    return made


def _compress(options: argparse.Namespace) -> None:
    if not options.out.lower().endswith(".tflite"):
        raise InputError(f"--out {options.out}: expected a name ending in .tflite, which is what is written")
    stages = _stages(options)
    report = _planned(options, stages) if _planned_by(options) else _alone(options, stages[-1][1])
    from .. import launch_times

    report["memory_of_all_lengths_mb"] = launch_times.memory(
        Path(report["out"]), {"threads": 1, "plugin": options.plugin}, plain=False
    )
    if options.json:
        print(json.dumps(report))
    else:
        _show(report)


def _alone(options: argparse.Namespace, quantized: Json) -> Json:
    """A model directory compressed without stages before it.

    Args:
        quantized: what the stage `quantize` of a plan would be given.
    """
    found = Fields(options)
    for name in ("strategy", "work"):
        if found[name]:
            raise InputError(f"--{name} is of a plan: give --plan or a stage such as --student")
    if options.run is None:
        raise InputError("no RUN, expected the directory of a model")
    settings = given(options, CompressConfig) | {"golden": options.golden}
    settings |= {"texts": Path(settings["texts"])} if settings.get("texts") else {}
    names = label_names_of(options.run, options.label_names)
    check_read(options, "out")
    from . import early

    early.check_compress(options.run, {"quantize": "dynamic_int8"} | settings | quantized)
    from ..pipeline.compression import compress

    run = options.run
    if names:
        from kerasbert.tasks.load import load

        run = load(run, labels=names)
    return compress(run, out=options.out, **settings | quantized)


def _show(report: Json) -> None:
    """Print what was made and what it is worth."""
    lengths = f"any length up to {max(report['lengths'])}"
    if not report["any_length"]:
        chosen = f" (chosen for {report['lengths_from']})" if report["lengths_from"] else ""
        lengths = f"lengths {', '.join(map(str, report['lengths']))}{chosen}"
    print(f"{report['out']}: {report['bytes'] / 1e6:.2f} MB, {report['quantize']}, for {report['target']}, {lengths}")
    for name, most in report["memory_of_all_lengths_mb"].items():
        print(f"memory after every length was used: {most:.0f} MB ({name}; its process included)")
    if report.get("task", "") is None:
        print("it gives vectors: the model has no task. kerasbert finetune trains one; --task fill-mask is for [MASK]")
    from ..judging import comparison, verdict

    for line in (*verdict.told(report), *comparison.remarks(report)):
        print(line)
    for name, values in report.get("metrics", {}).items():
        for who, value in values.items():
            print(f"{name} of {who}: {value:.4f}")
    if "golden" in report:
        print(f"{report['golden']}: {report['golden_texts']} texts for kerasbert-mobile verify")
    quantize.show(report)
    if "ledger" in report:
        from ..pipeline import ledger

        print(ledger.show(report["ledger"]))
        print(f"stages, ledger and plots: {report['work']}")


def _planned(options: argparse.Namespace, stages: list[tuple[str, Json]]) -> Json:
    found = Fields(options)
    if found.get("texts"):
        raise InputError("--texts does not go with a plan: its file is compared on the dev rows of --data")
    if options.golden:
        raise InputError("--golden does not go with a plan: compress its last model directory alone, with --golden")
    if found.get("task"):
        raise InputError("--task does not go with a plan: its stages are of fine-tuned models")
    data = found.get("data")
    from kerasbert.training import interruption
    from . import early

    early.check_stages(options.run, data, stages, options.strategy)
    if options.plan:
        beside = [f"--{name}" for name in (*STAGES, *QUANTIZE) if name in found]
        if beside or options.set:
            raise InputError(f"{(beside or ['--set'])[0]} does not go with --plan: write it into {options.plan}")
        early.check_plan(options.plan)
    elif options.run is None:
        raise InputError("a plan needs RUN, the directory of a fine-tuned model")
    from ..pipeline.plan import Plan, read_plan, run_plan

    interruption.listen()
    if options.plan:
        plan = read_plan(options.plan, model=options.run, data=data, strategy=options.strategy)
    else:
        plan = Plan(options.run, data, tuple(stages), options.strategy or "auto")
    check_read(options, "work", "overwrite")
    return run_plan(plan, options.out, work=options.work, overwrite=found.get("overwrite", False), quiet=options.json)


def _ledger(options: argparse.Namespace) -> None:
    from kerasbert.storage import files
    from . import early

    early.check_ledger(options.artefacts, options.task, options.data)
    from ..pipeline import ledger

    source = options.task or next(path for path in options.artefacts if Path(path).is_dir())
    task, rows = ledger.labelled(source, options.data)
    found = [ledger.measure(path, task, rows) for path in options.artefacts]
    print(json.dumps(found) if options.json else ledger.show(found), flush=True)  # whatever becomes of the files
    if options.out:
        with files.new_directory(options.out, options.overwrite) as folder:
            ledger.write(found, folder)
