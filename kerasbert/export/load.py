"""Requests of many callers at once, and how long they take: what a server stands. Imports nothing heavy."""

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kerasbert.data.reading import numbered_lines
from kerasbert.errors import InputError
from kerasbert.export.client import CallError, Client
from kerasbert.storage.json_view import Json, JsonMap, unrepeated
from kerasbert.value_types import check_whole

TEXTS = (  # of 3 to 60 words
    "a gripping film",
    "The old captain looked at the sea for a long time, and said nothing at all of what he had seen there.",
    "so bad, so very bad",
    "Une vieille dame, naïve et très polie, ouvrit la porte.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the "
    "epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season of darkness.",
)
SHARES = (50, 95, 99)


def sample(inputs: Mapping[str, str]) -> list[Json]:
    """Rows for a signature's inputs, such as {"text": "DT_STRING [-1]"}: texts, lists of two texts, and the number 2.

    Raises:
        InputError: an input of another kind.
    """
    made: dict[str, list[object]] = {}
    for name, kind in inputs.items():
        dtype, _, axes = kind.partition(" ")
        count = axes.count(",") + 1
        if dtype == "DT_STRING" and count <= 2:
            made[name] = [text if count == 1 else [text, "another"] for text in TEXTS]
        elif dtype in ("DT_INT32", "DT_INT64") and count == 1:
            made[name] = [2] * len(TEXTS)
        else:
            raise InputError(
                f"no sample for the input {name} ({kind}): give --data FILE, a json object of inputs on each line"
            )
    return [dict(zip(made, row)) for row in zip(*made.values())]


def read(path: str | os.PathLike) -> list[Json]:
    """Rows of a file: on each line a json object, input -> value.

    Raises:
        InputError: a line that is none, or has other inputs than the first.
    """
    rows: list[Json] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=unrepeated)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: expected a json object of inputs: {error}") from error
        expected = f"the inputs {', '.join(rows[0])}" if rows else "a json object of inputs"
        if not isinstance(row, dict) or not row or row.keys() != (rows or [row])[0].keys():
            raise InputError(f"{path}, line {number}: expected {expected}")
        rows.append(row)
    if not rows:
        raise InputError(f"{path} holds no row")
    return rows


def measure(
    client: Client,
    rows: Sequence[Mapping[str, object]],
    *,
    requests: int = 1000,
    concurrency: int = 8,
    batch: int = 1,
    signature: str = "serving_default",
) -> Json:
    """Send requests and measure.

    Args:
        client: whose `retries` should be 0: an error is counted, not hidden.
        rows: taken in turn. requests: int, all. concurrency: int, at once. batch: int, rows of a request. signature: str.

    Returns:
        requests, concurrency, batch, seconds, requests_per_second and rows_per_second of those answered; p50_ms, p95_ms,
        p99_ms, longest_ms of them, None where none is; errors, their number, and codes, of each status.

    Raises:
        CallError: the first request, which is not counted, is refused.
    """
    for name, number in (("requests", requests), ("concurrency", concurrency), ("batch", batch)):
        check_whole(name, number)
    endless = itertools.cycle(rows)
    calls = [_columns([next(endless) for _ in range(batch)]) for _ in range(min(requests, len(rows)))]
    client.predict(calls[0], signature)
    numbers, lock = iter(range(requests)), threading.Lock()
    times: list[float] = []
    codes: Counter[str] = Counter()

    def work() -> None:
        while (number := _next(numbers, lock)) is not None:
            start, code = time.monotonic(), ""
            try:
                client.predict(calls[number % len(calls)], signature)
            except CallError as error:
                code = error.code
            took = time.monotonic() - start
            with lock:
                codes.update([code] if code else [])
                times.extend([] if code else [took])

    threads = [threading.Thread(target=work, daemon=True) for _ in range(concurrency)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    found = {"requests": requests, "concurrency": concurrency, "batch": batch, "seconds": round(seconds, 3)}
    found |= {"requests_per_second": round(len(times) / seconds, 1)}
    found |= {"rows_per_second": round(len(times) * batch / seconds, 1)}
    found |= {f"p{share}_ms": percentile(times, share) for share in SHARES}
    return found | {"longest_ms": percentile(times, 100), "errors": codes.total(), "codes": dict(codes)}


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _next(numbers: Iterator[int], lock: threading.Lock) -> int | None:
    with lock:
        return next(numbers, None)


def percentile(seconds: Sequence[float], share: float) -> float | None:
    """The time within which `share` percent were answered, in ms: a time that was measured (nearest rank).

    >>> percentile([0.001, 0.002, 0.003, 0.004], 50), percentile([0.001, 0.002], 99), percentile([], 50)
    (2.0, 2.0, None)
    """
    if not seconds:
        return None
    rank = -(-len(seconds) * share // 100)
    return round(1000 * sorted(seconds)[max(0, int(rank) - 1)], 2)


def table(found: JsonMap) -> str:
    """What `measure` gives, for a reader."""
    lines = [
        f"{found['requests']} requests of {found['batch']} row{'s' * (found['batch'] > 1)}, {found['concurrency']} at once, "
        f"in {found['seconds']:.1f} s",
        f"{found['requests_per_second']:.1f} requests/s, {found['rows_per_second']:.1f} rows/s",
    ]
    if found["p50_ms"] is not None:
        names = {"p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms", "longest": "longest_ms"}
        lines.append("  ".join(f"{name} {found[key]:.1f} ms" for name, key in names.items()))
    codes = ", ".join(f"{code} {count}" for code, count in sorted(found["codes"].items()))
    return "\n".join([*lines, f"{found['errors']} errors{': ' if codes else ''}{codes}"])
