"""Quantization-aware training (Q8BERT: Zafrir et al., 2019): a `training.constraints.Constraint`."""

import contextlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from kerasbert import inputs
from kerasbert.errors import InputError, unknown
from kerasbert.layers.embeddings import Table
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.naming import names
from kerasbert.layers.norms import LayerNorm
from kerasbert.options import checked, passing
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.task import Task
from kerasbert.training.config import FinetuneConfig
from kerasbert.value_types import check_whole
from ..distill.recipes import DistillConfig
from .fake_quantization import SMALLEST, PerChannel, PerTensor

if TYPE_CHECKING:
    from kerasbert.checkpoints.safetensors import Safetensors
    from kerasbert.tasks.tables import Data

PER = ("channel", "tensor")
DECAY = 0.99  # of the ranges' moving averages, in an update
FILE = "quantization.json"  # ranges, beside model.json; the model is the same without them
PLACES = ("input", "output")


class Aware:
    """Matrix products and tables are rounded as in the int8 file while a model is trained (section 3).

    Differs: what is rounded is what the file rounds: no matrix of fewer than 1,024 weights, no product of two activations;
    kernels have a scale per output channel.

    Args:
        per: "channel" for `compress --quantize dynamic_int8` (activations: a range per token, found while it runs), "tensor"
            for `static_int8` (a range per tensor, a moving average while it is trained).
        delay: int, updates before anything is rounded; by default none, and a tenth with "tensor", whose ranges need some.
    Raises:
        InputError: a value that does not exist or is out of range.
    """

    @checked
    def __init__(self, per: str = "channel", *, delay: int | None = None) -> None:
        if per not in PER:
            raise unknown("kind of quantization", per, PER, ", ".join(PER))
        least = PER.index(per)
        if delay is not None:
            check_whole("delay", delay, least)
        self.per, self.delay = per, delay

    def describe(self, encoder: Encoder, steps: int) -> Json:
        """Settings as run.json holds them.

        Raises:
            InputError: a delay that leaves no update, a model without a matrix that the file would round.
        """
        delay = self._delay(steps)
        if delay >= steps:
            raise InputError(f"delay must be below the number of updates, {steps}. Received: {delay}")
        if not any(isinstance(layer, Linear) for _, layer in rounded(encoder)):
            raise InputError(
                f"the model has no matrix of {SMALLEST} weights, expected one: its int8 file would be a float one"
            )
        told = {"kind": "quantization_aware", "per": self.per, "delay": delay}
        return told | ({"decay": DECAY} if self.per == "tensor" else {})

    def _delay(self, steps: int) -> int:
        default = max(1, steps // 10) if self.per == "tensor" else 0
        return default if self.delay is None else self.delay

    def install(self, model: keras.Model, steps: int) -> None:
        """Give the layers their quantizers; under the strategy's scope."""
        self.strategy, self.start = tf.distribute.get_strategy(), self._delay(steps)
        self.on = tf.Variable(False, trainable=False) if self.start else None
        self.learned: dict[str, PerTensor] = {}
        if self.per == "channel":
            attach(model, PerChannel(self.on))
            return
        for name, layer in rounded(model):
            if isinstance(layer, Linear):
                layer.quantizer = self.learned[name] = PerTensor(self.on)
            else:
                layer.quantizer = PerChannel(self.on)
        # one call for all of them; nothing is read back
        self.learn = tf.function(self._learn, autograph=False)

    def _learn(self) -> None:
        for quantizer in self.learned.values():
            quantizer.learn(self.strategy, DECAY)

    def begin(self, step: int) -> None:
        """Before every update with "tensor": the ranges learn from the one before. Before update `delay`: rounding begins."""
        if self.learned and step:
            self.learn()
        if self.on is not None:
            self.on.assign(step >= self.start)

    def until(self, step: int) -> int | None:
        """The next update before which something changes."""
        if self.learned:
            return step + 1
        return self.start if step < self.start else None

    def complete(self, step: int) -> bool:
        """Whether a model after `step` updates was trained with rounding."""
        return step > self.start

    def tensors(self) -> dict[str, np.ndarray]:
        """The ranges, and what the last update reached, which they have not learned from yet."""
        found = {}
        for name, quantizer in self.learned.items():
            found[f"{name}/ranges"] = np.array(tf.convert_to_tensor(quantizer.ranges).numpy())
            found[f"{name}/reached"] = np.array(quantizer.reached(self.strategy).numpy())
        return found

    def restore(self, tensors: "Safetensors") -> None:
        """The ranges of a checkpoint."""
        for name, quantizer in self.learned.items():
            quantizer.ranges.assign(tensors.read(f"{name}/ranges"))
            quantizer.note(self.strategy, tensors.read(f"{name}/reached"))

    def finish(self, directory: Path, tensors: Mapping[str, np.ndarray]) -> None:
        """Write the best weights' ranges beside them."""
        if self.learned:
            ranges = {
                name: dict(zip(PLACES, tensors[f"{name}/ranges"].astype(float).tolist())) for name in self.learned
            }
            files.write_json(directory / FILE, {"per": "tensor", "ranges": ranges})


def rounded(model: keras.Model) -> Iterator[tuple[str, Linear | Table]]:
    """(name, layer) of the layers whose matrix an int8 file rounds, those that share it once."""
    found = {id(variable): name for name, variable in names(model).items()}
    for layer in model._flatten_layers():
        matrix = getattr(layer, "kernel" if isinstance(layer, Linear) else "table", None)
        if isinstance(layer, Linear | Table) and matrix is not None and matrix.shape[0] * matrix.shape[1] >= SMALLEST:
            yield found[id(matrix)].rpartition("/")[0], layer


def attach(model: keras.Model, quantizer: PerChannel) -> None:
    """Let a task's model compute as its `dynamic_int8` file does, from the next graph that is traced on."""
    for _, layer in rounded(model):
        layer.quantizer = quantizer
    for layer in model._flatten_layers():
        if isinstance(layer, LayerNorm):
            layer.quantizer = quantizer
    # which products give their bias away shows when they are read
    declared, trained = predict.declared(model), getattr(getattr(model, "task", None), "settings", {})
    reads = inputs.used(declared, {each.name: 0 for each in declared if each.setting in trained})
    specs = {each.name: tf.TensorSpec(each.shape(4), each.dtype) for each in reads}
    tf.function(lambda batch: model(batch), autograph=False).get_concrete_function(specs)


def read_ranges(run: str | os.PathLike) -> dict[str, np.ndarray] | None:
    """name -> float32 [2, 2] of a model directory; None where it has none.

    Raises:
        InputError: the file is damaged.
    """
    path = Path(run) / FILE
    if not path.exists():
        return None
    try:
        ranges = json.loads(path.read_text("utf-8"))["ranges"]
        return {name: np.array([found[place] for place in PLACES], "float32") for name, found in ranges.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error!r}): train again, or remove it") from error


def attach_ranges(model: keras.Model, ranges: Mapping[str, np.ndarray]) -> None:
    """Let a task's model compute as its `static_int8` file does, from the next graph that is traced on.

    Raises:
        InputError: the ranges are of another model.
    """
    for name, layer in rounded(model):
        if isinstance(layer, Linear) and name not in ranges:
            raise InputError(f"{FILE} has no range of {name}: it is of another model. Train again")
        layer.quantizer = PerTensor(ranges=ranges[name]) if isinstance(layer, Linear) else PerChannel()


@contextlib.contextmanager
def static(model: keras.Model, ranges: Mapping[str, np.ndarray] | None) -> Iterator[None]:
    """Within it the model computes what its `static_int8` file will; the converter reads the ranges from its graph.

    Args:
        ranges: of `read_ranges`; None changes nothing.
    """
    if ranges is not None:
        attach_ranges(model, ranges)
    try:
        yield
    finally:
        for _, layer in rounded(model) if ranges is not None else ():
            layer.quantizer = None


@checked
def simulated(run: str | os.PathLike) -> keras.Model:
    """The model of a directory, computing in Keras with the rounding of its int8 file (in buckets of lengths).

    That file is `static_int8` where the directory has ranges, else `dynamic_int8`.
    """
    from kerasbert.tasks.load import load

    model, ranges = load(run), read_ranges(run)
    if ranges is None:
        attach(model, PerChannel())
    else:
        attach_ranges(model, ranges)
    return model


@passing(Aware, FinetuneConfig, DistillConfig)
def aware(
    run: str | os.PathLike,
    data: "Data",
    *,
    teacher: str | os.PathLike | None = None,
    task: str | Task | None = None,
    **options: Any,
) -> keras.Model:
    """Train a fine-tuned model further with the rounding of its int8 file; its head is kept.

    Args:
        run: directory of a fine-tuned model, or with `task` of an encoder (whose head is new).
        data: as for `finetune`.
        teacher: directory of a model that it imitates in the place of the labels, such as `run` itself in float.
        task: a task or its name; by default the one that the model was fine-tuned for.
        options: those of Aware, and of `kerasbert.finetune` or, with a teacher, of `distill`; the best weights are chosen by
            the rounded model's metric:
        {options}

    Returns:
        the model as `finetune` does, in float.
    """
    from ..distill.teach import go_on

    quantizer = Aware(**{name: options.pop(name) for name in inspect.signature(Aware).parameters if name in options})
    return go_on(run, data, quantizer, task, "train", teacher, **options)
