"""The command `kerasbert`. Errors are one line on stderr and exit status 2; a traceback comes with --debug."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kerasbert import __version__, registry
from kerasbert.cli.parser import Parser, decoding, failure

EXAMPLES = {
    "quickstart": "kerasbert quickstart --out quickstart",
    "list": "kerasbert list models",
    "show": "kerasbert show bert/base --set blocks.layers=6 --json",
    "check-tpu": "kerasbert check-tpu bert/base --topology v5e:2x2 --batch 32 --length 128",
    "report": "kerasbert report runs/bert",
    "vocab": "kerasbert vocab corpus.txt --size 30000 --out vocabulary",
    "data": "kerasbert data corpus.txt --tokenizer vocabulary --length 128 --out records",
    "pretrain": "kerasbert pretrain bert/tiny --data records --steps 1000 --batch 32 --out runs/bert",
    "replay": "kerasbert replay runs/bert/dumps/step_4711",
    "finetune": "kerasbert finetune runs/bert --task classification --data reviews --out runs/reviews",
    "evaluate": "kerasbert evaluate runs/reviews --data reviews --json",
    "predict": 'kerasbert predict runs/reviews "a gripping film"',
    "encode": 'kerasbert encode runs/bert "a gripping film" --pooling mean',
    "import": "kerasbert import bert-base-uncased --from hf --out runs/bert-base",
    "export-checkpoint": "kerasbert export-checkpoint runs/reviews reviews-hf --to hf",
    "export": "kerasbert export runs/reviews serving/reviews/1",
}

OPENS = ("finetune", "evaluate", "predict", "encode", "export", "export-checkpoint")  # their MODEL is a directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status.

    0; 2 for a mistake in what was given or a file system that refuses; 3 where the numbers of a run exploded; 1 for a
    fault of ours; 75 after a SIGTERM: the same command goes on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options = parser().parse_args(arguments)
    try:
        with decoding(options):
            options.plugins = _plugins(options.plugin)
            _check_names(options)
            return options.run(options) or 0
    except (Exception, KeyboardInterrupt) as error:
        if options.debug:
            raise
        line, status = failure(error, getattr(options, "extra", None))
        print(f"error: {line}", file=sys.stderr)
        return status


def _plugins(paths: Sequence[str]) -> dict[str, str] | None:
    loaded = [registry.load_plugin(path) for path in paths]
    return loaded[0] if loaded else None


def _check_names(options: argparse.Namespace) -> None:
    """Refuse a mistyped name at once: what the commands import takes seconds."""
    for kind in ("task", "optimizer", "schedule", "precision", "select"):
        if isinstance(name := getattr(options, kind, None), str):
            registry.check_name(kind, name)
    opened = [options.model] if options.command in OPENS else []
    for model in [*opened, getattr(options, "init", None)]:
        if model is not None:
            from kerasbert.checkpoints import source

            source.check(model)


def parser() -> Parser:
    """The command line."""
    from kerasbert.cli import answers, exchange, look, text, training

    top = Parser(prog="kerasbert", description="The BERT family from raw text to a phone.")
    top.add_argument("--version", action="version", version=__version__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show a traceback on errors")
    shared.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a file that registers more")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, run: Callable[[argparse.Namespace], Any], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text, parents=[shared], epilog=f"example:\n  {EXAMPLES[name]}"
        )
        made.set_defaults(run=run, command=name)
        made.defaults = registry.shipped()["defaults"].get(name, {})
        return made

    for part in (look, text, training, answers, exchange):
        part.add(command)
    return top
