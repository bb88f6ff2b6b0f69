"""`kerasbert fill-mask | zero-shot`: answers of models that were not fine-tuned for the question."""

import argparse
import sys

from kerasbert.cli.answers import LANGUAGE
from kerasbert.cli.lines import given_texts
from kerasbert.cli.options import numbered
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import encoding_option
from kerasbert.errors import InputError


def _fill_mask(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early_checks

    texts = given_texts(options)
    early_checks.check_length(options.model, options.length)
    early_checks.check_fill_mask(options.model, texts)
    from kerasbert.tasks.tokens import fill_mask

    settings = {"top": options.top, "length": options.length, "language": options.language}
    for answer in fill_mask(options.model, texts, **settings):
        lines = [answer.text]
        for mask in answer.tokens:
            lines.append("\t".join(f"{filling.token} {filling.score:.4f}" for filling in mask))
        show(answer.to_json(), options.json, "\n".join(lines))


def _zero_shot(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early_checks

    texts = given_texts(options)
    labels = [label.strip() for label in options.labels.split(",") if label.strip()]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(
            f"--labels must be names with commas between, each once: sport,cinema. Received: {options.labels!r}"
        )
    if options.template.count("{}") != 1:
        raise InputError(f"--template must hold {{}} once, for the label. Received: {options.template!r}")
    early_checks.check_length(options.model, options.length)
    early_checks.check_zero_shot(options.model, options.entailment)
    from kerasbert.tasks.zero_shot import zero_shot

    answers = zero_shot(
        options.model,
        texts,
        labels,
        template=options.template,
        multi_label=options.multi_label,
        entailment=options.entailment,
        length=options.length,
    )
    for answer in answers:
        text = "\t".join(f"{label} {score:.4f}" for label, score in answer.scores.items())
        show(answer.to_json(), options.json, text)
    if cut := sum(answer.truncated for answer in answers):
        print(
            f"{cut} of {len(answers)} texts have more tokens than are read and were truncated (--length)",
            file=sys.stderr,
        )


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command("fill-mask", _fill_mask, "the best tokens for each [MASK] of texts, by a pretrained model")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT", help="with [MASK] or <mask> in it; from stdin without any")
    numbered(add, "--top", 1, default=5, help="tokens for a mask")
    numbered(add, "--length", 3, help="tokens of a row; a longer text is read around its masks")
    encoding_option(add)
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
    add.add_argument("--json", action="store_true")

    add = command("zero-shot", _zero_shot, "labels that no model was trained for, by a model of entailment (MNLI)")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT", help="from stdin without any")
    add.add_argument("--labels", required=True, metavar="A,B,C")
    add.add_argument("--template", default="This example is {}.", metavar="TEXT", help="with {} for the label")
    add.add_argument("--multi-label", action="store_true", help="several labels may hold: each is scored alone")
    add.add_argument("--entailment", metavar="LABEL", help="the model's label; the one that begins with entail")
    numbered(add, "--length", 3, help="tokens of a text and its hypothesis")
    encoding_option(add)
    add.add_argument("--json", action="store_true")
