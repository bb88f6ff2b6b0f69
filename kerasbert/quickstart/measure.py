"""What the ledger says is measured here: on sentences of chapters that no stage has learned from, one at a time."""

import json
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

import kerasbert
from kerasbert import children, registry, text
from kerasbert.data import Records, read_table
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.tasks.predict import encoded_for
from kerasbert.training import model_files

TIMED = 200  # sentences
BATCH = 32

MOBILE = "import sys; from kerasbert.mobile.cli import main; sys.exit(main())"
WITHOUT_TENSORFLOW = "import sys; sys.modules.update(tensorflow=None, keras=None)"  # an import of either fails now


def masked(run: Path, records: Records, rate: float, seed: int) -> dict[str, float]:
    """Accuracy and loss of a pretrained run's masked LM and next sentence on records, beside the unigram baseline."""
    model, tokenizer = kerasbert.load(run), text.load_tokenizer(run / "tokenizer")
    objective = registry.objective(registry.family_of(model).objective)
    program = objective(model, tokenizer, features=records.features, settings={"rate": rate}, seed=seed)
    model_files.load_heads(run, program.model.heads)
    sums: Counter = Counter()
    counts: Counter = Counter()
    step = tf.function(lambda batch: (program.counts(batch), program.losses(batch, training=False)), autograph=False)
    batches = max(1, records.examples // BATCH)
    for batch in records.dataset(BATCH, seed=seed, shuffle=False, prepare=program.prepare).take(batches):
        weights, losses = step(batch)
        counts.update({name: float(value) for name, value in weights.items()})
        sums.update({name: float(value) for name, value in losses.items()})
    found = {name: sums[name] / counts[name.partition("/")[0]] for name in sums}
    unigram = program.baseline(records)
    return found | {"unigram/accuracy": unigram["accuracy"], "unigram": unigram["entropy"]}


def read(path: Path) -> tuple[list[str], list[str]]:
    """The test sentences and their authors."""
    table = read_table(path, columns=["text", "author"])
    return [row["text"] for row in table], [row["author"] for row in table]


def majority(authors: list[str]) -> float:
    """Accuracy of always naming the author with the most sentences."""
    return Counter(authors).most_common(1)[0][1] / len(authors)


def keras_model(run: Path, texts: list[str], authors: list[str]) -> dict[str, float]:
    """Accuracy, MB of weights and ms per sentence of the Keras model."""
    model = kerasbert.load(run)
    labels = [answer.label for answer in kerasbert.predict(model, texts)]
    function = tf.function(lambda inputs: model(inputs)["logits"], reduce_retracing=True, autograph=False)
    length = model.spec.longest

    def one(sentence: str) -> None:
        inputs = encoded_for(model, [sentence], length).arrays([0], length)
        function({name: tf.constant(value) for name, value in inputs.items()}).numpy()

    return _result(labels, authors, _seconds(one, texts), run / "weights.safetensors")


def saved_model(path: Path, texts: list[str], authors: list[str]) -> dict[str, float]:
    """The same of the SavedModel, which takes strings."""
    import tensorflow_text  # noqa: F401  the SavedModel's tokenizer

    loaded = tf.saved_model.load(str(path))
    call = loaded.signatures["serving_default"]

    def answer(sentences: list[str]) -> list[str]:
        return [label.decode() for label in call(text=tf.constant(sentences))["labels"].numpy()]

    labels = [label for begin in range(0, len(texts), BATCH) for label in answer(texts[begin : begin + BATCH])]
    return _result(labels, authors, _seconds(lambda sentence: answer([sentence]), texts), path)


def phone(path: Path, texts: list[str], authors: list[str], sample: Path) -> dict[str, float]:
    """The same of the .tflite, in processes of their own where TensorFlow cannot be imported.

    Args:
        path: the file.
        texts: the sentences.
        authors: their authors.
        sample: file to write the timed sentences to.
    """
    answers = mobile("run", path, "--json", "--no-cache", tensorflow=False, stdin="\n".join(texts))
    labels = [json.loads(line)["label"] for line in answers.splitlines()]
    files.write_atomic(sample, "\n".join(texts[:TIMED]) + "\n")
    arguments = ("--texts", sample, "--rounds", 1, "--json", "--no-cache")
    times = json.loads(mobile("benchmark", path, *arguments, tensorflow=False))
    return _result(labels, authors, [times["p50_ms"] / 1e3], path)


def mobile(*arguments: object, tensorflow: bool = True, stdin: str = "") -> str:
    """What `kerasbert-mobile ARGUMENTS` prints. It stands above this package, so it runs in a process of its own."""
    program = MOBILE if tensorflow else f"{WITHOUT_TENSORFLOW}; {MOBILE}"
    for file in registry.plugin_files() if tensorflow else ():
        arguments += ("--plugin", file)
    done = subprocess.run(
        children.command(program, *map(str, arguments)),
        input=stdin,
        env=children.environment(TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("error: ")
        raise InputError(f"kerasbert-mobile {arguments[0]}: {last}")
    return done.stdout


def _seconds(one: Callable[[str], object], texts: list[str]) -> list[float]:
    """Seconds of each of TIMED sentences, all of them run once before."""
    found = []
    for _ in range(2):
        found = []
        for sentence in texts[:TIMED]:
            begun = time.perf_counter()
            one(sentence)
            found.append(time.perf_counter() - begun)
    return found


def _result(labels: list[str], authors: list[str], seconds: list[float], path: Path) -> dict[str, float]:
    size = (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )
    right = sum(label == author for label, author in zip(labels, authors, strict=True))
    return {
        "accuracy": right / len(authors),
        "megabytes": size / 1e6,
        "milliseconds": 1e3 * statistics.median(seconds),
        "sentences": len(authors),
    }
