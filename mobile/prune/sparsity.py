"""Magnitude pruning while a model is trained: a `training.constraints.Constraint`."""

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert import checkpoints, progress
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.errors import InputError
from kerasbert.inputs import listed
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.naming import names
from kerasbert.options import checked, passing
from kerasbert.storage.json_view import Json
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Task
from kerasbert.training.config import FinetuneConfig
from kerasbert.value_types import check_type
from ..distill.recipes import DistillConfig
from .masks import STRUCTURES, fits, masks, settled
from .schedule import Schedule, make_schedule

KERNELS = (
    r"(^|/)attention/(query|key|value|output)/kernel$",
    r"(^|/)feedforward[^/]*/(inner|gate|linear|outer)/kernel$",
)
FURTHER = (r"(^|/)attention/((query|key|value)_global|query_key)/kernel$",)  # where a model has them, without patterns


class _Kept:
    """A constraint that Keras applies to a weight after each update: x where the mask is True, else 0."""

    def __init__(self, mask: tf.Variable) -> None:
        self.mask = mask

    def __call__(self, weight: keras.Variable) -> tf.Tensor:
        values = tf.convert_to_tensor(weight)
        return tf.where(self.mask, values, tf.zeros_like(values))


class Magnitude:
    """The smallest weights go, more and more of them, and never come back (Zhu and Gupta, 2017, section 3).

    The masks are made from the weights before the updates that the schedule names, and applied by Keras inside the
    optimizer's step after each update, so that neither momentum nor decay revives a weight. They are part of the
    checkpoints. Layers that share weights share the mask; an encoder object that was pruned keeps its masks.
    Differs: the gradient of a weight that is gone still counts in the norm that the gradients are clipped by, as with tfmot.

    Args:
        sparsity: float in [0, 1), share of the chosen kernels' weights; None for "2:4", which takes half.
        structure: "none", "4x1" or "2:4", see `masks`.
        scope: "layer" or "global".
        schedule: "polynomial" or "constant"; "2:4" is made once, as "constant".
        begin, end, frequency: int, updates, see `schedule.make_schedule`.
        patterns: regular expressions searched in the names of the weights; attention and feed-forward kernels by default, but for
            those that read a table of positions, whose products are constants of a file.
    Raises:
        InputError: a value that does not exist or is out of range.
    """

    plan: Schedule  # of `install`

    @checked
    def __init__(
        self,
        sparsity: float | None = None,
        *,
        structure: str = "none",
        scope: str = "layer",
        schedule: str | None = None,
        begin: int | None = None,
        end: int | None = None,
        frequency: int | None = None,
        patterns: Sequence[str] = KERNELS,
    ) -> None:
        self.sparsity, self.schedule = settled(sparsity, structure, scope, schedule, end, frequency)
        self.structure, self.scope, self.times = structure, scope, (begin, end, frequency)
        check_type("patterns", Sequence[str], patterns)
        self.patterns = tuple(listed(patterns))

    def describe(self, encoder: Encoder, steps: int) -> Json:
        """What run.json holds.

        Raises:
            InputError: a pattern that finds no kernel, no kernel that the structure fits, updates outside of the training.
        """
        plan = make_schedule(self.schedule, self.sparsity, steps, *self.times)
        chosen, left = self.choose(encoder)
        if left:
            progress.say(
                f"{len(left)} kernels stay dense, their inputs are no multiple of {STRUCTURES[self.structure]}: "
                + ", ".join(left)
            )
        return {
            "kind": "magnitude",
            "sparsity": self.sparsity,
            "structure": self.structure,
            "scope": self.scope,
            "schedule": self.schedule,
            "begin": plan.begin,
            "end": plan.end,
            "frequency": plan.frequency,
            "patterns": list(self.patterns),
            "kernels": len(chosen),
        }

    def choose(self, model: keras.Model) -> tuple[dict[str, keras.Variable], list[str]]:
        """(name -> variable of the kernels to prune, names of those that the structure does not fit)."""
        found: dict[str, keras.Variable] = {}
        every = names(model.encoder if hasattr(model, "encoder") else model)
        weights = {
            name: variable for name, variable in every.items() if len(variable.shape) == 2 and variable.trainable
        }
        if self.patterns == KERNELS:
            self.patterns += tuple(each for each in FURTHER if any(re.search(each, name) for name in weights))
        for pattern in self.patterns:
            try:
                matched = {name: weights[name] for name in weights if re.search(pattern, name)}
            except (re.error, TypeError) as error:
                raise InputError(f"pattern {pattern!r} is not a regular expression: {error}") from error
            if not matched:
                raise InputError(
                    f"pattern {pattern!r} is in no trained kernel's name, such as {next(iter(weights), 'none')!r}"
                )
            found |= matched
        chosen = {name: variable for name, variable in found.items() if fits(variable.shape, self.structure)}
        if not chosen:
            raise InputError(
                f"structure {self.structure!r} fits none of the {len(found)} kernels, expected a multiple of "
                f"{STRUCTURES[self.structure]} inputs"
            )
        return chosen, sorted(set(found) - set(chosen))

    def install(self, model: keras.Model, steps: int) -> None:
        """Make the masks (all True) and set the constraints; under the strategy's scope."""
        self.plan = make_schedule(self.schedule, self.sparsity, steps, *self.times)
        self.weights, _ = self.choose(model)
        self.masks = {
            name: tf.Variable(np.ones(variable.shape, bool), trainable=False) for name, variable in self.weights.items()
        }
        for name, variable in self.weights.items():
            if not isinstance(variable.constraint, _Kept | None):
                raise InputError(f"{name} has a constraint already, expected none: a weight can have one")
            variable.constraint = _Kept(self.masks[name])

    def begin(self, step: int) -> None:
        """Before the updates that the schedule names: new masks, and zeros where they are False."""
        if not self.plan.due(step):
            return
        values = {name: tf.convert_to_tensor(variable.value).numpy() for name, variable in self.weights.items()}
        old = {name: tf.convert_to_tensor(mask).numpy() for name, mask in self.masks.items()}
        made = masks(values, self.plan.at(step), self.structure, self.scope, old)
        for name, mask in made.items():
            self.masks[name].assign(mask)
            self.weights[name].assign(np.where(mask, values[name], np.float32(0)))

    def until(self, step: int) -> int | None:
        """The next update before which the masks are made."""
        return self.plan.next(step)

    def complete(self, step: int) -> bool:
        """Whether the final sparsity is reached after `step` updates."""
        return step > self.plan.end

    def tensors(self) -> dict[str, np.ndarray]:
        """The masks as 0 and 1."""
        return {name: tf.convert_to_tensor(mask).numpy().astype("float32") for name, mask in self.masks.items()}

    def restore(self, tensors: Safetensors) -> None:
        """The masks of a checkpoint."""
        for name, mask in self.masks.items():
            mask.assign(tensors.read(name) > 0)

    def finish(self, directory: Path, tensors: Mapping[str, np.ndarray]) -> None:
        """Nothing: the zeros are in the weights."""


@checked
def sparsity_of(directory: str | os.PathLike, patterns: Sequence[str] = KERNELS + FURTHER) -> Json:
    """Zeros of a model directory's kernels.

    Returns:
        {"kernels": name -> share of zeros, "sparsity": of all of them, "parameters", "nonzero": of the whole model}.
    """
    tensors, kernels, zeros, size = checkpoints.read_tensors(directory), {}, 0, 0
    parameters = nonzero = 0
    for name in tensors.names():
        value = tensors.read(name)
        kept = int(np.count_nonzero(value))
        parameters, nonzero = parameters + value.size, nonzero + kept
        if value.ndim == 2 and any(re.search(pattern, name) for pattern in listed(patterns)):
            kernels[name] = 1 - kept / value.size
            zeros, size = zeros + value.size - kept, size + value.size
    return {"kernels": kernels, "sparsity": zeros / max(1, size), "parameters": parameters, "nonzero": nonzero}


@passing(Magnitude, FinetuneConfig, DistillConfig)
def magnitude(
    run: str | os.PathLike,
    data: Data,
    *,
    teacher: str | os.PathLike | None = None,
    task: str | Task | None = None,
    **options: Any,
) -> keras.Model:
    """Train a fine-tuned model further while its smallest weights go; its head is kept.

    Args:
        run: directory of a fine-tuned model, or with `task` of an encoder (whose head is new).
        data: as for `finetune`.
        teacher: directory of a model that it imitates in the place of the labels, such as `run` itself before it is pruned.
        task: a task or its name; by default the one that the model was fine-tuned for.
        options: those of Magnitude, and of `kerasbert.finetune` or, with a teacher, of `distill`:
        {options}

    Returns:
        the model, as `finetune` does.
    """
    from ..distill.teach import go_on

    pruner = Magnitude(
        **{name: options.pop(name) for name in inspect.signature(Magnitude).parameters if name in options}
    )
    return go_on(run, data, pruner, task, "prune", teacher, **options)
