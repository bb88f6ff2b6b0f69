"""The model of a task and its training program; what differs between kinds stands in their files."""

from typing import Any

import keras
from keras import ops

from kerasbert import registry
from kerasbert.layers.heads import HeadedModel
from kerasbert.objectives.program import Program
from kerasbert.tasks import base
from kerasbert.tasks.task import Task


@keras.saving.register_keras_serializable("kerasbert", "LabelModel")
class TaskModel(HeadedModel):
    """An encoder with the head of a task.

    Args:
        encoder: Encoder. task: Task with its labels.
    Call: the encoder's inputs -> dict of float32: logits [B, L] of a classification, value [B] of a regression.
        Where the head reads the first token alone, the last layer is computed for no other.
    """

    def __init__(self, encoder: Any, task: Task, **kwargs):
        task_given, kind = task, base.find(task.kind)
        heads, shapes = kind.heads(encoder, task)
        super().__init__(encoder, heads, shapes, dtype=encoder.dtype_policy, **kwargs)
        self.task = task_given
        self.kind = kind
        self.tokenizer = encoder.tokenizer
        self.labels = tuple(task.labels.values()) or None
        self.readout = "tokens" if kind.per_token else registry.family_of(encoder).readout

    @property
    def reads(self) -> str | None:
        """What the last layer is computed for: "first", or None for all tokens."""
        return "first" if self.readout == "first" else None

    def call(self, inputs, training=False, queries="first", read=None):
        outputs = self.encoder(inputs, training=training, read=self.reads and (read or queries))
        return self.answer(outputs, inputs, training=training)

    def answer(self, outputs, inputs=None, training=False):
        """What the model returns, of the encoder's outputs."""
        return self.kind.outputs(self.task, self.logits(outputs, inputs, training=training))

    def logits(self, outputs, inputs=None, training=False):
        """What the head says of the encoder's outputs: float32 [B, L]; of tokens [B, S, L].

        Args:
            inputs: of the encoder; a readout other than the first token wants its padding_mask.
        """
        return self.heads[self.kind.head](read_out(outputs, inputs, self.readout), training=training)

    def get_config(self):
        config = {"name": self.name, "trainable": self.trainable, "task": self.task.to_json()}
        return config | {"encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        model = cls(encoder, Task.from_json(config["task"]), name=config["name"])
        model.trainable = config["trainable"]
        return model


def read_out(outputs: Any, inputs: Any, readout: str) -> Any:
    """What a head reads of an encoder's outputs: [B, H], or all tokens [B, S, H]."""
    sequence = outputs["sequence"]
    if readout == "tokens":
        return sequence
    if readout == "first":
        return outputs["pooled"] if "pooled" in outputs else sequence[:, 0]
    mask = ops.expand_dims(ops.cast(inputs["padding_mask"], sequence.dtype), -1)
    if readout == "last":  # the last real token: where the mask ends
        mask = mask - ops.pad(mask[:, 1:], [[0, 0], [0, 1], [0, 0]])
        return ops.sum(sequence * mask, axis=1)
    return ops.sum(sequence * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)


class TaskProgram(Program):
    """A task's losses as a training program."""

    def __init__(self, encoder: Any, task: Task):
        self.model = TaskModel(encoder, task, name="label_model")
        self.model.build()
        self.kind = self.model.kind
        self.scales = {"label": 1.0}

    def weights(self, batch):
        return self.kind.counts(batch)

    def losses(self, batch, training=True):
        outputs = self.model.encoder(batch, training=training, read=self.model.reads)
        logits = self.model.logits(outputs, batch, training=training)
        return self.kind.losses(self.model.task, logits, batch)
