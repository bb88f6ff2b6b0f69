"""Quantization-aware training (Q8BERT: Zafrir et al., 2019): a `training.projection.Projection`."""

import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from kerasbert import checkpoints
from kerasbert.errors import InputError, unknown
from kerasbert.layers.embeddings import Table
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.naming import names
from kerasbert.layers.norms import LayerNorm
from kerasbert.mobile.quantize.fake import SMALLEST, PerChannel

PER = ("channel",)


class Aware:
    """Matrix products and tables are rounded as in the int8 file while a model is trained (section 3).

    Differs: what is rounded is what the file rounds: no matrix of fewer than 1,024 weights, no product of two activations.

    Args:
        per: "channel", for `compress --quantize dynamic_int8`.
        delay: int, updates before anything is rounded; none by default.
    Raises:
        InputError: a value that does not exist or is out of range.
    """

    def __init__(self, per: str = "channel", *, delay: int | None = None):
        if per not in PER:
            raise unknown("kind of quantization", per, PER, ", ".join(PER))
        if delay is not None and (type(delay) is not int or delay < 0):
            raise InputError(f"delay must be a whole number of at least 0. Received: {delay!r}")
        self.per, self.delay = per, delay

    def describe(self, encoder: Any, steps: int) -> dict[str, Any]:
        """Settings as run.json holds them.

        Raises:
            InputError: a delay that leaves no update, a model without a matrix that the file would round.
        """
        delay = self._delay(steps)
        if not 0 <= delay < steps:
            raise InputError(f"delay must be from 0 to {steps - 1}, of {steps} updates. Received: {delay}")
        matrices = list(rounded(encoder))
        if not matrices:
            raise InputError(
                f"the model has no matrix of {SMALLEST} weights, expected one: the int8 file would have none that is rounded"
            )
        return {"kind": "quantization_aware", "per": self.per, "delay": delay, "matrices": len(matrices)}

    def _delay(self, steps: int) -> int:
        return 0 if self.delay is None else self.delay

    def install(self, model: Any, steps: int) -> None:
        """Give the layers their quantizers; under the strategy's scope."""
        self.start = self._delay(steps)
        self.on = tf.Variable(False, trainable=False) if self.start else None
        attach(model, PerChannel(self.on))

    def begin(self, step: int) -> None:
        """Before update `delay`: from now on numbers are rounded."""
        if self.on is not None:
            self.on.assign(step >= self.start)

    def until(self, step: int) -> int | None:
        """The update before which rounding begins."""
        return self.start if step < self.start else None

    def complete(self, step: int) -> bool:
        """Whether a model after `step` updates was trained with rounding."""
        return step > self.start

    def tensors(self) -> dict[str, Any]:
        """Nothing: the ranges are the batch's own."""
        return {}

    def restore(self, tensors: Any) -> None:
        """Nothing."""


def rounded(model: Any) -> Iterator[tuple[str, Any]]:
    """(name, layer) of the layers whose matrix an int8 file rounds, those that share it once."""
    found = {id(variable): name for name, variable in names(model).items()}
    for layer in model._flatten_layers():
        matrix = getattr(layer, "kernel" if isinstance(layer, Linear) else "table", None)
        if isinstance(layer, Linear | Table) and matrix is not None and matrix.shape[0] * matrix.shape[1] >= SMALLEST:
            yield found[id(matrix)].rpartition("/")[0], layer


def attach(model: Any, quantizer: Any) -> None:
    """Let a model compute as the `dynamic_int8` file does, from the next graph that is traced on."""
    for _, layer in rounded(model):
        layer.quantizer = quantizer
    for layer in model._flatten_layers():
        if isinstance(layer, LayerNorm):
            layer.quantizer = quantizer


def simulated(run: str | os.PathLike) -> Any:
    """The model of a directory, computing in Keras what its `dynamic_int8` file computes (in buckets of lengths)."""
    from kerasbert.tasks.load import load

    model = load(run)
    attach(model, PerChannel())
    return model


def aware(
    run: str | os.PathLike,
    data: Any,
    *,
    out: str | os.PathLike,
    per: str = "channel",
    delay: int | None = None,
    task: Any = None,
    **settings: Any,
) -> Any:
    """Fine-tune a fine-tuned model further with the rounding of its int8 file; its head is kept.

    Args:
        run: directory of a fine-tuned model, or with `task` of an encoder (whose head is new).
        data: as for `finetune`. out: the run directory; the best weights are chosen by the rounded model's metric.
        per, delay: see Aware.
        task: a task or its name; by default the one that the model was fine-tuned for.
        settings: the other arguments of `kerasbert.finetune`.

    Returns:
        the model as `finetune` does, in float.
    """
    from kerasbert.tasks.load import task_of
    from kerasbert.training.finetune import finetune

    quantizer = Aware(per, delay=delay)
    if task is None:
        task = task_of(checkpoints.read_model_json(run))
        if task is None:
            raise InputError(f"{run} is not fine-tuned: give the task to train it for, or fine-tune it first")
        settings |= {"keep_head": True}
    return finetune(run, task, data, out=out, projection=quantizer, **settings)
