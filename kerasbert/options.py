"""The command line's options; `cli` does the work. Standard library only, so that --help is immediate."""

import argparse


def add_commands(commands: argparse._SubParsersAction, shared: argparse.ArgumentParser) -> None:
    """Declare every command of `kerasbert`."""
    from kerasbert.cli import COMMANDS

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[shared])
        made.set_defaults(run=COMMANDS[name])
        return made

    add = command("quickstart", "the whole journey on text that ships with the package")
    add.add_argument("--out", default="quickstart", metavar="DIR")

    add = command("list", "names of what there is")
    add.add_argument("what", choices=["models", "objectives", "tasks", "tokenizers"])
    add.add_argument("--json", action="store_true")

    add = command("show", "a model's Spec and its parameters, counted without allocating them")
    add.add_argument("model", metavar="MODEL/SIZE")
    add.add_argument("--diff", metavar="OTHER")
    add.add_argument("--json", action="store_true")
    _set(add)

    add = command("vocab", "learn a vocabulary; the folder is a --tokenizer")
    add.add_argument("files", nargs="+", metavar="FILE")
    add.add_argument("--kind", default="wordpiece", help="wordpiece, bpe or unigram")
    add.add_argument("--size", type=int, default=30000)
    add.add_argument("--cased", action="store_true", help="keep case and accents (bpe always does)")
    _out(add)

    add = command("data", "text -> records: tokenized, packed, sharded")
    add.add_argument("files", nargs="+", metavar="FILE", help="text (blank line = document), jsonl, tsv, csv")
    add.add_argument("--tokenizer", required=True, metavar="DIR")
    add.add_argument("--length", type=int, default=128, help="tokens in an example")
    add.add_argument("--packing", default="pairs", help="pairs (BERT) or full (RoBERTa's FULL-SENTENCES)")
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--shards", type=int)
    add.add_argument("--dupe-factor", type=int, default=1, help="how often each document is packed")
    add.add_argument("--text-field", default="text")
    _out(add)

    add = command("pretrain", "train an encoder on records; the same command resumes")
    add.add_argument("model", metavar="MODEL/SIZE", help="or a model directory (continued pretraining)")
    add.add_argument("--data", required=True, metavar="DIR", help="records of `kerasbert data`")
    add.add_argument("--steps", type=int, required=True)
    add.add_argument("--init", metavar="RUN", help="start from these weights")
    add.add_argument(
        "--static-masks", type=int, metavar="N", help="N fixed sets of masks per example, not new ones each step"
    )
    _training(add, batch=256, learning_rate=1e-4, save_every=1000)

    add = command("finetune", "train a task on labelled texts; the same command resumes")
    add.add_argument("model", metavar="RUN", help="a model or run directory")
    add.add_argument("--task", required=True)
    add.add_argument("--data", metavar="PATH", help="a folder with train and dev files, or one file")
    add.add_argument("--train", metavar="FILE")
    add.add_argument("--dev", metavar="FILE")
    _columns(add)
    add.add_argument("--epochs", type=int, default=3)
    add.add_argument("--steps", type=int, help="instead of --epochs")
    add.add_argument("--length", type=int, default=128, help="longest text in tokens")
    add.add_argument("--patience", type=int, help="evaluations without improvement before it stops")
    add.add_argument("--metric", help="what the best weights are chosen by")
    _training(add, batch=32, learning_rate=5e-5, save_every=None)

    add = command("evaluate", "metrics of a fine-tuned model")
    add.add_argument("model", metavar="RUN")
    add.add_argument("--data", required=True, metavar="PATH")
    add.add_argument("--json", action="store_true")
    _columns(add)

    add = command("predict", "answers for texts, from arguments or stdin (pairs: two columns with a tab between)")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--json", action="store_true")

    add = command("encode", "vectors of texts, one json list a line")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--pooling", default="mean", help="mean, first or pooled")

    add = command("import", "a checkpoint of others -> a model directory")
    add.add_argument("path", metavar="PATH")
    add.add_argument("--from", dest="source", default="hf", help="hf or tf1")
    add.add_argument("--model", metavar="MODEL/SIZE", help="where the checkpoint has no configuration")
    add.add_argument("--tokenizer", metavar="DIR")
    add.add_argument("--ignore", action="append", default=[], metavar="PATTERN", help="tensors to drop")
    add.add_argument("--allow-pickle", action="store_true", help="read a torch pickle, which can run code")
    add.add_argument("--dry-run", action="store_true", help="print what would go where")
    _out(add, required=False)

    add = command("export-checkpoint", "a model directory -> another library's format")
    add.add_argument("model", metavar="RUN")
    add.add_argument("out", metavar="PATH")
    add.add_argument("--to", dest="target", default="hf", help="hf or tf1")

    add = command("export", "a SavedModel that takes text, for TF Serving")
    add.add_argument("model", metavar="RUN")
    add.add_argument("out", metavar="DIR", help="for TF Serving NAME/1")
    add.add_argument("--length", type=int, help="longest text in tokens")
    add.add_argument("--overwrite", action="store_true")

    add = command("report", "a run's curves and settings as a page of html")
    add.add_argument("run_directory", metavar="RUN")
    add.add_argument("--out", metavar="FILE", help="report.html in the run by default")


def _set(add: argparse.ArgumentParser) -> None:
    add.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the Spec: dropout=0")


def _out(add: argparse.ArgumentParser, required: bool = True) -> None:
    add.add_argument("--out", required=required, metavar="DIR")
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")


def _columns(add: argparse.ArgumentParser) -> None:
    for name in ("text", "text-b", "label"):
        add.add_argument(
            f"--{name}-column", metavar="NAME", help=f"column of the {name.replace('-', ' ')} in your files"
        )


def _training(add: argparse.ArgumentParser, *, batch: int, learning_rate: float, save_every: int | None) -> None:
    _out(add)
    _set(add)
    add.add_argument("--batch", type=int, default=batch, help="rows in a global batch")
    add.add_argument("--accumulate", type=int, default=1, help="micro-batches per update")
    add.add_argument("--strategy", default="cpu", help="cpu, cpu:N, gpu, gpu:N, tpu:NAME or tpu:local")
    add.add_argument("--learning-rate", type=float, default=learning_rate)
    add.add_argument("--warmup", type=int, help="updates; a tenth of all by default")
    add.add_argument("--weight-decay", type=float, default=0.01)
    add.add_argument("--clip", type=float, default=1.0, help="largest global norm of the gradient")
    add.add_argument("--precision", default="float32", help="float32, mixed_bfloat16 or mixed_float16")
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--save-every", type=int, default=save_every, help="updates between checkpoints")
    add.add_argument("--log-every", type=int, default=10)
    add.add_argument("--quiet", action="store_true")
