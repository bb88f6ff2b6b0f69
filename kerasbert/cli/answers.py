"""`kerasbert predict | encode`: texts -> answers and vectors."""

import argparse
import json
import sys

from kerasbert.cli.parser import Declare, show


def _predict(options: argparse.Namespace) -> None:
    from kerasbert.tasks.load import load
    from kerasbert.tasks.predict import predict

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin]
    model = load(options.model)
    if getattr(getattr(model, "task", None), "text_b", None):
        texts = [tuple(text.split("\t")) for text in texts]
    for answer in predict(model, texts):
        value = answer.to_json()
        show(
            value,
            options.json,
            f"{value['label']}\t{value['score']:.4f}" if "label" in value else f"{value['value']:.4f}",
        )


def _encode(options: argparse.Namespace) -> None:
    from kerasbert.tasks.predict import encode

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin]
    for vector in encode(options.model, texts, pooling=options.pooling):
        print(json.dumps([float(value) for value in vector]))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command(
        "predict", _predict, "answers for texts, from arguments or stdin (pairs: two columns with a tab between)"
    )
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--json", action="store_true")

    add = command("encode", _encode, "vectors of texts, one json list a line")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--pooling", default="mean", help="mean, first or pooled")
