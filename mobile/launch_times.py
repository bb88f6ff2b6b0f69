"""What of a .tflite is not one text's time: its launch, its buckets, its tokenizer, the share of XNNPACK. No TensorFlow."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kerasbert import children
from kerasbert.storage import scratch
from kerasbert.storage.json_view import Json
from kerasbert.text import load_tokenizer
from . import golden, samples
from .runtime import Runner
from .runtime.system import delegates
from .runtime.system.quiet import unheard

if TYPE_CHECKING:
    from kerasbert.answers.generation import GenerationKind


LAUNCHES = 3
CHILD = """
import json, sys, time
begin = time.perf_counter()
path, cache, text, how = json.loads(sys.argv[1])
from kerasbert.mobile.runtime import load
model = load(path, cache=cache, **how)
loaded = time.perf_counter()
model([tuple(text) if isinstance(text, list) else text])
answered = time.perf_counter()
from kerasbert.mobile.launch_times import peak
print(json.dumps([(loaded - begin) * 1e3, (answered - begin) * 1e3, peak()]))
"""
MEMORY = """
import json, sys
path, how, plain = json.loads(sys.argv[1])
if plain:  # as of a litert that has no CompiledModel
    sys.modules["ai_edge_litert.compiled_model"] = None
from kerasbert.mobile.runtime import load
from kerasbert.mobile.launch_times import peak, use_every_length
model = load(path, cache=False, **how)
use_every_length(model)
print(json.dumps([model.model.name, peak()]))
"""


def launches(path: Path, text: object, how: Json) -> Json:
    """Fresh processes, without packed weights and with them: ms to load (imports included) and to the first answer, peak MB.

    Args:
        how: arguments of `runtime.load`.

    Returns:
        {"cold": {"load_ms", "first_answer_ms", "peak_memory_mb"}, "cached": the same}, medians of LAUNCHES; "cold" alone of a
        delegate that packs no weights; {} where the system starts no processes.
    """
    environment = children.environment(sys.path)
    found: Json = {}
    with scratch.folder() as folder, contextlib.suppress(OSError, ValueError):
        for name in ("cold", "cached") if how["delegate"] == delegates.XNNPACK else ("cold",):
            rows = []
            for number in range(LAUNCHES):
                cache = os.path.join(folder, str(number) if name == "cold" else "0")
                told = json.dumps([str(path), cache, text, how], default=os.fspath)
                done = subprocess.run(children.command(CHILD, told), env=environment, capture_output=True, text=True)
                if done.returncode:
                    return {}
                rows.append(json.loads(done.stdout.splitlines()[-1]))
            columns = zip(("load_ms", "first_answer_ms", "peak_memory_mb"), zip(*rows))
            found[name] = {key: round(statistics.median(v), 1) if None not in v else None for key, v in columns}
    return found


def memory(path: Path, how: Json, plain: bool = True) -> dict[str, float]:
    """Interpreter -> peak MB of a fresh process that used every length of a file, nothing packed before.

    Args:
        how: arguments of `runtime.load`.
        plain: bool, whether the plain Interpreter is asked too, which is all that tflite-runtime has, of XNNPACK.
    """
    environment, found = children.environment(sys.path), {}
    with contextlib.suppress(OSError, ValueError):
        for other in (False, True) if plain and how["delegate"] == delegates.XNNPACK else (False,):
            told = json.dumps([str(path), how, other], default=os.fspath)
            done = subprocess.run(children.command(MEMORY, told), env=environment, capture_output=True, text=True)
            if not done.returncode:
                name, most = json.loads(done.stdout.splitlines()[-1])
                found[name] = most
    return {name: most for name, most in found.items() if most is not None}


def use_every_length(runner: Runner) -> None:
    """Run a file at each of its lengths, one of any length at several; one that writes at all places too."""
    parted = runner.bundle.pair or len(runner.bundle.parts) > 1
    filling = list(golden.filling(runner))
    more = samples.generated(runner.tokenizer, 24 if runner.bundle.any_length else 0, parted)
    for text in [*map(runner.kind.example, sorted(more, key=lambda each: len(str(each)))), *filling]:
        runner.timed(text)  # one length after the other: what grows is copied
    if not runner.bundle.answering:
        kind = cast("GenerationKind", runner.kind)
        runner.follow(runner.rows(filling[-1])[0], [runner.tokenizer.sep_id] * (kind.target_length - 1))


def buckets(runner: Runner, texts: Sequence[object], rounds: int) -> dict[int, float]:
    """Length -> median ms of its rows, tokenizing and decoding aside; of a file that writes of all that is written."""
    times: dict[int, list[float]] = {}
    for text in texts:
        for number in range(rounds + 1):
            for length, milliseconds in runner.timed(text):
                if number:  # a bucket's memory is taken at its first row
                    times.setdefault(length, []).append(milliseconds)
    return {length: round(statistics.median(values), 3) for length, values in sorted(times.items())}


def tokens_per_second(runner: Runner, texts: Sequence[object]) -> dict[str, int]:
    """Tokens a second of CPU: ids alone and with offsets, each of texts that the tokenizer reads first, and again."""
    lines = [part for text in texts for part in _flat(text)]
    found = {}
    for name in ("encode", "tokenize"):
        own = load_tokenizer(runner.bundle.tokenizer)
        for when in ("first", "again"):
            begin = time.process_time()
            read = [getattr(own, name)(line) for line in lines]
            seconds = max(time.process_time() - begin, 1e-9)
            count = sum(len(each) if name == "encode" else len(each.ids) for each in read)
            found[f"{'ids' if name == 'encode' else 'offsets'}_{when}"] = round(count / seconds)
    return found


def _flat(text: object) -> list[str | bytes]:
    if isinstance(text, str | bytes):
        return [text]
    return [each for part in text for each in _flat(part)] if isinstance(text, list | tuple) else []


def delegated(path: Path) -> Json:
    """How many operators of the first program XNNPACK takes, and in how many pieces; {} where no litert can say."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        return {}
    with unheard(), contextlib.suppress(RuntimeError, ValueError, AttributeError):
        interpreter = Interpreter(model_path=str(path))
        interpreter.allocate_tensors()
        own, taken, pieces = delegates.taken(interpreter)
        return {"operators": own, "xnnpack": taken, "pieces": pieces, "share": round(taken / own, 3)}
    return {}


def peak() -> float | None:
    """Largest resident memory of this process in MB, where the system says.

    Linux's getrusage counts what the process was before exec too: the parent's memory, if that forked it.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) * 1024 / 1e6, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
