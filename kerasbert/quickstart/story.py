"""The numbers of the quickstart as a ledger of text and as a page."""

import html
from pathlib import Path

from kerasbert import report
from kerasbert.storage.json_view import Json

MODELS = {
    "author": "float, Keras",
    "saved_model": "SavedModel, takes text",
    "tflite": "int8 .tflite, without TensorFlow",
}
HEADER = ["author of a sentence", "accuracy", "MB", "ms per sentence"]


def _model_rows(numbers: Json) -> list[list[str]]:
    rows = []
    for name, label in MODELS.items():
        found = numbers["models"][name]
        rows.append([label, f"{found['accuracy']:.3f}", f"{found['megabytes']:.2f}", f"{found['milliseconds']:.2f}"])
    return rows


def _checks(numbers: Json) -> tuple[list[str], list[list[str]]]:
    """Each accuracy beside what needs no pretraining."""
    masked, models = numbers["pretraining"], numbers["models"]
    return ["on chapters it has not seen", "accuracy"], [
        ["masked tokens: pretrained", f"{masked['mlm/accuracy']:.3f}"],
        ["masked tokens: unigram baseline, always the commonest token", f"{masked['unigram/accuracy']:.3f}"],
        ["author: fine-tuned from the pretrained encoder", f"{models['author']['accuracy']:.3f}"],
        ["author: the same fine-tuning from random weights", f"{models['author-from-random']['accuracy']:.3f}"],
        ["author: majority class, always the same author", f"{numbers['majority']:.3f}"],
    ]


def ledger(folder: Path, numbers: Json) -> str:
    """What the quickstart prints at the end."""
    tflite, sentences = folder / "author.tflite", numbers["models"]["author"]["sentences"]
    return "\n".join(
        [
            "",
            report.table(*_checks(numbers)),
            "a check that this machine runs everything: the accuracy of so short a training means nothing",
            "",
            report.table(HEADER, _model_rows(numbers)),
            "",
            f"{sentences} sentences; ms: text to label, one sentence at a time on this machine's CPU, median",
            f"curves: {folder / 'report.html'}",
            f'try it: kerasbert-mobile run {tflite} "Call me Ishmael, said the captain of the whale-ship."',
        ]
    )


def smooth(curve: report.Curve, width: int) -> report.Curve:
    """Means of `width` points each: a small batch makes a ragged curve."""
    parts = [curve[i : i + width] for i in range(0, len(curve), width)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def _pretraining(folder: Path, numbers: Json) -> list[str]:
    """Curves of the pretraining beside the unigram baseline."""
    curves = {name: smooth(curve, 10) for name, curve in report.curves(folder / "pretrained").items()}
    masked = numbers["pretraining"]
    return [
        "<h2>Pretraining</h2>",
        report.plot(
            {"masked LM": curves["mlm"], "next sentence": curves["nsp"]},
            "step",
            "loss, nats",
            levels={"unigram baseline": masked["unigram"]},
        ),
        report.plot(
            {"masked tokens": curves["mlm/accuracy"], "next sentence": curves["nsp/accuracy"]},
            "step",
            "accuracy in training",
            levels={"unigram baseline": masked["unigram/accuracy"]},
        ),
    ]


def _fine_tuning(folder: Path, numbers: Json) -> list[str]:
    """Curves of the fine-tuning, and of that from random weights."""
    tuned, control = (
        {name: smooth(curve, 3) for name, curve in report.curves(folder / run).items()}
        for run in ("author", "author-from-random")
    )
    return [
        "<h2>Fine-tuning</h2>",
        report.plot(
            {"from the pretrained encoder": tuned["loss"], "from random weights": control["loss"]}, "step", "loss, nats"
        ),
        report.plot(
            {"from the pretrained encoder": tuned["label/accuracy"], "from random weights": control["label/accuracy"]},
            "step",
            "accuracy in training",
            levels={"majority class": numbers["majority"]},
        ),
    ]


def page(folder: Path, numbers: Json) -> str:
    """report.html."""
    models, sentences = numbers["models"], numbers["sentences"]
    sizes = {label: (models[name]["milliseconds"], models[name]["megabytes"]) for name, label in MODELS.items()}
    plan = [[name, str(value)] for name, value in numbers["plan"].items()]
    parts = [
        f"<p>Five novels, {sentences['train']} sentences to learn from and {sentences['test']} of other chapters to test on.</p>",
        report.html_table(*_checks(numbers)),
        report.html_table(HEADER, _model_rows(numbers)),
        "<p>A check that this machine runs everything: the accuracy of so short a training means nothing.</p>",
        *_pretraining(folder, numbers),
        *_fine_tuning(folder, numbers),
        "<h2>Size against latency</h2>",
        report.scatter(sizes, "ms per sentence", "MB"),
        "<h2>Settings</h2>",
        report.html_table(["setting", "value"], plan),
        f"<p>All of it is in {html.escape(folder.name)}/; the same command again repeats nothing.</p>",
    ]
    return report.page("From five novels to a phone", parts)
