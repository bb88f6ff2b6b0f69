"""How long does a token take on the phone's runtime, and is every matrix in the file once?

An encoder-decoder of 6 + 6 layers (T5's blocks, H 512, F 2,048, V 8,000, random weights) with a source of 64 tokens, int8, one
thread. A step at the last of T cached places is timed, from ids to logits: by our runtime, by torch (dynamic int8, caches
written in place: its best) and by ONNX Runtime (dynamic int8 per channel, caches swapped by IO binding), both of the same layers
written out in torch. Rounds of the three are interleaved in one process without TensorFlow; of each the least and the median of
the rounds are told, in wall-clock and in CPU time: on a machine that others use, CPU times and ratios alone mean something.

    python -m tests.benchmarks.bench_generation [--file FILE.tflite] [--places 64 128 512]

--file keeps the file that is made, and takes it as it is where it is there.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS, HIDDEN, WIDTH, HEADS, VOCABULARY, SOURCE = 6, 512, 2048, 8, 8000, 64
PLACES, ROUNDS, TURN = (64, 128, 512), 12, 20


def make(out: Path, places: int) -> None:
    """Write the file; prints its bytes and the model's parameters as json."""
    import dataclasses

    import keras

    import kerasbert as kb
    from kerasbert import registry
    from kerasbert.mobile import compress
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import find_task
    from tests import tiny

    keras.utils.set_random_seed(0)
    sizes = {"hidden": HIDDEN, "feedforward.width": WIDTH, "attention.heads": HEADS, "blocks.layers": LAYERS}
    body = kb.build("t5/small", **sizes, **{"embeddings.vocabulary": VOCABULARY})
    body.tokenizer = tiny.tokenizer()
    task = find_task("generation").optioned({"target_length": places})
    task = dataclasses.replace(task.how.of_family(task, registry.family_of(body)), length=SOURCE)
    model = TaskModel(body, task)
    model.build()
    report = compress(model, out=out, texts=["the cat sees the old house"], min_agreement=0)
    counted = sum(int(weight.shape.num_elements()) for weight in body.weights)
    share = round(report["bytes"] / counted, 4)
    print(json.dumps({"bytes": report["bytes"], "parameters": counted, "bytes_a_parameter": share}))


class Ours:
    """Steps by the runtime's buffers, as `runtime.writing` takes them."""

    def __init__(self, file: Path, places: int):
        import numpy as np

        from kerasbert import inputs
        from kerasbert.mobile.runtime import load
        from kerasbert.mobile.runtime.writing import _Text

        if not hasattr(Ours, "runner"):
            Ours.runner = load(file, cache=False)
        row = inputs.row([5] * SOURCE, [0] * SOURCE)
        length, arrays = self.runner._arrays(row, {})
        self.text = _Text(self.runner.writer, row, arrays, length)
        self.text._grow(places)
        assert self.text.places == places
        self.origin, self.token, self.column = np.zeros(1, np.int32), np.array([7], np.int32), places - 1

    def step(self) -> None:
        self.text(self.token, self.column, self.origin)


def network(places: int, in_place: bool):
    """The same layers in torch: a step of T5's decoder with caches."""
    import torch
    from torch import nn

    size = HIDDEN // HEADS

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HIDDEN))

        def forward(self, x):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            square = ("query", "key", "value", "output", "crossed", "crossed_output")
            for name in square:
                setattr(self, name, nn.Linear(HIDDEN, HIDDEN, bias=False))
            self.inner, self.outer = nn.Linear(HIDDEN, WIDTH, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
            self.norms = nn.ModuleList([Norm(), Norm(), Norm()])

        def forward(self, x, column, bias, key, value, source_key, source_value, source_bias):
            def split(y):
                return y.reshape(1, HEADS, 1, size)

            y = self.norms[0](x)
            query, new_key, new_value = split(self.query(y)), split(self.key(y)), split(self.value(y))
            if in_place:
                key[:, :, column], value[:, :, column] = new_key, new_value
            else:
                here = (torch.arange(places) == column).reshape(1, 1, places, 1)
                key, value = torch.where(here, new_key, key), torch.where(here, new_value, value)
            weights = torch.softmax(query @ key.transpose(2, 3) + bias, -1)
            x = x + self.output((weights @ value).reshape(1, HIDDEN))
            query = split(self.crossed(self.norms[1](x)))
            weights = torch.softmax(query @ source_key.transpose(2, 3) + source_bias, -1)
            x = x + self.crossed_output((weights @ source_value).reshape(1, HIDDEN))
            return x + self.outer(torch.relu(self.inner(self.norms[2](x)))), key, value

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(VOCABULARY, HIDDEN)
            self.relative = nn.Embedding(32, HEADS)
            self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
            self.norm, self.head = Norm(), nn.Linear(HIDDEN, VOCABULARY, bias=False)
            self.register_buffer("buckets", torch.arange(places).clamp(max=31))

        def forward(self, token, column, source_bias, *state):
            behind = (column - torch.arange(places)).clamp(min=0)
            bias = self.relative(self.buckets[behind]).T.reshape(1, HEADS, 1, places)
            bias = bias + torch.where(torch.arange(places) <= column, 0.0, -60.0)
            x, after = self.table(token), []
            for i, layer in enumerate(self.layers):
                x, key, value = layer(x, column, bias, *state[4 * i : 4 * i + 4], source_bias)
                after += [key, value]
            return self.head(self.norm(x)), *after

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network().eval()
    state = []
    for _ in range(LAYERS):
        state += [torch.zeros(1, HEADS, places, size)] * 2 + [torch.randn(1, HEADS, SOURCE, size)] * 2
    state = [each.clone() for each in state]
    return model, (torch.tensor([7]), torch.tensor([places - 1]), torch.zeros(1, 1, 1, SOURCE), *state)


class Torch:
    """torch's dynamic int8."""

    def __init__(self, places: int):
        import torch

        model, self.inputs = network(places, True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
        self.mode = torch.inference_mode

    def step(self) -> None:
        with self.mode():
            self.model(*self.inputs)[0].numpy()


class Onnx:
    """ONNX Runtime's dynamic int8, one scale an output, caches swapped."""

    def __init__(self, places: int, folder: Path):
        import onnxruntime
        import torch
        from onnxruntime.quantization import QuantType, quantize_dynamic

        model, inputs = network(places, False)
        names = ["token", "column", "source_bias"]
        parts = ("key", "value", "source_key", "source_value")
        names += [f"{part}_{i}" for i in range(LAYERS) for part in parts]
        given = ["logits", *(f"after_{part}_{i}" for i in range(LAYERS) for part in parts[:2])]
        plain, file = str(folder / f"{places}.onnx"), str(folder / f"{places}.int8.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model, inputs, plain, input_names=names, output_names=given, dynamo=False)
        quantize_dynamic(plain, file, per_channel=True, weight_type=QuantType.QInt8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        wanted = {each.name for each in self.session.get_inputs()}
        self.values = {name: value(each.numpy()) for name, each in zip(names, inputs) if name in wanted}
        self.spare = {name: value(inputs[names.index(name.removeprefix("after_"))].numpy()) for name in given[1:]}

    def step(self) -> None:
        binding = self.session.io_binding()
        for name, each in self.values.items():
            binding.bind_ortvalue_input(name, each)
        binding.bind_output("logits")
        for name, each in self.spare.items():
            binding.bind_ortvalue_output(name, each)
        self.session.run_with_iobinding(binding)
        binding.get_outputs()[0].numpy()
        for name in list(self.spare):
            own = name.removeprefix("after_")
            self.values[own], self.spare[name] = self.spare[name], self.values[own]


def timed(file: Path, places: list[int]) -> None:
    """Print the table; in a process without TensorFlow."""
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'T':>4}  {'':12} {'wall min':>9} {'median':>8} {'CPU min':>9} {'median':>8}  CPU median / ours")
        for count in places:
            runners = {"ours": Ours(file, count), "torch int8": Torch(count), "onnx int8": Onnx(count, Path(folder))}
            wall, cpu = {name: [] for name in runners}, {name: [] for name in runners}
            for turn in range(ROUNDS + 1):
                for name, each in runners.items():
                    start, begin = time.process_time(), time.perf_counter()
                    for _ in range(TURN):
                        each.step()
                    if turn:  # the first one warms up
                        wall[name].append((time.perf_counter() - begin) / TURN * 1e3)
                        cpu[name].append((time.process_time() - start) / TURN * 1e3)
            for name in runners:
                ratio = statistics.median(a / b for a, b in zip(cpu[name], cpu["ours"]))
                row = [min(wall[name]), statistics.median(wall[name]), min(cpu[name]), statistics.median(cpu[name])]
                print(f"{count:4}  {name:12} {row[0]:9.3f} {row[1]:8.3f} {row[2]:9.3f} {row[3]:8.3f}  {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--places", type=int, nargs="+", default=list(PLACES))
    parser.add_argument("--part", choices=("make", "time"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "make":
        make(options.file, max(options.places))
    elif options.part == "time":
        timed(options.file, options.places)
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = options.file or Path(folder) / "model.tflite"
            again = [sys.executable, "-m", "tests.benchmarks.bench_generation", "--file", str(file)]
            again += ["--places", *map(str, options.places)]
            environment = os.environ | {"PYTHONWARNINGS": "ignore"}
            if not file.exists():
                subprocess.run([*again, "--part", "make"], cwd=ROOT, check=True, env=environment)
            print(
                f"{platform.processor() or platform.machine()}, {file.stat().st_size:,} bytes, n = {ROUNDS} rounds of {TURN}"
            )
            subprocess.run([*again, "--part", "time"], cwd=ROOT, check=True, env=environment)


if __name__ == "__main__":
    main()
