"""`kerasbert-mobile compress | ledger`: a model to a .tflite, alone or by a plan; nothing heavy is imported before they run."""

import argparse
import json
from pathlib import Path
from typing import Any

from kerasbert.cli.parser import Declare
from kerasbert.errors import InputError
from kerasbert.mobile import quantize
from kerasbert.mobile.commands.distill import parsed
from kerasbert.mobile.quantize.schemes import SCHEMES

# flag -> the stage that it adds to the plan, the argument that it gives; in the order in which the stages are made
STAGES = {"trim": ("trim", "texts"), "student": ("distill", "student"), "heads": ("heads", "share")}
STAGES |= {"prune": ("prune", "sparsity")}
# what `compress` and the stage `quantize` take; one that is not given is absent
QUANTIZE = ("quantize", "target", "length", "lengths", "min_agreement", "max_drop")
QUANTIZE += ("calibration", "calibration_size", "embedding_codes")


def add(declare: Declare) -> None:
    """Declare the two commands."""
    missing: dict[str, Any] = {"default": argparse.SUPPRESS}
    part = declare("compress", _compress, "model directory -> .tflite (needs TensorFlow)")
    part.add_argument("run", nargs="?", metavar="RUN", help="directory of a fine-tuned model, or of an encoder")
    part.add_argument("--out", required=True, metavar="FILE")
    part.add_argument(
        "--quantize",
        **missing,
        metavar="|".join(("none", *list(SCHEMES.rows)[1:])),
        help="default: dynamic_int8",
    )
    part.add_argument("--task", help="what a pretrained model answers without fine-tuning: fill-mask")
    part.add_argument("--target", **missing, metavar="kerasbert|mediapipe|task_library")
    part.add_argument(
        "--length", type=int, **missing, metavar="TOKENS", help="longest text; longer texts are truncated"
    )
    part.add_argument(
        "--lengths",
        type=_lengths,
        **missing,
        metavar="8,16,32",
        help="the length buckets, or `any`: one for all, least memory",
    )
    part.add_argument("--min-agreement", type=float, **missing, metavar="SHARE", help="default: 0.985; static 0.95")
    part.add_argument("--data", metavar="PATH", help="rows of the task to compare the file and the model on")
    part.add_argument("--texts", metavar="FILE", help="the same, one text a line (a tab within a pair)")
    part.add_argument(
        "--calibration",
        **missing,
        metavar="FILE",
        help="real texts for static_int8 and --embedding-codes: one a line, or rows",
    )
    part.add_argument(
        "--calibration-size", type=int, **missing, metavar="N", help="how many of them (default: at most 200)"
    )
    part.add_argument(
        "--embedding-codes",
        type=int,
        **missing,
        metavar="BYTES",
        help="bytes per row of a large embedding table, instead of one byte per value (product quantization)",
    )
    part.add_argument(
        "--max-drop",
        type=float,
        **missing,
        metavar="POINTS",
        help="of the metric on --data; what costs most stays float",
    )
    part.add_argument("--golden", metavar="FILE", help="write texts with their ids, outputs and answers, for `verify`")
    part.add_argument("--overwrite", action="store_true", help="replace FILE")
    plan = part.add_argument_group(
        "a plan: stages before it, trained on --data (by default what RUN was fine-tuned on)"
    )
    plan.add_argument("--plan", metavar="FILE", help="the stages in YAML, instead of the flags below")
    plan.add_argument("--trim", nargs="+", metavar="FILE", **missing, help="to the vocabulary of texts, one a line")
    plan.add_argument("--student", **missing, metavar="X", help="that imitates RUN, as for `distill`")
    plan.add_argument("--heads", type=float, **missing, metavar="SHARE", help="attention heads that go")
    plan.add_argument("--prune", type=float, **missing, metavar="SHARE", help="weights that become zero")
    plan.add_argument(
        "--set", action="append", default=[], metavar="STAGE.FIELD=VALUE", help="such as distill.epochs=10; repeatable"
    )
    plan.add_argument("--strategy", help="of the stages that train: auto, cpu, cpu:2, gpu or tpu:NAME")
    plan.add_argument("--work", metavar="DIR", help="folder of the stages and of the ledger (default: FILE.plan)")

    part = declare("ledger", _ledger, "what model directories and .tflite files are worth and cost")
    part.add_argument(
        "artefacts", nargs="+", metavar="ARTEFACT", help="model directories of one task and .tflite files"
    )
    part.add_argument("--data", required=True, metavar="PATH", help="labelled rows of the task")
    part.add_argument("--task", metavar="RUN", help="a model directory of the task, where all artefacts are files")
    part.add_argument("--out", metavar="DIR", help="write ledger.json, ledger.txt and ledger.html there")


def _lengths(text: str) -> list[int] | str:
    return text if text == "any" else [int(part) for part in text.split(",")]


def _stages(options: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """The stages that the flags ask for."""
    given = vars(options)
    made = [(stage, {name: given[flag]}) for flag, (stage, name) in STAGES.items() if flag in given]
    made.append(("quantize", {name: given[name] for name in QUANTIZE if name in given}))
    named = dict(made)
    for text in options.set:
        path, equals, content = text.partition("=")
        stage, dot, field = path.partition(".")
        if not (equals and dot):
            raise InputError(f"--set {text!r}: expected STAGE.FIELD=VALUE such as distill.epochs=10")
        if stage not in named:
            raise InputError(f"--set {text!r}: the plan has no stage {stage!r}, it has {', '.join(named)}")
        named[stage][field] = parsed(content)
    return made


def _compress(options: argparse.Namespace) -> None:
    given = vars(options)
    stages = _stages(options)
    if options.plan or len(stages) > 1:
        report = _planned(options, stages)
    else:
        for name in ("strategy", "work"):
            if given[name]:
                raise InputError(f"--{name} is of a plan: give --plan or a stage such as --student")
        if options.run is None:
            raise InputError("no RUN, expected the directory of a model")
        from kerasbert.mobile.pipeline.compression import compress

        texts = Path(options.texts) if options.texts else None
        settings = {"texts": texts, "data": options.data, "overwrite": options.overwrite}
        settings |= {"task": options.task, "golden": options.golden}
        report = compress(options.run, out=options.out, **stages[-1][1], **settings)
    if options.json:
        print(json.dumps(report))
        return
    lengths = f"any length up to {max(report['lengths'])}"
    if not report["any_length"]:
        chosen = f" (chosen for {report['lengths_from']})" if report["lengths_from"] else ""
        lengths = f"lengths {', '.join(map(str, report['lengths']))}{chosen}"
    print(f"{report['out']}: {report['bytes'] / 1e6:.2f} MB, {report['quantize']}, for {report['target']}, {lengths}")
    print(
        f"against the Keras model, {report['texts']} texts ({report['texts_from']}): agreement {report['agreement']:.4f}, "
        f"mean difference {report['mean_difference']:.2g}, largest {report['max_difference']:.2g}"
    )
    from kerasbert.mobile.pipeline import comparison

    for line in comparison.remarks(report):
        print(line)
    for name, values in report.get("metrics", {}).items():
        for who, value in values.items():
            print(f"{name} of {who}: {value:.4f}")
    if "golden" in report:
        print(f"{report['golden']}: {report['golden_texts']} texts for kerasbert-mobile verify")
    quantize.show(report)
    if "ledger" in report:
        from kerasbert.mobile.pipeline import ledger

        print(ledger.show(report["ledger"]))
        print(f"stages, ledger and plots: {report['work']}")


def _planned(options: argparse.Namespace, stages: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    if options.texts:
        raise InputError("--texts does not go with a plan: its file is compared on the dev rows of --data")
    if options.golden:
        raise InputError("--golden does not go with a plan: compress its last model directory alone, with --golden")
    if options.task:
        raise InputError("--task does not go with a plan: its stages are of fine-tuned models")
    from kerasbert.mobile.pipeline.plan import Plan, read_plan, run_plan
    from kerasbert.training import interruption

    interruption.listen()
    if options.plan:
        flags = [f"--{name}" for name in (*STAGES, *QUANTIZE) if name in vars(options)]
        if flags or options.set:
            raise InputError(f"{(flags or ['--set'])[0]} does not go with --plan: write it into {options.plan}")
        plan = read_plan(options.plan, model=options.run, data=options.data, strategy=options.strategy)
    else:
        if options.run is None:
            raise InputError("a plan needs RUN, the directory of a fine-tuned model")
        plan = Plan(options.run, options.data, tuple(stages), options.strategy or "auto")
    return run_plan(plan, options.out, work=options.work, overwrite=options.overwrite, quiet=options.json)


def _ledger(options: argparse.Namespace) -> None:
    from kerasbert.mobile.pipeline import ledger

    source = options.task or next((path for path in options.artefacts if Path(path).is_dir()), None)
    if source is None:
        raise InputError("no model directory among the artefacts: give one by --task, it says how the rows are read")
    task, rows = ledger.labelled(source, options.data)
    found = [ledger.measure(path, task, rows) for path in options.artefacts]
    if options.out:
        ledger.write(found, options.out)
    print(json.dumps(found) if options.json else ledger.show(found))
