"""Tasks in KerasHub's presets: a backbone with the head of a classifier of texts or of a masked LM, as they are read.

task.json describes the task, with the backbone and the preprocessor in it, and task.weights.h5 holds the weights that are not the
backbone's. Keras numbers its layers anew, so that their names get `task/` in front here. Tasks that write (GPT2CausalLM,
BartSeq2SeqLM, T5Seq2SeqLM) have no weights but those of their backbone.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.cross_encoders import within
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonView

if TYPE_CHECKING:
    from kerasbert.checkpoints.forms import Shape
    from kerasbert.checkpoints.readers import Reader


Names = TypeVar("Names", bound=Dialect)
FILE, TASK_WEIGHTS, PREPROCESSOR, METADATA = "task.json", "task.weights.h5", "preprocessor.json", "metadata.json"
PREFIX = "task/"
INNER = "heads/classifier/inner"
FIRST, SECOND, _MASKED = (f"{PREFIX}layers/{name}" for name in ("dense", "dense_1", "masked_lm_head"))
CLASSIFIER, MASKED_LM = "TextClassifier", "MaskedLM"
# what their code has in the head of a masked LM, whatever the blocks have
_EPSILON, _ACTIVATIONS = 1e-5, {"AlbertMaskedLM": "gelu_tanh"}
# (activation of the outputs, whether there is one output) -> problem_type
_PROBLEMS = {
    ("linear", True): "regression",
    ("sigmoid", True): "regression",
    ("linear", False): "single_label_classification",
    ("softmax", False): "single_label_classification",
    ("sigmoid", False): "multi_label_classification",
}


def activation_of(said: object) -> str:
    """The name of an activation, which a configuration says as a text or as a function of its own."""
    name = str(said.get("config") if isinstance(said, Mapping) else said).rpartition(">")[2]
    return "silu" if name == "swish" else name


def task_class(backbone: str, kind: str) -> str:
    """The class of a task on a backbone's.

    >>> task_class("BertBackbone", "MaskedLM")
    'BertMaskedLM'
    """
    return backbone.removesuffix("Backbone") + kind


def with_tasks(dialect: Names, front: str = "") -> Names:
    """The names of a backbone that KerasHub has a classifier of texts and a masked LM on, with theirs.

    Args:
        front: ours of the layer in front of the labels: "pooler", `INNER`, or "" where they read the backbone's own pooler.
    """
    backbone, own = str(dialect.fixed["class_name"]), front == "pooler"
    inner: Json = {"inner/kernel": "H H", "inner/bias": "H"} if front == INNER else {}
    rows = (
        *(((front, FIRST),) if front else ()),
        ("heads/classifier", SECOND if front else FIRST),
        ("heads/mlm/transform", f"{_MASKED}/_intermediate_dense"),
        ("heads/mlm/norm", f"{_MASKED}/_intermediate_layer_norm"),
        ("heads/mlm/bias", f"{_MASKED}/vars/0"),
    )
    mlm = {"transform/kernel": "H E", "transform/bias": "E", "norm/gamma": "E", "norm/beta": "E", "bias": "V"}
    return dialect.derive(
        rows=rows,
        heads={"classifier": {**inner, "kernel": "H L", "bias": "L"}, "mlm": mlm},
        classes={
            backbone: Class(pooler=not own),
            task_class(backbone, CLASSIFIER): Class(("classifier",)),
            task_class(backbone, MASKED_LM): Class(("mlm",), pooler=not own),
        },
        ignored={**dialect.ignored, f"{PREFIX}optimizer/*": None},
    )


@dataclasses.dataclass
class Task:
    """A task of a preset.

    Args:
        folder: of the preset. name: of its class. content: its settings.
    """

    folder: Path
    name: str
    content: JsonView

    @property
    def file(self) -> Path:
        """Where its settings lie."""
        return self.folder / FILE

    @property
    def classifies(self) -> bool:
        """Whether it is a classifier of texts."""
        return self.name.endswith(CLASSIFIER)

    @property
    def activation(self) -> str:
        """Of its outputs."""
        return "linear" if (said := self.content.get("activation")) is None else activation_of(said)

    def keys(self) -> Json:
        """What the configuration of a checkpoint says of a head, by the keys of Hugging Face's.

        Raises:
            InputError: outputs that are not computed here.
        """
        if not self.classifies:
            return {"architectures": [self.name]}
        count, activation = self.content.get("num_classes"), self.activation
        problem = _PROBLEMS.get((activation, count == 1))
        if type(count) is not int or count < 1:
            raise InputError(f"{self.file} has num_classes {count!r}, expected a number of at least 1")
        if problem is None:
            known = " or ".join(name for name, one in _PROBLEMS if one == (count == 1))
            outputs = f"{count} output{'s' * (count > 1)}"
            raise InputError(
                f"{self.file} has activation {activation!r} of {outputs}, expected {known}: no such model here. "
                f"--ignore '{PREFIX}*' reads the backbone alone"
            )
        about = _metadata(self.folder)
        options: Json = about.get(configs.OPTIONS, {})
        options |= {"activation": "sigmoid"} if (activation, count) == ("sigmoid", 1) else {}
        about |= {configs.OPTIONS: options, "problem_type": problem, "architectures": [self.name]}
        return {key: value for key, value in about.items() if value}

    def length(self, spec: Spec) -> Json:
        """The most tokens of a text by its preprocessor, where these are not all that have positions."""
        said = self.content.get("preprocessor")
        inner = said.get("config") if isinstance(said, JsonView) else None
        length = inner.get("sequence_length") if isinstance(inner, JsonView) else None
        most = None if length is None else within(length, spec, self.file)
        return {} if most in (None, spec.longest) else {"length": most}

    def told(self, spec: Spec) -> list[str]:
        """Lines that a user should read of its head."""
        differs = "" if self.classifies else differing(self.name, spec)
        return [f"{self.folder}: {differs}: its predictions differ slightly"] if differs else []

    def fitted(self, reader: "Reader", hidden: object) -> "Reader":
        """Its weights, in which the layer in front of the labels has as many units as the backbone.

        Args:
            hidden: of the backbone.

        Raises:
            InputError: more units than the backbone has; other weights than task.json describes.
        """
        units = self.content.get("hidden_dim")
        if not self.classifies:
            return reader
        if type(units) is int and type(hidden) is int and units > hidden:
            raise InputError(
                f"{self.file} has hidden_dim {units}, expected at most {hidden}, the backbone's: no such model here. "
                f"--ignore '{PREFIX}*' reads the backbone alone"
            )
        last, count = SECOND if units is not None else FIRST, self.content.get("num_classes")
        names = reader.names()
        if f"{last}/vars/1" in names and (found := reader.shape(f"{last}/vars/1")) != (count,):
            raise InputError(
                f"{self.file} has num_classes {count}, and {TASK_WEIGHTS} {', '.join(map(str, found)) or 'none'}: they do not "
                "belong together"
            )
        if type(units) is int and type(hidden) is int and units < hidden:
            return _Widened(reader, units, hidden)
        return reader


class _Widened:
    """The weights of a preset whose layer in front of the labels is narrower than the backbone; a Reader itself.

    It gets units that are 0: so are their activations, and their rows in the last map, which training leaves at 0 too.
    """

    def __init__(self, reader: "Reader", units: int, hidden: int) -> None:
        self.reader, self.units, self.hidden = reader, units, hidden
        self.names = reader.names

    def shape(self, name: str) -> "Shape":
        """Shape of one tensor."""
        return self._wide(name, np.broadcast_to(np.float32(0), self.reader.shape(name))).shape

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        return self._wide(name, self.reader.read(name))

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return self._wide(name, self.reader.stored(name))

    def _wide(self, name: str, values: np.ndarray) -> np.ndarray:
        axis = {f"{FIRST}/vars/0": -1, f"{FIRST}/vars/1": -1, f"{SECOND}/vars/0": 0}.get(name)
        if axis is None or not values.ndim or values.shape[axis] != self.units:
            return values
        wide = [(0, 0)] * values.ndim
        wide[axis] = (0, self.hidden - self.units)
        return np.pad(values, wide)


def differing(name: str, spec: Spec) -> str:
    """How the head of their masked LM computes otherwise than ours of a Spec; "" where it does not."""
    activation, own = _ACTIVATIONS.get(name, "gelu"), spec.feedforward.activation
    differ = [f"{activation} in the place of {own}"] if activation != own else []
    differ += [f"an epsilon of {_EPSILON:g} in the place of {spec.epsilon:g}"] if spec.epsilon != _EPSILON else []
    return f"the head of KerasHub's {name} has {' and '.join(differ)}" if differ else ""


def read(folder: Path) -> Task | None:
    """The task of a preset; None where it has none."""
    if not (folder / FILE).is_file():
        return None
    content = JsonView(read_json(folder / FILE))
    config = content.get("config")
    if not isinstance(config, JsonView) or not isinstance(content.get("class_name"), str):
        raise InputError(f"{folder / FILE} is no configuration of a task of KerasHub: no class_name and config")
    # KerasNLP, KerasHub's name before, called it BertClassifier
    return Task(folder, re.sub(r"(?<!Text)Classifier$", CLASSIFIER, str(content["class_name"])), config)


def check_weights(task: Task) -> None:
    """Refuse a task whose head has no weights."""
    if not (task.folder / TASK_WEIGHTS).is_file():
        raise InputError(
            f"{task.folder} has a {FILE} ({task.name}) and no {TASK_WEIGHTS}, which its head is in: download that too, or "
            f"remove {FILE}, which leaves the backbone"
        )


def check_numbers(task: Task, reader: "Reader") -> None:
    """Refuse a head whose weights are quantized: whole numbers, which mean nothing without their scales."""
    head = [name for name in reader.names() if name.startswith(f"{PREFIX}layers/")]
    if whole := [name for name in head if reader.stored(name).dtype.kind in "iu"]:
        raise InputError(
            f"{task.folder / TASK_WEIGHTS} has quantized weights ({whole[0].removeprefix(PREFIX)}), expected floating point "
            f"numbers: save the task before its quantization, and quantize the model here. --ignore '{PREFIX}*' reads the "
            "backbone alone"
        )


def _metadata(folder: Path) -> Json:
    """What an export of ours says of a classifier, where KerasHub has no place: names of the labels, pairs, options."""
    found = read_json(folder / METADATA) if (folder / METADATA).is_file() else {}
    if not isinstance(found.get(configs.OPTIONS, {}), dict):
        raise InputError(f"{folder / METADATA} is damaged: expected {configs.OPTIONS} to be options by name")
    return {key: found[key] for key in ("id2label", configs.PAIR, configs.OPTIONS) if key in found}
