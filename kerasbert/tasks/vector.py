"""A text as a vector: what an encoder alone answers, and what it is fine-tuned to on pairs (Reimers and Gurevych, 2019)."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import registry
from kerasbert.answers.vector import VectorKind, check_depths, check_width, cosines, dense_names
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.poolings import readouts_of
from kerasbert.storage.json_view import JsonMap
from kerasbert.tasks import metrics, tables, vector_losses
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.exported_kind import READERS
from kerasbert.tasks.judging import Judged, Numbers, scatter
from kerasbert.tasks.regression import number
from kerasbert.tasks.rows import Rows, Targets
from kerasbert.tasks.vector_losses import unit

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder, SpecModel
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.tables import Source

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
reading = Module("kerasbert.layers.readout")
feedforward = Module("kerasbert.layers.feedforward")

KEPT = ("pooling", "dense", "normalize", "dimensions", "prompts", "prompt_name", "include_prompt", "prompt_tokens")


class Vector(TaskKind):
    """Vectors [B, H], which learn from pairs with a score or from texts that belong together by a loss of `vector_losses`.

    "cosine" learns scores divided by the largest of the training rows where that is above 1 (`highest`). A loss that compares
    the inputs of a batch is the same for any replicas and micro-batches (`training.whole_batch`).
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

    @property
    def loss(self) -> vector_losses.Loss:
        """What it learns by."""
        return vector_losses.find(self.options["loss"] or "cosine")

    @property
    def whole(self) -> tuple[str, ...]:
        return ("label", "label_weight", "label_texts") if self.loss.whole else ()

    def check_metric(self, task: Task) -> None:
        vector_losses.check(task, self.options)

    def started(self, task: Task, held: JsonMap) -> Task:
        """With the pooling, the norm and the prompts that the model has, where the task names none."""
        if held.get("kind") != self.name:
            return task
        options = {name: held.get("options", {}).get(name) for name in KEPT if name not in task.options}
        return task.optioned({name: value for name, value in options.items() if value is not None})

    def goes_on(self, held: JsonMap) -> Collection[str]:
        """The layers behind the pooling, where they are the model's own."""
        own = held.get("options", {}).get("dense", ()) if held.get("kind") == self.name else ()
        return dense_names(self.options) if list(own) == list(self.options["dense"]) else ()

    def begun(self, task: Task, encoder: "SpecModel", head: Callable[[str], Mapping[str, np.ndarray]]) -> "SpecModel":
        if self.options["depths"]:
            registry.family_of(encoder).needs_blocks("its layers cannot be left out: leave --depths out")
            check_depths(self.options, encoder.spec.blocks.layers)
        return encoder

    # Rows of a file

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray | list[list[float]]:
        if not self.loss.ranked:
            return self._scores(source, lines, values, texts)
        if self.loss.wants != vector_losses.TEXTS:
            for line, text in zip(lines, texts):
                if isinstance(text[1], str) or len(text[1]) < 2:
                    raise InputError(
                        f"{tables.where(source, line)}: no negative; the loss {self.options['loss']} learns from "
                        f"{self.loss.wants}"
                    )
        if not self.loss.scores:
            return np.ones(len(lines), "float32")
        return [margins(value, len(text[1]) - 1, source, line) for value, line, text in zip(values, lines, texts)]

    def _scores(
        self, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray:
        """A number for each pair."""
        for line, text in zip(lines, texts):
            if not isinstance(text, tuple) or not isinstance(text[1], str):
                raise InputError(f"{tables.where(source, line)}: a score is of two texts, received {text!r:.60}")
        found = np.array([number(value, source, line) for value, line in zip(values, lines)], "float32")
        if self.loss.wants == vector_losses.LABELLED:
            for line, value in zip(lines, found):
                if value not in (0, 1):
                    raise InputError(
                        f"{tables.where(source, line)}: label {value:g}; the loss {self.options['loss']} learns from "
                        f"{self.loss.wants}"
                    )
        return found

    def fitted(self, task: Task, source: "Source", targets: Targets) -> Task:
        highest = float(targets.max(initial=1.0)) if self.options["loss"] == "cosine" else 1.0
        return task if highest == self.options["highest"] else task.optioned({"highest": highest})

    def scaled(self, task: Task, targets: Targets) -> np.ndarray:
        return targets / np.float32(self.options["highest"]) if self.options["loss"] == "cosine" else targets

    def absent(self, task: Task, train: Rows, dev: Rows) -> list[str]:
        if self.loss.wants == vector_losses.ALONE and all(one == other for one, other in dev.texts):
            raise InputError(
                "texts alone do not say which epoch is best: pass --dev FILE with pairs and their scores "
                f"({', '.join(task.columns)})"
            )
        return []

    def group(self, target: Any) -> float:
        return 0.0  # every text has its share of the held-out rows, whatever its score

    # Batches and network

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        inputs = sum(row.about == 0 for row in rows)
        width = len(rows) // inputs
        weight = (np.arange(count) < inputs).astype("float32")
        shape = (count, width - 2) if self.loss.ranked else (count,)
        label, texts = np.zeros(shape, "float32"), np.full((count, width), -1, "int32")
        numbers: dict[tuple, int] = {}  # of what is read of a text: equal texts have equal vectors
        for i, row in enumerate(rows):
            if row.about == i % width:  # fewer texts repeat their last, which is none again
                texts[divmod(i, width)] = numbers.setdefault(tuple(row.token_ids), len(numbers))
        if not self.loss.ranked:
            label[:inputs] = targets[::width]
        elif self.loss.scores:
            for i, known in enumerate(targets[::width]):
                label[i, : len(known)] = known
        return {"label": label, "label_weight": weight, "label_texts": texts}

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        layers, shapes = {}, {}
        width = reading.width(self.options["pooling"], encoder.spec.hidden)
        for name, about in zip(dense_names(self.options), self.options["dense"]):
            activation, known = about["activation"], feedforward.ACTIVATIONS
            if activation and activation not in known:
                raise unknown("activation", activation, list(known), ", ".join(known))
            policy = {"name": name, "dtype": encoder.dtype_policy}
            layers[name] = feedforward.Linear(about["width"], use_bias=about["bias"], **policy)
            shapes[name], width = (None, width), about["width"]
        check_width(self.options, width)
        return layers, shapes

    def readout(self, task: Task, encoder: "Encoder") -> str | None:
        return self.options["pooling"]

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        for layer, about in zip(model.heads.values(), self.options["dense"]):
            read = layer(read, activation=about["activation"] or None)
        return read

    def outputs(self, task: Task, logits: Tensor) -> dict[str, Tensor]:
        vectors = ops.cast(logits, "float32")
        vectors = unit(vectors) if self.options["normalize"] else vectors
        return {self.answers.output: vectors[..., : self.options["dimensions"] or None]}

    def trained(self, model: "TaskModel", outputs: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        """Vectors [B, H]; with `depths` [B, 1 + n, H], of the last layer and of these."""
        last = model.logits(outputs, inputs, training=training)
        if not self.options["depths"]:
            return last
        below = [{"sequence": model.encoder.at_layer(outputs, layer)} for layer in self.options["depths"]]
        return ops.stack([last, *(model.logits(each, inputs, training=training) for each in below)], axis=1)

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        vectors, inputs = ops.cast(logits, "float32"), batch["label_weight"].shape[0]
        vectors = unit(vectors) if self.options["normalize"] else vectors
        vectors = ops.reshape(vectors, (inputs, vectors.shape[0] // inputs, *vectors.shape[1:]))
        layers = [vectors] if len(vectors.shape) == 3 else [vectors[:, :, i] for i in range(vectors.shape[2])]
        return vector_losses.of_layers(self.options, layers, batch)

    # Evaluation

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        if not self.loss.ranked:
            return _correlations(_cosines(outputs, encoded), targets.astype("float64"))
        return {"recall": float(np.mean(_above(self.answers, outputs, encoded) == 0))}

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        if not self.loss.ranked:
            cosine, scores = _cosines(outputs, encoded), targets.astype("float64")
            wanted = scores / self.options["highest"]
            answer = [round(float(value), 4) for value in cosine]

            def sampled(numbers: Numbers) -> dict[str, float]:
                return _correlations(cosine[numbers], scores[numbers])

            picture = scatter("Cosines beside scores", wanted, cosine)
            return Judged(sampled, answer.__getitem__, np.abs(cosine - wanted), graded=True, picture=picture)
        above = _above(self.answers, outputs, encoded)
        bars = {f"among the {k} nearest" if k > 1 else "the nearest": float(np.mean(above < k)) for k in (1, 2, 5, 10)}
        picture = {"title": "The positive is", "bars": bars}
        return Judged(
            lambda numbers: {"recall": float(np.mean(above[numbers] == 0))},
            lambda number: int(above[number]),
            above.astype("float64"),
            picture=picture,
        )

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of cosines that tell nothing, and of a guess among all texts that are no anchors."""
        if not self.loss.ranked:
            return {"spearman": 0.0, "pearson": 0.0}
        return {"recall": 1 / max(1, len(encoded.rows) - encoded.texts)}

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        if not self.loss.ranked:
            return f"{float(target) / self.options['highest']:.4g}", f"{answer:.4g}"
        return "its positive is the nearest", f"{answer} other text{'s are' if answer > 1 else ' is'} nearer"

    # Export, in the graph

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        if (own := self._own(outputs)) is not None:
            return own
        mask = ops.expand_dims(ops.cast(inputs["padding_mask"], "float32"), -1)
        return ops.sum(ops.cast(outputs["sequence"], "float32") * mask, axis=1) / ops.sum(mask, axis=1)

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        if (own := self._own(outputs)) is not None:
            return {self.answers.output: own}
        return {
            "vector": reading.readout(outputs["sequence"], inputs["padding_mask"], "mean")
        }  # finite without a token too

    def _own(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """What a model of vectors gives, or an encoder that learned one of a text; None of any other."""
        return outputs.get(self.answers.output, outputs.get("text_vector"))

    def pipeline_tag(self, task: Task) -> str:
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

    def prompted(self, texts: list[Tensor]) -> list[Tensor]:
        import tensorflow as tf  # here: plug-ins' kinds load on a phone

        prompt = self.answers.prompt
        return [tf.strings.join([prompt, texts[0]]), *texts[1:]] if prompt else texts

    def check_target(self, target: str) -> None:
        if self.answers.prompt:
            raise InputError(
                f"the model puts the prompt {self.answers.prompt!r} before each text, which {READERS[target][0]} does not: "
                "compress without --target, or with --set task.prompt_name="
            )


def _cosines(outputs: np.ndarray, encoded: "Encoded") -> np.ndarray:
    """The cosine of each pair: float64 [n]."""
    vectors, first = outputs.astype("float64"), np.array([at.start for at in encoded.of()])
    return cosines(vectors[first], vectors[first + 1])


def _correlations(cosine: np.ndarray, scores: Tensor) -> dict[str, float]:
    return {"spearman": metrics.spearman(cosine, scores), "pearson": metrics.pearson(cosine, scores)}


def _above(kind: VectorKind, outputs: np.ndarray | Sequence[np.ndarray], encoded: "Encoded") -> np.ndarray:
    """How many texts that are no anchors are nearer to each anchor than its own positive: int [n]."""
    first = np.array([at.start for at in encoded.of()])
    others = np.setdiff1d(np.arange(len(outputs)), first)
    anchors, candidates = (_of(outputs, numbers) for numbers in (first, others))
    mine, above = np.searchsorted(others, first + 1), [np.zeros(0, int)]
    for i in range(0, len(first), 256):
        scores = kind.compare(anchors[i : i + 256], candidates)
        own = np.take_along_axis(scores, mine[i : i + 256, None], axis=1)
        above.append((scores > own + 1e-12).sum(-1))
    return np.concatenate(above)


def _of(outputs: np.ndarray | Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray | list[np.ndarray]:
    """Those rows of outputs, which are an array, or a list where rows have different shapes."""
    return outputs[rows].astype("float64") if isinstance(outputs, np.ndarray) else [outputs[i] for i in rows]


TOLD = {
    "mean": "the mean over the tokens",
    "max": "the largest of each number over the tokens",
    "mean_sqrt_len": "the sum over the tokens by the root of their number",
    "weighted_mean": "the mean over the tokens, each weighed by its place",
    "first": "the first token",
    "last": "the last token",
}


def margins(value: Any, negatives: int, source: tables.Source, line: int) -> list[float]:
    """What a column of scores holds of an input: the margin of each of its negatives, of one or of a list in json.

    One number more than there are negatives are the scores of the positive and of each negative.

    Raises:
        InputError: no numbers, or another number of them; with file and line.
    """
    text, found = isinstance(value, str), value
    if text and value.lstrip().startswith("["):
        try:
            found = json.loads(value)
        except ValueError:
            found = value
    found = found if isinstance(found, list | tuple) else [found]
    if len(found) not in (negatives, negatives + 1):
        raise InputError(
            f"{tables.where(source, line)}: {len(found)} scores beside {negatives} negative(s), expected {negatives} margins or "
            f"{negatives + 1} scores, the positive's first"
        )
    known = [number(each, source, line) for each in found]
    return known if len(known) == negatives else [known[0] - each for each in known[1:]]


KIND = Vector()
