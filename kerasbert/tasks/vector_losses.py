"""What vectors learn from texts that belong together and from scores: a function a loss, and the rows that each wants."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.lazy import Module
from kerasbert.storage.json_view import JsonMap

if TYPE_CHECKING:
    from kerasbert.tasks.base import Task

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
objectives = Module("kerasbert.objectives.base")
contrastive = Module("kerasbert.objectives.contrastive")

Sums = dict[str, Tensor]
TEMPERATURE = 0.3  # T of what the layers below the last one learn of it
SCORED = (
    "two texts and a score: the columns sentence1, sentence2 and score of --task sts, or those that --text-column, "
)
SCORED += "--text-b-column and --label-column name"
LABELLED = "two texts and a label, 1 where they belong together and 0 where not: --task sts with --label-column NAME"
ALONE = "texts alone, one a line or the column text of a table, and is judged by scored pairs (--dev): --task simcse"
TEXTS = "texts that belong together: the columns anchor and positive of --task pairs, perhaps negative or negatives"
TRIPLETS = (
    "a text, one that belongs to it and one that does not: the columns anchor, positive and negative of --task pairs"
)
MARGINS = "a text, one that belongs to it, others that do not, and what a cross-encoder scores: the columns anchor, positive and "
MARGINS += "negative of --task pairs with --label-column NAME, in it the margin, or a list of margins or of scores"


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss of vectors.

    Args:
        sums: (vectors [B, k, H] float32, batch, options) -> `label`, the sum over the inputs, and `label/metric` sums. A batch
            holds label, label_weight [B] and, of rows with negatives, label_texts int [B, k]: the number of each text, equal
            texts have one, and -1 where an input has no such text.
        wants: str, the rows that it learns from. scores: bool, whether a label is among them.
        ranked: bool, whether rows are a text, its positive and perhaps negatives, judged by `recall`; else they are two texts,
            judged by correlations with the score.
        whole: bool, whether the loss of an input depends on the other inputs of the batch.
        options: those of the kind that it takes, with its own defaults.
    """

    sums: Callable[[Tensor, Mapping[str, Tensor], JsonMap], Sums]
    wants: str
    scores: bool = True
    ranked: bool = False
    whole: bool = False
    options: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what the vectors are judged by."""
        return ("recall",) if self.ranked else ("spearman", "pearson")


def find(name: str) -> Loss:
    """The loss of that name.

    Raises:
        InputError: no such loss.
    """
    if name not in LOSSES:
        raise unknown("loss of vectors", name, list(LOSSES), f"{', '.join(LOSSES)} (option loss)")
    return LOSSES[name]


def check(task: "Task", options: JsonMap) -> None:
    """Refuse a loss whose rows are not those of the task, and options of another loss.

    Args:
        options: of the task's kind, defaults among them.

    Raises:
        InputError: of one line, which says which columns the loss wants.
    """
    name = options["loss"]
    loss = find(name)
    if bool(task.label) != loss.scores:
        no = f"the task {task.name} has no column of scores" if loss.scores else f"it would not read {task.label!r}"
        raise InputError(f"the loss {name} learns from {loss.wants}; {no}")
    if (loss.wants == ALONE) != (task.reader == "simcse"):
        raise InputError(f"the loss {name} learns from {loss.wants}; the task is {task.name}")
    if task.metric not in loss.metrics:
        known = ", ".join(loss.metrics)
        raise InputError(f"no metric {task.metric!r} for a vector with the loss {name!r}. All: {known}")
    for option in ("scale", "margin"):
        if option in task.options and option not in loss.options:
            takers = ", ".join(each for each, known in LOSSES.items() if option in known.options)
            raise InputError(f"{option} is of the losses {takers}, received it with the loss {name}: leave it out")
        if option in task.options and not task.options[option] > 0:
            raise InputError(f"{option} must be more than 0. Received: {task.options[option]}")


def sums(options: JsonMap, vectors: Tensor, batch: Mapping[str, Tensor]) -> Sums:
    """The sums of a batch by the loss of these options, float32 scalars by name.

    With `dims` the loss of the first d numbers, of length 1, summed over each d of them (Matryoshka; Kusupati et al., 2022,
    section 3, every weight 1); metrics are of the widest.

    Args:
        vectors: [B, k, H] of the k texts of each input.
    """
    loss = find(options["loss"])
    known = {**loss.options, **{name: options[name] for name in loss.options if options[name]}}
    if not options["dims"]:
        return loss.sums(vectors, batch, known)
    found = [loss.sums(unit(vectors[..., :d]), batch, known) for d in sorted(options["dims"], reverse=True)]
    return found[0] | {"label": sum(each["label"] for each in found)}


def of_layers(options: JsonMap, layers: Sequence[Tensor], batch: Mapping[str, Tensor]) -> Sums:
    """`sums` of the last layer's vectors, with what others learn to give the same (2D Matryoshka; Li et al., 2024, section 3).

    The mean of the others' losses, and of each T KL(last || other), of softmax(vector / T), which the last does not learn from:
    sentence-transformers' AdaptiveLayerLoss with all its weights 1.

    Args:
        layers: of the last and of the others, each [B, k, H].
    """
    last, *others = layers
    found = sums(options, last, batch)
    if not others:
        return found
    label = sum(sums(options, each, batch)["label"] for each in others) / len(others)
    return found | {"label": found["label"] + label + sum(_apart(last, each, batch) for each in others)}


def _apart(last: Tensor, other: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The sum over inputs of T KL(last || other), a mean over the texts of each: [B, k, H], [B, k, H] -> scalar."""
    wanted, logs = (ops.log_softmax(each / TEMPERATURE, axis=-1) for each in (ops.stop_gradient(last), other))
    there = ops.cast(batch["label_texts"] >= 0, "float32")
    each = ops.sum(ops.exp(wanted) * (wanted - logs), axis=-1) * there
    means = ops.sum(each, axis=-1) / ops.maximum(ops.sum(there, axis=-1), 1.0)
    return TEMPERATURE * ops.sum(means * batch["label_weight"])


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1 (torch's `normalize`): float32 [..., H] -> [..., H]."""
    return vectors / ops.sqrt(ops.maximum(ops.sum(ops.square(vectors), axis=-1, keepdims=True), 1e-24))


def cosine(vectors: Tensor) -> Tensor:
    """The cosine of the first text of each input with the others: [B, k, H] -> [B, k - 1]."""
    vectors = unit(vectors)
    return ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)


def _squared(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """(cos - score)^2 (Reimers and Gurevych, 2019, section 3, "Regression Objective Function")."""
    return {"label": ops.sum(ops.square(cosine(vectors)[:, 0] - batch["label"]) * batch["label_weight"])}


def _contrastive(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """(y d^2 + (1 - y) max(0, m - d)^2) / 2 of the distance d = 1 - cos (Hadsell et al., 2006, equation 4)."""
    distance, label = 1.0 - cosine(vectors)[:, 0], batch["label"]
    apart = ops.square(ops.relu(options["margin"] - distance))
    return {"label": 0.5 * ops.sum((label * ops.square(distance) + (1.0 - label) * apart) * batch["label_weight"])}


def _ranking(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """-log softmax of an anchor's own positive among the texts of the batch (Henderson et al., 2017, section 4).

    Where the positive is the text itself, under another dropout, it is SimCSE (Gao et al., 2021, section 3).
    A text that equals the anchor or its positive, and a positive of an equal anchor, is no negative.
    """
    vectors = unit(vectors)
    return ranked(ops.matmul(vectors[:, 0], ops.transpose(compared(vectors))) * options["scale"], batch)


def compared(texts: Tensor) -> Tensor:
    """What each anchor is compared with: [B, k, ...] -> [(k - 1) B, ...], all positives, then all first negatives, and so on."""
    return ops.reshape(ops.swapaxes(texts[:, 1:], 0, 1), (-1, *ops.shape(texts)[2:]))


def ranked(scores: Tensor, batch: Mapping[str, Tensor]) -> Sums:
    """The sums of a loss that ranks each anchor's positive above the other texts of the batch, of whatever scores.

    Args:
        scores: float32 [B, (k - 1) B], of each anchor beside what `compared` gives.
    """
    weight, own = batch["label_weight"], ops.arange(scores.shape[0], dtype="int32")
    logs = contrastive.candidate_logs(scores, candidates(batch["label_texts"], weight))
    mine = ops.take_along_axis(logs, ops.expand_dims(own, -1), axis=-1)[:, 0]
    return {"label": -ops.sum(mine * weight), "label/accuracy": ops.sum(objectives.correct(logs, own) * weight)}


def candidates(texts: Tensor, weight: Tensor) -> Tensor:
    """Which texts each anchor is compared with: int [B, k], [B] -> bool [B, (k - 1) B], the positives first."""
    inputs = texts.shape[0]
    there = ops.logical_and(texts[:, 1:] >= 0, ops.expand_dims(weight > 0, -1))
    there, other = (ops.reshape(ops.transpose(each), (1, -1)) for each in (there, texts[:, 1:]))
    anchor, positive = texts[:, :1], texts[:, 1:2]
    equal = ops.logical_or(ops.equal(other, anchor), ops.equal(other, positive))
    anchors = ops.equal(anchor, ops.transpose(anchor))  # their positives are each other's
    rest = ops.zeros((inputs, equal.shape[1] - inputs), "bool")
    equal = ops.logical_or(equal, ops.concatenate([anchors, rest], axis=1))
    own = ops.equal(ops.expand_dims(ops.arange(equal.shape[1]), 0), ops.expand_dims(ops.arange(inputs), 1))
    return ops.logical_and(there, ops.logical_or(own, ops.logical_not(equal)))


def _ordered(similarity: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """log(1 + sum of exp(scale (s_i - s_j)) over pairs i with a lower score than j): of the whole batch, for each input."""
    label, real, x = batch["label"], batch["label_weight"] > 0, similarity * options["scale"]
    lower = ops.expand_dims(label, 1) < ops.expand_dims(label, 0)
    lower = ops.logical_and(lower, ops.logical_and(ops.expand_dims(real, 1), ops.expand_dims(real, 0)))
    terms = ops.where(lower, ops.expand_dims(x, 1) - ops.expand_dims(x, 0), contrastive.NEVER)
    terms = ops.concatenate([ops.zeros(1), ops.reshape(terms, (-1,))])
    return {"label": ops.logsumexp(terms) * ops.sum(batch["label_weight"])}


def _cosent(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """CoSENT (Huang et al., 2024, section III): the order of the cosines is that of the scores."""
    return _ordered(cosine(vectors)[:, 0], batch, options)


def _angle(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """AnglE (Li and Li, 2024, section 3.4): of the angle between halves of vectors as real and imaginary parts."""
    vectors = unit(vectors)
    if vectors.shape[-1] % 2:
        vectors = ops.pad(vectors, ((0, 0), (0, 0), (0, 1)))
    one, other = vectors[:, 0], vectors[:, 1]
    half = one.shape[-1] // 2
    sine = ops.sum(one[:, half:] * other[:, :half] - one[:, :half] * other[:, half:], axis=-1)
    return _ordered(ops.abs(ops.sum(one * other, axis=-1) + sine), batch, options)


def _of_negatives(values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The sum over inputs of the mean over an input's negatives: float32 [B, k - 2] -> scalar."""
    there = ops.cast(batch["label_texts"][:, 2:] >= 0, "float32")
    means = ops.sum(values * there, axis=-1) / ops.maximum(ops.sum(there, axis=-1), 1.0)
    return ops.sum(means * batch["label_weight"])


def _triplet(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """max(0, |a - p| - |a - n| + margin) (Reimers and Gurevych, 2019, section 3, "Triplet Objective Function")."""
    apart = vectors[:, :1] - vectors[:, 1:] + 1e-6  # torch's pairwise_distance: no root of 0
    distance = ops.sqrt(ops.sum(ops.square(apart), axis=-1))
    return {"label": _of_negatives(ops.relu(distance[:, :1] - distance[:, 1:] + options["margin"]), batch)}


def _margin_mse(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """The squared error of a.p - a.n and the margin of a teacher's scores (Hofstaetter et al., 2020, section 3.2)."""
    scores = ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)
    return {"label": _of_negatives(ops.square(scores[:, :1] - scores[:, 1:] - batch["label"]), batch)}


def _kl(vectors: Tensor, batch: Mapping[str, Tensor], options: Any) -> Sums:
    """KL(teacher || softmax of a.p, a.n, ...) of a teacher's softmax over an input's texts (Lin et al., 2020, section 3.2).

    Of the teacher's scores the margins are enough, since a softmax is the same for scores that are all less by one number.
    """
    there = batch["label_texts"][:, 1:] >= 0
    scores = ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1) * options["scale"]
    teacher = ops.pad(-batch["label"], ((0, 0), (1, 0)))
    logs, wanted = (contrastive.candidate_logs(each, there) for each in (scores, teacher))
    each = ops.where(there, ops.exp(wanted) * (wanted - logs), 0.0)
    return {"label": ops.sum(ops.sum(each, axis=-1) * batch["label_weight"])}


_SCALE = {"scale": 20.0}
LOSSES: dict[str, Loss] = {
    "cosine": Loss(_squared, SCORED),
    "cosent": Loss(_cosent, SCORED, whole=True, options=_SCALE),
    "angle": Loss(_angle, SCORED, whole=True, options=_SCALE),
    "contrastive": Loss(_contrastive, LABELLED, options={"margin": 0.5}),
    "simcse": Loss(_ranking, ALONE, whole=True, options=_SCALE),
    "ranking": Loss(_ranking, TEXTS, scores=False, ranked=True, whole=True, options=_SCALE),
    "triplet": Loss(_triplet, TRIPLETS, scores=False, ranked=True, options={"margin": 5.0}),
    "margin_mse": Loss(_margin_mse, MARGINS, ranked=True),
    "kl": Loss(_kl, MARGINS, ranked=True, options={"scale": 1.0}),
}
