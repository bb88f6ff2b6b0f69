"""How good are averaged word vectors, and how small and fast? SST-2, beside a bag of words with logistic regression.

    python -m tests.benchmarks.bench_average DATA [--folder DIR]

DATA: a folder with SST-2's train.tsv and dev.tsv. The vectors are word2vec's, of the training texts alone.
"""

import argparse
import platform
import statistics
import time
from pathlib import Path

import keras
import numpy as np
import sklearn
import tensorflow as tf
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

import kerasbert as kb
from kerasbert.classics.word_vectors import train_vectors
from kerasbert.data.sources import read_table
from kerasbert.mobile import compress
from kerasbert.mobile.runtime import load

SEEDS = (0, 1, 2)
SIZE, RUNS = 64, 300


def bag_of_words(train: list, dev: list) -> float:
    """Accuracy of logistic regression on counts of words."""
    words = CountVectorizer(lowercase=True, token_pattern=r"[\w']+")
    model = LogisticRegression(max_iter=1000).fit(
        words.fit_transform([text for text, _ in train]), [y for _, y in train]
    )
    return float(model.score(words.transform([text for text, _ in dev]), [y for _, y in dev]))


def averaged(data: Path, folder: Path, seed: int) -> tuple[float, Path, float]:
    """Accuracy, the run and the seconds of training."""
    vectors, run = folder / f"vectors-{seed}", folder / f"run-{seed}"
    train_vectors(
        data / "train.tsv",
        text_field="sentence",
        kind="word2vec",
        size=SIZE,
        min_count=2,
        epochs=10,
        seed=seed,
        out=vectors,
    )
    began = time.perf_counter()
    settings = {"epochs": 5, "batch": 32, "learning_rate": 3e-3, "length": 64, "quiet": True}
    kb.finetune(vectors, "glue/sst2", data, out=run, seed=seed, **settings)
    return kb.evaluate(run, data)["metrics"]["accuracy"], run, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    rows = {
        split: [(row["sentence"], row["label"]) for row in read_table(options.data / f"{split}.tsv")]
        for split in ("train", "dev")
    }
    versions = f"tensorflow {tf.__version__}, keras {keras.__version__}, scikit-learn {sklearn.__version__}"
    print(f"Python {platform.python_version()}, {versions}; {len(rows['train'])} texts, {len(rows['dev'])} dev")
    print(f"bag of words, logistic regression: {bag_of_words(rows['train'], rows['dev']):.3f}")
    found = [averaged(options.data, options.folder, seed) for seed in SEEDS]
    scores = [score for score, _, _ in found]
    error = (statistics.mean(scores) * (1 - statistics.mean(scores)) / len(rows["dev"])) ** 0.5
    print(f"averaged vectors: {', '.join(f'{score:.3f}' for score in scores)}; standard error {error:.3f}")
    print(f"seconds of fine-tuning: {', '.join(f'{seconds:.1f}' for _, _, seconds in found)}")
    texts = [text for text, _ in rows["dev"]]
    out = options.folder / "average.tflite"
    report = compress(found[0][1], out=out, texts=texts, overwrite=True)
    model = load(out, threads=1)
    taken = []
    for number in range(RUNS):
        began = time.perf_counter()
        model([texts[number % len(texts)]])
        taken.append(1e3 * (time.perf_counter() - began))
    print(
        f".tflite: {out.stat().st_size:,} bytes, agreement {report['agreement']:.3f}; p50 {np.median(taken):.3f} ms, "
    )
    print(f"text to answer, one thread, n {RUNS}, 90% below {np.percentile(taken, 90):.3f} ms")


if __name__ == "__main__":
    main()
