"""What `kerasbert serve-check` runs in a process of its own, as a server would: TensorFlow and tensorflow_text alone.

It is run as a file, `python -I serve_check.py DIR`, and prints one line of json.
"""

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from kerasbert.storage.json_view import Json

    Inputs = dict[str, tf.Tensor]
    Signatures = Mapping[str, Callable[..., Mapping[str, tf.Tensor]]]  # of a SavedModel: called with the inputs by name

WARM_UP = "assets.extra/tf_serving_warmup_requests"
SUMS = "SHA256SUMS"
TOLERANCE = 1e-4
CALLS = 9  # of each signature, after the first one


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of bytes of a protocol buffer, with their numbers; the messages that are read here have no others."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 != 2:
            raise ValueError("a warm-up record is damaged")
        size = varint()
        yield key >> 3, message[at : at + size]
        at += size


def tensors(message: bytes, number: int) -> "dict[str, np.ndarray]":
    """A map of tensors by name, of a request or a response."""
    import tensorflow as tf
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    entries = [dict(fields(entry)) for at, entry in fields(message) if at == number]
    return {entry[1].decode(): tf.make_ndarray(TensorProto.FromString(entry[2])) for entry in entries}


def differing(folder: Path) -> Iterator[tuple[str, bool]]:
    """Of each file that is not as its sum says the name, and whether it is there."""
    for line in (folder / SUMS).read_text("utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        if not (folder / name).is_file():
            yield name, False
            continue
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            yield name, True


def damaged(folder: Path) -> list[str]:
    """What the sums say is not as it was written."""
    said = {True: "is not what was exported (sha256)", False: "is missing"}
    return [f"{name} {said[there]}" for name, there in differing(folder)]


def operators(folder: Path) -> set[str]:
    """The operators of the graphs."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    found = set()
    for graph in SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs:
        functions = graph.graph_def.library.function
        found |= {node.op for node in graph.graph_def.node} | {n.op for each in functions for n in each.node_def}
        found -= {each.signature.name for each in functions}
    return found


def differs(name: str, wanted: "np.ndarray", received: "np.ndarray") -> str:
    """Where an output is another one than the recorded."""
    if wanted.shape != received.shape or wanted.dtype.kind != received.dtype.kind:
        return f"{name} has the shape {received.shape}, recorded {wanted.shape}"
    if wanted.dtype.kind == "f":
        largest = float(abs(wanted - received).max(initial=0.0))
        limit = TOLERANCE * max(1.0, float(abs(wanted).max(initial=0.0)))
        return "" if largest <= limit else f"{name} differs by {largest:.2g}, allowed {limit:.2g}"
    return "" if (wanted == received).all() else f"{name} is another one than recorded"


def answered(served: "Signatures", records: list[bytes], report: "Json") -> "dict[str, Inputs]":
    """Replay the warm-up; the last request of one row of each signature."""
    import tensorflow as tf

    requests = {}
    for record in records:
        log = dict(fields(dict(fields(record))[6]))
        spec = dict(fields(dict(fields(log[1]))[1]))
        name, inputs = spec[3].decode(), tensors(log[1], 2)
        if name not in served:
            report["problems"].append(f"the warm-up calls signature {name}, which is not there")
            continue
        given = {key: tf.constant(value) for key, value in inputs.items()}
        outputs = {key: value.numpy() for key, value in served[name](**given).items()}
        wanted = tensors(log.get(2, b""), 1)
        if wanted.keys() != outputs.keys():
            report["problems"].append(f"signature {name} returns {', '.join(sorted(outputs))}; others are recorded")
        found = (differs(key, wanted[key], outputs[key]) for key in sorted(wanted.keys() & outputs.keys()))
        report["problems"] += [f"signature {name}: {each}" for each in found if each]
        requests.setdefault(name, given)
    return requests


def timed(served: "Signatures", requests: "dict[str, Inputs]") -> dict[str, dict[str, float]]:
    """Milliseconds of the first call after the warm-up, and the median of later ones."""
    found = {}
    for name, given in sorted(requests.items()):
        times = []
        for _ in range(1 + CALLS):
            start = time.perf_counter()
            for value in served[name](**given).values():
                value.numpy()
            times.append(1000 * (time.perf_counter() - start))
        found[name] = {"first_ms": round(times[0], 2), "later_ms": round(statistics.median(times[1:]), 2)}
    return found


def check(folder: Path) -> "Json":
    """The report: problems, versions, operators that are not TensorFlow's own, and times."""
    report: Json = {"problems": damaged(folder)}
    if report["problems"]:
        return report
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry  # what of its operators is registered

    used = operators(folder)
    others = {name for name in used if op_def_registry.get(name) is None}
    import tensorflow_text

    missing = sorted(name for name in others if op_def_registry.get(name) is None)
    report |= {"tensorflow": tf.__version__, "tensorflow_text": tensorflow_text.__version__, "operators": len(used)}
    report["operators_of_tensorflow_text"] = sorted(others.difference(missing))
    if missing:
        report["problems"].append(f"operators that these versions lack: {', '.join(missing)}")
        return report
    start = time.perf_counter()
    served = tf.saved_model.load(str(folder)).signatures
    report["load_s"] = round(time.perf_counter() - start, 2)
    start = time.perf_counter()
    records = [each.numpy() for each in tf.data.TFRecordDataset(str(folder / WARM_UP))]
    requests = answered(served, records, report)
    report["warm_up_s"] = round(time.perf_counter() - start, 2)
    report["problems"] += [f"signature {name} has no warm-up" for name in sorted(set(served) - set(requests))]
    report["signatures"] = timed(served, requests)
    return report


if __name__ == "__main__":
    sys.modules["kerasbert"] = None  # type: ignore[assignment]  # importing it raises
    print(json.dumps(check(Path(sys.argv[1]))))
