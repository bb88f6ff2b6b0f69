"""Kinds of a plug-in with a mistake each: `check_kind` names the method or the option that is wrong."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from kerasbert import answers
from kerasbert.answers.classification import ClassificationKind
from kerasbert.inputs import Input
from kerasbert.layers.backend import pick
from kerasbert.layers.heads import LabelHead
from kerasbert.registry import register_task
from kerasbert.tasks import base
from kerasbert.tasks.classification import Classification, one_number
from kerasbert.testing import check_kind
from tests.support import forgotten
from tests.testing.grades import Grade, GradeKind, Grading

MARKS = Input("marks", "BP", filled_by="kind")


class MarkedKind(ClassificationKind):
    """A label of the tokens at some places, as where two marked spans begin (Soares et al., 2019, section 3.2)."""

    name, inputs = "grade", (MARKS,)
    places = 1

    def rows(self, tokenizer, parts, length):
        rows = super().rows(tokenizer, parts, length)
        marks = [min(place, row.length - 1) for row in rows for place in range(self.places)]
        return [dataclasses.replace(row, values={**row.values, MARKS.name: marks}) for row in rows]


class Marked(Classification):
    """Its head reads the tokens at `marks`."""

    name = "grade"
    places = 1

    def readout(self, task, encoder):
        return None

    def heads(self, encoder, task):
        head = LabelHead(len(task.labels), 0.2, 0.0, name="classifier", dtype=encoder.dtype_policy)
        return {"classifier": head}, {"classifier": (None, self.places * encoder.spec.hidden)}

    def logits(self, model, read, inputs, training=False):
        picked = pick(read, inputs[MARKS.name])
        flat = ops.reshape(picked, (-1, self.places * picked.shape[-1]))
        return model.heads["classifier"](flat, training=training)


def checked(folder, phone=GradeKind, training=Grading, metric="accuracy", data=None, exported=True, **task):
    """`check_kind` of a task over two halves, which are forgotten afterwards."""
    with forgotten():
        answers.register(phone())
        base.register("grade", training)
        register_task("grades", base.Task("grades", kind="grade", metric=metric, **task))
        check_kind("grades", folder, data, exported=exported)


def mistaken(half, **methods):
    """A half with other methods or attributes."""
    return type(f"My{half.__name__}", (half,), methods)


def test_a_kind_without_a_mistake_passes(tmp_path):
    checked(tmp_path, metric="mean_absolute_error")


# What is read in the two classes, before anything runs


class ReadsAnother(Grading):
    def better(self, metric, new, old):
        return new > old + self.options["margn"]


class ReadsAnotherQuietly(Grading):
    def scaled(self, task, targets):
        return targets * self.options.get("width", 1)


class TakesLess(GradeKind):
    def agreement(self, expected, received, owners=None, rows=()):
        return 1.0


class Misspelt(Grading):
    def lossses(self, task, logits, batch):
        return {}


class IsNoMethod(GradeKind):
    def columns(self):
        return ("label",)


class OtherHalf(Classification):
    """Of a classification; its options too."""

    name = "grade"


WRITTEN = {
    "an option by another name": (
        {"training": ReadsAnother},
        r"ReadsAnother.better reads the option 'margn', which GradeKind.defaults does not declare \(it has: margin\). Nearest: "
        r"'margin'",
    ),
    "an option that nobody declares, with a default beside it": (
        {"training": ReadsAnotherQuietly},
        r"ReadsAnotherQuietly.scaled reads the option 'width', .* options are declared there, with their defaults",
    ),
    "a training half that extends one of ours, and a phone's half that does not": (
        {"training": OtherHalf},
        r"OtherHalf.fitted \(inherited from Classification\) reads the option 'class_weights', which GradeKind.defaults does not "
        r"declare \(it has: margin\): OtherHalf extends Classification, so extend ClassificationKind too",
    ),
    "a method that takes less": (
        {"phone": TakesLess},
        r"TakesLess.agreement takes \(self, expected, received, owners, rows\), expected agreement\(.*rows, ties\)",
    ),
    "a method that nothing asks for": (
        {"training": Misspelt},
        r"Misspelt.lossses is nothing that is asked for. Nearest: 'losses'",
    ),
    "a method in the place of a value": ({"phone": IsNoMethod}, r"IsNoMethod.columns is a method, expected a value"),
    "two names": (
        {"training": mistaken(Grading, name="grades")},
        r"MyGrading.name is 'grades' and GradeKind.name 'grade', expected 'grade' of both",
    ),
}


@pytest.mark.parametrize("mistake", WRITTEN)
def test_what_the_two_classes_say(mistake, tmp_path):
    wrong, message = WRITTEN[mistake]
    with pytest.raises(AssertionError, match=message):
        checked(tmp_path, **wrong)


# What is found when they run


def weighs_all(self, task, rows, targets, count, length):
    arrays = one_number(targets, count, "int32")
    return arrays | {"label_weight": np.ones(count, "float32")}


def mean(self, task, logits, batch):
    (loss,) = Grading.losses(self, task, logits, batch).values()
    return {"label": loss / ops.sum(batch["label_weight"])}


def of_the_neighbour(self, task, logits, batch):
    return Grading.losses(self, task, logits, batch | {"label": ops.roll(batch["label"], 1)})


def of_nothing(self, task, logits, batch):
    return {"label": ops.sum(batch["label_weight"])}


def raises(self, task, source, lines, values, texts):
    number = {value: i for i, value in enumerate(task.labels)}
    return np.array([number[value] for value in values], "int32")


def too_long(self, tokenizer, parts, length):
    return super(GradeKind, self).rows(tokenizer, parts, length + 4)


def prompted(self, tokenizer, parts, length):
    return super(GradeKind, self).rows(tokenizer, ("good " + parts[0],), length)


def of_numpy(self, parts, rows, outputs, labels):
    return Grade(labels[0], np.asarray(outputs[0]).sum())


def of_all_rows(self, outputs):
    return np.exp(outputs) / np.exp(outputs).sum()


def logarithms(self, outputs):
    return base.TaskKind.from_exported(self, outputs)


INHERITED = {"name": "grade", "decode": GradeKind.decode, "columns": ("label",), "text": GradeKind.text}
RUN = {
    "labels that are never looked for": (
        {"phone": mistaken(GradeKind, labelled=False)},
        r"Grading.with_labels finds the labels 0, 1, 2, and is never asked: .* MyGradeKind.labelled is true",
    ),
    "no labels": (
        {"training": mistaken(Grading, with_labels=base.TaskKind.with_labels, targets=lambda self, *a: np.zeros(24))},
        r"GradeKind.labelled is true, and the task has no labels: MyGrading.with_labels finds none",
    ),
    "a label that is not known": (
        {"training": mistaken(Grading, targets=raises)},
        r"MyGrading.targets \(.*reading the label 'no such label', which expects an InputError with file and line\): KeyError",
    ),
    "a mean in the place of a sum": (
        {"training": mistaken(Grading, losses=mean)},
        r"MyGrading.losses: 'label' is .* of two halves of a batch it adds up to another.* Sums, not means",
    ),
    "rows that fill up a batch": (
        {"training": mistaken(Grading, batch=weighs_all)},
        r"MyGrading.counts: count of label is 10, and rows that fill a batch up count .*: 8",
    ),
    "targets of the neighbour": (
        {"training": mistaken(Grading, losses=of_the_neighbour)},
        r"MyGrading.losses: 'label' is ",
    ),
    "a head that learns nothing": (
        {"training": mistaken(Grading, losses=of_nothing)},
        r"MyGrading.losses trains no .*classifier",
    ),
    "a metric that is not given": (
        {"training": mistaken(Grading, metrics_known=("accuracy", "kappa")), "metric": "kappa"},
        r"MyGrading.metrics gives accuracy, mean_absolute_error, not 'kappa' of the task",
    ),
    "metrics of an exported file": (
        {"training": mistaken(Grading, from_exported=logarithms)},
        r"MyGrading.metrics: .* is .* of an exported file .* MyGrading.from_exported has to undo GradeKind.probabilities",
    ),
    "a width": (
        {"phone": mistaken(GradeKind, width=lambda self, labels: len(labels))},
        r"an output has the shape \(2,\), expected \(3,\): .*MyGradeKind.width says 3 for 3 labels, and Grading.heads gives 2",
    ),
    "a row that is too long": (
        {"phone": mistaken(GradeKind, rows=too_long)},
        r"MyGradeKind.rows gives a row of 36 tokens, expected at most 32",
    ),
    "json of numpy's numbers": (
        {"phone": mistaken(GradeKind, decode=of_numpy)},
        r"Grade.to_json is no json: Object of type float32 is not JSON serializable",
    ),
    "a column": (
        {"phone": mistaken(GradeKind, columns=("label", "score"))},
        r"MyGradeKind.columns names score, which Grade.to_json lacks: it has label, expected",
    ),
    "numbers of a row that depend on others": (
        {"phone": mistaken(GradeKind, probabilities=of_all_rows)},
        r"MyGradeKind: an input by itself has another answer than among others",
    ),
    "a device without the sigmoid": (
        {"training": mistaken(Grading, device=lambda self, outputs, inputs: outputs["logits"])},
        r"MyGrading.device and GradeKind.probabilities make different numbers of the same outputs",
    ),
    "a device of another shape": (
        {"training": mistaken(Grading, device=lambda self, outputs, inputs: ops.sum(outputs["logits"], -1))},
        r"MyGrading.device gives \(24,\), expected \(24, 'C'\): numbers for each row",
    ),
    "an output by another name": (
        {"training": mistaken(Grading, exported=lambda self, model, outputs, inputs: {"grade": outputs["logits"]})},
        r"MyGrading.exported gives grade, and not 'exceeds', which GradeKind.output names",
    ),
    "a prompt that the graph does not put": (
        {"phone": mistaken(GradeKind, rows=prompted)},
        r"Grading.served answers otherwise than kb.predict: answers\[0\]",
    ),
    "an inherited answer": (
        {"phone": mistaken(ClassificationKind, **INHERITED), "training": OtherHalf},
        r"MyClassificationKind.limited \(inherited from ClassificationKind\) .*AttributeError: 'Grade' object has no attribute ",
    ),
    "an input of the kind's own that the graph does not fill": (
        {"phone": MarkedKind, "training": Marked},
        r"Marked.served packs no marks, which MarkedKind.inputs declares and MarkedKind.rows fills: .* give the Input "
        r"a graph, or override served",
    ),
    "two places": (
        {"phone": mistaken(MarkedKind, places=2), "training": mistaken(Marked, places=2)},
        r"MyMarkedKind.rows fills marks with 2 places, and in a .tflite the axes BP have room for 1 a row: give the Input "
        r"places=2, or keep the kind in Python \(exported=False\)",
    ),
}
DEFAULT = ("labels that are never looked for", "a mean in the place of a sum", "rows that fill up a batch", "a width")
DEFAULT += ("a device without the sigmoid", "two places")


@pytest.mark.parametrize(
    "mistake", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in RUN]
)
def test_what_is_found_when_they_run(mistake, tmp_path):
    wrong, message = RUN[mistake]
    with pytest.raises(AssertionError, match=message):
        checked(tmp_path, **wrong)


def marks_in_a_graph(inputs, tokenizer):
    assert tokenizer.pad_id is not None
    count = ops.sum(ops.cast(inputs["padding_mask"], "int32"), axis=1, keepdims=True)
    return ops.minimum(ops.arange(2, dtype="int32")[None], count - 1)


TWO = Input("marks", "BP", filled_by="kind", places=2, graph=marks_in_a_graph)


def test_two_places_leave_python_with_their_number_and_their_graph(tmp_path):
    checked(tmp_path, mistaken(MarkedKind, places=2, inputs=(TWO,)), mistaken(Marked, places=2))


def test_a_graph_that_reads_other_places_is_found(tmp_path):
    wrong = dataclasses.replace(TWO, graph=lambda inputs, tokenizer: marks_in_a_graph(inputs, tokenizer)[:, ::-1])
    with pytest.raises(AssertionError, match=r"MyMarked.served answers otherwise than kb.predict"):
        checked(tmp_path, mistaken(MarkedKind, places=2, inputs=(wrong,)), mistaken(Marked, places=2))


@pytest.mark.slow
def test_two_places_are_no_mistake_in_python(tmp_path):
    checked(tmp_path, mistaken(MarkedKind, places=2), mistaken(Marked, places=2), exported=False)
