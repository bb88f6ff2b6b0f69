"""Does training with rounding pay? Genuine MiniLM on SST-2: its int8 file after fine-tuning, and after an epoch of it.

    python -m tests.benchmarks.bench_aware --run RUN [--per tensor] [--taught] [--data DIR] [--work DIR] [--control]

RUN is a fine-tuned model directory, such as tests.benchmarks.bench_sst2 leaves (3 epochs, batch 32, learning rate 5e-5).
From it one epoch is made with rounding (batch 32, learning rate 2e-5, seed 0) and, with --control, one without. Each int8
file is compared on dev and on 2,000 further sentences with the model that it was made of: in float, and computing in Keras
with the file's rounding; and with RUN in float. With --per tensor the files are static_int8 of one and the same graph: with
the ranges that 200 train rows reach in the fine-tuned model (quantization after training), with the same cut as training cuts
them, and with those that were learned. --taught: the epoch learns from RUN's own answers in place of the labels, which
change answers by themselves, also from 8,000 lines like the further sentences, none of which is among them. A killed run goes
on with the same --work.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert import mobile
from kerasbert.layers import backend
from kerasbert.layers.feedforward import Linear
from kerasbert.mobile import quantize
from kerasbert.mobile.judging.comparison import reference
from kerasbert.mobile.quantize import aware_training, fake
from kerasbert.mobile.runtime import load
from kerasbert.storage import files
from kerasbert.tasks.task import read_rows
from tests.benchmarks.bench_sst2 import SHARED, further_sentences

SETTINGS = {"epochs": 1, "batch": 32, "learning_rate": 2e-5, "seed": 0, "save_every": 50}
LINES = 10_000  # of which the 2,000 that are compared on are left out


class Reached:
    """What one Linear reads and makes: what calibration finds."""

    def __init__(self):
        self.extents = np.zeros((2, 4), "float32")

    def linear(self, x, kernel, bias):
        y = backend.project(x, kernel) + bias
        self.extents = np.array(fake.joined(self.extents, np.stack([fake.extent(x), fake.extent(y)])))
        return y


def calibrated(run: Path, work: Path, texts: list[str]) -> tuple[Path, Path]:
    """Copies of a model directory with the ranges that texts reach: whole, and cut as `aware` per tensor cuts them."""
    model = kb.load(run)
    seen = {name: Reached() for name, layer in aware_training.rounded(model) if isinstance(layer, Linear)}
    for name, layer in aware_training.rounded(model):
        layer.quantizer = seen.get(name)
    for text in texts:
        ids, segments = model.tokenizer.pack(text, length=64)
        given = {"token_ids": ids, "padding_mask": [1] * len(ids), "segment_ids": segments}
        model({part: np.array([value], "int32") for part, value in given.items()})
    made = work / "calibrated", work / "calibrated-cut"
    for out, limits in zip(made, (lambda extents: extents[:, :2], fake.limits), strict=True):
        if not out.exists():
            shutil.copytree(run, out, ignore=shutil.ignore_patterns("checkpoints"))
        found = {name: np.array(limits(reached.extents)).astype(float).tolist() for name, reached in seen.items()}
        ranges = {name: dict(zip(aware_training.PLACES, values)) for name, values in found.items()}
        files.write_json(out / aware_training.FILE, {"per": "tensor", "ranges": ranges})
    return made


def compare(name: str, run: Path, tuned: Path, data: Path, work: Path, per: str) -> None:
    """Print a line: accuracies, and what the int8 file has in common with float and with rounding in Keras."""
    model = kb.load(run)
    rows = read_rows(model.task, data / "dev.tsv")
    texts = [*rows.texts, *further_sentences()]
    out = work / f"{name}.tflite"
    form = "static_int8" if per == "tensor" else "dynamic_int8"
    mobile.compress(run, form, out, texts=texts, min_agreement=0, overwrite=True)
    file = load(out, cache=False).outputs(texts)
    models = {"float": model, "rounded in Keras": quantize.simulated(run), "the fine-tuned model": kb.load(tuned)}
    found = {who: reference(made, texts, 128) for who, made in models.items()}
    dev = len(rows.texts)
    told = [
        f"{who} {(values[:dev].argmax(1) == rows.targets).mean():.4f}"
        for who, values in (found | {"int8": file}).items()
    ]
    print(f"{name}: accuracy on {dev} {', '.join(told)}")
    for who, values in found.items():
        difference = np.abs(values - file)[:, 1]
        print(
            f"  int8 against {who}, {len(texts)} sentences: agreement {(values.argmax(1) == file.argmax(1)).mean():.4f}, "
            f"|difference of probability| mean {difference.mean():.5f}, largest {difference.max():.4f}",
            flush=True,
        )


def main() -> None:
    """Print the comparison."""
    options = argparse.ArgumentParser()
    options.add_argument("--run", type=Path, required=True)
    options.add_argument("--data", type=Path, default=SHARED / "glue" / "SST-2")
    options.add_argument("--work", type=Path)
    options.add_argument("--per", default="channel", choices=aware_training.PER)
    options.add_argument("--taught", action="store_true")
    options.add_argument("--control", action="store_true")
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    tuned, given = options.run, (options.run, options.data, work, options.per)
    if options.per == "tensor":
        train = read_rows(kb.load(options.run).task, options.data / "train.tsv").texts
        tuned, cut = calibrated(options.run, work, train[:: len(train) // 200][:200])
        compare("fine-tuned-cut", cut, *given)
    compare("fine-tuned", tuned, *given)
    began, out = time.process_time(), work / f"aware-{options.per}{'-taught' * options.taught}"
    taught = {}
    if options.taught:
        lines = work / "lines.txt"
        if not lines.exists():
            lines.write_text("\n".join(sorted(set(further_sentences(LINES)) - set(further_sentences()))) + "\n")
        taught = {"teacher": options.run, "unlabelled": [lines], "length": 64}
    quantize.aware(options.run, options.data, out=out, per=options.per, **taught, **SETTINGS)
    print(f"an epoch with rounding: cpu {time.process_time() - began:.0f} s", flush=True)
    compare("aware", out, *given)
    if options.control:
        began = time.process_time()
        kb.finetune(options.run, "glue/sst2", options.data, out=work / "control", keep_head=True, **SETTINGS)
        print(f"an epoch without: cpu {time.process_time() - began:.0f} s", flush=True)
        compare("control", work / "control", options.run, options.data, work, "channel")


if __name__ == "__main__":
    main()
