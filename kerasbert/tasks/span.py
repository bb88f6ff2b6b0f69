"""The part of a text that answers a question: where it begins and ends (Devlin et al., 2019, sections 4.2 and 4.3)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np

from kerasbert import spec as specs
from kerasbert.answers.base import TextOrParts
from kerasbert.answers.span import Span as SpanAnswer
from kerasbert.answers.span import SpanKind
from kerasbert.errors import InputError
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import labels, span_metrics, tables
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.exported_kind import MOST_ROWS, CallOption
from kerasbert.tasks.judging import Judged, Numbers
from kerasbert.tasks.rows import Rows, Targets

if TYPE_CHECKING:
    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.tables import Source
    from kerasbert.text.graph import GraphTokenizer

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
tf = Module("tensorflow")
objectives = Module("kerasbert.objectives.base")
head_layers = Module("kerasbert.layers.heads")
beam_span = Module("kerasbert.tasks.beam_span")


MOST_ANSWERS = 20  # that a call of a SavedModel may ask for: each is looked for in all texts that it is joined with
NO_ANSWER = "no answer"  # of a question, in a report


class Target(NamedTuple):
    """What answers a question.

    Args:
        golds: all the texts that count as right; none where the question has no answer.
        start, end: characters of the answer that is trained on, -1 where there is none.
        where: "" as in the file, "moved" to the one place where the text stands, "first" of several places without an
            offset, "absent" from the context.
        row: str, file, line and id of an absent one.
    """

    golds: tuple[str, ...]
    start: int = -1
    end: int = -1
    where: str = ""
    row: str = ""


class Span(TaskKind):
    """Cross-entropies of the first and the last token; exact match and F1 by the rules of the task's benchmark."""

    name = "span"
    head = "span"
    pooler = False
    metrics_known = ("f1", "exact_match")

    def configured(self, options: Mapping[str, object]) -> Self:
        kind = super().configured(options)
        if kind.options["starts"]:  # their logits have no mean over models, nor is a student taught by them
            kind.head, kind.averaged, kind.taught = "beam_span", False, ()
        return kind

    def check_target(self, target: str) -> None:
        if target != "task_library" or self.options["starts"] or self.options["context_first"]:
            super().check_target(target)

    def reader_outputs(self, target: str) -> tuple[str, ...]:
        # BertQuestionAnswerer (bert_question_answerer.h, .cc) finds its outputs by these names
        return ("start_logits", "end_logits") if target == "task_library" else ()

    # Rows of a file

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> list[Target]:
        targets = []
        for line, value, (question, context) in zip(lines, values, texts, strict=True):
            name, golds = _golds(source, line, value)
            where = f"{tables.where(source, line)}{name}"
            for part, text in zip(task.parts, (question, context)):
                if not text.strip():
                    raise InputError(f"{where}: the {part} is empty, expected a text. Drop the row")
            if not golds and not self.options["unanswerable"]:
                raise InputError(
                    f"{where} has no answer: drop it, or train with --task squad2 or --set task.unanswerable=true"
                )
            targets.append(_placed(golds, context, where))
        return targets

    def told(self, source: "Source", rows: Rows) -> list[str]:
        absent = [target for target in rows.targets if target.where == "absent"]
        if absent:
            raise InputError(
                f"{absent[0].row}: the answer {absent[0].golds[0]!r:.80} does not stand at its offset, nor once in its "
                f"context, as in {len(absent)} of {len(rows.texts)} rows. Training needs its place: mend or drop these rows"
            )
        said = {
            "moved": "answers do not stand at their offset; they stand once in their context, and that place is taken",
            "first": "answers have no offset and stand several times in their context: the first place is taken",
        }
        counts = {where: sum(target.where == where for target in rows.targets) for where in said}
        total = len(rows.texts)
        return [f"{source}: {count} of {total} {said[where]}" for where, count in counts.items() if count]

    def group(self, target: Any) -> bool:
        return bool(target.golds)

    # Batches and network

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        label = np.zeros((count, 2), "int32")
        for i, (row, target) in enumerate(zip(rows, targets)):
            label[i] = places(row.about, target)
        made = {"label": label, "label_weight": (np.arange(count) < len(rows)).astype("float32")}
        if self.options["starts"] and self.options["unanswerable"]:
            none = [float(label[i, 0] == row.about.null) for i, row in enumerate(rows)]
            made["no_answer"] = np.array(none + [0.0] * (count - len(rows)), "float32")
        return made

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        # no dropout, as in BERT's run_squad and transformers
        if self.options["starts"]:
            head = beam_span.head(encoder, self.options, self.head)
            return {self.head: head}, {self.head: (None, None, encoder.spec.hidden)}
        policy = {"name": self.head, "dtype": encoder.dtype_policy}
        kind = getattr(encoder, "span_head", None) or getattr(encoder, "label_head", head_layers.LabelHead)
        activation = getattr(encoder, "token_label_activation", None)
        head = kind(2, specs.head_deviation(encoder.spec), activation=activation, **policy)
        return {self.head: head}, {self.head: (None, None, encoder.spec.hidden)}

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        if self.options["starts"]:
            return beam_span.logits(model, read, inputs, training)
        return super().logits(model, read, inputs, training)

    def trained(self, model: "TaskModel", outputs: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        if self.options["starts"]:
            inputs = {**inputs, beam_span.GIVEN: inputs["label"][:, 0]}
        return super().trained(model, outputs, inputs, training)

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> list[Target]:
        return [Target(())] * len(texts)

    def compared(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """The first and the last token among the tokens of a row, [B, 2, S]."""
        seen = ops.expand_dims(ops.cast(batch["padding_mask"], "bool"), -1)
        return ops.swapaxes(ops.where(seen, logits, -1e4), 1, 2)

    def losses(self, task: Task, logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.options["starts"]:
            return beam_span.losses(logits, batch, self.options["unanswerable"])
        logits, label = self.compared(task, logits, batch), batch["label"]
        ends = [(logits[:, i], label[:, i]) for i in (0, 1)]
        hits = objectives.correct(*ends[0]) * objectives.correct(*ends[1])
        loss = (objectives.cross_entropy(*ends[0]) + objectives.cross_entropy(*ends[1])) / 2
        weights = batch["label_weight"]
        return {"label": ops.sum(loss * weights), "label/accuracy": ops.sum(hits * weights)}

    # Evaluation

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        decode, rows = self.answers.decode, encoded.rows
        answers = [cast(SpanAnswer, decode((), rows[at], outputs[at], ())).text for at in encoded.of()]
        return means(answers, [target.golds for target in targets], self.options)

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        decode, rows = self.answers.decode, encoded.rows
        answers = [cast(SpanAnswer, decode((), rows[at], outputs[at], ())) for at in encoded.of()]
        scored = span_metrics.compared(
            [each.text for each in answers], [t.golds for t in targets], self.options["rules"]
        )
        there = np.array([bool(target.golds) for target in targets], bool)
        said = np.array([bool(each.text) for each in answers], bool)
        exact, f1 = scored[:, 0] > 0, scored[:, 1]
        kinds = {
            "the expected answer": exact,
            "words in common with it": ~exact & (f1 > 0),
            "no word in common with it": ~exact & (f1 == 0) & there & said,
            "an answer where there is none": ~exact & ~there & said,
            "none where there is an answer": ~exact & (f1 == 0) & there & ~said,
        }
        bars = {name: int(which.sum()) for name, which in kinds.items() if which.any()}
        places = [{"start": int(each.start), "end": int(each.end)} if each.text else {} for each in answers]

        def sampled(numbers: Numbers) -> dict[str, float]:
            return averages(scored[numbers], there[numbers], self.options["unanswerable"])

        errors = np.where(exact, 0.0, np.maximum(1 - f1, 1e-6))
        return Judged(sampled, places.__getitem__, errors, picture={"title": "Questions that get", "bars": bars})

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of no answer to any question."""
        share = sum(not target.golds for target in targets) / max(1, len(targets))
        return {"f1": share, "exact_match": share}

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        expected = " | ".join(dict.fromkeys(target.golds))
        return expected or NO_ANSWER, text[1][answer["start"] : answer["end"]] if answer else NO_ANSWER

    def tuned(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Task:
        """The threshold of the empty answer that is best on the dev rows (SQuAD 2.0's script)."""
        if not self.options["unanswerable"]:
            return task
        kind = cast(SpanKind, self.answers).configured({**self.options, "unanswerable": False, "n_best": 1})
        answers, margins, golds = [], [], []
        for at, target in zip(encoded.of(), targets):
            rows, values = encoded.rows[at], outputs[at]
            scores, null = kind.scores(rows, values)
            if np.isfinite(scores).any():
                answers.append(kind.decode((), rows, values, ()).text)
                margins.append(null - float(scores.max()))
                golds.append(target.golds)
        scored = span_metrics.compared(answers, golds, self.options["rules"])[:, int(task.metric == "f1")]
        threshold = span_metrics.best_threshold(
            scores=scored, margins=margins, has_answer=[bool(each) for each in golds]
        )
        return dataclasses.replace(task, options={**task.options, "null_threshold": threshold})

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        labels.untargeted(self.name, target)
        if rows is None:
            return 0, "", lambda values: values
        kind = cast(SpanKind, self.answers)
        scores, _ = kind.scores(rows, logits)
        if not np.isfinite(scores).any():
            null = rows[0].about.null
            return 0, "logits of no answer", lambda values: ops.sum(values[:, null], axis=-1)
        start, more = np.unravel_index(np.argmax(scores), scores.shape)
        number = next(i for i, row in enumerate(rows) if row.about.own.start <= start < row.about.own.stop)
        window = rows[number].about
        first = int(start) - window.begin + window.place
        at = 2 * int(np.argmax(logits[number][first, ::2] + logits[number][first + more, 1::2]))
        return (
            number,
            "logits of the answer's ends",
            lambda values: values[:, first, at] + values[:, first + more, at + 1],
        )

    # Export

    def strings(self, task: Task) -> tuple[str, ...]:
        return ("question", "context")

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str],
    ) -> dict[str, Tensor]:
        from kerasbert.tasks import span_graph

        kind, parts = cast(SpanKind, self.answers), (strings["question"], strings["context"])
        asked = None
        if "n_best" in strings:
            threshold = strings.get("null_threshold", tf.zeros_like(strings["n_best"], tf.float32))
            asked = span_graph.Asked(strings["n_best"], threshold)
        return span_graph.served(kind, run, tokenizer, parts, length, asked)

    @property
    def call_options(self) -> dict[str, CallOption]:
        own, most = self.options["n_best"], max(MOST_ANSWERS, self.options["n_best"])
        number = f"a whole number of 1 to {most}"
        found = {"n_best": CallOption(own, number, lambda x: tf.logical_and(x >= 1, x <= most))}
        if self.options["unanswerable"]:
            threshold = float(self.options["null_threshold"])
            found["null_threshold"] = CallOption(threshold, "a finite number, of logits", tf.math.is_finite)
        return found

    def probes(self, texts: Sequence[str], parts: int) -> list[TextOrParts]:
        # numbers before the texts: windows with the same tokens would have the same best answer several times
        long = " ".join(f"{i} {text}" for i in range(60) for text in texts if len(text) < 80)
        return [*zip(texts, (*texts[1:], long)), (texts[0], long), (texts[-1], texts[0])]

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        values = zip(*(served[name].tolist() for name in ("text", "start", "end", "score", "truncated")))
        # without its alternatives, of which two that score almost the same may change places
        return [
            {"text": text.decode(), "start": start, "end": end, "score": score} | ({"truncated": True} if cut else {})
            for text, start, end, score, cut in values
        ]

    def longer(self, longest: int) -> str:
        most = self.options["question"]
        return f"A context of any length is read, in windows of {longest} tokens; a question has at most {most}."

    def pipeline_tag(self, task: Task) -> str:
        return "question-answering"

    def described(self) -> str:
        return (
            "`text` [B] string, `start` and `end` [B] int32 (characters of the context), `score` [B] float32, and `truncated` "
            f"[B] bool: the question lost its end, or the context what stands behind {MOST_ROWS:,} windows; `texts`, `starts`, "
            "`ends`, `scores` [B, N], the answer and the next best, the first `answer_counts` [B] int32 of each"
            + (
                "; `null_odds` [B] float32: how many logits no answer is above the best, more than null_threshold where it wins"
                if self.options["unanswerable"]
                else ""
            )
        )


def places(window: Tensor, target: Target) -> tuple[int, int]:
    """The first and the last token of an answer in a row; those of no answer where the window does not hold all of it."""
    if target.start >= 0:
        first, last = window.context.covering(target.start, target.end)
        if window.begin <= first <= last < window.begin + window.count:
            return window.place + first - window.begin, window.place + last - window.begin
    return window.null, window.null


def means(answers: Sequence[str], golds: Sequence[Sequence[str]], options: JsonMap) -> dict[str, float]:
    """The metrics of some answers; of those with and without a gold apart where a question may have none."""
    scored = span_metrics.compared(answers, golds, options["rules"])
    return averages(scored, np.array([bool(each) for each in golds], bool), options["unanswerable"])


def averages(scored: np.ndarray, there: np.ndarray, unanswerable: bool) -> dict[str, float]:
    """The means of exact match and F1, [n, 2]; `there`: bool [n], whether a question has an answer."""
    names: tuple[str, ...] = ("exact_match", "f1")
    result: dict[str, float] = dict(zip(names, scored.mean(0).tolist())) if len(scored) else dict.fromkeys(names, 0.0)
    if unanswerable and there.any():
        result |= {f"has_answer_{name}": float(value) for name, value in zip(names, scored[there].mean(0))}
    if unanswerable and not there.all():
        result["no_answer"] = float(scored[~there, 0].mean())
    return result


def _golds(source: "Source", line: int, value: object) -> tuple[str, list[tuple[str, int | None]]]:
    """The question's name for an error, and (text, offset) of each answer that is not empty.

    Args:
        value: {"text": [...], "answer_start": [...]} as in `datasets`, a list of {"text", "answer_start"} as in SQuAD,
            a text, or a list of texts.
    """
    name = ""
    if isinstance(value, dict) and "text" in value:
        name = f", question {value['id']!r}" if value.get("id") else ""
        texts, starts = value["text"], value.get("answer_start")
        if isinstance(texts, str):
            value = [value]
        elif isinstance(texts, list | tuple):
            starts = starts or [None] * len(texts)
            if isinstance(starts, list | tuple) and len(starts) == len(texts):
                value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
    items = [value] if isinstance(value, str) else value
    golds = []
    for item in items if isinstance(items, list | tuple) else [None]:
        text, start = (
            (item, None)
            if isinstance(item, str)
            else ((item.get("text"), item.get("answer_start")) if isinstance(item, dict) else (None, None))
        )
        if not isinstance(text, str) or not (start is None or type(start) is int):
            raise InputError(
                f"{tables.where(source, line)}{name}: the answer is {str(value)[:80]!r}, expected a text, or text and "
                "answer_start"
            )
        if text.strip():
            golds.append((text, start))
    return name, golds


def _placed(golds: Sequence[tuple[str, int | None]], context: str, row: str) -> Target:
    """The target of a question: the first of its answers whose place is known."""
    texts = tuple(text for text, _ in golds)
    if not golds:
        return Target(())
    for text, start in golds:
        if start is not None and start >= 0 and context.startswith(text, start):
            return Target(texts, start, start + len(text))
        first = context.find(text)
        several = first >= 0 and context.find(text, first + 1) >= 0
        if first >= 0 and (start is None or not several):
            where = "moved" if start is not None else "first" if several else ""
            return Target(texts, first, first + len(text), where)
    return Target(texts, where="absent", row=row)


KIND = Span()
