"""Texts to vectors: float32 and bfloat16, beside sentence-transformers and ONNX Runtime with the same weights, in paired rounds.

    python -m tests.benchmarks.bench_encode MODEL TEXTS... [--texts 2000] [--rounds 5] [--only float32 ONNX]

MODEL: a folder of sentence-transformers whose vectors are the mean over the tokens. TEXTS: files of a sentence a line, or tsv of
which the column `sentence` or else the first is taken; the first line of each is a header. A round asks each contender once, in
turn; all have as many threads as there are cores (OMP_NUM_THREADS says fewer), batches of 64, and sort by length. ONNX
Runtime's are the float32 graph with the mean in it and its dynamic int8 form (per channel), with the tokenizers library: what a
user writes who wants speed. Printed are medians: CPU-seconds, seconds, texts a second, and the smallest cosine with
sentence-transformers' float32 vectors.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kerasbert as kb

Contender = Callable[[list[str]], np.ndarray]
BATCH, REFERENCE = 64, "sentence-transformers float32"


def onnx_graphs(folder: str, work: Path) -> dict[str, Path]:
    """Files of ONNX: token ids and mask -> vectors, in float32 and with dynamic int8 products."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            tokens = self.encoder(ids, mask).last_hidden_state
            shares = mask.unsqueeze(-1).float()
            return torch.nn.functional.normalize((tokens * shares).sum(1) / shares.sum(1), dim=-1)

    sample, names = torch.randint(5, 100, (2, 16)), ["ids", "mask"]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    paths = {"float32": work / "float.onnx", "int8": work / "int8.onnx"}
    model, inputs = Mean().eval(), (sample, torch.ones_like(sample))
    torch.onnx.export(model, inputs, str(paths["float32"]), input_names=names, dynamic_axes=axes, dynamo=False)
    quantize_dynamic(paths["float32"], paths["int8"], per_channel=True, weight_type=QuantType.QInt8)
    return paths


def of_onnx(path: Path, folder: str, length: int) -> Contender:
    """A graph asked with batches of texts of about one length."""
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))  # 0: a thread for each core
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_truncation(length)
    tokenizer.no_padding()

    def encode(texts: list[str]) -> np.ndarray:
        rows = [row.ids for row in tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
        found: list[np.ndarray] = []
        for i in range(0, len(order), BATCH):
            batch = [rows[number] for number in order[i : i + BATCH]]
            lengths = np.array([len(row) for row in batch])
            mask = np.arange(lengths.max()) < lengths[:, None]
            ids = np.zeros(mask.shape, "int64")
            ids[mask] = np.concatenate(batch)
            found.append(session.run(None, {"ids": ids, "mask": mask.astype("int64")})[0])
        return np.concatenate(found)[np.argsort(order)]

    return encode


def contenders(folder: str, work: Path) -> dict[str, Contender]:
    """Name -> texts to vectors [n, H]."""
    import torch
    from sentence_transformers import SentenceTransformer

    found: dict[str, Contender] = {}
    for name, precision, dtype in (("float32", "float32", torch.float32), ("bfloat16", "bfloat16", torch.bfloat16)):
        model = kb.load(folder, precision=precision)
        theirs = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": dtype}, local_files_only=True)
        found[f"kerasbert {name}"] = lambda texts, model=model: kb.encode(model, texts)
        found[f"sentence-transformers {name}"] = lambda texts, theirs=theirs: theirs.encode(
            texts, batch_size=BATCH, convert_to_numpy=True
        )
    length = SentenceTransformer(folder, device="cpu", local_files_only=True).max_seq_length
    for name, path in onnx_graphs(folder, work).items():
        found[f"ONNX Runtime {name}"] = of_onnx(path, folder, length)
    return found


def sentences(file: Path) -> list[str]:
    """The texts of a file."""
    header, *lines = file.read_text("utf-8").splitlines()
    names = header.split("\t")
    column = names.index("sentence") if "sentence" in names else 0
    return [line.split("\t")[column] for line in lines if line.strip()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="PART", help="contenders whose names have one of these parts")
    options = parser.parse_args()
    texts = [text for file in options.files for text in sentences(file)][: options.texts]
    with tempfile.TemporaryDirectory() as work:
        asked = contenders(options.model, Path(work))
    only = [*options.only, REFERENCE] if options.only else [""]
    asked = {name: encode for name, encode in asked.items() if any(part in name for part in only)}
    vectors = {name: encode(texts).astype("float64") for name, encode in asked.items()}  # the first call compiles
    reference = vectors[REFERENCE]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(options.rounds):
        for name, encode in asked.items():
            cpu, wall = time.process_time(), time.perf_counter()
            encode(texts)
            times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    for name, measured in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*measured))
        norms = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(reference, axis=1)
        least = float(((vectors[name] * reference).sum(1) / norms).min())
        print(f"{name:<32}{cpu:7.2f} CPU-s{wall:7.2f} s{len(texts) / wall:8.0f} texts/s   cosine >= {least:.5f}")


if __name__ == "__main__":
    main()
