"""`kerasbert import | export-checkpoint | export`: models from and to other libraries and servers."""

import argparse

from kerasbert import progress, registry
from kerasbert.cli.given import check_read
from kerasbert.cli.options import label_names_of, label_names_option
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare
from kerasbert.cli.shared_options import answer_options, answer_options_of, base_option, out_options, precision_option
from kerasbert.errors import InputError
from kerasbert.table import shipped


def _import(options: argparse.Namespace) -> None:
    if not options.dry_run and not options.out:
        raise InputError("import needs --out RUN, or --dry-run to see what would go where")
    if options.base:
        _join(options)
        return
    if options.model and "/" in options.model:
        registry.check_name("model", options.model)
    from kerasbert.checkpoints import import_checkpoint

    made = import_checkpoint(
        options.path,
        options.source,
        options.model,
        options.out,
        dry_run=options.dry_run,
        overwrite=options.overwrite,
        tokenizer=options.tokenizer,
        ignore=options.ignore,
        allow_pickle=options.allow_pickle,
        pair=options.pair or None,
        revision=options.revision,
        graph=options.graph,
        special_tokens_in_texts=options.special_tokens_in_texts,
    )
    if not options.dry_run:
        _came_in(options.out)
        return
    print(made)
    if not made.fits:
        raise made.problems(options.path)


def _join(options: argparse.Namespace) -> None:
    """An adapter and the model that it adapts, as one model directory."""
    if options.dry_run:
        raise InputError("--base joins an adapter with its model, which needs --out RUN: leave --dry-run out")
    if options.graph:
        raise InputError("--graph is of a whole checkpoint: join the adapter first, then finetune --graph FILE")
    from kerasbert.checkpoints import source

    check_read(options, "overwrite")
    source.check(options.base)
    source.check_adapter(options.path)
    from kerasbert.tasks.load import load, save

    save(load(options.path, base=options.base), options.out, overwrite=options.overwrite)
    _came_in(options.out)


def _came_in(out: str) -> None:
    """The place of an imported model, and on stderr what it is."""
    from kerasbert.checkpoints import summary

    print(out)
    progress.say(*summary.about(out)["told"])


def _export_checkpoint(options: argparse.Namespace) -> None:
    from kerasbert.checkpoints import export_checkpoint

    export_checkpoint(options.model, options.out, options.target, overwrite=options.overwrite)
    print(options.out)


def _export(options: argparse.Namespace) -> None:
    from kerasbert.export.server import folders
    from kerasbert.tasks import early_checks

    if options.next and options.overwrite:
        raise InputError(
            "--next writes a version that is not there yet, and --overwrite replaces one: take one of them"
        )
    if options.next:
        folders.check_base(options.out)
    names = label_names_of(options.model, options.label_names)
    if options.task:
        early_checks.check_head(options.model, options.task)
    chosen = answer_options_of(options)
    if chosen and not (options.base or options.task):
        early_checks.task_of(options.model, chosen)
    early_checks.check_length(options.model, options.length)
    early_checks.check_precision(options.model, options.rounding)
    from kerasbert.export.model_card import NEEDS
    from kerasbert.export.saved_model import export
    from kerasbert.tasks.load import load
    from kerasbert.tasks.predict import check_task

    held = options.task or options.base or chosen or names
    model = load(options.model, task=options.task, base=options.base, labels=names) if held else options.model
    if chosen:
        check_task(model)
        model.task = model.task.answering(chosen)
    how = {"length": options.length, "overwrite": options.overwrite, "precision": options.rounding}
    print(export(model, options.out, next_version=options.next, **how))
    progress.say(f"to load it: {NEEDS}. MODEL_CARD.md there has the lines")


def _exported(options: argparse.Namespace) -> str:
    """What `export` writes: its DIR, or a folder within it."""
    return "place" if options.next else "folder"


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("import", _import, "a checkpoint of others, or what a model begins with -> a model directory")
    add.add_argument("path", metavar="PATH", help="a folder, a file, or a name on the Hugging Face hub")
    add.add_argument(
        "--from",
        dest="source",
        metavar="FORMAT",
        help=f"{', '.join(shipped()['formats'])}; default: what PATH looks like",
    )
    add.add_argument("--model", metavar="MODEL/SIZE", help="where the checkpoint has no configuration")
    add.add_argument("--base", metavar="DIR", help="of an adapter alone (ours, or PEFT's): the model that it adapts")
    add.add_argument("--tokenizer", metavar="DIR")
    add.add_argument("--graph", metavar="FILE", help="triples (.spo): a checkpoint of BERT's is read as K-BERT")
    add.add_argument("--ignore", action="append", default=[], metavar="PATTERN", help="tensors to drop")
    add.add_argument("--allow-pickle", action="store_true", help="read a torch pickle, which can run code")
    add.add_argument("--pair", action="store_true", help="its classifier reads two texts (entailment, cross-encoders)")
    text = "find special tokens such as [SEP] within texts too, as transformers does; by default they are other text"
    add.add_argument("--special-tokens-in-texts", action="store_true", help=text)
    add.add_argument("--revision", metavar="REV", help="branch, tag or commit of a name on the hub")
    add.add_argument(
        "--dry-run", action="store_true", help="print what would go where; status 2 where it would not fit"
    )
    out_options(add, required=False)

    add = command("export-checkpoint", _export_checkpoint, "a model directory -> another library's format")
    add.add_argument("model", metavar="RUN")
    writes(add.add_argument("out", metavar="PATH"), "folder")
    text = "hf, tf1 or keras_hub, peft for LoRA alone, allennlp for ELMo, model2vec for averaged vectors"
    add.add_argument("--to", dest="target", default="hf", help=text)
    add.add_argument("--overwrite", action="store_true", help="replace what PATH holds")
    _add_export(command("export", _export, "a SavedModel that takes text, for TF Serving"))


def _add_export(add: argparse.ArgumentParser) -> None:
    add.add_argument("model", metavar="RUN")
    writes(add.add_argument("out", metavar="DIR", help="for TF Serving NAME/1"), _exported)
    add.add_argument(
        "--next", action="store_true", help="DIR is NAME: write its next version, beside those that are there"
    )
    base_option(add)
    label_names_option(add)
    add.add_argument("--task", help="what a pretrained model answers without fine-tuning: fill-mask, translation")
    answer_options(add)
    add.add_argument("--length", type=int, help="longest text in tokens")
    precision_option(add, "half the file, faster on processors with AVX512-BF16 or AMX; of labels, numbers and vectors")
    add.add_argument("--overwrite", action="store_true")
