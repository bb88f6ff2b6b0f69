"""Our quantization schemes against ai-edge-quantizer's recipes, of the same float32 file: accuracy, bytes, time.

    python -m tests.benchmarks.bench_recipes ours DIR --run RUN    # in kerasbert's environment; RUN: fine-tuned for SST-2
    python -m tests.benchmarks.bench_recipes theirs DIR            # pip install ai-edge-quantizer
    python -m tests.benchmarks.bench_recipes table DIR             # there too

One length of 64 tokens. Static ranges are of the same 200 training texts. Every file is run by LiteRT's Interpreter on one
thread; CPU time, the files taking turns, the ratio to `dynamic_int8` is the median of the rounds' own ratios.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LENGTH, CALIBRATION, ROUNDS = 64, 200, 7
SCHEMES = ("dynamic_int8", "int8_embeddings", "static_int8", "full_int8")
RECIPES = ("dynamic_wi8_afp32", "dynamic_wi4_afp32", "weight_only_wi8_afp32", "static_wi8_ai8")
BASE = "dynamic_int8"


def rows_of(name: str) -> tuple[list[str], list[int]]:
    """Sentences and labels of a split of SST-2."""
    folder = Path(__file__).resolve().parents[3] / "shared/data/glue/SST-2"
    rows = [line.rsplit("\t", 1) for line in (folder / f"{name}.tsv").read_text().splitlines()[1:] if line]
    return [row[0] for row in rows], [int(row[1]) for row in rows]


def ours(work: Path, run: Path) -> None:
    """Write the float32 file, a file of each scheme made of it, and what the files are fed with."""
    from kerasbert import inputs, mobile
    from kerasbert.mobile.quantize import forms
    from kerasbert.mobile.runtime import load

    train, (dev, labels) = rows_of("train")[0], rows_of("dev")
    floats = work / "float32.tflite"
    if not floats.exists():
        mobile.compress(run, "float32", floats, texts=dev, lengths=[LENGTH])
    runner = load(floats, cache=False)
    reads = tuple(each.declared() for each in runner.bundle.inputs)

    def fed(texts: list[str]) -> dict[str, list]:
        rows = [runner.rows(text)[0] for text in texts]
        return {name: array.tolist() for name, array in inputs.arrays(reads, rows, LENGTH).items()}

    told = {"labels": labels, "dev": fed(dev), "calibration": fed(train[:: len(train) // CALIBRATION][:CALIBRATION])}
    (work / "feeds.json").write_text(json.dumps(told))
    batches = [(f"length_{LENGTH}", arrays) for arrays in feeds(work, "calibration")]
    for scheme in SCHEMES:
        begin = time.perf_counter()
        data, _ = forms.quantized(floats.read_bytes(), scheme, (), batches)
        (work / f"{scheme}.tflite").write_bytes(data)
        print(f"{scheme}: {time.perf_counter() - begin:.1f} s")


def feeds(work: Path, name: str) -> list[dict[str, np.ndarray]]:
    """The arrays of each text."""
    arrays = {
        key: np.array(rows, np.int32) for key, rows in json.loads((work / "feeds.json").read_text())[name].items()
    }
    return [{key: rows[i : i + 1] for key, rows in arrays.items()} for i in range(len(next(iter(arrays.values()))))]


def theirs(work: Path) -> None:
    """Write a file of each recipe; what a recipe says against our file is printed."""
    from ai_edge_quantizer import quantizer, recipe

    for name in RECIPES:
        begin, made = time.perf_counter(), quantizer.Quantizer(str(work / "float32.tflite"))
        try:
            made.load_quantization_recipe(getattr(recipe, name)())
            ranges = made.calibrate({f"length_{LENGTH}": feeds(work, "calibration")}) if made.need_calibration else None
            made.quantize(ranges).export_model(work / f"{name}.tflite", overwrite=True)
            print(f"{name}: {time.perf_counter() - begin:.1f} s")
        except Exception as error:  # any of theirs is a result
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}")


def runner(path: Path) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """Arrays -> probabilities."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    signature = interpreter.get_signature_runner(f"length_{LENGTH}")
    signature._keeps = interpreter
    ((name, about),) = signature.get_output_details().items()
    scale, zero = about["quantization"]
    grid = (lambda x: (x.astype("float32") - zero) * scale) if scale else np.copy  # a recipe may answer in int8
    return lambda arrays: grid(signature(**arrays)[name][0])


def size(path: Path) -> float:
    """MB of the network: our files carry a bundle behind it."""
    data = path.read_bytes()
    end = data.find(b"PK\x03\x04")
    return (len(data) if end < 0 else end) / 1e6


def table(work: Path) -> None:
    """Print it."""
    told, dev = json.loads((work / "feeds.json").read_text()), feeds(work, "dev")
    runs: dict[str, Callable] = {}
    for name in ("float32", *SCHEMES, *RECIPES):
        try:
            run = runner(work / f"{name}.tflite")
            run(dev[0])
            runs[name] = run
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {str(error).splitlines()[0][:150]}")
    print(
        "versions:", ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("ai-edge-litert", "ai-edge-quantizer"))
    )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {len(dev)} texts of SST-2's dev, {ROUNDS} rounds")
    found = {name: np.stack([run(arrays) for arrays in dev]) for name, run in runs.items()}
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({})
        for name, run in runs.items():
            begin = time.process_time()
            for arrays in dev[:20]:
                run(arrays)
            rounds[-1][name] = (time.process_time() - begin) / 20 * 1e3
    print(
        "| file | accuracy | equal labels | mean difference of probability | MB | CPU-ms | ratio |\n" + "|---" * 7 + "|"
    )
    labels, exact = np.array(told["labels"]), found["float32"]
    for name, values in found.items():
        right, same = (values.argmax(1) == labels).mean(), (values.argmax(1) == exact.argmax(1)).mean()
        ratio = statistics.median(each[name] / each[BASE] for each in rounds)
        ms = statistics.median(each[name] for each in rounds)
        away = np.abs(values - exact)[:, 1].mean()
        print(
            f"| {name} | {right:.4f} | {same:.4f} | {away:.4f} | {size(work / f'{name}.tflite'):.1f} | {ms:.2f} | {ratio:.2f} |"
        )


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("ours", "theirs", "table"))
    parser.add_argument("work", type=Path, metavar="DIR")
    parser.add_argument("--run", type=Path, help="directory of a classifier of SST-2")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    stages = {"ours": lambda work: ours(work, options.run), "theirs": theirs, "table": table}
    stages[options.stage](options.work)


if __name__ == "__main__":
    main()
