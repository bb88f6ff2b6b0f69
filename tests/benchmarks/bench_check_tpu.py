"""Every registered family's pretraining step compiled for a TPU slice: memory, FLOPs, bytes, the roofline.

    python -m tests.benchmarks.bench_check_tpu [MODEL/SIZE ...] [--topology v5e:2x2] [--batch 32] [--layers N]

Needs the extra `tpu-check`. The first size of each family by default, with all of its layers: minutes each.
The figures are the compiler's; nothing runs on a TPU. CPU seconds are those of lowering and compiling.
"""

import argparse
import time

from kerasbert import registry, report
from kerasbert.errors import InputError
from kerasbert.tpu_check.check import check_tpu
from kerasbert.training.chips import GB


def row(name: str, options: argparse.Namespace) -> list[str]:
    """One line of the table; what does not compile says why."""
    began = time.process_time()
    try:
        found = check_tpu(
            name,
            options.topology,
            batch=options.batch,
            length=options.length,
            changes={"blocks.layers": options.layers} if options.layers else None,
        )
    except InputError as error:
        return [name, str(error), *([""] * 6)]
    at, bound = found.compiled, found.roofline
    return [
        name,
        f"{at.arguments / GB:.2f}",
        f"{at.temporaries / GB:.2f}",
        f"{at.flops / 1e12:.2f}",
        f"{at.accessed / 1e9:.1f}",
        f"{bound.seconds * 1e3:.1f}",
        f"{bound.utilisation:.0%}",
        f"{time.process_time() - began:.0f}",
    ]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument(
        "models",
        nargs="*",
        default=[f"{f.name}/{next(iter(f.sizes))}" for f in registry.families().values() if f.objective],
    )
    options.add_argument("--topology", default="v5e:2x2")
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--length", type=int, default=128)
    options.add_argument("--layers", type=int, help="instead of the model's own number")
    options = options.parse_args()
    header = ["model", "arguments GB", "temporaries GB", "TFLOP", "GB accessed", "at least ms", "utilisation", "cpu s"]
    rows = [row(name, options) for name in options.models]
    print(f"{options.topology}, {options.batch} x {options.length} per replica, mixed_bfloat16")
    print(report.table(header, rows))


if __name__ == "__main__":
    main()
