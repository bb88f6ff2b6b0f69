"""What is checked before a device is asked for: mistakes that would cost time on a rented machine.

Nothing here was run on a TPU; the estimate of memory is fitted to the TPU compiler's own figures, and `kerasbert check-tpu`
compiles the real step.
"""

import math
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kerasbert.errors import InputError
from kerasbert.registry import Family
from kerasbert.spec import Spec
from kerasbert.training import chips
from kerasbert.training.chips import metadata
from kerasbert.training.step import check_batch
from kerasbert.training.strategy import Place, parse

Kept = Callable[[Any, int, int, float], float]  # Spec of a family, rows, tokens, predictions -> numbers that are kept


def preflight(
    strategy: str, *, data: Iterable[str | os.PathLike], out: str | os.PathLike, batches: Sequence[tuple[int, int]]
) -> Place:
    """Refuse what cannot work on a strategy, before it is connected.

    Args:
        strategy: name.
        data: directories of records.
        out: the run's directory.
        batches: (batch, accumulate) of every phase.

    Raises:
        InputError: no such strategy, a local path for a remote TPU, a batch that cannot be divided.
    """
    place = parse(strategy)
    if place.remote:
        for kind, path in (*(("data", path) for path in data), ("out", out)):
            if not str(path).startswith("gs://"):
                raise InputError(
                    f"{kind} {path} is a path of this machine, and the hosts of {strategy!r} read and write a bucket: "
                    "copy it there (gcloud storage cp -r) and give gs://BUCKET/PATH"
                )
        for path in sorted({bucket(str(path)) for path in (*data, out)}):
            warning = region_warning(path, bucket_location(path), place.zone or metadata("zone"))
            if warning:
                warnings.warn(warning, stacklevel=2)
    for batch, accumulate in batches:
        if place.count:
            check_batch(batch, accumulate, place.count)
    return place


def bucket(path: str) -> str:
    """gs://name of a path in a bucket.

    >>> bucket("gs://texts/books/128")
    'gs://texts'
    """
    return "/".join(path.split("/")[:3])


def bucket_location(name: str) -> str | None:
    """Where a bucket is ("US-CENTRAL1", or "US" for a whole continent), as gcloud tells; None where it cannot."""
    if not shutil.which("gcloud"):
        return None
    command = ["gcloud", "storage", "buckets", "describe", name, "--format=value(location)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def region_warning(name: str, location: str | None, zone: str | None) -> str | None:
    """What to say of a bucket that is not where the TPU is: reading costs money and time.

    >>> region_warning("gs://texts", "US-EAST1", "us-west4-a")
    'gs://texts is in us-east1 and the TPU in us-west4: reading is slow and charged for. Make a bucket in us-west4'
    >>> region_warning("gs://texts", "US", "us-west4-a") is None
    True
    """
    if not location or not zone:
        return None
    place, region = location.lower(), zone.rpartition("-")[0]
    continent = {"us": "us", "nam4": "us", "eu": "europe", "eur4": "europe", "asia": "asia", "asia1": "asia"}.get(place)
    if place == region or (continent and region.startswith(continent + "-")):
        return None
    return f"{name} is in {place} and the TPU in {region}: reading is slow and charged for. Make a bucket in {region}"


def kept_numbers(spec: Spec, rows: int, length: int, predictions: float) -> float:
    """Numbers that the backward pass of blocks and a token head keeps: 7 H + F + N S a token and layer, and the logits.

    In the place of S stands what a token sees of a row (`Spec.seen`).

    Args:
        rows, length: int, B and S of a micro-batch on the chip.
        predictions: float, predicted positions per token.
    """
    width = sum(
        7 * spec.hidden
        + spec.per_layer(spec.feedforward.width, i)
        + spec.per_layer(spec.attention.heads, i) * spec.seen(i, length)
        for i in range(spec.blocks.layers)
    )
    return rows * length * (width + predictions * spec.embeddings.vocabulary)


def two_stacks(spec: Any, rows: int, length: int, predictions: float) -> float:
    """As `kept_numbers`, of an encoder-decoder whose target is as long as its source (or shorter)."""
    decoder = spec.of_decoder()
    cross = decoder.blocks.layers * (4 * spec.hidden + spec.attention.heads * length)
    return (
        kept_numbers(spec, rows, length, predictions) + kept_numbers(decoder, rows, length, 0) + rows * length * cross
    )


def kept_by(family: Family) -> Kept:
    """How the family counts what the backward pass keeps; 0 where it cannot tell."""
    if family.memory is None and not family.has_blocks and family.one_stack:
        return lambda spec, rows, length, predictions: 0.0
    return family.memory or (kept_numbers if family.one_stack else two_stacks)


def estimate_hbm(
    spec: Spec,
    parameters: int,
    rows: int,
    length: int,
    *,
    half: bool = True,
    slots: int = 2,
    predictions: float = 0.16,
    kept: Kept = kept_numbers,
) -> dict[str, float]:
    """Memory of a training step on one replica, GB of 2^30 bytes: {"state", "temporaries"}. Arithmetic, not a measurement.

    State: float32 weights and `slots` of the optimizer. Temporaries: 7 H + F + N S activations per token and layer that the
    backward pass keeps and the logits of the predicted positions; never less than the float32 gradients. For BERT-base in
    bfloat16 it gives 1.0 GB of temporaries at 32 x 128 and 3.8 GB at 128 x 128, where the TPU compiler has 1.0 and 4.0. It is too
    much where a TPU attends in blocks (`layers.backend_blocks`), which keep no N S: BERT-base from 64 x 256 or 32 x 512 on.

    Args:
        spec: Spec.
        parameters: int, weights with heads.
        rows: int, sequences of a micro-batch on the chip.
        length: int S.
        half: bool, activations of two bytes.
        predictions: float, predicted positions per token.
        kept: a family's own count of the numbers that are kept (`Family.memory`).
    """
    bytes_kept = (2 if half else 4) * kept(spec, rows, length, predictions)
    return {"state": 4 * parameters * (1 + slots) / chips.GB, "temporaries": max(4 * parameters, bytes_kept) / chips.GB}


def hbm_warning(found: dict[str, float], kind: str | None) -> str | None:
    """What to say where a step will not fit a chip; None where it will, or the chip is unknown.

    >>> hbm_warning({"state": 1.3, "temporaries": 16.4}, "v5e")
    'a step needs about 17.7 GB (1.3 state, 16.4 temporaries), a replica on v5e has 15.75: lower --batch or raise --accumulate'
    """
    total = sum(found.values())
    capacity = chips.CHIPS[kind].device.hbm / chips.GB if kind in chips.CHIPS else math.inf
    if total <= capacity:
        return None
    return (
        f"a step needs about {total:.1f} GB ({found['state']:.1f} state, {found['temporaries']:.1f} temporaries), "
        f"a replica on {kind} has {capacity:g}: lower --batch or raise --accumulate"
    )


def warn_of_memory(
    place: Place,
    spec: Spec,
    parameters: int,
    rows: int,
    length: int,
    half: bool,
    predictions: float = 0.16,
    kept: Kept = kept_numbers,
) -> None:
    """Warn where a step will probably not fit the TPU; see `estimate_hbm`, whose predictions the objective tells."""
    kind = chips.kind(metadata("attributes/accelerator-type")) if place.kind == "tpu" else None
    if not kind:
        return
    about = {"half": half, "predictions": predictions, "kept": kept}
    warning = hbm_warning(estimate_hbm(spec, parameters, rows, length, **about), kind)
    if warning:
        warnings.warn(f"{warning}. `kerasbert check-tpu` compiles the real step", stacklevel=2)
