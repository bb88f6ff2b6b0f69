"""The command `kerasbert`. Errors are one line on stderr and exit status 2; a traceback comes with --debug."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerasbert import __version__
from kerasbert.errors import InputError

EXTRAS = {
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tensorflow_text": "tensorflow",
    "rich": "tensorflow",
    "yaml": "tensorflow",
    "matplotlib": "tensorflow",
    "ai_edge_litert": "mobile",
    "flatbuffers": "mobile",
    "apache_beam": "beam",
    "jax": "tpu-check",
    "libtpu": "tpu-check",
}


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, as everywhere here."""

    def error(self, message: str) -> None:
        """Print one line and leave with status 2."""
        self.exit(2, f"error: {message}. See {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status.

    0; 2 for a mistake in what was given or a file system that refuses; 3 where the numbers of a run exploded; 1 for a
    fault of ours; 75 after a SIGTERM: the same command goes on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options = parser().parse_args(arguments)
    try:
        options.plugins = _plugins(options.plugin)
        return options.run(options) or 0
    except (Exception, KeyboardInterrupt) as error:
        if options.debug:
            raise
        line, status = _line(error)
        print(f"error: {line}", file=sys.stderr)
        return status


def _line(error: BaseException) -> tuple[str, int]:
    """What to print of an error, and the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted. The same command goes on from the last checkpoint", 130
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
        extra = EXTRAS[error.name.partition(".")[0]]
        return f"this command needs {error.name}, which is not installed: pip install 'kerasbert[{extra}]'", 2
    line = " ".join(str(error).split())
    # TensorFlow tells of a full disk or a missing bucket by errors of its own
    if isinstance(error, InputError):
        return line, error.status
    if isinstance(error, OSError) or type(error).__module__ == "tensorflow.python.framework.errors_impl":
        return line, 2
    return f"unexpected {type(error).__name__}: {line}. Run it again with --debug and report what it shows", 1


def _plugins(paths: Sequence[str]) -> dict[str, str] | None:
    from kerasbert import registry

    loaded = [registry.load_plugin(path) for path in paths]
    return loaded[0] if loaded else None


def _show(value: Any, as_json: bool, text: str) -> None:
    print(json.dumps(value, ensure_ascii=False) if as_json else text)


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
    _show(rows, options.json, "\n".join(lines))


def _count(name: str, changes: dict[str, Any] | None = None) -> int:
    from kerasbert import models, registry

    family, spec = registry.find(name)
    return models.parameters(family.encoder, spec.derive(changes or {}))


def _show_model(options: argparse.Namespace) -> None:
    from kerasbert import registry
    from kerasbert import spec as specs

    changes = _changes(options.set)
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
    _show(shown, options.json, "\n".join(lines))


def _vocab(options: argparse.Namespace) -> None:
    from kerasbert.errors import unknown
    from kerasbert.text.files import KINDS
    from kerasbert.text.train import train

    if options.kind not in KINDS:
        raise unknown("tokenizer kind", options.kind, KINDS, "kerasbert list tokenizers")
    out = Path(options.out)
    if out.exists() and not options.overwrite and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already. Choose another --out or pass --overwrite")
    from kerasbert import files

    text = [Path(file) for file in options.files]
    tokenizer = train(options.kind, text, options.size, lowercase=not options.cased)
    with files.new_directory(out, replace=options.overwrite) as folder:
        tokenizer.save(folder)
    print(f"{out}: {tokenizer.size} pieces")


def _data(options: argparse.Namespace) -> None:
    from kerasbert import text
    from kerasbert.data import write_records

    if bool(options.files) == bool(options.language):
        raise InputError("give FILES, or --language NAME FILE... for each language")
    files: dict[str, list[str]] = {}
    for name, *paths in options.language:
        files.setdefault(name, []).extend(paths)
    records = write_records(
        options.files or files,
        text.load_tokenizer(options.tokenizer),
        options.out,
        length=options.length,
        packing=options.packing,
        seed=options.seed,
        shards=options.shards,
        dupe_factor=options.dupe_factor,
        text_field=options.text_field,
        smoothing=options.smoothing,
        words=options.words,
        entities=options.entities,
        language_ids=options.language_ids,
        runner=options.runner,
        beam_options=options.beam_options,
        overwrite=options.overwrite,
    )
    state = "unchanged, reused" if records.reused else "written"
    counts = records.manifest["counts"]
    print(
        f"{options.out}: {records.examples:,} examples, {records.tokens:,} tokens of {counts['documents']:,} documents "
        f"({counts['duplicates']:,} exact duplicates left out), {state}"
    )
    for name, found in records.manifest.get("languages", {}).items():
        print(f"  {name}: {found['tokens']:,} tokens, each document taken {found['repeats']:.3f} times on average")


def _pretrain(options: argparse.Namespace) -> None:
    settings = _training(options) | _given(options, "data init held_out evaluate_every skip_bad_steps profile")
    if options.recipe:
        from kerasbert.training.recipe import read_recipe

        settings = read_recipe(options.recipe).pretrain | settings
    if options.model:
        settings["model"] = options.model
    missing = [name for name in ("model", "data", "steps", "out") if settings.get(name) is None]
    if missing:
        raise InputError(f"pretrain needs {', '.join(missing)}: on the command line or in a --recipe")
    from kerasbert.options import read_profile
    from kerasbert.training.pretrain import pretrain

    if options.set:
        settings["changes"] = settings.get("changes", {}) | _changes(options.set)
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
    _show(found, options.json, "\n".join(lines(found)))


def _training(options: argparse.Namespace) -> dict[str, Any]:
    # While the run is being set up there is nothing to save; the trainer listens for itself
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    names = "steps batch strategy learning_rate warmup accumulate optimizer schedule precision seed weight_decay clip"
    given = _given(options, f"{names} save_every log_every keep_head")
    return given | {name: getattr(options, name) for name in ("out", "overwrite", "quiet") if getattr(options, name)}


def _given(options: argparse.Namespace, names: str) -> dict[str, Any]:
    """The options of these names that the command line has."""
    return {name: getattr(options, name) for name in names.split() if hasattr(options, name)}


def _finetune(options: argparse.Namespace) -> None:
    settings = _training(options)
    from kerasbert.training.finetune import finetune

    if bool(options.data) == bool(options.train):
        raise InputError("give --data FOLDER, or --train FILE with --dev FILE")
    finetune(
        options.model,
        options.task,
        options.data or {"train": options.train, "dev": options.dev},
        epochs=options.epochs,
        length=options.length,
        patience=options.patience,
        metric=options.metric,
        changes=_changes(options.set),
        text_column=options.text_column,
        text_b_column=options.text_b_column,
        label_column=options.label_column,
        **settings,
    )
    print(options.out)


def _evaluate(options: argparse.Namespace) -> None:
    from kerasbert.tasks.load import load
    from kerasbert.training.finetune import evaluate, with_columns

    columns = {"text": options.text_column, "text_b": options.text_b_column, "label": options.label_column}
    model = load(options.model)
    found = evaluate(with_columns(model, **columns) if any(columns.values()) else model, options.data)
    lines = [
        f"{found['task']}, {found['examples']} examples",
        *(f"  {k}: {v:.4f}" for k, v in found["metrics"].items()),
    ]
    _show(found, options.json, "\n".join(lines))


def _predict(options: argparse.Namespace) -> None:
    from kerasbert.tasks.load import load
    from kerasbert.tasks.predict import predict

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin]
    model = load(options.model)
    if getattr(getattr(model, "task", None), "text_b", None):
        texts = [tuple(text.split("\t")) for text in texts]
    for answer in predict(model, texts):
        value = answer.to_json()
        _show(
            value,
            options.json,
            f"{value['label']}\t{value['score']:.4f}" if "label" in value else f"{value['value']:.4f}",
        )


def _encode(options: argparse.Namespace) -> None:
    from kerasbert.tasks.predict import encode

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin]
    for vector in encode(options.model, texts, pooling=options.pooling):
        print(json.dumps([float(value) for value in vector]))


def _import(options: argparse.Namespace) -> None:
    from kerasbert.checkpoints import import_checkpoint

    if not options.dry_run and not options.out:
        raise InputError("import needs --out RUN, or --dry-run to see what would go where")
    made = import_checkpoint(
        options.path,
        options.source,
        options.model,
        options.out,
        tokenizer=options.tokenizer,
        ignore=options.ignore,
        allow_pickle=options.allow_pickle,
        dry_run=options.dry_run,
        overwrite=options.overwrite,
    )
    print(made if options.dry_run else options.out)


def _export_checkpoint(options: argparse.Namespace) -> None:
    from kerasbert.checkpoints import export_checkpoint

    export_checkpoint(options.model, options.out, options.target)
    print(options.out)


def _export(options: argparse.Namespace) -> None:
    from kerasbert.export.saved_model import export

    print(export(options.model, options.out, length=options.length, overwrite=options.overwrite))


def _check_tpu(options: argparse.Namespace) -> None:
    from kerasbert.tpu_check.check import check_tpu

    names = "model topology batch length precision accumulate lower_only"
    found = check_tpu(
        **{name: getattr(options, name) for name in names.split()},
        changes=_changes(options.set),
        say=(lambda line: None) if options.json else (lambda line: print(line, flush=True)),
    )
    _show(found.to_json() if options.json else None, options.json, str(found))


def _report(options: argparse.Namespace) -> None:
    from kerasbert import report

    print(report.write(options.run_directory, options.out))


def _changes(pairs: Sequence[str]) -> dict[str, Any]:
    """`a.b=1` -> {"a.b": 1}; values are json, else text."""
    found = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair!r} has no '=', expected FIELD=VALUE such as dropout=0")
        try:
            found[path] = json.loads(value)
        except ValueError:
            found[path] = {"none": None, "None": None, "True": True, "False": False}.get(value, value)
    return found


def parser() -> Parser:
    """The command line."""
    from kerasbert.options import add_commands

    top = Parser(prog="kerasbert", description="The BERT family from raw text to a phone.")
    top.add_argument("--version", action="version", version=__version__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show a traceback on errors")
    shared.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a file that registers more")
    add_commands(top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser), shared)
    return top


COMMANDS = {
    "quickstart": _quickstart,
    "list": _list,
    "show": _show_model,
    "vocab": _vocab,
    "data": _data,
    "pretrain": _pretrain,
    "replay": _replay,
    "finetune": _finetune,
    "evaluate": _evaluate,
    "predict": _predict,
    "encode": _encode,
    "import": _import,
    "export-checkpoint": _export_checkpoint,
    "export": _export,
    "check-tpu": _check_tpu,
    "report": _report,
}

if __name__ == "__main__":
    sys.exit(main())
