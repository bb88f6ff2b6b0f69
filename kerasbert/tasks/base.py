"""A kind of task, its side of training: rows of a file, targets, head, losses, metrics, what is exported.

The other side, what the phone needs of it, is `answers.Kind`. A kind of ours is a file here, `tasks/KIND.py`, that ends in
`KIND`; a third party gives its own to `register`. No TensorFlow here: a plug-in's file must load on a phone.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import answers, registry
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Row, Tensor
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks.judging import Judging
from kerasbert.tasks.rows import Rows, Targets

if TYPE_CHECKING:  # plug-ins' kinds load on a phone
    import keras

    from kerasbert.data.sources import NumberedRow
    from kerasbert.layers.encoder import Encoder, SpecModel
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.tables import Source

    Heads = tuple[dict[str, keras.layers.Layer], dict[str, tuple]]  # name -> layer, and the shape it is built with

OURS = ("choice", "classification", "generation", "multi_label", "regression", "span", "tags", "tokens", "vector")
_MAKERS: dict[str, Callable[[], "TaskKind"]] = {}
_KINDS: dict[str, "TaskKind"] = {}


@dataclasses.dataclass(frozen=True)
class Task:
    """A declaration over a kind: the columns of its rows, its labels, its metric.

    Args:
        name: str. kind: str, of `find`: what an answer is.
        text, text_b, label: column names; `text_b` None for single sentences.
        labels: value in the file -> name of the class, in the order of the classes; found in the training rows if empty.
        metric: str, what the best checkpoint is chosen by.
        hidden_layer: bool, whether the head has the hidden layer that an encoder without a pooler brings; None is yes. The
            classifiers of ELECTRA's released code have none.
        length: int, longest text in tokens that a model of the task was trained with; None for all its positions.
        mean, std: float, of a regression's targets in the training rows: the head answers (target - mean) / std, and
            the model undoes it.
        settings: of the calls that it was trained with, such as {"language": "fr"}.
        reader: str, a name in `registry.READERS`: what makes rows of a file; empty: tables with the columns above.
        files: split -> patterns of names that are looked for in a folder before train.tsv and its like.
        options: of its kind, such as {"stride": 64}; see `answers.Kind.defaults`.
        layers: str, which of the encoder's layers its head reads, of `family.LAYERS`.
        auxiliary_lm: float, weight of the loss of each next token in training (Radford et al., 2018, section 3.2: 0.5).
    """

    name: str
    kind: str = "classification"
    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metric: str = "accuracy"
    hidden_layer: bool | None = None
    length: int | None = None
    mean: float = 0.0
    std: float = 1.0
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reader: str = ""
    files: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    options: JsonMap = dataclasses.field(default_factory=dict)
    layers: str = "last"
    auxiliary_lm: float = 0.0

    def to_json(self) -> Json:
        """What model.json holds; `inputs` tells the exporters whether it takes pairs."""
        absent = {"length": None, "mean": 0.0, "std": 1.0, "settings": {}, "reader": "", "files": {}, "options": {}}
        absent |= {"layers": "last", "auxiliary_lm": 0.0}
        every = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        fields = {name: value for name, value in every if name not in absent or value != absent[name]}
        return fields | {"labels": dict(self.labels), "inputs": "pair" if self.pair else "text"}

    @staticmethod
    def from_json(content: JsonMap) -> "Task":
        """The inverse of `to_json`; an imported classifier has only `kind` and `inputs`."""
        known = {field.name for field in dataclasses.fields(Task)}
        given = {name: value for name, value in content.items() if name in known}
        given = {"text_b": "text_b", **given} if content.get("inputs") == "pair" else given
        return Task(**{"name": given.get("kind", "classification")} | given)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the columns that hold the texts: one, or two of a pair."""
        return (self.text, self.text_b) if self.text_b else (self.text,)

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the parts of an input that is answered: those of a training row, or the first of them."""
        kind = answers.KINDS.get(self.kind)
        return self.parts if kind is None else self.parts[: kind.configured(self.options).asked]

    @property
    def pair(self) -> bool:
        """Whether an input that is answered is two texts."""
        return len(self.asked) > 1

    @property
    def columns(self) -> list[str]:
        """Names of the columns: the texts, then the label's; rows that are targets themselves have none (`label` empty)."""
        return [*self.parts, *self.label_columns]

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Names of the columns of the label: of several labels perhaps one of 0 and 1 for each."""
        return (answers.KINDS.get(self.kind) or answers.Kind()).label_columns(self.label)

    def called_with(self, **settings: str | None) -> "Task":
        """The task with settings of its calls where given, such as the language of its texts."""
        given = {name: value for name, value in settings.items() if value is not None}
        return dataclasses.replace(self, settings={**self.settings, **given}) if given else self

    @property
    def answer_kind(self) -> answers.Kind:
        """Its kind's side of the answers, with the task's options; it needs no Keras, but for a kind of a plug-in."""
        kind = answers.KINDS.get(self.kind)
        return self.how.answers if kind is None else kind.configured(self.options)

    @property
    def how(self) -> "TaskKind":
        """Its kind's side of training, with the task's options."""
        return find(self.kind).configured(self.options)

    def optioned(self, options: Mapping[str, object]) -> "Task":
        """The task with options of its kind over its own.

        Raises:
            InputError: the kind has no such option, or takes another type.
        """
        if not options:
            return self
        task = dataclasses.replace(self, options={**self.options, **options})
        task.answer_kind  # noqa: B018 (it checks them)
        return task

    def answering(self, options: Mapping[str, object]) -> "Task":
        """`optioned` for a call, which reads nothing that was settled by training.

        Raises:
            InputError: an option of training alone, besides.
        """
        if given := [name for name in options if name in self.answer_kind.learned]:
            raise InputError(f"{given[0]} is an option of training alone, and the model is trained: leave it out")
        return self.optioned(options)

    def measured(self, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        """The metrics of its kind, and one of the user's own that the task is judged by, where that is known here."""
        metrics = self.how.metrics(self, outputs, targets, encoded)
        if self.metric not in metrics and self.metric in registry.METRICS:
            metrics[self.metric] = float(registry.METRICS.find(self.metric)(outputs, targets))
        return metrics

    def rounding(self, tolerance: float) -> float:
        """A tolerance of answers of size 1, in the unit of the task's answers; float32 rounds a large mean."""
        return tolerance * self.std + 1e-6 * abs(self.mean)


class TaskKind(Judging):
    """What a kind of task does in training, evaluation and export.

    Attributes:
        name: str, as that of its `answers.Kind`.
        head: str, name of its head; weights are `heads/<head>/...`.
        per_token: bool, whether its head reads every token; else the family's readout.
        pooler: bool, whether it reads the output of an encoder's pooler in the place of the first token.
        together: bool, whether the loss of an input needs all of its rows at once: a batch then has all of them.
        few_shot: bool, whether its head may be trained on vectors that pairs of its labels taught (`training.few_shot`).
        whole: names of the targets of a batch that its losses compare with those of other inputs, as in-batch negatives; empty
            where losses are sums over inputs.
        taught: losses by which a student may learn its answers (`mobile.distill`): of numbers without "soft", which compares
            classes.
    """

    name = ""
    head = "classifier"
    pooler = True
    together = False
    few_shot = False
    whole: tuple[str, ...] = ()
    taught: tuple[str, ...] = ("labels", "soft", "logits")

    def gathered(
        self, task: Task, source: "Source", columns: Sequence[str], read: "Callable[..., list[NumberedRow]]"
    ) -> "list[NumberedRow]":
        """The rows of a table with these columns, some of which may have to be made of others.

        Args:
            columns: those that every row must have. read: (task, source, columns) -> rows of a table that has them.
        """
        return read(task, source, columns)

    def with_labels(self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any]) -> Task:
        """The task with the labels that occur in the training rows, where it names none.

        Args:
            lines: of the rows. values: of the label's column.
        """
        return task

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray | Sequence[object]:
        """Values of the label's column -> targets [n], an array or a list with one for each row.

        Raises:
            InputError: a value that the task does not know; with file and line.
        """
        raise NotImplementedError

    def fitted(self, task: Task, source: "Source", targets: Targets) -> Task:
        """The task with what it takes from the targets of the training rows."""
        return task

    def started(self, task: Task, held: JsonMap) -> Task:
        """The task with what the model that it begins from says of itself; `held` is the json of that model's task."""
        return task

    @property
    def begin(self) -> int:
        """How many tokens of a row, the first ones, its readout leaves out."""
        return 0

    def goes_on(self, held: JsonMap) -> Collection[str]:
        """Names of the heads that do not begin as new where the model that it begins from has them; `held` as of `started`."""
        return ()

    def begun(self, task: Task, encoder: "SpecModel", head: Callable[[str], Mapping[str, np.ndarray]]) -> "SpecModel":
        """The network that a run trains: the encoder that it begins from, or one that is made of it.

        Args:
            head: name -> arrays by name of a head that the model has, {} of another.
        """
        return encoder

    def imported(self, task: Task, generation: JsonMap | None) -> Task:
        """The task with how the checkpoint that the model was imported from writes (`generation_config.read`)."""
        return task

    def continued(self, task: Task, begun: JsonMap) -> Task:
        """The task with what the run that goes on has taken from its rows; `begun` is the task's json."""
        return task

    def told(self, source: "Source", rows: Rows) -> list[str]:
        """What a user should know of the training rows, a line each."""
        return []

    def absent(self, task: Task, train: Rows, dev: Rows) -> list[str]:
        """What occurs in the training rows and not in the dev rows, a line each."""
        return []

    def group(self, target: Any) -> object:
        """What a row counts as where some of each are held out: sortable."""
        return target

    # Batches and network

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        """Targets of some rows as arrays: name -> [count, ...]; rows that fill up the batch weigh 0.

        Args:
            targets: of the inputs that the rows belong to, one for each row, as `scaled` gives them.
            count: int, rows of the batch; of a kind whose rows stay together its inputs, each of as many rows: the last of an
                input is repeated.
        """
        raise NotImplementedError

    def scaled(self, task: Task, targets: Targets) -> Targets:
        """Targets in the unit of the head."""
        return targets

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        """Name -> layer, and name -> the shape that it is built with. The first is called on what the kind reads."""
        raise NotImplementedError

    def network(self, encoder: "Encoder", heads: "Mapping[str, keras.layers.Layer]") -> Tensor:
        """What a TaskModel calls: the encoder, or what is called, and writes, in its place."""
        return encoder

    def readout(self, task: Task, encoder: "Encoder") -> str | None:
        """What its head reads of a row, of `layers.readout.READOUTS`; None for every token."""
        from kerasbert import registry

        return None if self.per_token else getattr(encoder, "readout", None) or registry.family_of(encoder).readout

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        """What a TaskModel's head says of what it reads, [B, H], or [B, S, H] of tokens: float32 [B, L] or [B, S, L]."""
        return model.heads[self.head](read, training=training) if model.heads else read

    def trained(self, model: "TaskModel", outputs: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        """What its losses read of the encoder's outputs: the head's logits, or logits of several layers."""
        return model.logits(outputs, inputs, training=training)

    def outputs(self, task: Task, logits: Tensor) -> dict[str, Tensor]:
        """What a task's model returns: of the head's float32 [B, L], or [B, S, L]."""
        return {"logits": logits}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss name -> number of targets, float32 scalars."""
        from keras import ops

        return {"label": ops.sum(batch["label_weight"])}

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss or `loss/metric` name -> sum over the batch, float32 scalars."""
        from kerasbert.objectives.base import label_sums

        loss, hits = label_sums(logits, batch["label"], batch["label_weight"])
        return {"label": loss, "label/accuracy": hits}

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> Targets:
        """Targets of texts without labels, which a teacher answers: as `targets` gives them, of whatever value."""
        return np.zeros(len(texts), "float32")

    def compared(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """What of the logits a teacher's are compared with: float32 [..., C], of which a softmax is over the last axis.

        The first axes are those of `label_weight`.
        """
        return logits

    def losses_of(self, model: "TaskModel", logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`losses` of a TaskModel; a kind whose losses read weights of its heads overrides this."""
        return self.losses(model.declaration, logits, batch)

    # Explanation

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        """The number that `explain` takes apart: which of the rows gives it, what it is, and logits [B, ...] -> it, [B].

        Args:
            rows: of one input. logits: of each, [L] or [S, L] of its tokens. Both are None where the target is to be checked
                first.
            target: what the user asks for instead of the answer; None for the answer.

        Raises:
            InputError: there is no such number, or no such target.
        """
        raise InputError(f"a {self.name} is no single number to explain, expected such as a classification")

    def from_exported(self, outputs: Tensor) -> Tensor:
        """Outputs of an exported file -> outputs of the model as `metrics` takes them; logits up to a constant."""
        if not self.answers.label_scores:
            return outputs
        logs = [np.log(np.maximum(row, 1e-30)) for row in outputs]
        return logs if self.per_token else np.stack(logs)


def register(name: str, make: Callable[[], TaskKind]) -> None:
    """Make a third party's kind known.

    Args:
        name: str, as of its `answers.Kind`, which `answers.register` gets.
        make: called once, where TensorFlow is; import Keras inside.
    """
    if name in OURS or (name in _MAKERS and _MAKERS[name].__qualname__ != make.__qualname__):
        raise InputError(f"the kind {name!r} is registered already: choose another name")
    if name not in answers.KINDS:
        known = [kind.name for kind in answers.KINDS.values() if kind.name not in OURS]
        raise unknown(
            "kind of answer", name, known, f"answers.register it first. Registered: {', '.join(known) or 'none'}"
        )
    if not callable(make):
        raise InputError(
            f"the kind {name!r} is registered with {make!r:.80}, expected a function that makes its TaskKind"
        )
    _MAKERS[name] = make
    _KINDS.pop(name, None)


def find(name: str) -> TaskKind:
    """The kind of that name.

    Raises:
        InputError: no such kind.
    """
    if name not in (*OURS, *_MAKERS):
        raise unknown("kind of task", name, [*OURS, *_MAKERS], ", ".join([*OURS, *_MAKERS]))
    if name not in _KINDS:
        _KINDS[name] = _MAKERS[name]() if name in _MAKERS else importlib.import_module(f"kerasbert.tasks.{name}").KIND
    return _KINDS[name]


def kind_of(model: "TaskModel") -> TaskKind:
    """The kind of a task's model; of an encoder, vectors."""
    task = getattr(model, "task", None) if hasattr(model, "heads") else None
    return find("vector") if task is None else task.how
