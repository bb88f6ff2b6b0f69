"""Records on Apache Beam: Dataflow, Flink, Spark, or this machine. The bytes are those of the local path.

Files are read and tokenized where the runner puts them, documents are grouped by shard, and each shard is written by
the same `ShardWriter` as on one machine. The workers need kerasbert, and files and `out` must be where all of them can
reach them: gs:// or a shared disk. A file is read by one worker, so many files of some 100 MB go fastest.
"""

import json
import shlex
from collections.abc import Iterable, Iterator

# pyright: reportMissingImports=false, reportUnusedExpression=false
# an extra of its own (kerasbert[beam]), whose pipelines are built by operators
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton

from kerasbert.data.encode import batch_encoder
from kerasbert.data.job import Job, Source
from kerasbert.data.shards import Report
from kerasbert.data.spool import DIGEST, measure, shard_of
from kerasbert.errors import InputError
from kerasbert.storage import remote
from kerasbert.storage.json_view import Json

REPORT = "report.json"


class _Read(beam.DoFn):
    """A file -> (shard, entry) of each of its documents."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        self.encode = batch_encoder(self.job.tokenizer, self.job.units)

    def process(self, source: Source) -> Iterator[tuple[int, bytes]]:
        for data in self.job.entries([source], self.encode):
            yield shard_of(data[:DIGEST], self.job.writer.shards), data


class _Count(beam.CombineFn):
    """(language, tokens) of documents -> {language: (documents, tokens)}."""

    def create_accumulator(self) -> dict[int, tuple[int, int]]:
        return {}

    def add_input(self, counts: dict, measured: tuple[int, int]) -> dict[int, tuple[int, int]]:
        language, tokens = measured
        return self.merge_accumulators([counts, {language: (1, tokens)}])

    def merge_accumulators(self, accumulators: Iterable[dict]) -> dict[int, tuple[int, int]]:
        merged: dict[int, tuple[int, int]] = {}
        for counts in accumulators:
            for language, (documents, tokens) in counts.items():
                before = merged.get(language, (0, 0))
                merged[language] = before[0] + documents, before[1] + tokens
        return merged

    def extract_output(self, counts: dict) -> dict[int, tuple[int, int]]:
        return counts


def _sum(reports: Iterable[Report]) -> Report:
    return sum(reports, Report())


def _write(shard: tuple[int, Iterable[bytes]], counts: dict[int, tuple[int, int]], job: Job) -> Report:
    number, parts = shard
    return job.writer.write(number, b"".join(parts), job.repeats(job.languages(counts)))


def _save(report: Report, counts: dict[int, tuple[int, int]], path: str) -> None:
    remote.write(path, json.dumps({"report": report.to_json(), "counts": sorted(counts.items())}))


def run(job: Job, options: str = "") -> tuple[Report, Json]:
    """Write all shards; see `writer.run`. The options are Beam's own, as on its command line."""
    path = remote.join(job.writer.directory, REPORT)
    try:
        with beam.Pipeline(options=PipelineOptions(shlex.split(options))) as pipeline:
            documents = (
                pipeline | "files" >> beam.Create(job.sources) | beam.Reshuffle() | "tokenize" >> beam.ParDo(_Read(job))
            )
            counts = documents | beam.Values() | beam.Map(measure) | "count" >> beam.CombineGlobally(_Count())
            counts = AsSingleton(counts)
            # A shard that no document falls into is written too.
            every = pipeline | "shards" >> beam.Create([(number, b"") for number in range(job.writer.shards)])
            reports = (
                (documents, every)
                | beam.Flatten()
                | beam.GroupByKey()
                | "write" >> beam.Map(_write, counts=counts, job=job)
                | "sum" >> beam.CombineGlobally(_sum)
            )
            reports | "save" >> beam.Map(_save, counts=counts, path=path)
    except Exception as error:
        raise _cause(error) from error
    saved = json.loads(remote.read(path))
    remote.remove(path)
    return Report.from_json(saved["report"]), job.languages({number: tuple(count) for number, count in saved["counts"]})


def _cause(error: Exception) -> Exception:
    """The user's mistake in what Beam makes of an error in a worker: the same type or its traceback, and more text."""
    found, text = isinstance(error, InputError), str(error)
    if not found:
        _, found, text = text.rpartition(f"{InputError.__name__}: ")
    return InputError(text.partition("\n")[0].partition(" [while running")[0]) if found else error
