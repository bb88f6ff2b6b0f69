"""A classifier from few rows: SetFit (Tunstall et al., 2022, section 3)."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import keras
import numpy as np

from kerasbert import progress
from kerasbert.checkpoints import source
from kerasbert.data.dialects import default_reading
from kerasbert.storage import scratch
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import Task
from kerasbert.tasks.load import load
from kerasbert.tasks.model import POOLED, TaskObjective
from kerasbert.tasks.task import Rows, find_labels, read_rows, split_files
from kerasbert.training import finetune, model_files
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.early import declared
from kerasbert.training.job import run
from kerasbert.training.runs import Run, another_run, check_place, run_in, say_finished
from kerasbert.training.text_feed import Texts

if TYPE_CHECKING:
    from kerasbert.tasks.tables import Data


ROUNDS = 20  # R of the paper: pairs of each text with one of its label, and with one of another
HEAD_UPDATES = 100
JUDGED = 256  # pairs that the vectors are judged by
ASKED = "few_shot"  # of run.json: what the vectors were trained from


class Pooled(Texts):
    """Batches whose rows bring their `vectors`, float32 [n, H], which the frozen encoder made once, without dropout."""

    vectors: np.ndarray

    def arrays(self, step: int) -> Iterator[dict[str, np.ndarray]]:
        for arrays in super().arrays(step):
            rows = arrays["example"]
            yield arrays | {POOLED: np.where(rows[:, None] >= 0, self.vectors[self.encoded.owners[rows]], 0)}


class Head(finetune.FineTuning):
    """The head, whose run.json says what the vectors under it were trained from: `asked`, json."""

    asked: Json
    texts = Pooled

    def feed(self, program: TaskObjective, run: Run) -> Texts:
        feed = super().feed(program, run)
        assert isinstance(feed, Pooled)
        asked = {"pooling": self.task.options["pooling"], "language": self.task.settings.get("language")}
        with progress.named(None):  # the training shows its own
            feed.vectors, _ = predict.vectors_and_rows(
                self.encoder, self.train_rows.texts, length=self.longest, **asked
            )
        return feed

    def begin(self, run: Run) -> None:
        run.description[ASKED] = self.asked
        super().begin(run)


class Vectors(finetune.FineTuning):
    """The vectors, whose run lies in a temporary folder."""

    temporary = True


def few_shot(
    model: str | os.PathLike | keras.Model, task: str | Task, data: "Data", config: FinetuneConfig
) -> keras.Model:
    """Train vectors on pairs of the rows, whose cosine is to be 1 of one label and 0 of two; then a linear head on them alone.

    The options of the training are those of the vectors; the head learns by HEAD_UPDATES of its own, with the encoder frozen.
    It reads a text as the vectors do. Without dev rows the metrics are of the training rows.

    Differs: the head is trained by AdamW, not by scikit-learn's logistic regression, so that it is a model's head as any.

    Args:
        model, task, data, config: as of `finetune`.
    """
    found, _ = declared(task, config)
    check_place(config.out, config.overwrite, inputs=[model, data])
    sources = split_files(data, task=found)
    with default_reading(config.reading):
        found = find_labels(found, sources["train"])
        rows = read_rows(found, sources["train"])
        judged = read_rows(found, sources["dev"]) if "dev" in sources else rows
    asked = _asked(model, found, (rows, judged), config)
    if _finished(asked, config):
        return load(config.out)
    pairs = contrasted(rows, config.seed)
    told = "" if "dev" in sources else "; no dev rows: the metrics are of the training rows"
    progress.say(f"few shot: {len(rows.texts)} rows make {len(pairs)} pairs{told}", quiet=config.quiet)
    options = {"loss": "cosine"}
    vectors = Task("few_shot", "vector", "text", "other", "score", metric="spearman", options=options)
    body = _with_vectors(model, vectors, pairs, config)
    pooling = body.task.options.get("pooling", "mean")
    if body.task.options.get("dense"):
        progress.say(
            "few shot: the head reads the pooled vector, without the layers behind it (Dense)", quiet=config.quiet
        )
    found = dataclasses.replace(found.optioned({"pooling": pooling}), hidden_layer=False)
    sources = {"train": sources["train"], "dev": sources.get("dev", sources["train"])}
    job = Head(body.encoder, found, sources, FinetuneConfig(**_of_head(config, len(rows.texts))))
    job.asked = asked
    return run(job)


def _with_vectors(
    model: str | os.PathLike | keras.Model, task: Task, pairs: list[tuple[str, str, int]], config: FinetuneConfig
) -> keras.Model:
    """The model whose vectors are trained on pairs, in a temporary folder."""
    with scratch.folder() as folder:
        config = FinetuneConfig(**_of_vectors(config), out=os.path.join(folder, "run"))
        return run(Vectors(model, task, {"train": pairs, "dev": pairs[:JUDGED]}, config))


def _asked(model: str | os.PathLike | keras.Model, task: Task, rows: tuple[Rows, Rows], config: FinetuneConfig) -> Json:
    """What a few-shot run depends on, as json: the model, the task, the rows and the options."""
    named = isinstance(model, str | os.PathLike)
    digest = model_files.digest(source.directory(model)) if named else model_files.digest_of(model)
    content = [[each.texts, np.asarray(each.targets).tolist()] for each in rows]
    about = {"model": digest, "task": task.name, "metric": task.metric, "labels": task.labels}
    about["rows"] = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()
    settings = {name: value for name, value in _of_vectors(config).items() if name not in ("quiet", "log_every")}
    return json.loads(json.dumps(about | settings, default=str))


def _finished(asked: Json, config: FinetuneConfig) -> bool:
    """Whether the run is there and finished, which is said as of other fine-tunings.

    Raises:
        InputError: another run is there; what differs is named.
    """
    old = None if config.overwrite else run_in(config.out)
    if old is None:
        return False
    held = old.get(ASKED)
    if held is None:
        raise another_run(config.out, ["it is no few-shot run"])
    if differ := [name for name in asked if held.get(name) != asked[name]]:
        raise another_run(config.out, [f"other {', '.join(differ)}"])
    if old.get("finished_steps") is None:
        return False
    say_finished(config.out, old["finished_steps"], config.quiet)
    return True


def contrasted(rows: Rows, seed: int) -> list[tuple[str, str, int]]:
    """Pairs of texts with 1 where they have one label, else 0: as many of each, of each text ROUNDS, shuffled (section 3.1).

    A text that is alone with its label is paired with itself.
    """
    draw, labels = np.random.default_rng(seed), np.asarray(rows.targets)
    pairs = []
    for number, text in enumerate(rows.texts):
        same = np.flatnonzero(labels == labels[number])
        same = same[same != number] if len(same) > 1 else same
        other = np.flatnonzero(labels != labels[number])
        for score, among in ((1, same), (0, other)):
            pairs += [(text, rows.texts[i], score) for i in draw.choice(among, ROUNDS)]
    return [pairs[i] for i in draw.permutation(len(pairs))]


def _of_vectors(config: FinetuneConfig) -> Json:
    """What the training of the vectors takes of the options."""
    kept = {"learning_rate", "batch", "accumulate", "warmup", "weight_decay", "clip", "precision", "seed", "optimizer"}
    kept |= {"optimizer_options", "schedule", "schedule_options", "freeze", "steps", "epochs", "length", "strategy"}
    settings = {name: getattr(config, name) for name in kept | {"quiet", "log_every"}}
    once = {"epochs": 1} if config.steps is None and config.epochs is None else {}
    return settings | once | {"evaluate_every": 0}


def _of_head(config: FinetuneConfig, rows: int) -> Json:
    """What the training of the head takes of them, and what it has of its own."""
    kept = {"out", "overwrite", "seed", "length", "strategy", "quiet", "log_every", "metric", "cache", "callbacks"}
    settings = {name: getattr(config, name) for name in kept | set(config.reading)}
    own = {
        "steps": HEAD_UPDATES,
        "learning_rate": 1e-2,
        "weight_decay": 0.0,
        "evaluate_every": 0,
        "freeze": ["encoder"],
    }
    return settings | own | {"batch": min(32, rows)}
