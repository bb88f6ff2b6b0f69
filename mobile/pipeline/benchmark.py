"""How long a text takes, one after the other: of a .tflite by the phone's runtime, of a model directory by Keras."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.cli.options import Keywords
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from ..runtime import WINDOWS, Runner
from ..runtime.system.delegates import XNNPACK

if TYPE_CHECKING:
    from kerasbert.answers.base import Kind
    from kerasbert.text.base import Tokenizer

    Timed = tuple[Callable[[object], object], Tokenizer, bool, Kind, str]  # what answers a text, and what it is


def benchmark(
    path: str | os.PathLike,
    texts: Sequence[object] | None = None,
    *,
    rounds: int = 3,
    threads: int = 1,
    cache: str | os.PathLike | bool | None = None,
    plugin: Sequence[str | os.PathLike] = (),
    windows: int = WINDOWS,
    delegate: str = XNNPACK,
) -> Json:
    """Times, memory and size; of this process, so that a fresh one gives what a launch gives.

    Args:
        path: a .tflite, or a model directory (needs TensorFlow).
        texts: str or pairs; by default texts made of the vocabulary.
        rounds: int, times that every text is run.
        threads: int.
        cache, plugin, windows, delegate: of a .tflite, see `runtime.load`.

    Returns:
        {"file", "bytes", "interpreter", "texts", "load_ms", "first_answer_ms", "p50_ms", "p90_ms", "peak_memory_mb"}; of a
        .tflite also "buckets" (length -> ms of a row), "launch" (fresh processes, `launch_times.launches`),
        "memory_of_all_lengths_mb" (interpreter -> peak of one that used them all), "tokens_per_second" and "operators"
        (`launch_times.delegated`). Another delegate than XNNPACK packs no weights, so that every launch of it is cold, and has
        no "operators". Energy is not measured.
    """
    from .. import launch_times
    from ..runtime import load
    from ..samples import generated

    path = Path(path)
    how: Keywords = {"threads": threads, "plugin": list(plugin), "windows": windows, "delegate": delegate}
    start = time.perf_counter()
    runner = None if path.is_dir() else load(path, cache=cache, **how)
    run, tokenizer, pair, kind, name = _keras(path, threads) if runner is None else _phone(runner)
    loaded = time.perf_counter()
    texts = list(map(kind.example, generated(tokenizer, 200, pair))) if texts is None else list(texts)
    if not texts or rounds < 1:
        raise InputError(f"{len(texts)} texts and {rounds} rounds, expected at least one of each")
    run(texts[0])
    first = time.perf_counter()
    times = _times(run, texts, rounds)
    more = {} if runner is None else _of_a_file(runner, path, texts, rounds, how)
    deciles = statistics.quantiles(times, n=10) if len(times) > 1 else times * 9
    return {
        "file": str(path),
        "bytes": ((path / "weights.safetensors") if path.is_dir() else path).stat().st_size,
        "interpreter": name,
        "texts": len(texts),
        "load_ms": round((loaded - start) * 1e3, 1),
        "first_answer_ms": round((first - loaded) * 1e3, 2),
        "p50_ms": round(deciles[4], 3),
        "p90_ms": round(deciles[8], 3),
        "peak_memory_mb": launch_times.peak(),
        **more,
    }


def _times(run: Callable[[object], object], texts: Sequence[object], rounds: int) -> list[float]:
    """Milliseconds of each text of each round."""
    for text in texts:  # every length once: its memory is taken then
        run(text)
    times = []
    for _ in range(rounds):
        for text in texts:
            begin = time.perf_counter()
            run(text)
            times.append((time.perf_counter() - begin) * 1e3)
    return times


def _of_a_file(runner: Runner, path: Path, texts: Sequence[object], rounds: int, how: Keywords) -> Json:
    from .. import golden, launch_times

    found = {
        "buckets": launch_times.buckets(runner, [*texts[:50], *golden.filling(runner)], rounds),
        "launch": launch_times.launches(path, texts[0], how),
        "memory_of_all_lengths_mb": launch_times.memory(path, how),
        "tokens_per_second": launch_times.tokens_per_second(runner, texts),
    }
    return found | ({"operators": launch_times.delegated(path)} if how["delegate"] == XNNPACK else {})


def _phone(model: Runner) -> "Timed":
    assert model.model is not None  # it is open
    return lambda text: model([text]), model.tokenizer, model.bundle.pair, model.kind, model.model.name


def _keras(path: Path, threads: int) -> "Timed":
    import tensorflow as tf

    from kerasbert.tasks import load, predict
    from kerasbert.tasks.base import kind_of

    with contextlib.suppress(RuntimeError):  # TensorFlow ran in this process already, its threads are what they are
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    model = load.load(path)
    if model.tokenizer is None:
        raise InputError(f"{path} has no tokenizer, expected one in its tokenizer/: a text is what is timed")
    task = getattr(model, "task", None)
    answer = predict.predict if task else predict.encode
    kind = kind_of(model).answers
    return lambda text: answer(model, [text]), model.tokenizer, bool(task and task.pair), kind, "keras"
