"""How small does the vocabulary of a domain make the file, and do the answers stay? Genuine MiniLM on SST-2.

    python -m tests.benchmarks.bench_trim --run RUN [--sizes 0 8000 6000 5000 4000] [--codes G ...] [--seen] [--work DIR]

RUN is a fine-tuned model directory, such as tests.benchmarks.bench_sst2 leaves. The vocabulary is trimmed to 4,920 of the 6,920
train sentences (at most SIZE pieces; 0: all that they use) and compressed to int8. Agreement is with the float model of the
whole vocabulary, on what the trimming has not seen: dev and the other 2,000 train sentences; --seen trims to these too, as
somebody does who has the domain's text. The first line is the whole vocabulary's file. For each G of --codes the rows of the
whole table and of the one trimmed to SIZE 0 are G bytes (embedding_codes), fitted to the counts of the 4,920 sentences.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import kerasbert as kb
from kerasbert import mobile
from kerasbert.mobile.judging.comparison import reference
from kerasbert.tasks.task import read_rows
from tests.benchmarks.bench_sst2 import SHARED

SST2 = SHARED / "glue" / "SST-2"
HELD = 2000


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--run", type=Path, required=True)
    options.add_argument("--sizes", type=int, nargs="+", default=[0, 8000, 6000, 5000, 4000])
    options.add_argument("--codes", type=int, nargs="+", default=[])
    options.add_argument("--seen", action="store_true")
    options.add_argument("--work", type=Path)
    options = options.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    model = kb.load(options.run)
    train, dev = (read_rows(model.task, SST2 / f"{split}.tsv") for split in ("train", "dev"))
    corpus, texts = train.texts[HELD:], [*dev.texts, *train.texts[:HELD]]
    corpus = [*corpus, *texts] if options.seen else corpus
    expected = reference(model, texts, 128)

    def line(name: str, run: Path, told: dict, **settings: Any) -> None:
        file = work / "trimmed.tflite"
        mobile.compress(run, out=file, texts=texts[:100], min_agreement=0, overwrite=True, **settings)
        found = mobile.load(file, cache=False).outputs(texts)
        text = f"{name:>12} {file.stat().st_size / 1e6:6.2f} "
        text += f"{(found[: len(dev.texts)].argmax(1) == dev.targets).mean():8.4f} "
        text += f"{(found.argmax(1) == expected.argmax(1)).mean():9.4f} {np.abs(found - expected)[:, 1].mean():10.5f}"
        if told:
            pairs = [f"{told[name][0]:.3f} -> {told[name][1]:.3f}" for name in ("split", "unknown", "tokens")]
            text += f"  {'  '.join(pairs)}"
        print(text, flush=True)

    print(f"{'pieces':>12} {'MB':>6} accuracy agreement difference  split words  unknown words  tokens", flush=True)
    line(f"{model.tokenizer.size}", options.run, {})
    for size in options.sizes:
        told = mobile.trim(options.run, corpus, out=work / f"trimmed-{size}", size=size or None, overwrite=True)
        line(f"{told['vocabulary'][1]}", work / f"trimmed-{size}", told)
    for codes in options.codes:
        for run in (options.run, work / "trimmed-0"):
            name = f"{kb.load(run).tokenizer.size} in {codes}"
            line(name, run, {}, embedding_codes=codes, calibration=train.texts[HELD:])


if __name__ == "__main__":
    main()
