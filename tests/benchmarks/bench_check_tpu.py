"""Pretraining steps compiled for TPU slices: memory, FLOPs, bytes from and to HBM, the roofline.

    python -m tests.benchmarks.bench_check_tpu [families | shapes] [--print]

`families`: the first size of every registered family, one layer, 32 x 128 on v5e. `shapes`: bert/base, two layers, at
three shapes on four chips. Two layers take one to two CPU-minutes to compile, twelve about six: rows are kept in
`measured/check_tpu.jsonl`, and a run goes on with the first that is missing; `--print` compiles nothing.
Needs the extra `tpu-check`. The figures are the compiler's; nothing runs on a TPU.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

from kerasbert import registry, report
from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.tpu_check.check import check_tpu
from kerasbert.training.chips import GB
from tests.benchmarks.kept_rows import kept, measured

KEPT = Path(__file__).parent / "measured/check_tpu.jsonl"
SLICES = ("v5e:2x2", "v4:2x2x1", "v5p:2x2x1", "v6e:2x2")
SHAPES = ((32, 512), (64, 512), (128, 128))
# of families whose first size this machine could not compile
KILLED = {"transformer-xl": "267,735 words: the compiler was killed at 20 of 23 GB of this machine's memory"}
HEADER = [
    *("model", "slice", "batch", "layers", "arguments GB", "temporaries GB"),
    *("TFLOP", "HBM GB", "at least ms", "utilisation", "cpu s"),
]


def arms(which: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    if which == "shapes":
        return [
            {"model": "bert/base", "slice": name, "batch": batch, "length": length, "layers": 2}
            for name, (batch, length) in itertools.product(SLICES, SHAPES)
        ]
    names = [f"{f.name}/{next(iter(f.sizes))}" for f in registry.families().values() if f.objective]
    return [{"model": name, "slice": "v5e:2x2", "batch": 32, "length": 128, "layers": 1} for name in names]


def compiled(model: str, slice: str, batch: int, length: int, layers: int) -> dict[str, Any]:
    """One step; what does not compile says why."""
    family, spec = registry.find(model)[:2]
    if family.name in KILLED:
        return {"error": KILLED[family.name]}
    changes = {"blocks.layers": layers} if specs.maybe(spec, "blocks.layers") else None
    try:
        found = check_tpu(model, slice, batch=batch, length=length, changes=changes)
    except InputError as error:
        return {"error": str(error)}
    at, bound = found.compiled, found.roofline
    assert at is not None
    return {
        **{"arguments": at.arguments, "temporaries": at.temporaries, "flops": found.flops, "hbm": at.hbm},
        **{"accessed": at.accessed, "cycles": at.cycles, "seconds": bound.seconds, "utilisation": bound.utilisation},
    }


def line(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    first = [row["model"], row["slice"], f"{row['batch']} x {row['length']}", str(row["layers"])]
    if "error" in row:
        return [*first, row["error"], *([""] * (len(HEADER) - 5))]
    return [
        *first,
        f"{row['arguments'] / GB:.2f}",
        f"{row['temporaries'] / GB:.2f}",
        f"{row['flops'] / 1e12:.2f}",
        "not read" if row["hbm"] is None else f"{row['hbm'] / 1e9:.1f}",
        f"{row['seconds'] * 1e3:.1f}",
        f"{row['utilisation']:.0%}",
        f"{row['cpu']:.0f}",
    ]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("which", nargs="?", choices=("families", "shapes"), default="families")
    options.add_argument("--print", action="store_true", help="the rows that are there, and compile nothing")
    options = options.parse_args()
    rows = kept(KEPT, arms(options.which)) if options.print else measured(KEPT, arms(options.which), compiled)
    print("mixed_bfloat16, batch per replica")
    print(report.table(HEADER, [line(row) for row in rows]))


if __name__ == "__main__":
    main()
