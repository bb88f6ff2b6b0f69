"""Several models of one task that answer as one."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import answers, registry
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.base import TaskKind


CHOSEN = ("thresholds", "null_threshold")  # options that the dev rows of each model have chosen


class Ensemble:
    """Models of one task that answer as one: by the mean of the probabilities of labels, of numbers, of the logits of spans.

    `predict` and `evaluate` take it as a model. It is as long as the shortest of them. Its thresholds are the means of theirs.
    The order of the models changes nothing.

    Args:
        models: TaskModels that agree on the kind of task, the labels, the tokenizer and what their networks read.

    Raises:
        InputError: a model without a task, or what two of them differ in.
    """

    def __init__(self, models: "Sequence[keras.Model]") -> None:
        if not models:
            raise InputError("an ensemble of no models, expected one or more")
        facts = [_facts(model, f"model {i}") for i, model in enumerate(models, 1)]
        for model, other in zip(models, facts):
            for name, value in facts[0].items():
                if other[name] != value:
                    raise InputError(
                        f"an ensemble needs one {name}: {_name(models[0], 'the first')} has {value}, "
                        f"{_name(model, 'another')} has {other[name]}"
                    )
        first = min(models, key=lambda model: registry.family_of(model.encoder).longest(model.spec) or math.inf)
        lengths = [model.task.length for model in models if model.task.length]
        self.models = tuple(models)
        task, chosen = dataclasses.replace(models[0].task, length=min(lengths, default=None)), _chosen(models)
        self.task = task.optioned(chosen)
        self.kind = self.task.how
        differing = [name for name in chosen if any(each.task.options.get(name) != chosen[name] for each in models)]
        self.remarks = [f"{name} is the mean of those of the {len(models)} models" for name in differing]
        self.labels, self.tokenizer = models[0].labels, models[0].tokenizer
        self.encoder, self.spec, self.heads = first.encoder, first.spec, first.heads
        self.directory = getattr(models[0], "directory", None)

    def joined(self, outputs: Sequence[Tensor]) -> Tensor:
        """The models' outputs of the same rows -> one: of each row, as a model gives them."""
        kind = self.task.how
        if kind.per_token:
            return [self._mean([each[i] for each in outputs], kind) for i in range(len(outputs[0]))]
        return self._mean(outputs, kind)

    def _mean(self, values: Sequence[np.ndarray], kind: "TaskKind") -> np.ndarray:
        if not kind.answers.label_scores or not len(values[0]):
            return np.mean(values, axis=0)
        mean = np.mean([kind.answers.probabilities(value) for value in values], axis=0)
        return np.asarray(kind.from_exported(mean), "float32")

    def told(self) -> Json:
        """Nothing of its own: see `TaskModel.told`."""
        return {}


def _facts(model: "keras.Model", who: str) -> Json:
    """What the models of an ensemble have in common."""
    if getattr(model, "task", None) is None or not hasattr(model, "kind"):
        raise InputError(f"{_name(model, who)} has no task, expected a fine-tuned model: kerasbert finetune makes it")
    if not model.kind.averaged:
        raise InputError(
            f"{_name(model, who)} answers with {model.kind.name}, of which there is no mean: give one model"
        )
    if more := sorted(set(model.heads) - {model.kind.head, "mix"}):
        raise InputError(
            f"{_name(model, who)} answers by its {', '.join(more)} too, of which there is no mean: an ensemble needs models "
            "without"
        )
    return {
        "kind of task": model.task.kind,
        "set of labels": ", ".join(model.labels or ()) or "none",
        "number of texts": len(model.task.asked),
        "tokenizer": model.tokenizer.digest()[:12],
        "knowledge graph": knowledge.graph.digest[:12] if (knowledge := model.tokenizer.knowledge) else "none",
        "set of options": _told(model.task.answer_kind),
        "language": ", ".join(map(str, model.task.settings.values())) or "none",
        "set of inputs": ", ".join(each.name for each in registry.family_of(model.encoder).inputs),
    }


def _told(kind: answers.Kind) -> str:
    """The options that answers depend on, but for those that are averaged."""
    names = sorted({*kind.options} - {*CHOSEN, *kind.learned})
    return ", ".join(f"{name} {kind.options[name]}" for name in names) or "none"


def _chosen(models: "Sequence[keras.Model]") -> Json:
    """The means of what the models' dev rows have chosen."""
    options = [model.task.how.options for model in models]
    found: Json = {}
    if "thresholds" in options[0]:
        each = [model.kind.answers.configured(own).thresholds(len(model.labels)) for model, own in zip(models, options)]
        found["thresholds"] = [math.fsum(column) / len(models) for column in np.transpose(each).tolist()]
    if "null_threshold" in options[0]:
        found["null_threshold"] = math.fsum(own["null_threshold"] for own in options) / len(models)
    return found


def _name(model: "keras.Model", who: str) -> str:
    return str(getattr(model, "directory", who))
