"""What is written down when a loss or gradient is not finite: enough to run that update again (`replay`)."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kerasbert import spec as specs
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.layers.naming import values
from kerasbert.objectives.base import Objective
from kerasbert.storage import files, folders, scratch
from kerasbert.storage.remote import is_remote
from kerasbert.training.feed import Feed
from kerasbert.training.runs import Run

FORMAT = 1


def dump(
    run: Run, program: Objective, feed: Feed, step: int, logs: Mapping[str, float], state: Mapping[str, object]
) -> tuple[str, list[tuple[str, int]]]:
    """Write `dumps/step_N` into the run's directory: the batch, the weights before the update, the settings.

    Args:
        step: int, updates made before this one.
        logs: of this one.
        state: what else the update depends on: iterations, scale, and the checkpoint to go on from.

    Returns:
        its path, and the origin of each row: (file, index in it).
    """
    batch, origins = feed.batch(step)
    weights = values(program.model)
    content = {
        "format": FORMAT,
        "kind": run.description["kind"],
        "step": step + 1,
        "logs": {name: str(value) for name, value in logs.items()},  # json has no nan
        "spec": specs.to_dict(program.model.encoder.spec),
        "settings": run.description["settings"],
        "rows": origins,
        **state,
    }
    arrays = io.BytesIO()
    np.savez(arrays, allow_pickle=True, **batch)

    def write(folder: Path) -> None:
        (folder / "batch.npz").write_bytes(arrays.getvalue())
        shapes = {name: value.shape for name, value in weights.items()}
        write_safetensors(folder / "weights.safetensors", shapes, weights.__getitem__)
        files.write_json(folder / "dump.json", content)

    path = folders.join(run.directory, "dumps", f"step_{step + 1}")
    if is_remote(path):
        with scratch.folder() as folder:
            write(Path(folder))
            folders.upload(Path(folder), path, last="dump.json")
    else:
        with files.new_directory(path, replace=True, inside=True) as folder:
            write(folder)
    return path, origins


def describe(step: int, logs: Mapping[str, float], path: str, origins: Sequence[tuple[str, int]]) -> str:
    """One line: what is not finite, when, at which rate, from which shard and place, and where the dump is."""
    file, index = origins[0]
    where = f"{file.rpartition('/')[2]} example {index}"
    if len(origins) > 1:
        where += f" and {len(origins) - 1} more of {len({file for file, _ in origins})} file(s)"
    return (
        f"the loss is {logs['loss']:.4g}, the gradient norm {logs['gradient_norm']:.4g} at update {step} "
        f"(learning rate {logs['learning_rate']:.3g}; batch: {where}). See where it begins: kerasbert replay {path}"
    )


ADVICE = "The weights before it are kept: lower --learning-rate, raise --warmup, or pass --skip-bad-steps"
