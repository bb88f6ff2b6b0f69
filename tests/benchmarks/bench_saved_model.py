"""A SavedModel that takes text, in this process and behind `kerasbert serve`, beside ONNX Runtime and torch of the same weights.

    python -m tests.benchmarks.bench_saved_model [--run DIR] [--threads 1] [--batches 1 8 32] [--rounds N] [--also DIR ...]

SST-2's dev sentences, from text to label, the contenders interleaved in one process, ours in float32 and bfloat16. A round
is so many calls of each, on the same texts. ONNX Runtime and torch, in float32, get texts padded to the longest of the call by
Hugging Face's tokenizer.
`serve` is asked by kerasbert.export.client on the same cores, a call after the other. --also: SavedModels exported by another
version. Without --run: see bench_device. Pin it to as many cores as threads (taskset), which `serve` inherits.
"""

import argparse
import collections
import contextlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks.bench_device import export_peer, minilm
from tests.benchmarks.bench_sst2 import SHARED

CALLS = {1: 40, 8: 10, 32: 4}


def sentences() -> list[str]:
    """SST-2's dev sentences."""
    lines = (SHARED / "glue" / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    return [line.split("\t")[0] for line in lines]


def ours(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """Texts -> probabilities, by the SavedModel."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    loaded = tf.saved_model.load(str(folder))
    function = loaded.signatures["serving_default"]
    function.held = loaded
    return lambda texts: function(text=tf.constant(texts))["probabilities"].numpy()


def theirs(folder: Path, threads: int) -> Callable[[list[str]], np.ndarray]:
    """Texts -> logits, by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(folder / "float.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = padding_tokenizer(folder)

    def answer(texts: list[str]) -> np.ndarray:
        rows = tokenizer.encode_batch(texts)
        names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        arrays = {name: np.array([getattr(row, field) for row in rows]) for name, field in names.items()}
        return session.run(None, arrays)[0]

    return answer


def padding_tokenizer(folder: Path):
    """Hugging Face's, which pads a call to its longest text."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=0)
    tokenizer.enable_truncation(512)
    return tokenizer


def torchs(folder: Path, threads: int) -> Callable[[list[str]], np.ndarray]:
    """Texts -> logits, by transformers as it is."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.BertForSequenceClassification.from_pretrained(folder / "hf").eval()
    tokenizer = padding_tokenizer(folder)

    def answer(texts: list[str]) -> np.ndarray:
        rows = tokenizer.encode_batch(texts)
        names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        with torch.inference_mode():
            return model(
                **{name: torch.tensor([getattr(row, each) for row in rows]) for name, each in names.items()}
            ).logits

    return answer


@contextlib.contextmanager
def behind_serve(folder: Path) -> Iterator[dict[str, Callable[[list[str]], object]]]:
    """Texts -> answers by REST and by gRPC, of a server in a process of its own."""
    from kerasbert.export.client import Client

    words = ["serve", f"model={folder}", "--port", "0", "--grpc-port", "0", "--batch-wait", "0"]
    with subprocess.Popen([sys.executable, "-m", "kerasbert.cli", *words], stdout=subprocess.PIPE, text=True) as server:
        rest, grpc = re.search(r"(http://[^/]*)/.*gRPC (\S+)", server.stdout.readline()).groups()
        yield {
            name: Client(url, "model").predict
            for name, url in (("serve, REST", rest), ("serve, gRPC", f"grpc://{grpc}"))
        }
        server.terminate()


def operators(folder: Path) -> collections.Counter:
    """How many of each operator the functions of the file have; both signatures' are counted."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    functions = file.meta_graphs[0].graph_def.library.function
    return collections.Counter(node.op for function in functions for node in function.node_def)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--also", type=Path, nargs="*", default=[])
    parser.add_argument("--keep", type=Path, help="where the SavedModel is left, for --also of another version")
    options = parser.parse_args()
    import tensorflow as tf

    import kerasbert as kb

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as server:
        work = Path(folder)
        run = options.run or minilm(work / "run")
        saved = kb.export(run, options.keep or work / "saved")
        (work / "onnx").mkdir()
        export_peer(run, work / "onnx")
        contenders = {"onnxruntime float32": theirs(work / "onnx", options.threads), "kerasbert": ours(saved)}
        contenders["kerasbert bfloat16"] = ours(kb.export(run, work / "rounded", precision="bfloat16"))
        contenders |= {"torch float32": torchs(work / "onnx", options.threads)} | server.enter_context(
            behind_serve(saved)
        )
        contenders |= {str(other): ours(other) for other in options.also}
        print("command: python -m tests.benchmarks.bench_saved_model", *sys.argv[1:])
        print(f"machine: {platform.machine()}, threads {options.threads}; medians of {options.rounds} rounds")
        for name, place in {"kerasbert": saved, **{str(other): other for other in options.also}}.items():
            counts = operators(place)
            print(f"{name}: {sum(counts.values())} operators: {dict(counts.most_common(12))}")
        texts = sentences()
        random.Random(0).shuffle(texts)
        print(f"{'ms a call':40}" + "".join(f"{f'batch {batch}':>22}" for batch in options.batches))
        columns = [times(contenders, texts, batch, options.rounds) for batch in options.batches]
        for name in contenders:
            cells = [
                (
                    statistics.median(column[name]),
                    statistics.median(one / other for one, other in zip(column[name], column["onnxruntime float32"])),
                )
                for column in columns
            ]
            print(f"{name:40}" + "".join(f"{ms:13.2f} ({ratio:.2f})" for ms, ratio in cells), flush=True)


def times(contenders: dict[str, Callable], texts: list[str], batch: int, rounds: int) -> dict[str, list[float]]:
    """Contender -> milliseconds a call, of each round."""
    calls = CALLS.get(batch, 10)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-1, rounds):  # the first warms up
        chosen = [
            [texts[(number * calls * batch + i * batch + j) % len(texts)] for j in range(batch)] for i in range(calls)
        ]
        for name, answer in contenders.items():
            begun = time.perf_counter()
            for each in chosen:
                answer(each)
            if number >= 0:
                found[name].append((time.perf_counter() - begun) / calls * 1e3)
    return found


if __name__ == "__main__":
    main()
