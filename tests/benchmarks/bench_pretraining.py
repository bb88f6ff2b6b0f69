"""Tokens per CPU-second of a full pretraining step on CPU, beside KerasHub and transformers.

BERT of L layers and width H, masked LM over P positions a row, dropout 0.1, global clip and AdamW. Every contender
runs in processes of its own, taking turns; the median round of each counts. CPU seconds are those of all threads; the first
update is with what is traced and compiled for it.

    python -m tests.benchmarks.bench_pretraining [--layers 4 --hidden 256 --length 128 --batch 16] [--only NAME ...]

Every contender gets the same full rows: padding is a matter of packing (tests.benchmarks.bench_data prints its shares).
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 30522


def batch_of(options: argparse.Namespace, seed: int) -> dict[str, np.ndarray]:
    """Random rows without padding, 15% of each predicted."""
    rng = np.random.default_rng(seed)
    size, length = options.batch, options.length
    count = int(np.ceil(0.15 * length))
    positions = np.sort(np.stack([rng.permutation(length)[:count] for _ in range(size)]), axis=1)
    return {
        "token_ids": rng.integers(999, VOCABULARY, (size, length)).astype("int32"),
        "padding_mask": np.ones((size, length), "int32"),
        "segment_ids": np.zeros((size, length), "int32"),
        "mlm_positions": positions.astype("int32"),
        "mlm_labels": rng.integers(999, VOCABULARY, (size, count)).astype("int32"),
        "mlm_weights": np.ones((size, count), "float32"),
        "row": np.arange(size, dtype="int32"),
    }


def kerasbert(options: argparse.Namespace, precision: str, fused: bool):
    """Our step core, as `kerasbert pretrain` runs it."""
    import keras

    import kerasbert as kb
    from kerasbert.objectives.bert import BertPretraining
    from kerasbert.text import WordPiece
    from kerasbert.training.optimizers import adamw
    from kerasbert.training.precision import precision as in_precision
    from kerasbert.training.step import Compilation, StepCore
    from kerasbert.training.strategy import strategy

    keras.utils.set_random_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPiece([*pieces, *(f"piece{i}" for i in range(VOCABULARY - len(pieces)))])
    changes = {
        "blocks.layers": options.layers,
        "hidden": options.hidden,
        "attention.heads": options.hidden // 64,
        "feedforward.width": 4 * options.hidden,
    }
    devices = strategy("cpu")
    with devices.scope(), in_precision(precision):
        encoder = kb.build("bert/tiny", **changes)
        program = BertPretraining(encoder, tokenizer)
    with devices.scope():
        optimizer = adamw(learning_rate=1e-4, steps=1000)
    core = StepCore(program, optimizer, devices, compilation=Compilation(True, fused))
    return lambda batch: float(core.step(batch)["loss"])


def keras_hub(options: argparse.Namespace, precision: str, jit: bool):
    """BertMaskedLM by compile and train_on_batch."""
    import keras
    import keras_hub

    keras.config.set_dtype_policy(precision)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=options.layers,
        num_heads=options.hidden // 64,
        hidden_dim=options.hidden,
        intermediate_dim=4 * options.hidden,
        dropout=0.1,
        max_sequence_length=options.length,
    )
    model = keras_hub.models.BertMaskedLM(backbone)
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=jit)

    def step(batch):
        names = {"token_ids": "token_ids", "padding_mask": "padding_mask", "segment_ids": "segment_ids"}
        inputs = {theirs: batch[ours] for ours, theirs in names.items()} | {"mask_positions": batch["mlm_positions"]}
        found = model.train_on_batch(inputs, batch["mlm_labels"], sample_weight=batch["mlm_weights"])
        return float(np.ravel(found)[0])

    return step


def transformers(options: argparse.Namespace, precision: str, gather: bool):
    """BertForMaskedLM; with `gather` the head is applied at the masked positions alone."""
    import torch
    import transformers as hf

    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        max_position_embeddings=options.length,
    )
    model = hf.BertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    half = precision == "mixed_bfloat16"

    def step(batch):
        arrays = {name: torch.from_numpy(value).long() for name, value in batch.items() if value.dtype == np.int32}
        labels = arrays["mlm_labels"].reshape(-1)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            inputs = {
                "input_ids": arrays["token_ids"],
                "attention_mask": arrays["padding_mask"],
                "token_type_ids": arrays["segment_ids"],
            }
            if gather:
                hidden = model.bert(**inputs).last_hidden_state
                places = arrays["mlm_positions"][..., None].expand(-1, -1, hidden.shape[-1])
                logits = model.cls(hidden.gather(1, places)).reshape(-1, VOCABULARY)
                loss = torch.nn.functional.cross_entropy(logits.float(), labels)
            else:
                every = torch.full_like(arrays["token_ids"], -100)
                every.scatter_(1, arrays["mlm_positions"], arrays["mlm_labels"])
                loss = model(**inputs, labels=every).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    return step


CONTENDERS = {
    "kerasbert float32": (kerasbert, "float32", False),
    "kerasbert float32, fused": (kerasbert, "float32", True),
    "kerasbert mixed_bfloat16": (kerasbert, "mixed_bfloat16", True),
    "keras-hub float32 jit": (keras_hub, "float32", True),
    "keras-hub float32": (keras_hub, "float32", False),
    "keras-hub mixed_bfloat16 jit": (keras_hub, "mixed_bfloat16", True),
    "keras-hub mixed_bfloat16": (keras_hub, "mixed_bfloat16", False),
    "transformers float32, gather": (transformers, "float32", True),
    "transformers bfloat16, gather": (transformers, "mixed_bfloat16", True),
    "transformers float32, as shipped": (transformers, "float32", False),
}


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    """One round in this process: CPU and wall ms of an update, the last loss, CPU-s of the first update, peak MiB."""
    make, *arguments = CONTENDERS[name]
    step = make(options, *arguments)
    batches = [batch_of(options, seed) for seed in range(4)]
    begun = time.process_time()
    step(batches[0])
    first = time.process_time() - begun
    step(batches[1])
    times = []
    for number in range(options.steps):
        cpu, wall = time.process_time(), time.perf_counter()
        loss = step(batches[number % 4])
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    assert np.isfinite(loss)
    cpu, wall = np.median(times, axis=0) * 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": cpu, "wall": wall, "loss": loss, "first": first, "peak": peak}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("layers", 4), ("hidden", 256), ("length", 128), ("batch", 16), ("steps", 20), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return
    found: dict[str, list[dict]] = {name: [] for name in options.only}
    sizes = [f"--{name}={getattr(options, name)}" for name in ("layers", "hidden", "length", "batch", "steps")]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    for _ in range(options.rounds):
        for name in options.only:
            command = [sys.executable, "-m", "tests.benchmarks.bench_pretraining", "--one", name, *sizes]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr[-2000:]}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    print("command: python -m tests.benchmarks.bench_pretraining", *sys.argv[1:])
    packages = ("tensorflow", "keras", "keras-hub", "torch", "transformers", "numpy")
    print("versions:", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
    flags = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    print(f"machine: {platform.machine()}, {' '.join(known)}, {os.cpu_count()} cores")
    print(
        f"L{options.layers} H{options.hidden} S{options.length} B{options.batch}, medians of {options.rounds} processes"
    )
    heads = {"CPU ms": 10, "best": 10, "wall ms": 10, "tokens/CPU-s": 14, "first, s": 10, "peak MiB": 10, "ratio": 8}
    print(f"\n{'full step':36}" + "".join(f"{name:>{width}}" for name, width in heads.items()))
    medians = {
        name: [statistics.median(one[key] for one in rounds) for key in ("cpu", "wall", "first", "peak")]
        for name, rounds in found.items()
    }
    base = min((cpu for name, (cpu, *_) in medians.items() if not name.startswith("kerasbert")), default=None)
    for name, (cpu, wall, first, peak) in medians.items():
        rate, best = options.batch * options.length / cpu * 1e3, min(one["cpu"] for one in found[name])
        ratio = "" if base is None else f"{base / cpu:8.2f}"
        print(f"{name:36}{cpu:10.0f}{best:10.0f}{wall:10.0f}{rate:14,.0f}{first:10.2f}{peak:10.0f}{ratio}")
    print("ratio: speed against the fastest peer")


if __name__ == "__main__":
    main()
