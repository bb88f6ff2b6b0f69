"""A text as a vector: what an encoder alone answers, and what it is fine-tuned to on pairs (Reimers and Gurevych, 2019)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasbert.answers.vector import VectorKind, cosines, dense_names
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.lazy import Module
from kerasbert.poolings import readouts_of
from kerasbert.tasks import metrics, tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.exported_kind import READERS
from kerasbert.tasks.judging import Judged, scatter
from kerasbert.tasks.regression import number

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
objectives = Module("kerasbert.objectives.base")
contrastive = Module("kerasbert.objectives.contrastive")
reading = Module("kerasbert.layers.readout")
feedforward = Module("kerasbert.layers.feedforward")

KEPT = ("pooling", "dense", "normalize", "dimensions", "prompts", "prompt_name", "include_prompt", "prompt_tokens")
METRICS = {"cosine": ("spearman", "pearson"), "ranking": ("recall",)}


class Vector(TaskKind):
    """Vectors [B, H]. Of pairs with a score, or of anchors with their positives, the loss is of the cosines.

    "cosine": squared error of the cosine and the score, the scores divided by the largest of the training rows where that is
    above 1 (`highest`). "ranking" (Henderson et al., 2017, section 4; sentence-transformers' MultipleNegativesRanking):
    cross-entropy of an anchor's own positive among all positives and further texts of its group, of cosines times `scale`.
    A group is the whole batch, or `negatives` inputs of it: then the loss is the same for any replicas and micro-batches.
    Metrics: correlations of cosine and score; "recall", the share of anchors that are nearest to their own positive, of all
    the texts that are no anchors.
    """

    name = "vector"
    answers: VectorKind  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
    taught = ()
    metrics_known = ("spearman", "pearson", "recall")
    head = ""
    together = True
    pooler = False

    @property
    def program(self) -> str:
        said = " ".join(str(self.options[name]) for name in ("pooling", "normalize", "dimensions"))
        return f"{said} {self.begin}"

    @property
    def begin(self) -> int:
        return self.answers.begin

    def check_metric(self, task) -> None:
        loss = self.options["loss"]
        if loss not in METRICS:
            raise InputError(f"vectors have no loss {loss!r}, expected one of {', '.join(METRICS)} (option loss)")
        if task.metric not in METRICS[loss]:
            known = ", ".join(METRICS[loss])
            raise InputError(f"no metric {task.metric!r} for a {self.name} with the loss {loss!r}. All: {known}")

    def started(self, task, held) -> Task:
        """With the pooling, the norm and the prompts that the model has, where the task names none."""
        if held.get("kind") != self.name:
            return task
        options = {name: held.get("options", {}).get(name) for name in KEPT if name not in task.options}
        return task.optioned({name: value for name, value in options.items() if value is not None})

    def keeps_heads(self, held) -> bool:
        """Whether the layers behind the pooling are the model's own."""
        own = held.get("options", {}).get("dense", ()) if held.get("kind") == self.name else ()
        return bool(own) and list(own) == list(self.options["dense"])

    # Rows of a file

    def targets(self, task, source, lines, values, texts) -> Any:
        if self.options["loss"] == "ranking":
            return np.ones(len(lines), "float32")
        for line, text in zip(lines, texts):
            if not isinstance(text, tuple) or not isinstance(text[1], str):
                raise InputError(f"{tables.where(source, line)}: a score is of two texts, received {text!r:.60}")
        return np.array([number(value, source, line) for value, line in zip(values, lines)], "float32")

    def fitted(self, task, source, targets) -> Task:
        highest = float(targets.max(initial=1.0)) if self.options["loss"] == "cosine" else 1.0
        return task if highest == self.options["highest"] else task.optioned({"highest": highest})

    def scaled(self, task, targets) -> Any:
        return targets / np.float32(self.options["highest"])

    def group(self, target) -> Any:
        return 0.0  # every text has its share of the held-out rows, whatever its score

    # Batches and network

    def batch(self, task, rows, targets, count, length) -> dict:
        inputs = sum(row.about == 0 for row in rows)
        width = len(rows) // inputs
        weight = (np.arange(count) < inputs).astype("float32")
        if self.options["loss"] == "cosine":
            label = np.zeros(count, "float32")
            label[:inputs] = targets[::width]
            return {"label": label, "label_weight": weight}
        group = self.options["negatives"] or count
        self.check_batch(count, 1)
        candidates = np.zeros((count, width - 1), "bool")  # fewer texts repeat their last, which is none again
        numbers = np.reshape([row.about == i % width for i, row in enumerate(rows)], (inputs, width))
        candidates[:inputs] = numbers[:, 1:]
        own = np.tile(np.eye(group, dtype="float32"), (count // group, 1))
        return {"label": own, "label_weight": weight, "candidates": candidates}

    def check_batch(self, batch, parts) -> None:
        if self.options["loss"] == "ranking":
            self._check_group(batch // parts, self.options["negatives"] or batch)

    @staticmethod
    def _check_group(inputs, group) -> None:
        if inputs % group:
            raise InputError(
                f"a replica's micro-batch has {inputs} inputs, and the negatives of an anchor are of {group}: expected a "
                f"multiple. Pass --set task.negatives={inputs} or a divisor of it, or change --batch"
            )

    def heads(self, encoder, task) -> tuple[dict[str, Any], dict[str, tuple]]:
        layers, shapes = {}, {}
        width = reading.width(self.options["pooling"], encoder.spec.hidden)
        for name, about in zip(dense_names(self.options), self.options["dense"]):
            activation, known = about["activation"], feedforward.ACTIVATIONS
            if activation and activation not in known:
                raise unknown("activation", activation, list(known), ", ".join(known))
            policy = {"name": name, "dtype": encoder.dtype_policy}
            layers[name] = feedforward.Linear(about["width"], use_bias=about["bias"], **policy)
            shapes[name], width = (None, width), about["width"]
        return layers, shapes

    def readout(self, task, encoder) -> str | None:
        return self.options["pooling"]

    def logits(self, model, read, inputs, training=False) -> Any:
        for layer, about in zip(model.heads.values(), self.options["dense"]):
            read = layer(read, activation=about["activation"] or None)
        return read

    def outputs(self, task, logits) -> dict[str, Tensor]:
        vectors = ops.cast(logits, "float32")
        vectors = unit(vectors) if self.options["normalize"] else vectors
        return {"vector": vectors[:, : self.options["dimensions"]] if self.options["dimensions"] else vectors}

    def losses(self, task, logits, batch) -> dict[str, Tensor]:
        vectors, weight = unit(ops.cast(logits, "float32")), batch["label_weight"]
        inputs = weight.shape[0]
        vectors = ops.reshape(vectors, (inputs, vectors.shape[0] // inputs, vectors.shape[1]))
        if self.options["loss"] == "cosine":
            cosine = ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
            return {"label": ops.sum(ops.square(cosine - batch["label"]) * weight)}
        return self._ranking(vectors, batch["candidates"], batch["label"].shape[1], weight)

    def _ranking(self, vectors, candidates, group, weight) -> dict[str, Tensor]:
        """The sums of a batch's part: vectors [B, k, H], candidates bool [B, k - 1], weight [B]."""
        inputs, texts, hidden = vectors.shape
        self._check_group(inputs, group)
        groups, others = inputs // group, texts - 1
        anchors = ops.reshape(vectors[:, 0], (groups, group, hidden))
        # the positives of the group come first, then the second text of each, ...
        rest = ops.transpose(ops.reshape(vectors[:, 1:], (groups, group, others, hidden)), (0, 2, 1, 3))
        rest = ops.reshape(rest, (groups, others * group, hidden))
        there = ops.logical_and(candidates, ops.expand_dims(weight > 0, -1))
        there = ops.reshape(ops.transpose(ops.reshape(there, (groups, group, others)), (0, 2, 1)), (groups, 1, -1))
        scores = ops.matmul(anchors, ops.transpose(rest, (0, 2, 1))) * self.options["scale"]
        scores = ops.reshape(contrastive.candidate_logs(scores, there), (inputs, others * group))
        own = ops.tile(ops.arange(group, dtype="int32"), [groups])
        logs = ops.take_along_axis(scores, ops.expand_dims(own, -1), axis=-1)[:, 0]
        return {"label": -ops.sum(logs * weight), "label/accuracy": ops.sum(objectives.correct(scores, own) * weight)}

    # Evaluation

    def metrics(self, task, outputs, targets, encoded=None) -> dict[str, float]:
        if self.options["loss"] == "cosine":
            return _correlations(_cosines(outputs, encoded), targets.astype("float64"))
        return {"recall": float(np.mean(_above(outputs, encoded) == 0))}

    def judged(self, task, outputs, targets, encoded) -> Judged:
        if self.options["loss"] == "cosine":
            cosine, scores = _cosines(outputs, encoded), targets.astype("float64")
            wanted = scores / self.options["highest"]
            answer = [round(float(value), 4) for value in cosine]

            def sampled(numbers):
                return _correlations(cosine[numbers], scores[numbers])

            picture = scatter("Cosines beside scores", wanted, cosine)
            return Judged(sampled, answer.__getitem__, np.abs(cosine - wanted), graded=True, picture=picture)
        above = _above(outputs, encoded)
        bars = {f"among the {k} nearest" if k > 1 else "the nearest": float(np.mean(above < k)) for k in (1, 2, 5, 10)}
        picture = {"title": "The positive is", "bars": bars}
        return Judged(
            lambda numbers: {"recall": float(np.mean(above[numbers] == 0))},
            lambda number: int(above[number]),
            above.astype("float64"),
            picture=picture,
        )

    def baseline(self, task, targets, encoded) -> dict[str, float]:
        """Of cosines that tell nothing, and of a guess among all texts that are no anchors."""
        if self.options["loss"] == "cosine":
            return {"spearman": 0.0, "pearson": 0.0}
        return {"recall": 1 / max(1, len(encoded.rows) - encoded.texts)}

    def shown(self, task, text, target, label, answer) -> tuple[str, str]:
        if self.options["loss"] == "cosine":
            return f"{float(target) / self.options['highest']:.4g}", f"{answer:.4g}"
        return "its positive is the nearest", f"{answer} other text{'s are' if answer > 1 else ' is'} nearer"

    # Export, in the graph

    def device(self, outputs, inputs) -> Tensor:
        if (own := _own(outputs)) is not None:
            return own
        mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
        return ops.sum(outputs["sequence"] * mask, axis=1) / ops.sum(mask, axis=1)

    def exported(self, model, outputs, inputs) -> dict[str, Tensor]:
        if (own := _own(outputs)) is not None:
            return {"vector": own}
        return {
            "vector": reading.readout(outputs["sequence"], inputs["padding_mask"], "mean")
        }  # finite without a token too

    def pipeline_tag(self, task) -> str:
        return "sentence-similarity"

    def described(self) -> str:
        pooling, normalize = self.options["pooling"], self.options["normalize"]
        first = self.options["dimensions"]
        told = " and ".join(TOLD.get(name, name) for name in readouts_of(pooling))
        told += "".join(f", {each['activation'] or 'linear'} to {each['width']}" for each in self.options["dense"])
        told += f"{', of length 1' * normalize}{f', its first {first} numbers' if first else ''}"
        prompt = self.answers.prompt
        told = f"`vector` [B, H] float32: {told}" + (f"; {prompt!r} is put before each text" if prompt else "")
        known = ", ".join(self.options["prompts"]) if self.options["include_prompt"] else ""
        return told + (f". The signature `prompted` takes `prompt_name` too, of {known}, or empty" if known else "")

    def prompted(self, texts) -> list[Any]:
        import tensorflow as tf  # here: plug-ins' kinds load on a phone

        prompt = self.answers.prompt
        return [tf.strings.join([prompt, texts[0]]), *texts[1:]] if prompt else texts

    def check_target(self, target) -> None:
        if self.answers.prompt:
            raise InputError(
                f"the model puts the prompt {self.answers.prompt!r} before each text, which {READERS[target][0]} does not: "
                "compress without --target, or with --set task.prompt_name="
            )


def _cosines(outputs, encoded) -> np.ndarray:
    """The cosine of each pair: float64 [n]."""
    vectors, first = outputs.astype("float64"), np.array([at.start for at in encoded.of()])
    return cosines(vectors[first], vectors[first + 1])


def _correlations(cosine, scores) -> dict[str, float]:
    return {"spearman": metrics.spearman(cosine, scores), "pearson": metrics.pearson(cosine, scores)}


def _above(outputs, encoded) -> np.ndarray:
    """How many texts that are no anchors are nearer to each anchor than its own positive: int [n]."""
    vectors, first = outputs.astype("float64"), np.array([at.start for at in encoded.of()])
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    candidates = units[np.setdiff1d(np.arange(len(units)), first)]
    above = [np.zeros(0, int)]
    for i in range(0, len(first), 256):
        scores = units[first[i : i + 256]] @ candidates.T
        own = (units[first[i : i + 256]] * units[first[i : i + 256] + 1]).sum(-1, keepdims=True)
        above.append((scores > own + 1e-12).sum(-1))
    return np.concatenate(above)


def _own(outputs: Mapping[str, Tensor]) -> Tensor:
    """What a model of vectors gives, or an encoder that learned one of a text; None of any other."""
    return outputs.get("vector", outputs.get("text_vector"))


TOLD = {
    "mean": "the mean over the tokens",
    "max": "the largest of each number over the tokens",
    "mean_sqrt_len": "the sum over the tokens by the root of their number",
    "weighted_mean": "the mean over the tokens, each weighed by its place",
    "first": "the first token",
    "last": "the last token",
}


def unit(vectors) -> Tensor:
    """Vectors of length 1 (torch's `normalize`): float32 [B, H] -> [B, H]."""
    return vectors / ops.sqrt(ops.maximum(ops.sum(ops.square(vectors), axis=-1, keepdims=True), 1e-24))


KIND = Vector()
