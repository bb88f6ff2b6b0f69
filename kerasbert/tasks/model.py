"""The model of a task and its objective; what differs between kinds stands in their files."""

import keras

from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import HeadedModel
from kerasbert.layers.readout import queries_of, readout
from kerasbert.objectives.base import Objective
from kerasbert.tasks.task import Task


@keras.saving.register_keras_serializable("kerasbert", "LabelModel")
class TaskModel(HeadedModel):
    """An encoder with the head of a task.

    Args:
        encoder: Encoder. task: Task with its labels.
    `task` is the task as its answers are decoded, with what the kind takes of the heads' weights (`TaskKind.settled`);
    `declaration` is the task as it was given.
    Call: the encoder's inputs -> dict of float32: logits [B, L] of a classification, value [B] of a regression.
        Where the head reads the first token alone, the last layer is computed for no other.
    """

    def __init__(self, encoder: Encoder, task: Task, **kwargs):
        kind = task.how
        heads, shapes = kind.heads(encoder, task)
        super().__init__(encoder, heads, shapes, dtype=encoder.dtype_policy, **kwargs)
        self.declaration = task
        self.kind = kind
        self.tokenizer = encoder.tokenizer
        self.labels = tuple(task.labels.values()) or None
        self.readout = kind.readout(task, encoder)

    @property
    def task(self) -> Task:
        """The task with the options that are made of the weights as they are now."""
        return self.declaration.how.settled(self.declaration, self.heads)

    @task.setter
    def task(self, task: Task):
        self.declaration = task

    def call(self, inputs, training=False, queries=True, read=True):
        """With `queries=None` the last layer is computed for every token; `read` is the older name."""
        every = queries is None or read is None
        outputs = self.body(inputs, training=training, queries=None if every else self.queries(inputs))
        return self.answer(outputs, inputs, training=training)

    def queries(self, inputs):
        """The tokens that the last layer is computed for: those that the head reads."""
        return None if self.readout is None else queries_of(self.readout, inputs.get("padding_mask"))

    def answer(self, outputs, inputs=None, training=False):
        """What the model returns, of the encoder's outputs."""
        return self.kind.outputs(self.declaration, self.logits(outputs, inputs, training=training))

    def logits(self, outputs, inputs=None, training=False):
        """What the head says of the encoder's outputs: float32 [B, L]; of tokens [B, S, L].

        Args:
            inputs: of the encoder; a readout other than the first token wants its padding_mask.
        """
        if self.readout is None:
            read = outputs["sequence"]
        elif self.readout == "first" and self.kind.pooler and "pooled" in outputs:
            read = outputs["pooled"]
        else:
            read = readout(outputs["sequence"], None if inputs is None else inputs.get("padding_mask"), self.readout)
        return self.kind.logits(self, read, inputs, training=training)

    def get_config(self):
        config = {"name": self.name, "trainable": self.trainable, "task": self.declaration.to_json()}
        return config | {"encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        model = cls(encoder, Task.from_json(config["task"]), name=config["name"])
        model.trainable = config["trainable"]
        return model


class TaskObjective(Objective):
    """A task's losses as an objective."""

    def __init__(self, encoder: Encoder, task: Task):
        self.model = TaskModel(encoder, task, name="label_model")
        self.model.build()
        self.kind = self.model.kind
        self.scales = {"label": 1.0}

    def counts(self, batch):
        return self.kind.counts(batch)

    def losses(self, batch, training=True):
        outputs = self.model.body(batch, training=training, queries=self.model.queries(batch))
        logits = self.model.logits(outputs, batch, training=training)
        return self.kind.losses_of(self.model, logits, batch)
