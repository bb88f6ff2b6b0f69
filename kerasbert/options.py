"""The command line's options; `cli` does the work. Standard library only, so that --help is immediate."""

import argparse

from kerasbert.errors import InputError


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
    add.add_argument("files", nargs="*", metavar="FILE", help="text (blank line = document), jsonl, tsv, csv")
    add.add_argument(
        "--language",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "FILE"),
        help="instead of FILES, once for each language: they are then balanced by --smoothing",
    )
    add.add_argument("--smoothing", type=float, default=0.7, help="exponent on a language's share of the tokens")
    add.add_argument("--tokenizer", required=True, metavar="DIR")
    add.add_argument("--length", type=int, default=128, help="tokens in an example")
    add.add_argument(
        "--packing",
        default="pairs",
        help="pairs (BERT), order (ALBERT), place (StructBERT); sentences, full or doc (RoBERTa's SENTENCE-PAIR, "
        "FULL-SENTENCES, DOC-SENTENCES); packed (best fit); translations (XLM)",
    )
    add.add_argument("--seed", type=int, default=0)
    add.add_argument("--shards", type=int)
    add.add_argument("--dupe-factor", type=int, default=1, help="how often each document is packed")
    add.add_argument("--text-field", default="text", help="column of the text; of translations two, such as en,fr")
    add.add_argument("--language-ids", action="store_true", help="rows hold the numbers of their languages (XLM)")
    for level, what in (("words", "words or phrases"), ("entities", "named entities")):
        add.add_argument(
            f"--{level}",
            metavar="SOURCE",
            help=f"what finds {what} in the text, to be masked whole: a lexicon (one a line), MODULE:FUNCTION or a plug-in's",
        )
    add.add_argument("--runner", default="local", help="local, or beam (Apache Beam)")
    add.add_argument("--beam-options", default="", metavar="OPTIONS", help='Beam\'s own: "--runner=DataflowRunner ..."')
    _out(add)

    add = command("pretrain", "train an encoder on records; the same command resumes")
    add.add_argument("model", metavar="MODEL/SIZE", nargs="?", help="or a model directory (continued pretraining)")
    add.add_argument("--recipe", metavar="FILE", help="settings in YAML; what the command line gives goes before")
    add.add_argument("--data", metavar="DIR", default=argparse.SUPPRESS, help="records of `kerasbert data`")
    add.add_argument("--steps", type=int, default=argparse.SUPPRESS)
    add.add_argument("--init", metavar="RUN", default=argparse.SUPPRESS, help="start from these weights")
    add.add_argument(
        "--static-masks", type=int, metavar="N", help="N fixed sets of masks per example, not new ones each step"
    )
    add.add_argument("--select", metavar="NAME", help="what is masked: tokens, words, entities, ngrams or spans")
    hidden = {"default": argparse.SUPPRESS}  # so that a recipe's value holds where none is given
    add.add_argument("--evaluate-every", type=int, **hidden, help="updates between evaluations on held-out records")
    add.add_argument(
        "--held-out", metavar="DIR", **hidden, help="records for it; by default the last shard is held out"
    )
    add.add_argument("--skip-bad-steps", type=int, **hidden, metavar="N", help="leave out N updates that explode")
    add.add_argument("--profile", metavar="START:COUNT", **hidden, help="trace these updates for TensorBoard")
    add.add_argument("--peak-tflops", type=float, **hidden, help="of all devices, to tell the utilisation")
    _training(add, required=False)

    add = command("replay", "run an update that exploded again and tell where the first nan or inf appears")
    add.add_argument("dump", metavar="DUMP", help="a run's dumps/step_N")
    add.add_argument("--json", action="store_true")

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
    keep = {"action": "store_true", "default": argparse.SUPPRESS}
    add.add_argument(
        "--keep-head", **keep, help="go on with the head of a fine-tuned RUN (after pruning or trimming it)"
    )
    _training(add)

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
    add.add_argument("--from", dest="source", default="hf", help="hf, tf1 or keras_hub")
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

    add = command("check-tpu", "compile the pretraining step for a TPU that is not here, and say what it needs")
    add.add_argument("model", metavar="MODEL/SIZE")
    add.add_argument("--topology", default="v5e:2x2", metavar="CHIP:AxB", help="v4, v5e, v5p or v6e and its shape")
    add.add_argument("--batch", type=int, default=32, help="rows per replica (a chip; on v4 a core), not in all")
    add.add_argument("--length", type=int, default=128)
    add.add_argument("--precision", default="mixed_bfloat16", help="mixed_bfloat16 or float32")
    add.add_argument("--accumulate", type=int, default=1, help="micro-batches per update")
    add.add_argument("--lower-only", action="store_true", help="look for unsafe operations, do not compile")
    add.add_argument("--json", action="store_true")
    _set(add)

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


def _training(add: argparse.ArgumentParser, required: bool = True) -> None:
    """Options of a training run; one that is not given is absent, and the function's own default or a recipe's holds."""
    _out(add, required)
    _set(add)

    def option(name: str, kind: type = str, text: str | None = None) -> None:
        add.add_argument(name, type=kind, default=argparse.SUPPRESS, help=text)

    option("--batch", int, "rows in a global batch")
    option("--accumulate", int, "micro-batches per update")
    option("--strategy", text="cpu, cpu:N, gpu, gpu:N, tpu:local, tpu:NAME[@ZONE] or multiworker")
    option("--learning-rate", float, "peak of the schedule")
    option("--warmup", int, "updates; a tenth of all by default")
    option("--optimizer", text="adamw, lamb or adafactor")
    option("--schedule", text="linear, polynomial, cosine, inverse_square_root or slanted_triangular")
    option("--weight-decay", float)
    option("--clip", float, "largest global norm of the gradient")
    option("--precision", text="float32, mixed_bfloat16 or mixed_float16")
    option("--seed", int)
    option("--save-every", int, "updates between checkpoints")
    option("--log-every", int)
    add.add_argument("--quiet", action="store_true")


def read_profile(given: str) -> tuple[int, int]:
    """`START:COUNT` -> (first update from 0, number of updates)."""
    start, colon, count = given.partition(":")
    if not (colon and start.isdecimal() and count.isdecimal()):
        raise InputError(f"--profile {given!r}, expected START:COUNT such as 100:5")
    return int(start), int(count)
