"""The stages of the quickstart. Each leaves its result in a folder of its own and is skipped when that is there."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import keras

import kerasbert
from kerasbert import data, text
from kerasbert.errors import InputError
from kerasbert.quickstart import books, measure, story
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json
from kerasbert.text.base import Tokenizer
from kerasbert.text.train import train_wordpiece

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


MARKER = "quickstart.json"
FORMAT = 1
Sentences = tuple[list[str], list[str]]  # and the author of each


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes and settings of the journey, chosen to end within five minutes on two cores.

    Args:
        vocabulary: int, most pieces of the WordPiece vocabulary.
        length: int, tokens of an example and of a sentence.
        layers: int.
        hidden: int H.
        heads: int N.
        width: int F.
        initializer: float; the paper's 0.02 at H = 768 gives queries about the scale that this gives at H = 128.
        dropout: float; none, for no example is seen twice alike.
        dupe_factor: int, how often each chapter is packed, each time with other pairs: from a handful of fixed pairs
            next sentence is learned by heart.
        masking: float, share of tokens that is predicted. Twice the paper's 15%: so few steps need more predictions.
        steps: int.
        batch: int, sequences.
        learning_rate: float. All of pretraining.
        epochs: int. One: there two minutes of pretraining show; with three, random weights had caught up (README.md here).
        task_batch: int, sentences.
        task_learning_rate: float. Both of fine-tuning.
        seed: int, of everything.
    """

    vocabulary: int = 4000
    length: int = 64
    layers: int = 2
    hidden: int = 128
    heads: int = 2
    width: int = 256
    initializer: float = 0.06
    dropout: float = 0.0
    dupe_factor: int = 8
    masking: float = 0.3
    steps: int = 1600
    batch: int = 16
    learning_rate: float = 1.5e-3
    epochs: int = 1
    task_batch: int = 32
    task_learning_rate: float = 2e-3
    seed: int = 0

    def changes(self) -> Json:
        """The encoder as a difference from bert/tiny."""
        return {
            "embeddings.positions": self.length,
            "blocks.layers": self.layers,
            "hidden": self.hidden,
            "attention.heads": self.heads,
            "feedforward.width": self.width,
            "initializer": self.initializer,
            "dropout": self.dropout,
            "attention.dropout": self.dropout,
        }


def run(out: str | os.PathLike, plan: Plan) -> Json:
    """Make the journey; see `kerasbert.quickstart.run`."""
    folder = open_folder(out, plan)
    results = Results(folder / "results.json")
    clock = time.monotonic()

    def stage(line: str) -> None:
        print(f"[{time.monotonic() - clock:4.0f} s] {line}", file=sys.stderr, flush=True)

    stage(f"five novels: chapters to learn from, chapters kept apart for the test -> {folder}/data")
    rows = books.write(folder / "data")

    stage(f"vocabulary: at most {plan.vocabulary} pieces -> {folder}/tokenizer")
    tokenizer = _tokenizer(folder, plan)

    stage(f"records: sentence pairs of {plan.length} tokens -> {folder}/records")
    records = _records(folder, tokenizer, plan)

    stage(f"pretraining: masked LM + next sentence, {plan.steps} steps -> {folder}/pretrained")
    _pretrain(records["train"], folder, plan)
    pretraining = results(
        "pretraining", lambda: measure.masked(folder / "pretrained", records["test"], plan.masking, plan.seed)
    )

    stage(f"fine-tuning: which author wrote this sentence -> {folder}/author")
    _finetune(folder / "pretrained", folder, "author", plan)
    stage(f"the same from random weights, to compare -> {folder}/author-from-random")
    _finetune(_random_encoder(tokenizer, plan), folder, "author-from-random", plan)
    test = measure.read(folder / "data/test.tsv")
    models = _measured(folder, test, results) | _exported(folder, plan, test, results, stage)
    numbers = {
        "plan": dataclasses.asdict(plan),
        "sentences": rows,
        "majority": measure.majority(test[1]),
        "pretraining": pretraining,
        "models": models,
    }
    files.write_atomic(folder / "report.html", story.page(folder, numbers))
    stage(f"curves and ledger -> {folder}/report.html")
    print(story.ledger(folder, numbers))
    return numbers


def _measured(folder: Path, test: Sentences, results: "Results") -> dict[str, Json]:
    """What is measured of both fine-tuned models."""
    return {
        name: results(name, lambda name=name: measure.keras_model(folder / name, *test))
        for name in ("author", "author-from-random")
    }


def _exported(
    folder: Path, plan: Plan, test: Sentences, results: "Results", stage: Callable[[str], None]
) -> dict[str, Json]:
    """The fine-tuned model as a SavedModel and on the phone: what is measured of each."""
    saved, tflite = folder / "serving" / "author" / "1", folder / "author.tflite"
    stage(f"SavedModel, text in, label out -> {saved}")
    if not saved.exists():
        kerasbert.export(folder / "author", saved)
    models = {"saved_model": results("saved_model", lambda: measure.saved_model(saved, *test))}

    stage(f"int8 .tflite for the phone -> {tflite}")
    if not tflite.exists():
        measure.mobile(
            *("compress", folder / "author", "--quantize", "dynamic_int8"),
            *("--length", plan.length, "--data", folder / "data/train.tsv", "--out", tflite),
        )
    stage("the .tflite in a process that cannot import TensorFlow")
    models["tflite"] = results("tflite", lambda: measure.phone(tflite, *test, folder / "data" / "timed.txt"))
    return models


class Results:
    """Measured numbers by name, kept in a file: measured once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def __call__(self, name: str, measured: Callable[[], Json]) -> Json:
        """The numbers of that name, measured now if they are not known."""
        if name not in self.known:
            self.known[name] = measured()
            files.write_json(self.path, self.known)
        return self.known[name]


def open_folder(out: str | os.PathLike, plan: Plan) -> Path:
    """The folder of a new journey, or of one to go on with."""
    folder, marker = Path(out), {"format": FORMAT, "plan": dataclasses.asdict(plan), "books": books.digest()}
    path = places.check_begun(folder, MARKER, "quickstart") / MARKER
    if path.is_file():
        try:
            old = json.loads(path.read_text("utf-8"))
            known = {"format": old["format"], "books": old["books"], **old["plan"]}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged ({error}). Choose another --out") from error
        new = {"format": FORMAT, "books": marker["books"], **marker["plan"]}
        changed = sorted(name for name in known.keys() | new.keys() if known.get(name) != new.get(name))
        if changed:
            raise InputError(f"{folder} holds another quickstart ({', '.join(changed)} differ). Choose another --out")
    else:
        files.write_json(path, marker)
    return folder


def _tokenizer(folder: Path, plan: Plan) -> Tokenizer:
    if not (folder / "tokenizer").exists():
        tokenizer = train_wordpiece(data.read_lines([folder / "data/train.txt"]), plan.vocabulary)
        with files.new_directory(folder / "tokenizer") as made:
            tokenizer.save(made)
    return text.load_tokenizer(folder / "tokenizer")


def _records(folder: Path, tokenizer: Tokenizer, plan: Plan) -> dict[str, data.Records]:
    """Records of the chapters to learn from and of those of the test."""
    return {
        name: data.write_records(
            [folder / "data" / f"{name}.txt"],
            tokenizer,
            folder / "records" / name,
            length=plan.length,
            seed=plan.seed,
            dupe_factor=dupe_factor,
        )
        for name, dupe_factor in (("train", plan.dupe_factor), ("test", 1))
    }


def _pretrain(records: data.Records, folder: Path, plan: Plan) -> None:
    kerasbert.pretrain(
        "bert/tiny",
        records.directory,
        out=folder / "pretrained",
        changes=plan.changes(),
        steps=plan.steps,
        batch=plan.batch,
        learning_rate=plan.learning_rate,
        objective={"rate": plan.masking},
        seed=plan.seed,
    )


def _random_encoder(tokenizer: Tokenizer, plan: Plan) -> "SpecModel":
    keras.utils.set_random_seed(plan.seed)
    encoder = kerasbert.build("bert/tiny", **plan.changes(), **{"embeddings.vocabulary": tokenizer.size})
    encoder.tokenizer = tokenizer
    return encoder


def _finetune(model: str | os.PathLike | keras.Model, folder: Path, name: str, plan: Plan) -> None:
    kerasbert.finetune(
        model,
        "classification",
        folder / "data/train.tsv",  # a tenth of it is held out to choose the best epoch; the test chapters play no part
        out=folder / name,
        label_column="author",
        epochs=plan.epochs,
        batch=plan.task_batch,
        learning_rate=plan.task_learning_rate,
        length=plan.length,
        seed=plan.seed,
    )
