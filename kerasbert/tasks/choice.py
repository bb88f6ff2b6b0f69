"""The best of several choices for a text (Devlin et al., 2019, section 4.4): a score a row, softmax over an input's rows."""

import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.answers.base import TextOrParts, softmax
from kerasbert.answers.choice import Choice, listed
from kerasbert.data.sources import NumberedRow
from kerasbert.errors import InputError
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.storage.json_view import Json
from kerasbert.tasks import choice_columns, labels, tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.classification import label_head
from kerasbert.tasks.judging import Judged, Numbers
from kerasbert.tasks.rows import Targets

if TYPE_CHECKING:
    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.tables import Source
    from kerasbert.text.graph import GraphTokenizer

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
objectives = Module("kerasbert.objectives.base")


class ChoiceTask(TaskKind):
    """Cross-entropy of the right choice; accuracy and loss over inputs."""

    name = "choice"
    metrics_known = ("accuracy", "loss")
    together = True

    def gathered(
        self, task: Task, source: "Source", columns: Sequence[str], read: Callable[..., list[NumberedRow]]
    ) -> list[NumberedRow]:
        try:
            rows = read(task, source, [name for name in columns if name != task.text_b])
        except InputError:  # tuples of all columns, or an error that names them all
            return read(task, source, columns)
        lists = [task.text_b in row for _, row in rows]
        if all(lists):
            return rows
        found = [] if any(lists) else choice_columns.gathered(task, source, rows, task.label in columns)
        return found or read(task, source, columns)  # which says what is absent

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> np.ndarray:
        choices = []
        for line, (_, given) in zip(lines, texts):
            try:
                choices.append(listed(given))
            except InputError as error:
                raise InputError(f"{tables.where(source, line)}: {error}") from error
        values = [str(value).strip() for value in values]
        numbers = all(value.lstrip("-").isdecimal() for value in values)  # else the choices themselves come first
        targets = np.zeros(len(values), "int32")
        for i, (line, value, each) in enumerate(zip(lines, values, choices)):
            named = {} if numbers else {choice.strip(): j for j, choice in enumerate(each)}
            letter = string.ascii_uppercase.find(value) if len(value) == 1 else -1
            target = named.get(value, int(value) if value.isdecimal() else letter)
            if not 0 <= target < len(each):
                known = f"0 to {len(each) - 1}, or one of the {len(each)} choices or its letter (A, B, ...)"
                raise InputError(f"{tables.where(source, line)}: label {value!r:.60} is no choice, expected {known}")
            targets[i] = target
        return targets

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        inputs = sum(row.about == 0 for row in rows)  # their last rows are repeated, so that each has as many
        width = len(rows) // inputs
        chosen = np.zeros((count, width), "bool")
        chosen[:inputs] = np.reshape([row.about == i % width for i, row in enumerate(rows)], (inputs, width))
        label = np.zeros(count, "int32")
        label[:inputs] = targets[::width]
        return {"label": label, "label_weight": (np.arange(count) < inputs).astype("float32"), "choices": chosen}

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        return label_head(encoder, task)

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> np.ndarray:
        return np.zeros(len(texts), "int32")

    def compared(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The scores of an input's choices, [B, C]."""
        return ops.where(batch["choices"], ops.reshape(logits, batch["choices"].shape), -1e9)

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scores = self.compared(task, logits, batch)
        label, weight = batch["label"], batch["label_weight"]
        return {
            "label": ops.sum(objectives.cross_entropy(scores, label) * weight),
            "label/accuracy": ops.sum(objectives.correct(scores, label) * weight),
        }

    def metrics(self, task: "Task", outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        scores = [outputs[at, 0].astype("float64") for at in encoded.of()]
        right = [score.argmax() == target for score, target in zip(scores, targets)]
        logs = [-np.log(max(softmax(score)[target], 1e-300)) for score, target in zip(scores, targets)]
        return {"accuracy": float(np.mean(right)), "loss": float(np.mean(logs))}

    def collapsed(self, task: "Task", outputs: Tensor, targets: Targets) -> str:
        if len(outputs) > 1 and np.ptp(outputs) <= 1e-6 * float(np.abs(outputs).max()):
            return f"all {len(outputs)} choices have the score {float(outputs[0, 0]):.4g}"
        return ""

    def judged(self, task: "Task", outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        logits = [outputs[at, 0] for at in encoded.of()]
        scores = [softmax(each.astype("float64")) for each in logits]
        sure = np.array([each.max() for each in scores])
        # of two that are alike the first is the answer
        above = [(each > each[i]).sum() + (each[:i] == each[i]).sum() for each, i in zip(logits, targets)]
        places = np.array(above)
        logs = np.array([-np.log(max(each[target], 1e-300)) for each, target in zip(scores, targets)])

        def sampled(numbers: Numbers) -> dict[str, float]:
            return {"accuracy": float(np.mean(places[numbers] == 0)), "loss": float(np.mean(logs[numbers]))}

        def answer(number: int) -> Json:
            return {"index": int(scores[number].argmax()), "score": round(float(sure[number]), 4)}

        most = max(map(len, scores))
        top = {f"among the {k} best": float(np.mean(places < k)) for k in range(2, most)}
        bars = {"the best": float(np.mean(places == 0)), **dict(list(top.items())[:5])}
        return Judged(
            sampled, answer, np.where(places == 0, 0.0, sure), picture={"title": "The right choice is", "bars": bars}
        )

    def baseline(self, task: "Task", targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of a guess, or of the place where most right choices stand."""
        guess = float(np.mean([1 / (at.stop - at.start) for at in encoded.of()]))
        return {"accuracy": max(guess, float(np.bincount(targets).max() / len(targets)))}

    def shown(self, task: "Task", text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        choices = listed(text[1])
        return choices[target], f"{choices[answer['index']]} ({answer['score']:.2f})"

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        labels.untargeted(self.name, target)
        best = 0 if logits is None else int(np.argmax(np.ravel(logits)))
        return best, f"score of choice {best}", lambda values: values[:, 0]

    def strings(self, task: "Task") -> tuple[str, ...]:
        return ("context", "choices")

    def probes(self, texts: Sequence[str], parts: int) -> list[TextOrParts]:
        texts = [text for text in texts if text]
        return [(text, (texts[i - 1], texts[i - 2], text)) for i, text in enumerate(texts)]

    def numbers(self, texts: Sequence[Any]) -> dict[str, list[int]]:
        return {"choice_counts": [len(listed(choices)) for _, choices in texts]}

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str],
    ) -> dict[str, Tensor]:
        """The best of the first `choice_counts` choices of each input, `scores` [B, C]: 0 of those behind them.

        A count, for a batcher that joins calls fills the shorter rows up with somebody's text.
        """
        import tensorflow as tf

        from kerasbert.text import graph

        choices, counts = strings["choices"], strings["choice_counts"]
        shape = tf.shape(choices)
        there = graph.counted("choice_counts", counts, shape[1], "choices")
        owners = tf.cast(tf.where(there)[:, 0], tf.int32)
        chosen = tf.boolean_mask(choices, there)
        packed, lost = tokenizer.cut_to(tf.gather(strings["context"], owners), chosen, length=length)
        logits = run(packed | {"owners": owners})["score"]
        places = tf.where(there)
        logits = tf.tensor_scatter_nd_update(tf.fill(shape, -1e9), places, tf.reshape(logits, [-1]))
        scores = tf.nn.softmax(logits, axis=-1) * tf.cast(there, logits.dtype)
        lost = tf.scatter_nd(places, lost, tf.cast(shape, tf.int64))
        scores = tf.pad(scores, [[0, 0], [0, tf.maximum(0, 1 - shape[1])]])  # inputs without any choice
        index = tf.argmax(scores, axis=-1, output_type=tf.int32)
        text = tf.gather(tf.pad(tf.where(there, choices, ""), [[0, 0], [0, 1]]), index, batch_dims=1)
        return {
            "index": index,
            "text": tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD),
            "score": tf.reduce_max(scores, axis=-1),
            "scores": scores[:, : shape[1]],
            "truncated": tf.reduce_any(lost, axis=-1),
        }

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        answers = []
        for i, scores in enumerate(served["scores"]):
            index, text = int(served["index"][i]), served["text"][i].decode()
            truncated = bool(served["truncated"][i])
            answers.append(Choice(index, text, float(served["score"][i]), tuple(scores.tolist()), truncated).to_json())
        return answers

    def pipeline_tag(self, task: "Task") -> str:
        return "multiple-choice"

    def described(self) -> str:
        return (
            "`index` [B] int32, `text` [B] string and `score` [B] float32 of the best choice, `scores` [B, C] float32 and "
            "`truncated` [B] bool; of `choices` [B, C] string the first `choice_counts` [B] int32 of each row count, whatever "
            "fills up the others, whose scores are 0"
        )


KIND = ChoiceTask()
