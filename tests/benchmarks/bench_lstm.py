"""What does one LSTM layer cost a phone, as a loop and unrolled, and is a text in pieces the whole?

    python -m tests.benchmarks.bench_lstm [--rounds N]

One layer of 128 units over 64 vectors of 128 numbers, batch 1, one thread; the state is an input and an output. Random weights.
"""

import argparse
import contextlib
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from kerasbert.captured_output import captured
from kerasbert.layers import backend
from kerasbert.layers.recurrent import GRU, LSTM, ResetBeforeGRU
from kerasbert.mobile.tflite.convert import converted

UNITS, LENGTH = 128, 64
CELLS = {"LSTM": LSTM, "GRU": GRU, "GRU that resets before": ResetBeforeGRU}


class Reader(keras.Model):
    """A recurrent layer whose state is an input and an output."""

    def __init__(self, kind: type, units: int = UNITS, seed: int = 0):
        super().__init__()
        keras.utils.set_random_seed(seed)
        self.layer = kind(units, name="layer")
        self.layer.build((None, None, units))
        self.built = True

    def call(self, inputs):
        state = tuple(inputs[f"state_{i}"] for i in range(len(self.layer.widths)))
        y, after = self.layer(inputs["x"], state=state)
        return {"y": y} | {f"after_{i}": each for i, each in enumerate(after)}

    def shapes(self, length: int) -> dict[str, tuple[int, ...]]:
        """Of the inputs."""
        widths = self.layer.widths
        return {"x": (1, length, self.layer.units)} | {f"state_{i}": (1, width) for i, width in enumerate(widths)}


@contextlib.contextmanager
def unrolled() -> Iterator[None]:
    """Layers are traced place after place."""
    with mock.patch("kerasbert.layers.recurrence.scan", backend.scan_plainly):
        yield


def file(model: Reader, lengths: tuple[int, ...], quantize: str) -> bytes:
    """A .tflite with a signature for each length, `read_N`."""
    with tempfile.TemporaryDirectory() as directory, captured() as log:
        archive = keras.export.ExportArchive()
        archive.track(model)
        for length in lengths:
            spec = {name: tf.TensorSpec(shape, name=name) for name, shape in model.shapes(length).items()}
            archive.add_endpoint(f"read_{length}", lambda batch: model(batch), input_signature=[spec])
        archive.write_out(directory, verbose=False)
        return converted(directory, [f"read_{length}" for length in lengths], quantize, log)


def opened(data: bytes) -> Interpreter:
    """On one thread."""
    return Interpreter(model_content=data, num_threads=1)


def read(interpreter: Interpreter, x: np.ndarray, state: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """A text behind a state: x [1, S, E] -> what the layer gives, and the state behind it."""
    found = interpreter.get_signature_runner(f"read_{x.shape[1]}")(
        x=x, **{f"state_{i}": each for i, each in enumerate(state)}
    )
    return found["y"], [found[f"after_{i}"] for i in range(len(state))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print(f"{platform.machine()}, TensorFlow {tf.__version__}, n = {rounds}, one thread")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, LENGTH, UNITS)).astype("float32")
    for name, kind in CELLS.items():
        model = Reader(kind)
        state = [generator.normal(0, 0.5, (1, width)).astype("float32") for width in model.layer.widths]
        wanted = model({"x": x} | {f"state_{i}": each for i, each in enumerate(state)})["y"].numpy()
        files = {}
        for form, about in (("loop", contextlib.nullcontext), ("unrolled", unrolled)):
            for quantize in ("float32", "dynamic_int8"):
                began = time.perf_counter()
                with about():
                    data = file(model, (LENGTH,), quantize)
                files[form, quantize] = (data, opened(data), time.perf_counter() - began, [])
        for _ in range(rounds):  # in turns
            for _, interpreter, _, seconds in files.values():
                began = time.perf_counter()
                read(interpreter, x, state)
                seconds.append(time.perf_counter() - began)
        for (form, quantize), (data, interpreter, took, seconds) in files.items():
            off = float(np.abs(read(interpreter, x, state)[0] - wanted).max())
            p50, p90 = (1000 * each for each in (statistics.median(seconds), np.quantile(seconds, 0.9)))
            print(
                f"{name}, {form}, {quantize}: p50 {p50:.2f} ms, p90 {p90:.2f}, {len(data) / 1000:.0f} kB, off {off:.1e}, "
                f"converted in {took:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
