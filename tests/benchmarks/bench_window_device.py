"""Is a window worth it on a device: 4,096 tokens, L4 H256, w 512, int8, one thread, against full attention?

Longformer and RoBERTa of one size and random weights, compressed for one length; CPU milliseconds of a run, interleaved, and the
peak of memory over that of the opened file, each in a process of its own. Beside them torch (transformers) of the Longformer's
weights, float32. Then how often the int8 file, and torch, give the label that the Keras model gives.

    python -m tests.benchmarks.bench_window_device [--length 4096] [--rounds 9] [--texts 8]
"""

import argparse
import dataclasses
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SIZE = {"hidden": 256, "blocks.layers": 4, "attention.heads": 4, "feedforward.width": 1024}
RUN = """
import json, sys, time
import numpy as np
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024
path, length = sys.argv[1], int(sys.argv[2])
ids = np.random.default_rng(0).integers(5, 200, (1, length))
{open}
before = peak()
run()
print(json.dumps(peak() - before), flush=True)
for line in sys.stdin:
    begun = time.process_time()
    run()
    print(time.process_time() - begun, flush=True)
"""
TFLITE = """
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(path, num_threads=1)
runner = interpreter.get_signature_runner(list(interpreter.get_signature_list())[0])
given = {n: (ids if n == "token_ids" else np.full(d["shape"], n == "padding_mask")).astype(d["dtype"])
         for n, d in runner.get_input_details().items()}
def run(): return runner(**given)
"""
TORCH = """
import torch, transformers
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
model = transformers.LongformerForSequenceClassification.from_pretrained(path).eval()
given = torch.tensor(ids)
@torch.no_grad()
def run(): return model(given, attention_mask=torch.ones_like(given))
"""


def classifier(family: str, length: int) -> Any:
    """A model of random weights, whose classifier tells texts apart."""
    import keras
    import numpy as np

    from kerasbert import registry
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import find_task
    from kerasbert.testing import battery

    keras.utils.set_random_seed(0)
    tokenizer = battery.tokenizer("bpe")
    found, spec = registry.find(f"{family}/base")
    changes = SIZE | {"embeddings.vocabulary": tokenizer.size, "embeddings.positions": length + 2}
    encoder = found.encoder(spec.derive(changes | {"initializer": 0.06}))
    encoder.build()
    encoder.model_name, encoder.tokenizer = f"{family}/base", tokenizer
    task = dataclasses.replace(find_task("classification"), labels={"0": "neg", "1": "pos"})
    model = TaskModel(encoder, task)
    model.build()
    kernel = model.heads["classifier"].weights[0]
    kernel.assign(np.random.default_rng(0).normal(0, 1, kernel.shape))
    return model


def texts(count: int) -> list[str]:
    """Long ones."""
    import random

    from kerasbert.testing import world

    draw = random.Random(0)
    return [" ".join(draw.choices(draw.sample(world.WORDS, 4), k=900)) for _ in range(count)]


def centred(model: Any, some: list[str]) -> None:
    """Shift the classifier so that both labels occur."""
    import numpy as np

    from kerasbert.tasks import predict

    bias = model.heads["classifier"].weights[1]
    bias.assign(bias.numpy() - np.median(predict.outputs(model, some), axis=0))


def measured(programs: dict[str, tuple[str, Path]], length: int, rounds: int) -> dict[str, tuple[list[float], float]]:
    """Name -> CPU seconds of each run, MiB; all are started, then run in turn."""
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", RUN.replace("{open}", body), str(path), str(length)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for name, (body, path) in programs.items()
    }  # fmt: skip
    memory = {name: json.loads(process.stdout.readline()) for name, process in started.items()}
    times: dict[str, list[float]] = {name: [] for name in started}
    for _ in range(rounds):
        for name, process in started.items():
            process.stdin.write("\n")
            process.stdin.flush()
            times[name].append(float(process.stdout.readline()))
    for process in started.values():
        process.stdin.close()
        process.wait()
    return {name: (times[name], memory[name]) for name in started}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--texts", type=int, default=8)
    options = parser.parse_args()
    import importlib.metadata

    import numpy as np

    import kerasbert as kb
    from kerasbert import mobile
    from kerasbert.mobile.runtime import load
    from kerasbert.tasks import predict

    some = texts(options.texts)
    with tempfile.TemporaryDirectory() as folder:
        place, models = Path(folder), {}
        for family in ("longformer", "roberta"):
            models[family] = classifier(family, options.length)
            mobile.compress(
                models[family],
                out=place / f"{family}.tflite",
                lengths=[options.length],
                texts=some[:2],
                min_agreement=0.0,
            )
        centred(models["longformer"], some)
        mobile.compress(
            models["longformer"],
            out=place / "agree.tflite",
            lengths=[options.length],
            texts=some[:2],
            min_agreement=0.0,
        )
        kb.save(models["longformer"], place / "run")
        kb.export_checkpoint(place / "run", place / "hf")
        programs = {f"{family} int8": (TFLITE, place / f"{family}.tflite") for family in models}
        found = measured(programs | {"transformers float32": (TORCH, place / "hf")}, options.length, options.rounds)
        expected = predict.outputs(models["longformer"], some).argmax(-1)
        received = np.asarray(load(place / "agree.tflite").outputs(some)).argmax(-1)
        names = ("ai-edge-litert", "transformers", "torch")
        print(
            "$ python -m tests.benchmarks.bench_window_device;",
            ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names),
        )
        print(f"{options.length} tokens, L4 H256, w 512, one thread, n = {options.rounds}, {platform.machine()}")
        full_time, full_memory = statistics.median(found["roberta int8"][0]), found["roberta int8"][1]
        for name, (times, memory) in found.items():
            middle = statistics.median(times)
            print(
                f"{name:22} {middle * 1e3:7.0f} ms (least {min(times) * 1e3:.0f}), {middle / full_time:.2f} of full attention; "
                f"{memory:6.0f} MiB, {memory / full_memory:.2f}"
            )
        share = float(np.mean(expected == received))
        print(
            f"labels of the int8 file as Keras': {share:.3f} of {len(some)} texts ({np.bincount(expected, minlength=2)})"
        )


if __name__ == "__main__":
    main()
