"""The model of a task and its objective; what differs between kinds stands in their files."""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import keras
from keras import ops

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.family import LAYERS
from kerasbert.inputs import Tensor
from kerasbert.layers import mix, random
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import HeadedModel
from kerasbert.layers.readout import Queries, queries_of, readout, width
from kerasbert.objectives.base import Objective
from kerasbert.objectives.lm_loss import token_sums, writes
from kerasbert.poolings import LATE, reads_pooler
from kerasbert.storage.json_view import Json
from kerasbert.tasks.batches import FIRST
from kerasbert.tasks.task import Task
from kerasbert.within import within

if TYPE_CHECKING:
    from kerasbert.tasks.base import TaskKind
    from kerasbert.text.base import Tokenizer

    Parts = tuple[Task, TaskKind, str | None]  # with what its head reads of a row

_asked: "contextvars.ContextVar[tuple[TaskModel, Parts] | None]" = contextvars.ContextVar("asked", default=None)
POOLED = "pooled"  # in a batch: what the head reads of each row, float32 [B, H], which a frozen encoder made before


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

    def __init__(self, encoder: Encoder, task: Task, **kwargs: Any) -> None:
        kind = task.how
        of_row = kind.readout(task, encoder)
        heads, shapes = _reading(task, encoder, of_row, *kind.heads(encoder, task))
        super().__init__(encoder, heads, shapes, dtype=encoder.dtype_policy, **kwargs)
        self._own = (task, kind, of_row)
        self.labels = tuple(task.labels.values()) or None

    @property
    def declaration(self) -> Task:
        return self._parts()[0]

    @property
    def kind(self) -> "TaskKind":
        return self._parts()[1]

    @property
    def readout(self) -> str | None:
        return self._parts()[2]

    def _parts(self) -> "Parts":
        model, parts = _asked.get() or (None, None)
        return parts if model is self and parts is not None else self._own

    @contextlib.contextmanager
    def asked(self, options: Mapping[str, object]) -> Iterator[None]:
        """Within it the task has options of a call, in this thread alone: others may ask the same model otherwise."""
        task = self.declaration.optioned(options)
        with within(_asked, (self, (task, task.how, task.how.readout(task, self.encoder)))):
            yield

    @property
    def network(self) -> Tensor:
        """What is called: the encoder, or what the kind makes of it and of the heads."""
        return self.kind.network(self.encoder, self.heads)

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """The encoder's, which a `.keras` file gives it after its model is made."""
        return self.encoder.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: "Tokenizer | None") -> None:
        self.encoder.tokenizer = tokenizer

    @property
    def task(self) -> Task:
        """The task with the options that are made of the weights as they are now."""
        return self.declaration.how.settled(self.declaration, self.heads)

    @task.setter
    def task(self, task: Task) -> None:
        self._own = (task, task.how, task.how.readout(task, self.encoder))

    def call(
        self, inputs: Mapping[str, Tensor], training: bool = False, queries: bool | None = True
    ) -> dict[str, Tensor]:
        """With `queries=None` the last layer is computed for every token."""
        outputs = self.network(inputs, training=training, queries=None if queries is None else self.queries(inputs))
        return self.answer(outputs, inputs, training=training)

    def queries(self, inputs: Mapping[str, Tensor]) -> Queries:
        """The tokens that the last layer is computed for: those that the head reads."""
        return (
            None
            if self.readout in (None, LATE)
            else queries_of(self.readout, inputs.get("padding_mask"), self.kind.begin)
        )

    def answer(
        self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor] | None = None, training: bool = False
    ) -> dict[str, Tensor]:
        """What the model returns, of the encoder's outputs."""
        return self.kind.outputs(self.declaration, self.logits(outputs, inputs, training=training))

    def logits(
        self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor] | None = None, training: bool = False
    ) -> Tensor:
        """What the head says of the encoder's outputs: float32 [B, L]; of tokens [B, S, L].

        Args:
            inputs: of the encoder; a readout other than the first token wants its padding_mask.
        """
        last, pooled = (
            self.declaration.layers == "last",
            reads_pooler(self.encoder, "pooled" in outputs, self.kind.name),
        )
        if last and self.readout == "first" and self.kind.pooler and pooled:
            return self.kind.logits(self, outputs["pooled"], inputs, training=training)
        # the last layer may be of the queries alone, the others are of every token: each is read by itself
        read = [outputs["sequence"]] if last else outputs["hidden"][LAYERS[self.declaration.layers]]
        mask = None if inputs is None else inputs.get("padding_mask")
        if self.readout not in (None, LATE):
            read = [readout(each, mask, self.readout, self.kind.begin) for each in read]
        joined = mix.joined(read, self.declaration.layers, self.heads.get("mix"))
        logits = self.kind.logits(self, joined, inputs, training=training)
        return readout(logits, mask, "mean", self.kind.begin) if self.readout == LATE else logits

    def told(self) -> Json:
        """What it has learnt that people read, as json: how much each layer weighs, of a task that reads a mix of them."""
        return {"layers": self.heads["mix"].told()} if self.declaration.layers == "mix" else {}

    def get_config(self) -> Json:
        config = {"name": self.name, "trainable": self.trainable, "task": self.declaration.to_json()}
        return config | {"encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config: Json) -> Self:
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        model = cls(encoder, Task.from_json(config["task"]), name=config["name"])
        model.trainable = config["trainable"]
        return model


def _reading(task: Task, encoder: Encoder, of_row: str | None, heads: dict, shapes: dict) -> tuple[dict, dict]:
    """The heads of a task's kind, as they read the layers that the task says, and of a row its readout.

    Raises:
        InputError: no such layers, or a kind whose answers are of the last one.
    """
    if task.how.head in shapes:
        *rest, hidden = shapes[task.how.head]
        shapes = shapes | {task.how.head: (*rest, width(None if of_row == LATE else of_row, hidden))}
    if task.layers == "last":
        return heads, shapes
    encoder.keeps_hidden = True
    layers = getattr(encoder, "hidden_layers", None) or specs.maybe(encoder.spec, "blocks.layers")
    head = task.how.head
    mix.check(task.layers, layers)
    if head not in heads:
        raise InputError(
            f"layers {task.layers!r} needs a head of labels or numbers, a {task.kind} has none: take 'last'"
        )
    if task.layers == "concat4":
        *rest, numbers = shapes[head]
        return heads, shapes | {head: (*rest, 4 * numbers)}
    if task.layers == "mix":
        return heads | {"mix": mix.ScalarMix(layers + 1, name="mix", dtype=encoder.dtype_policy)}, shapes | {"mix": ()}
    return heads, shapes


class TaskObjective(Objective):
    """A task's losses as an objective.

    With `auxiliary_lm` a decoder learns each next token of the texts too (Radford et al., 2018, section 3.2).
    """

    def __init__(self, encoder: Encoder, task: Task) -> None:
        self.model = TaskModel(encoder, task, name="label_model")
        self.model.build()
        self.kind = self.model.kind
        self.scales = {"label": 1.0}
        if task.auxiliary_lm:
            decoder = writes(encoder) and specs.maybe(encoder.spec, "attention.causal", False)
            if not decoder or not self.kind.head:
                raise InputError(
                    f"auxiliary_lm is {task.auxiliary_lm}, for a task of labels on a decoder, such as gpt2: received "
                    f"{type(encoder).__name__} and a task of kind {task.kind}. Leave it out"
                )
            self.scales["lm"] = task.auxiliary_lm

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        counts = self.kind.counts(batch)
        return counts | {"lm": ops.sum(followed(batch))} if "lm" in self.scales else counts

    def gathered(self, batch: Mapping[str, Tensor]) -> tuple[str, ...]:
        return self.kind.whole

    def vectors(self, batch: Mapping[str, Tensor], training: bool = True) -> Tensor:
        return self.read(batch, training)[1]

    def losses_of(self, vectors: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.kind.losses_of(self.model, vectors, batch)

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        return self.sums(batch, *self.read(batch, training))

    def read(self, batch: Mapping[str, Tensor], training: bool = True) -> tuple[dict[str, Tensor], Tensor]:
        """One pass: the encoder's outputs, and the head's logits; of a batch with POOLED the head's alone."""
        if POOLED in batch:
            return {}, self.kind.logits(self.model, batch[POOLED], batch, training=training)
        if any(name.startswith(FIRST) for name in batch):
            return {}, self._apart(batch, training)
        queries = None if "lm" in self.scales else self.model.queries(batch)
        outputs = self.model.network(batch, training=training, queries=queries)
        return outputs, self.kind.trained(self.model, outputs, batch, training=training)

    def _apart(self, batch: Mapping[str, Tensor], training: bool) -> Tensor:
        """Logits of texts with k rows each, of which the first ones are of another length than the others: [B * k, ...]."""
        first = {name.removeprefix(FIRST): x for name, x in batch.items() if name.startswith(FIRST)}
        others = {name: x for name, x in batch.items() if not name.startswith(FIRST)}
        texts = first["token_ids"].shape[0]
        rows = ops.reshape(batch["row"], (texts, -1))
        with random.among(rows[:, 0]):
            one = self.read(first, training)[1]
        with random.among(ops.reshape(rows[:, 1:], (-1,))):
            other = self.read(others, training)[1]
        if self.kind.per_token:
            one, other = _as_long(one, other)
        sizes = ops.shape(one)[1:]
        other = ops.reshape(other, (texts, rows.shape[1] - 1, *sizes))
        every = ops.concatenate([ops.expand_dims(one, 1), other], axis=1)
        return ops.reshape(every, (batch["row"].shape[0], *sizes))

    def sums(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor], logits: Tensor) -> dict[str, Tensor]:
        """The task's losses of a pass, as `losses` gives them."""
        sums = self.kind.losses_of(self.model, logits, batch)
        if "lm" not in self.scales:
            return sums
        x, labels = outputs["sequence"][:, :-1], batch["token_ids"][:, 1:]
        nats, right = token_sums(self.model.network, x, labels, followed(batch))
        return sums | {"lm": nats, "lm/accuracy": right}


def _as_long(one: Tensor, other: Tensor) -> list[Tensor]:
    """What is said of tokens, with zeros behind the shorter: [B, S, L], [C, T, L] -> [B, U, L], [C, U, L]."""
    longest = ops.maximum(ops.shape(one)[1], ops.shape(other)[1])
    return [ops.pad(each, [[0, 0], [0, longest - ops.shape(each)[1]], [0, 0]]) for each in (one, other)]


def followed(batch: Mapping[str, Tensor]) -> Tensor:
    """Which tokens have a real one behind them: float32 [B, S - 1]; rows that fill up a batch have one token, and so none."""
    return ops.cast(batch["padding_mask"][:, 1:], "float32")
