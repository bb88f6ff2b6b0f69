"""`kerasbert quickstart | list | show | check-tpu | report`: what there is, and what a run or a model would be."""

import argparse
from typing import Any

from kerasbert.cli.parser import Declare, changes_of, set_option, show


def _quickstart(options: argparse.Namespace) -> None:
    from kerasbert import quickstart

    quickstart.run(options.out)


def _list(options: argparse.Namespace) -> None:
    from kerasbert import registry

    if options.what == "models":
        rows = []
        for family in registry.families().values():
            about = {name: getattr(family, name) for name in ("paper", "tokenizer", "objective")}
            for name in (f"{family.name}/{size}" for size in family.sizes):
                rows.append({"name": name, "sizes": [*family.sizes], **about, "parameters": _count(name)})
        lines = [f"{row['name']:36}{row['parameters']:>14,}  {row['paper']}" for row in rows]
    elif options.what == "tokenizers":
        from kerasbert.text.files import KINDS

        rows = [{"name": name} for name in sorted(KINDS)]
        lines = [row["name"] for row in rows]
    else:
        rows = [{"name": name} for name in sorted(getattr(registry, options.what)())]
        lines = [row["name"] for row in rows]
    show(rows, options.json, "\n".join(lines))


def _count(name: str, changes: dict[str, Any] | None = None) -> int:
    from kerasbert import models, registry

    family, spec = registry.find(name)
    return models.parameters(family.encoder, spec.derive(changes or {}))


def _show_model(options: argparse.Namespace) -> None:
    from kerasbert import registry
    from kerasbert import spec as specs

    changes = changes_of(options.set)
    spec = registry.find(options.model)[1].derive(changes)
    shown = {"name": options.model, "parameters": _count(options.model, changes), "spec": specs.to_dict(spec)}
    lines = [f"{options.model}: {shown['parameters']:,} parameters"]
    if options.diff:
        other = registry.find(options.diff)[1]
        differ = specs.differences(spec, other)
        shown["diff"] = {path: {options.model: a, options.diff: b} for path, (a, b) in differ.items()}
        lines += [f"  {path}: {a} | {b}" for path, (a, b) in differ.items()]
    else:
        lines += [f"  {path}: {specs.get(spec, path)}" for path in specs.paths(type(spec))]
    show(shown, options.json, "\n".join(lines))


def _check_tpu(options: argparse.Namespace) -> None:
    from kerasbert.tpu_check.check import check_tpu

    names = "model topology batch length precision accumulate lower_only"
    found = check_tpu(
        **{name: getattr(options, name) for name in names.split()},
        changes=changes_of(options.set),
        say=(lambda line: None) if options.json else (lambda line: print(line, flush=True)),
    )
    show(found.to_json() if options.json else None, options.json, str(found))


def _report(options: argparse.Namespace) -> None:
    from kerasbert import report

    print(report.write(options.run_directory, options.out))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("quickstart", _quickstart, "the whole journey on text that ships with the package")
    add.add_argument("--out", default="quickstart", metavar="DIR")

    add = command("list", _list, "names of what there is")
    add.add_argument("what", choices=["models", "objectives", "tasks", "tokenizers"])
    add.add_argument("--json", action="store_true")

    add = command("show", _show_model, "a model's Spec and its parameters, counted without allocating them")
    add.add_argument("model", metavar="MODEL/SIZE")
    add.add_argument("--diff", metavar="OTHER")
    add.add_argument("--json", action="store_true")
    set_option(add)

    add = command(
        "check-tpu", _check_tpu, "compile the pretraining step for a TPU that is not here, and say what it needs"
    )
    add.add_argument("model", metavar="MODEL/SIZE")
    add.add_argument("--topology", default="v5e:2x2", metavar="CHIP:AxB", help="v4, v5e, v5p or v6e and its shape")
    add.add_argument("--batch", type=int, default=32, help="rows per replica (a chip; on v4 a core), not in all")
    add.add_argument("--length", type=int, default=128)
    add.add_argument("--precision", default="mixed_bfloat16", help="mixed_bfloat16 or float32")
    add.add_argument("--accumulate", type=int, default=1, help="micro-batches per update")
    add.add_argument("--lower-only", action="store_true", help="look for unsafe operations, do not compile")
    add.add_argument("--json", action="store_true")
    set_option(add)

    add = command("report", _report, "a run's curves and settings as a page of html")
    add.add_argument("run_directory", metavar="RUN")
    add.add_argument("--out", metavar="FILE", help="report.html in the run by default")
