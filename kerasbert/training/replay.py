"""Run a non-finite update again, without its tf.functions, and tell where the first non-finite number appears."""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.naming import names
from kerasbert.objectives.base import Objective
from kerasbert.storage.json_view import Json
from kerasbert.tasks.task import Task
from kerasbert.training.adversarial import WAYS
from kerasbert.training.early import check_dump
from kerasbert.training.freezing import freeze, patterns_of
from kerasbert.training.nonfinite import FORMAT
from kerasbert.training.perturbed import objective
from kerasbert.training.precision import precision
from kerasbert.training.step import mean
from kerasbert.training.trainer import assign


def replay(dump: str | os.PathLike) -> Json:
    """Run the dumped update again.

    Args:
        dump: the folder `dumps/step_N` of a run.

    Returns:
        step; weights, outputs, losses, backward, gradients: names of what is not finite, in the order of computing, each
        with its numbers of nan and inf; loss: name -> value; rows: those of the batch that are not finite alone, with
        their file and index. All empty where the numbers are finite here.

    Raises:
        InputError: no dump there.
    """
    folder = Path(dump)
    content = check_dump(folder)
    if content["format"] != FORMAT:
        raise InputError(f"{folder} has format {content['format']}, this version reads {FORMAT}")
    if content["kind"] == "distill":
        raise InputError(f"{folder} is of a distillation, whose teacher no dump holds: replay runs of the other kinds")
    if content["kind"] == "finetune_tasks":
        raise InputError(f"{folder} is of several tasks at once: replay runs of one task")
    if (content["settings"].get("adversarial") or {}).get("proximal"):
        raise InputError(f"{folder} compares with the weights' recent mean, which no dump holds: replay other runs")
    with np.load(folder / "batch.npz") as arrays:
        batch = {name: tf.convert_to_tensor(arrays[name]) for name in arrays.files}
    program = _program(content, batch)
    freeze(program.model, patterns_of(program.model.spec, content["settings"]))
    variables = names(program.model)
    assign(Safetensors(folder / "weights.safetensors"), variables)
    again = _Again(program, batch, content)
    return {"step": content["step"], "weights": _bad((n, v.value) for n, v in variables.items()), **again.report()}


def _program(content: Json, features: Collection[str]) -> Objective:
    settings = content["settings"]
    family = registry.family(settings["model"].partition("/")[0])
    keras.utils.set_random_seed(settings["seed"])
    with precision(settings["precision"]):
        encoder = family.encoder(specs.from_dict(content["spec"], type(family.spec)))
        encoder.build()
        if content["kind"] == "finetune":
            way = dict(settings.get("adversarial") or {})
            return objective(encoder, Task.from_json(settings["task"]), WAYS[way.pop("name")](**way) if way else None)
        pretraining = registry.objective(settings["objective"])
        held = settings["objective_settings"]
        return pretraining(encoder, None, features=features, settings=held, seed=settings["seed"])


class _Again:
    """One forward and backward pass, layer by layer."""

    def __init__(self, program: Objective, batch: dict[str, tf.Tensor], content: Json) -> None:
        self.program, self.rows = program, content["rows"]
        self.key = random.key(content["settings"]["seed"], "dropout", tf.constant(content["iterations"], tf.int32))
        self.scale = content.get("scale") or 1.0
        self.counts = program.counts(batch)
        with random.scope(self.key, batch["row"]):
            self.batch = dict(program.perturbed(batch))

    def report(self) -> Json:
        variables = self.program.model.trainable_variables
        with _eagerly(), _outputs() as outputs, tf.GradientTape() as tape:
            sums, loss = self._loss(self.batch)
        seen = [tensor for _, tensor in outputs]
        found = tape.gradient(
            loss, [*seen, *(v.value for v in variables)], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        found = [tf.convert_to_tensor(gradient) for gradient in found]
        path = {id(variable): name for name, variable in names(self.program.model).items()}
        backward = zip([name for name, _ in outputs], found)
        gradients = [(path[id(v)], gradient) for v, gradient in zip(variables, found[len(seen) :])]
        losses = {name: mean(value, self.counts[name.partition("/")[0]]) for name, value in sums.items()}
        result = {
            "outputs": _bad(outputs),
            "loss": {name: str(float(value)) for name, value in losses.items()},
            "losses": _bad(losses.items()),
            "backward": _bad(reversed(list(backward))),
            "gradients": _bad(gradients),
        }
        bad = any(result[part] for part in ("outputs", "losses", "backward", "gradients"))
        rows = self._search(0, len(self.rows)) if bad else []
        return result | {"rows": [{"row": r, "file": self.rows[r][0], "example": self.rows[r][1]} for r in rows]}

    def _loss(self, batch: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        with random.scope(self.key, batch["row"]):
            sums = self.program.losses(batch)
        parts = [scale * mean(sums[name], self.counts[name]) for name, scale in self.program.scales.items()]
        return sums, tf.add_n(parts) * self.scale

    def _search(self, begin: int, end: int) -> list[int]:
        """Rows that are not finite, by halving: a sum is finite where each part is."""
        each = {name: len(value) // len(self.rows) for name, value in self.batch.items()}  # rows that stay together
        batch = {name: value[begin * each[name] : end * each[name]] for name, value in self.batch.items()}
        with _eagerly(), tf.GradientTape() as tape:
            loss = self._loss(batch)[1]
        variables = [v.value for v in self.program.model.trainable_variables]
        gradients = [g for g in tape.gradient(loss, variables) if g is not None]
        if np.isfinite(float(loss)) and not _bad(("", tf.convert_to_tensor(g)) for g in gradients):
            return []
        if end - begin == 1:
            return [begin]
        middle = (begin + end) // 2
        return self._search(begin, middle) + self._search(middle, end)


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    """Compiled parts of layers run operation by operation too."""
    old = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(old)


@contextlib.contextmanager
def _outputs() -> Iterator[list[tuple[str, tf.Tensor]]]:
    """Collect (layer, output) of every layer that is called, the inner ones first."""
    call, found = keras.layers.Layer.__call__, []

    def noting(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        outputs = call(self, *args, **kwargs)
        known = {id(tensor) for _, tensor in found}
        for tensor in tf.nest.flatten(outputs):
            if tf.is_tensor(tensor) and tensor.dtype.is_floating and id(tensor) not in known:
                found.append((self.path, tensor))
        return outputs

    keras.layers.Layer.__call__ = noting
    try:
        yield found
    finally:
        keras.layers.Layer.__call__ = call


def _bad(tensors: Iterable[tuple[str, Tensor]]) -> list[Json]:
    """The named tensors that hold what is not finite, in their order."""
    found = []
    for name, tensor in tensors:
        values = tf.cast(tf.convert_to_tensor(tensor), tf.float32).numpy()
        nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        if nan or inf:
            found.append({"name": name, "nan": nan, "inf": inf, "of": int(values.size)})
    return found


def lines(report: Json) -> list[str]:
    """A report of `replay` for people."""

    def first(part: str, label: str) -> str:
        bad = report[part]
        if not bad:
            return f"{label}: all finite"
        item = bad[0]
        more = f"; {len(bad) - 1} more" if len(bad) > 1 else ""
        return f"{label}: first {item['name']} ({item['nan']} nan and {item['inf']} inf of {item['of']}){more}"

    found = [f"update {report['step']}: " + "  ".join(f"{name} {value}" for name, value in report["loss"].items())]
    found += [first("weights", "weights before it"), first("outputs", "layers, forward")]
    found += [first("losses", "losses"), first("backward", "layers, backward"), first("gradients", "gradients")]
    for row in report["rows"][:10]:
        found.append(f"row {row['row']}: {row['file']} example {row['example']}")
    if len(report["rows"]) > 10:
        found.append(f"and {len(report['rows']) - 10} more of the batch's rows")
    return found
