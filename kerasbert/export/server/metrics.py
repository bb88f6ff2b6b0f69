"""Counts of a server, in the text form that Prometheus reads."""

import asyncio
import bisect
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from kerasbert.export.status import CallError

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PREFIX = "kerasbert_serve"
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What was answered. Used by one thread, that of the event loop."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: dict[Labels, int] = defaultdict(int)
        self.seconds: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self.sums: dict[str, float] = defaultdict(float)
        self.batches: dict[str, int] = defaultdict(int)
        self.rows: dict[str, int] = defaultdict(int)

    @contextlib.contextmanager
    def counted(self, model: str, protocol: str) -> Iterator[None]:
        """Count the prediction that is answered, or refused, in this block; `model` as of `request`."""
        start, code = time.monotonic(), "INTERNAL"
        try:
            yield
            code = "OK"
        except CallError as error:
            code = error.code
            raise
        except asyncio.CancelledError:  # its caller waits no longer
            code = "CANCELLED"
            raise
        finally:
            self.request(model, protocol, code, time.monotonic() - start)

    def request(self, model: str, protocol: str, code: str, seconds: float) -> None:
        """Count a prediction; `model` is a name that is served, "" for any other."""
        self.requests[("model", model), ("protocol", protocol), ("code", code)] += 1
        self.seconds[model][bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sums[model] += seconds

    def batch(self, model: str) -> Callable[[int], None]:
        """What counts the batches of a model by their rows."""

        def told(rows: int) -> None:
            self.batches[model] += 1
            self.rows[model] += rows

        return told

    def text(self, waiting: Mapping[str, int], versions: Iterable[tuple[str, int]]) -> str:
        """Everything, as of now.

        Args:
            waiting: model -> rows that wait. versions: (model, number) that are served.
        """
        lines = _samples("requests_total", "counter", "predictions answered", self.requests.items())
        lines += self._histogram()
        one = [
            ("batches_total", "counter", "batches run", self.batches),
            ("batch_rows_total", "counter", "rows of the batches", self.rows),
        ]
        one.append(("waiting_rows", "gauge", "rows that wait for a batch", dict(waiting)))
        for name, kind, about, values in one:
            lines += _samples(name, kind, about, (((("model", model),), value) for model, value in values.items()))
        served = (((("model", model), ("version", str(number))), 1) for model, number in versions)
        lines += _samples("version", "gauge", "versions that are served", served)
        lines += _samples("start_time_seconds", "gauge", "Unix time of the start", [((), round(self.started, 3))])
        return "\n".join([*lines, ""])

    def _histogram(self) -> list[str]:
        samples: list[tuple[str, Labels, float]] = []
        for model, counts in self.seconds.items():
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                samples.append(("_bucket", (("model", model), ("le", bound)), total))
            samples += [("_sum", (("model", model),), self.sums[model]), ("_count", (("model", model),), total)]
        head = _samples("request_seconds", "histogram", "time to the answer", [])
        return head + [f"{PREFIX}_request_seconds{end}{_labels(labels)} {value}" for end, labels, value in samples]


def _samples(name: str, kind: str, about: str, values: Iterable[tuple[Labels, float]]) -> list[str]:
    head = [f"# HELP {PREFIX}_{name} {about}", f"# TYPE {PREFIX}_{name} {kind}"]
    return head + [f"{PREFIX}_{name}{_labels(labels)} {value}" for labels, value in values]


def _labels(labels: Labels) -> str:
    r"""
    >>> _labels((("model", 'a"b'),))
    '{model="a\\"b"}'
    """
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
