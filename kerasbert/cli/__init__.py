"""The command `kerasbert`. Errors are one line on stderr and exit status 2; a traceback comes with --debug."""

import argparse
import importlib
from collections.abc import Sequence

from kerasbert.cli.parser import Parser, check_directories, check_names, command_line, run
from kerasbert.cli.searching import of_index

EXAMPLES = {
    "quickstart": "kerasbert quickstart --out quickstart",
    "samples": "kerasbert samples",
    "docs": "kerasbert docs classify",
    "list": "kerasbert list models",
    "show": "kerasbert show bert/base --set blocks.layers=6 --json",
    "check-tpu": "kerasbert check-tpu bert/base --topology v5e:2x2 --batch 32 --length 128",
    "report": "kerasbert report runs/bert",
    "lab": "kerasbert lab sharing --out lab/sharing",
    "look": "kerasbert look runs/bert",
    "vocab": "kerasbert vocab corpus.txt --size 30000 --out vocabulary",
    "vectors": "kerasbert vectors corpus.txt --kind glove --size 100 --window 10 --out vectors",
    "nearest": "kerasbert nearest sea --vectors vectors",
    "data": "kerasbert data corpus.txt --tokenizer vocabulary --length 128 --out records",
    "pretrain": "kerasbert pretrain bert/tiny --data records --steps 1000 --batch 32 --out runs/bert",
    "replay": "kerasbert replay runs/bert/dumps/step_4711",
    "finetune": "kerasbert finetune runs/bert --task classification --data reviews --out runs/reviews",
    "evaluate": "kerasbert evaluate runs/reviews --data reviews --json",
    "predict": 'kerasbert predict runs/reviews "a gripping film"',
    "encode": 'kerasbert encode runs/bert "a gripping film" --pooling mean',
    "similarity": 'kerasbert similarity runs/sts "a cat sleeps" "a cat is asleep"',
    "static": "kerasbert static sentence-transformers/all-MiniLM-L6-v2 --out models/static",
    "index": "kerasbert index runs/sts sentences.txt --out index",
    "search": 'kerasbert search index "a sleeping cat" --top 5',
    "mine": "kerasbert mine index --data pairs.csv --margin 0.05 --out mined.jsonl",
    "fill-mask": 'kerasbert fill-mask runs/bert "the [MASK] sat"',
    "zero-shot": 'kerasbert zero-shot runs/mnli "a gripping film" --labels sport,cinema,politics',
    "import": "kerasbert import bert-base-uncased --from hf --out runs/bert-base",
    "export-checkpoint": "kerasbert export-checkpoint runs/reviews reviews-hf --to hf",
    "export": "kerasbert export runs/reviews serving/reviews/1",
    "serve": "kerasbert serve serving/reviews",
    "serve-benchmark": "kerasbert serve-benchmark http://127.0.0.1:8501 --model reviews",
    "serve-check": "kerasbert serve-check serving/reviews/1",
}

OPENS = (
    "finetune",
    "evaluate",
    "predict",
    "encode",
    "similarity",
    "static",
    "index",
    "search",
    "fill-mask",
    "zero-shot",
    "look",
    "export",
    "export-checkpoint",
)  # their MODEL is a directory

MODULES = (  # in the order of the commands that they declare
    "look lab pictures guides text vectors training answers similarity embeddings searching untrained exchange exported serving"
).split()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status, which is `cli.parser.run`'s."""
    return run(parser, arguments, _check_names)


def _check_names(options: argparse.Namespace) -> None:
    """Refuse a mistyped name at once: what the commands import takes seconds."""
    check_names(options, "task", "objective", "optimizer", "schedule", "precision", "select")
    opened = "base" if getattr(options, "base", None) else "model"  # beside --base the model is an adapter alone
    opens = options.command in OPENS and not (options.command == "search" and of_index(options))
    check_directories(options, *([opened] if opens else []), "init", "by", "rerank", "cross_encoder")
    if opens and opened == "base":
        from kerasbert.checkpoints import source

        source.check_adapter(options.model)
    asked = [getattr(options, name, None) for name in ("language", "prompt_name")]
    if opens and opened == "model" and any(asked):
        from kerasbert.tasks.early_checks import check_call

        check_call(options.model, *asked)


def parser() -> Parser:
    """The command line."""
    modules = [importlib.import_module(f"kerasbert.cli.{name}") for name in MODULES]
    return command_line("kerasbert", "The BERT family from raw text to a phone.", EXAMPLES, modules)
