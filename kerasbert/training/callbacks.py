"""Keras callbacks around the updates of a Trainer: the moments and the logs of `fit`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.training.progress import Means

OURS = {  # callbacks that would do what the run does -> what to take in their place
    "ReduceLROnPlateau": "the run's schedule sets the learning rate: choose another schedule",
    "LearningRateScheduler": "the run's schedule sets the learning rate: choose another schedule",
    "BackupAndRestore": "a run saves and resumes by itself: save_every",
}
BATCH = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def check(
    callbacks: keras.callbacks.Callback | Iterable[keras.callbacks.Callback] | None,
) -> Sequence[Any]:
    """The callbacks as a list.

    Raises:
        InputError: what is none of Keras', or one that would do what the run does.
    """
    callbacks = [callbacks] if isinstance(callbacks, keras.callbacks.Callback) else list(callbacks or ())
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise InputError(f"callbacks: {callback!r:.80} is no keras.callbacks.Callback")
        for kind in type(callback).__mro__:
            if kind.__name__ in OURS and kind.__module__.startswith("keras."):
                raise InputError(f"callbacks: {kind.__name__} has no place here, {OURS[kind.__name__]}")
    return callbacks


class Callbacks:
    """What a Trainer calls.

    Args:
        callbacks: of Keras. model: what they see as `model`; its `optimizer` is the run's while it trains.
        epoch: int, updates of an epoch. steps: int, updates of the run.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        epoch: int,
        steps: int,
    ) -> None:
        self.callbacks, self.model, self.epoch, self.steps = check(callbacks), model, max(1, epoch), steps
        self.means, self.judged, self.logs = Means(), {}, {}
        self.batches = any(
            getattr(type(each), name) is not getattr(keras.callbacks.Callback, name)
            for each in self.callbacks
            for name in BATCH
        )
        if not self.callbacks:
            return
        self.before = {name: vars(model)[name] for name in ("optimizer", "stop_training") if name in vars(model)}
        model.optimizer, model.stop_training = optimizer, False
        params = {"epochs": -(-steps // self.epoch), "steps": self.epoch, "verbose": 0}
        for each in self.callbacks:
            if (
                getattr(each, "mode", None) == "auto"
            ):  # Keras knows the direction of metrics that it computes itself alone
                each.mode = "min" if re.search("loss|error", str(getattr(each, "monitor", ""))) else "max"
            each.set_params(params)
            each.set_model(model)

    def _call(self, moment: str, *arguments: object) -> None:
        for each in self.callbacks:
            getattr(each, moment)(*arguments)

    def begin(self, step: int) -> None:
        """Training begins, or goes on, after `step` updates."""
        self._call("on_train_begin", {})
        if step % self.epoch:
            self._call("on_epoch_begin", step // self.epoch, {})

    def until(self, step: int) -> int:
        """The next update before which an epoch ends."""
        return (step // self.epoch + 1) * self.epoch if self.callbacks else self.steps

    def before_updates(self, step: int) -> None:
        """An update, or several in a call, begin."""
        if not self.callbacks:
            return
        if step % self.epoch == 0:
            self._call("on_epoch_begin", step // self.epoch, {})
        if self.batches:
            self._call("on_train_batch_begin", step % self.epoch, {})

    def after_updates(self, step: int, logs: Mapping[str, object], count: int) -> None:
        """They are made; `step` counts them."""
        if not self.callbacks:
            return
        self.means.add(logs, count)
        if self.batches:
            self._call("on_train_batch_end", (step - 1) % self.epoch, _plain(logs))

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """An evaluation's metrics: the newest go into the logs of the epoch."""
        self.judged = {f"val_{name.rpartition('/')[2]}": value for name, value in metrics.items()}

    def after_epoch(self, step: int) -> bool:
        """Where an epoch ends, or the run: call; -> whether a callback wants to stop."""
        if not self.callbacks or (step % self.epoch and step != self.steps):
            return bool(self.callbacks) and bool(self.model.stop_training)
        self.logs = _plain(self.means.read()) | self.judged
        self.means.reset()
        self.judged = {}
        self._call("on_epoch_end", (step - 1) // self.epoch, self.logs)
        return bool(self.model.stop_training)

    def end(self) -> None:
        """Training ends; the model is as it was."""
        if not self.callbacks:
            return
        try:
            self._call("on_train_end", self.logs)
        finally:
            for name in ("optimizer", "stop_training"):
                if name in self.before:
                    setattr(self.model, name, self.before[name])
                elif name in vars(self.model):
                    delattr(self.model, name)


def _plain(logs: Mapping[str, Tensor]) -> dict[str, float]:
    """Numbers, those of the task's loss by their plain names."""
    return {name.removeprefix("label/"): float(value) for name, value in logs.items() if name != "label"}
