"""`kerasbert quickstart | list | show | check-tpu | report`: what there is, and what a run or a model would be."""

import argparse
import os

from kerasbert.cli.changes import changes_of, objective_of
from kerasbert.cli.given import check_read
from kerasbert.cli.options import numbered
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option, set_option
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

REPORT = "a run as one page of html to send: metrics, wrong answers, curves, machine, command"


def _quickstart(options: argparse.Namespace) -> None:
    from kerasbert import quickstart

    quickstart.run(options.out)


def _list(options: argparse.Namespace) -> None:
    from kerasbert import registry

    shipped = registry.shipped()
    if options.what == "models":
        rows = [dict(row) for row in shipped["models"] + _plugged_models()]
        sizes: dict[str, list[str]] = {}
        for row in rows:
            family, _, size = row["name"].partition("/")
            row["sizes"] = sizes.setdefault(family, [])
            row["sizes"].append(size)
        rows = [{name: value for name, value in row.items() if name != "spec"} for row in rows]
        lines = [f"{row['name']:36}{row['parameters']:>14,}  {row['paper']}" for row in rows]
    elif options.what == "tokenizers":
        rows = [{"name": name} for name in sorted(registry.TOKENIZERS)]
        lines = [row["name"] for row in rows]
    else:
        brought = getattr(registry, options.what)() if registry.plugged() else ()
        rows = [{"name": name} for name in sorted({*shipped[options.what], *brought})]
        lines = [row["name"] for row in rows]
    show(rows, options.json, "\n".join(lines))


def _plugged_models() -> list[Json]:
    """Rows, as the index has them, of what a plug-in registered."""
    from kerasbert import registry

    known = {row["name"] for row in registry.shipped()["models"]}
    names = [name for name in registry.list_models() if name not in known] if registry.plugged() else []
    return [_model(name, {}) for name in names]


def _model(name: str, changes: Json) -> Json:
    """A row as the index has it; from the index itself for a model that ships and is not changed, `told` of a directory."""
    from kerasbert import registry
    from kerasbert import spec as specs

    if os.path.isdir(name):
        from kerasbert.checkpoints import source, summary

        source.check(name)
        if changes:
            raise InputError(f"{name} has weights of its own: --set is of a model by its name, such as bert/base")
        return summary.about(name)
    row = registry.shipped_model(name)
    if row and not changes:
        return row
    if row:
        specs.check_changes(row["spec"], changes)
    from kerasbert import models

    family, spec = registry.find(name)
    spec = specs.derive(spec, changes)
    about = {"name": name} | {field: getattr(family, field) for field in ("kind", "paper", "tokenizer", "objective")}
    return about | {"parameters": models.parameters(family.encoder, spec), "spec": specs.to_dict(spec)}


def _show_model(options: argparse.Namespace) -> None:
    from kerasbert import spec as specs
    from kerasbert.family import KINDS

    model = _model(options.model, changes_of(options.set))
    shown = {"name": options.model, "kind": model["kind"], "parameters": model["parameters"], "spec": model["spec"]}
    of = "" if model["kind"] == "encoder" else f", {KINDS[model['kind']]}"
    lines = model.get("told") or [f"{options.model}: {shown['parameters']:,} parameters{of}"]
    fields = specs.leaves(shown["spec"])
    if options.diff:
        others = specs.leaves(_model(options.diff, {})["spec"])
        pairs = {path: (fields.get(path), others.get(path)) for path in {**fields, **others}}
        differ = {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}
        shown["diff"] = {path: {options.model: a, options.diff: b} for path, (a, b) in differ.items()}
        lines += [f"  {path}: {a} | {b}" for path, (a, b) in differ.items()]
    else:
        lines += [f"  {path}: {value}" for path, value in fields.items()]
    show(shown, options.json, "\n".join(lines))


def _check_tpu(options: argparse.Namespace) -> None:
    from kerasbert import registry

    registry.check_name("model", options.model)
    from kerasbert.tpu_check import chips

    chips.topology(options.topology)
    changes, objective = objective_of(options)
    if row := registry.shipped_model(options.model):
        from kerasbert import spec as specs

        specs.check_changes(row["spec"], changes)
    from kerasbert.tpu_check.check import check_tpu

    names = "model topology batch length precision accumulate lower_only"
    settings = {name: getattr(options, name) for name in names.split()}
    check_read(options)
    found = check_tpu(
        **settings,
        changes=changes,
        objective=objective,
        say=(lambda line: None) if options.json else (lambda line: print(line, flush=True)),
    )
    show(found.to_json() if options.json else None, options.json, str(found))


def _report(options: argparse.Namespace) -> None:
    from kerasbert import run_report

    if os.path.isfile(options.run_directory):
        raise InputError(f"{options.run_directory} is a file, expected the directory of a run: finetune's --out")
    print(run_report.write(options.run_directory, options.out, ledger=options.ledger))
    if options.card:
        from kerasbert.export import model_card

        print(model_card.write(options.run_directory))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("quickstart", _quickstart, "the whole journey on text that ships with the package")
    writes(add.add_argument("--out", default="quickstart", metavar="DIR"), "quickstart")

    add = command("list", _list, "list models, tasks, objectives or tokenizers")
    add.add_argument("what", choices=["models", "objectives", "tasks", "tokenizers"])
    add.add_argument("--json", action="store_true")

    add = command("show", _show_model, "a model's Spec and its parameters, by its name or of a directory")
    add.add_argument("model", metavar="MODEL/SIZE", help="or a model directory")
    add.add_argument("--diff", metavar="OTHER", help="a name or a directory too: the fields that differ")
    add.add_argument("--json", action="store_true")
    set_option(add)

    add = command(
        "check-tpu", _check_tpu, "compile the pretraining step for a TPU that is not here, and say what it needs"
    )
    add.add_argument("model", metavar="MODEL/SIZE")
    add.add_argument("--topology", default="v5e:2x2", metavar="CHIP:AxB", help="v4, v5e, v5p or v6e and its shape")
    numbered(add, "--batch", 1, default=32, help="rows per replica (a chip; on v4 a core), not in all")
    numbered(add, "--length", 3, default=128)
    add.add_argument("--precision", default="mixed_bfloat16", help="mixed_bfloat16 or float32")
    numbered(add, "--accumulate", 1, default=1, help="micro-batches per update")
    add.set_defaults(extra="tpu-check")  # it brings TensorFlow too: one round instead of two
    add.add_argument("--lower-only", action="store_true", help="look for unsafe operations, do not compile")
    text = "another than the model's own: kerasbert list objectives; its settings: --set objective.FIELD=VALUE"
    add.add_argument("--objective", metavar="NAME", help=text)
    add.add_argument("--json", action="store_true")
    set_option(add)

    _report_options(command("report", _report, REPORT))


def _report_options(add: argparse.ArgumentParser) -> None:
    """Which run, and what is written of it."""
    add.add_argument("run_directory", metavar="RUN")
    text = "report.html in the run by default; an earlier page is replaced, nothing else"
    writes(add.add_argument("--out", metavar="FILE", help=text), "report")
    add.add_argument(
        "--card", action="store_true", help="also write MODEL_CARD.md into RUN, in the Hugging Face hub's form"
    )
    text = "ledger.json of a compression, or the folder that holds it; by default the run's own"
    add.add_argument("--ledger", metavar="PATH", help=text)
    encoding_option(add)
