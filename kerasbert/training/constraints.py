"""What the weights must satisfy while they are trained, such as a mask of pruned weights: projected gradient descent."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kerasbert.storage.json_view import Json

if TYPE_CHECKING:  # the options of training name the class: command lines start without numpy
    import numpy as np

    from kerasbert.checkpoints.safetensors import Safetensors
    from kerasbert.layers.encoder import Encoder
    from kerasbert.layers.heads import HeadedModel


class Constraint(Protocol):
    """A condition on weights that holds after every update, and may change between updates.

    `install` sets `variable.constraint` of the weights that it is about: Keras applies it inside the optimizer's step, on
    every replica and in compiled updates. The trainer calls the rest; whatever trains by the trainer can be constrained.
    """

    def describe(self, encoder: "Encoder", steps: int) -> Json:
        """What run.json holds, with every default settled.

        Raises:
            InputError: it does not fit the weights or the number of updates.
        """
        ...

    def install(self, model: "HeadedModel", steps: int) -> None:
        """Set the constraints of a built model; called under the strategy's scope."""

    def begin(self, step: int) -> None:
        """Called before update `step` (and perhaps other ones), in the cross-replica context."""

    def until(self, step: int) -> int | None:
        """The next update after `step` before which `begin` must be called; None for no other."""
        ...

    def complete(self, step: int) -> bool:
        """Whether the weights after `step` updates are what was asked for, so that an evaluation of them counts."""
        ...

    def tensors(self) -> "Mapping[str, np.ndarray]":
        """What a checkpoint must hold beside the weights: float32 by name, which nobody changes afterwards."""
        ...

    def restore(self, tensors: "Safetensors") -> None:
        """Take them back; the weights are already the checkpoint's."""

    def finish(self, directory: Path, tensors: "Mapping[str, np.ndarray]") -> None:
        """Write what the finished model directory holds besides; `tensors`: those of the moment of the best weights."""
