"""A label for every word: entities in BIO or IOBES, parts of speech (Devlin et al., 2019, section 5.3)."""

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kerasbert import spec as specs
from kerasbert.answers import crf
from kerasbert.answers.base import Outputs
from kerasbert.answers.schemes import OUTSIDE, SCHEMES, entities_of, has_spans, illegal, mended, scheme_of
from kerasbert.answers.tags import TagsKind, best_labels, joined
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Row, Tensor
from kerasbert.lazy import Module
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import tables, tags_judged
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.classification import log_odds
from kerasbert.tasks.exported_kind import MOST_ROWS, Signature
from kerasbert.tasks.judging import Judged
from kerasbert.tasks.labels import contradictions
from kerasbert.tasks.metrics import precision_recall_f1
from kerasbert.tasks.rows import Rows, Targets
from kerasbert.tasks.tag_rows import check_tags, tags_of, words_of
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.tables import Source
    from kerasbert.text.graph import GraphTokenizer

# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
head_layers = Module("kerasbert.layers.heads")
bidirectional = Module("kerasbert.layers.bidirectional")
conditional = Module("kerasbert.layers.crf")

OF_SPANS = ("f1", "precision", "recall")
FORBIDDEN = -1e4  # score of a transition that is not legal


class Tags(TaskKind):
    """Cross-entropy of each word's label, at its first token; under a CRF the nats of all labels of a row together.

    F1 over spans as conlleval has it, accuracy over words; `loss` is nats a word, under a CRF of an input's whole sequence.

    Metrics that choose nothing: `mended`, places that break the scheme of the training tags; `without_token`, words that no token
    stands for, which get O.
    """

    name = "tags"
    metrics_known = (*OF_SPANS, "accuracy", "loss")

    def with_labels(self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any]) -> Task:
        """The task with its tags; those that are no spans are judged by accuracy, whatever spans were to be judged by."""
        counts = Counter()
        for line, value in zip(lines, values):
            counts.update(tags_of(value, source, line))
        names = {label: label for label in sorted(counts)}
        if len(names) < 2:
            raise InputError(
                f"{source} has one tag only in column {task.label!r}: {min(names)!r}; expected at least two"
            )
        check_tags(names, source, lines, values)
        metric = task.metric
        if not has_spans(names) and metric in OF_SPANS:
            metric = "accuracy"
        task = dataclasses.replace(task, labels=names, metric=metric)
        if self.options["scheme"] or not has_spans(names):
            return task
        return task.optioned({"scheme": scheme_of(tags_of(value, source, line) for line, value in zip(lines, values))})

    def told(self, source: "Source", rows: Rows) -> list[str]:
        """The scheme, where it is another than BIO; that tags are numbers; texts that are tagged twice, and differently."""
        scheme, twice = self.options["scheme"], contradictions(source, rows.texts, rows.labels or ())
        first = next((tag for value in rows.labels or () if isinstance(value, list | tuple) for tag in value), None)
        if isinstance(first, int) and not scheme:
            return [
                f"{source}: the tags are numbers, which make no entities: they are judged by accuracy. Name them: "
                "--label-names O,B-PER,I-PER (label_names in Python)",
                *twice,
            ]
        return [*([f"{source}: the tags are in {scheme}"] if scheme not in ("", "IOB2") else []), *twice]

    def check_metric(self, task: Task) -> None:
        super().check_metric(task)
        if self.options["scheme"] not in SCHEMES:
            raise unknown("scheme of tags", self.options["scheme"], [*SCHEMES], ", ".join(filter(None, SCHEMES)))
        if task.labels and not has_spans(task.labels.values()) and task.metric in OF_SPANS:
            raise InputError(f"no metric {task.metric!r} for tags that are not of BIO or IOBES. All: accuracy, loss")

    def continued(self, task: Task, begun: JsonMap) -> Task:
        if task.labels:
            return task
        scheme = self.options["scheme"] or (begun.get("options") or {}).get("scheme")
        task = dataclasses.replace(task, labels=begun.get("labels") or {})
        return task.optioned({"scheme": scheme}) if scheme else task

    def fitted(self, task: Task, source: "Source", targets: Targets) -> Task:
        """The task with its scheme, where its labels were given."""
        names = list(task.labels.values())
        if self.options["scheme"] or not has_spans(names):
            return task
        return task.optioned({"scheme": scheme_of([names[i] for i in target] for target in targets)})

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> list[np.ndarray]:
        index = {name: i for i, name in enumerate(task.labels.values())}
        index |= {value: i for i, value in enumerate(task.labels)}
        targets = []
        for line, value, text in zip(lines, values, texts):
            tags, words = tags_of(value, source, line), words_of(text)
            where = tables.where(source, line)
            if len(tags) != len(words):
                hint = "" if isinstance(text, tuple) else ". Give the words as a list"
                told = " ".join(words)
                raise InputError(
                    f"{where}: {len(tags)} tags of {len(words)} words, expected one each: {told!r:.80}{hint}"
                )
            for word, tag in zip(words, tags):
                if tag not in index:
                    known = ", ".join(list(task.labels)[:20])
                    raise InputError(
                        f"{where}: tag {tag!r:.40} of the word {word!r:.40} is unknown. Expected one of: {known}"
                    )
            targets.append(np.array([index[tag] for tag in tags], "int32"))
        return targets

    def group(self, target: Any) -> tuple[int, ...]:
        return tuple(np.unique(target).tolist())

    def absent(self, task: Task, train: Rows, dev: Rows) -> list[str]:
        there = [set(np.concatenate([np.zeros(0, int), *rows.targets]).tolist()) for rows in (train, dev)]
        names = [name for i, name in enumerate(task.labels.values()) if i in there[0] - there[1]]
        return [f"no dev row has the tag{'s' * (len(names) > 1)} {', '.join(map(repr, names[:10]))}"] if names else []

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        label, weight = np.zeros((count, length), "int32"), np.zeros((count, length), "float32")
        for i, (row, target) in enumerate(zip(rows, targets)):
            label[i, row.about.tokens], weight[i, row.about.tokens] = target[row.about.words], 1
        return {"label": label, "label_weight": weight}

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        spec, policy = encoder.spec, {"name": "classifier", "dtype": encoder.dtype_policy}
        labels, deviation = max(1, len(task.labels)), specs.head_deviation(spec)
        units, layers = self.options["lstm"], self.options["lstm_layers"]
        if units < 0 or layers < 1:
            raise InputError(
                f"lstm is {units} and lstm_layers {layers}, expected units of each direction (0: no LSTM) and 1 layer at least"
            )
        if units:
            head: Any = bidirectional.BiLSTMHead(labels, units, layers, deviation, spec.dropout, **policy)
        else:
            kind, activation = (
                getattr(encoder, "label_head", head_layers.LabelHead),
                getattr(encoder, "token_label_activation", None),
            )
            head = kind(labels, deviation, spec.dropout, activation, **policy)
        heads: dict = {"classifier": head}
        shapes = {"classifier": (None, None, spec.hidden)}
        if self.options["crf"]:
            heads["crf"] = conditional.CRF(len(task.labels), name="crf")
            shapes["crf"] = (None, None, len(task.labels))
        return heads, shapes

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        if not self.options["lstm"]:
            return super().logits(model, read, inputs, training=training)
        mask = None if inputs is None else inputs.get("padding_mask")
        return model.heads[self.head](read, mask, training=training)

    def unlabelled(self, task: Task, texts: Sequence[Any]) -> list[np.ndarray]:
        return [np.zeros(len(words_of(text)), "int32") for text in texts]

    def losses_of(self, model: "TaskModel", logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Under a CRF the nats of each row's labels, which count by its words: the loss is of a word, as without it."""
        if not self.options["crf"]:
            return super().losses_of(model, logits, batch)
        return {"label": ops.sum(model.heads["crf"](logits, batch["label"], batch["label_weight"]))}

    def settled(self, task: Task, heads: "Mapping[str, keras.layers.Layer]") -> Task:
        """The task with the table of its CRF, of which no path goes through what is not legal, where that is asked for."""
        if not self.options["crf"]:
            return task
        import tensorflow as tf

        with tf.init_scope():  # also asked for while a graph is made
            weights = [heads["crf"].transitions, heads["crf"].start, heads["crf"].end]
            transitions, start, end = (ops.convert_to_tensor(each).numpy() for each in weights)
        table = np.stack([*transitions, start, end])
        if self.options["legal"]:
            table = np.where(illegal(list(task.labels.values()), self.options["scheme"]), FORBIDDEN, table)
        return task.optioned({"transitions": table.tolist()})

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        names = list(task.labels.values())
        words, right, broken, spans = 0, 0, 0, Counter()
        pairs = list(answered(names, outputs, targets, encoded, self._table(task)))
        scheme = self.options["scheme"] or scheme_of(gold for gold, _ in pairs)  # of a model that was not trained here
        for gold, predicted in pairs:
            words, right = words + len(gold), right + sum(map(operator.eq, gold, predicted))
            one, two = (set(entities_of(labels)) for labels in (gold, predicted))
            spans.update(gold=len(one), predicted=len(two), both=len(one & two))
            broken += mended(predicted, scheme) if has_spans(names) else 0
        nats, known = self._nats(task, outputs, targets, encoded).sum(0).tolist()
        result = {"accuracy": _share(right, words), "loss": _share(nats, known)}
        result["without_token"] = float(words - known)
        if not has_spans(names):
            return result
        precision, recall = _share(spans["both"], spans["predicted"]), _share(spans["both"], spans["gold"])
        f1 = 2 * precision * recall / (precision + recall) if spans["both"] else 0.0
        return {"f1": f1, "precision": precision, "recall": recall} | result | {"mended": float(broken)}

    def _table(self, task: Task) -> np.ndarray | None:
        return cast(TagsKind, self.answers).table(len(task.labels))

    def _nats(self, task: Task, outputs: Outputs, targets: Targets, encoded: "Encoded") -> np.ndarray:
        """Nats of all words of each input that have a token, and how many there are: float64 [n, 2]."""
        found, table = [], self._table(task)
        for target, at in zip(targets, encoded.of()):
            words, values = joined(encoded.rows[at], outputs[at])
            values, target = values.astype("float64"), target[words]
            nats = _nats(values, target).sum() if table is None else crf.nats(values, target, table)
            found.append((float(nats), len(words)))
        return np.array(found, "float64").reshape(-1, 2)

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        names = list(task.labels.values())
        pairs = answered(names, outputs, targets, encoded, self._table(task))
        return tags_judged.judged(names, pairs, self._nats(task, outputs, targets, encoded))

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of the commonest tag for every word."""
        counts = np.bincount(np.concatenate([np.zeros(0, int), *targets]), minlength=1)
        spans = dict.fromkeys(OF_SPANS, 0.0) if has_spans(task.labels.values()) else {}
        return {**spans, "accuracy": float(counts.max() / max(1, counts.sum()))}

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        names = list(task.labels.values())
        return tags_judged.shown(names, words_of(text), [names[i] for i in target], answer)

    def details(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> Json:
        """By type of span, or by tag, what is right of how many."""
        names = list(task.labels.values())
        what, items = ("spans", entities_of) if has_spans(names) else ("words", _each)
        wanted, told, hits = Counter(), Counter(), Counter()
        for pair in answered(names, outputs, targets, encoded, self._table(task)):
            gold, predicted = (set(items(labels)) for labels in pair)
            for counter, found in ((wanted, gold), (told, predicted), (hits, gold & predicted)):
                counter.update(item[0] for item in found)
        kinds = sorted(wanted | told)
        counts = [np.array([counter[kind] for kind in kinds], float) for counter in (hits, told, wanted)]
        columns = zip(kinds, *precision_recall_f1(*counts))
        keys = ("precision", "recall", "f1")
        return {"labels": {kind: dict(zip(keys, map(float, row))) | {what: wanted[kind]} for kind, *row in columns}}

    def from_exported(self, outputs: Tensor) -> Tensor:
        return outputs if self.options["crf"] else super().from_exported(outputs)

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        """Under a CRF the emissions themselves: int8 probabilities would end at 1/256."""
        return outputs["logits"] if self.options["crf"] else super().device(outputs, inputs)

    def explained(
        self, task: Task, rows: Any, logits: Tensor, target: Any
    ) -> tuple[int, str, Callable[[Tensor], Tensor]]:
        if target is not None and (type(target) is not int or target < 0):
            raise InputError(f"the target of tags is the number of a word, from 0. Received: {target!r:.60}")
        if rows is None:
            return 0, "", lambda values: values
        names, sentence = list(task.labels.values()), rows[0].about.sentence
        found = [  # (row, word, token, label, how far it is above the others) of each word with a token
            (number, int(word), int(token), int(scores[token].argmax()), float(np.ptp(np.sort(scores[token])[-2:])))
            for number, (row, scores) in enumerate(zip(rows, logits))
            for word, token in zip(row.about.words, row.about.tokens)
            if target in (None, int(word))
        ]
        if not found:
            words = len(sentence.words)
            raise InputError(f"no word {'' if target is None else target} with a token to explain among {words} words")
        number, word, token, label, _ = max(found, key=lambda each: (names[each[3]] != OUTSIDE, each[4]))
        what = f"log-odds of {names[label]} of word {word}, {sentence.words[word]}"
        return number, what, lambda values: log_odds(values[:, token], label)

    def strings(self, task: Task) -> tuple[str, ...]:
        return ("text",)

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str],
    ) -> dict[str, Tensor]:
        from kerasbert.tasks import tags_graph

        return tags_graph.served(run, tokenizer, strings["text"], length, labels, cast(TagsKind, self.answers))

    def signatures(self, tokenizer: Tokenizer) -> dict[str, Signature]:
        if tokenizer.knowledge is not None or type(tokenizer).of_words is not Tokenizer.of_words:
            return {}
        return {"words": Signature({"words": ("string", 2), "lengths": ("int32", 1)}, self._served_words)}

    def _served_words(
        self,
        run: Callable,
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str],
    ) -> dict[str, Tensor]:
        from kerasbert.tasks import tags_graph

        sentences = tags_graph.listed(strings["words"], strings["lengths"])
        return tags_graph.served(run, tokenizer, sentences, length, labels, cast(TagsKind, self.answers))

    def longer(self, longest: int) -> str:
        return f"A text of any length is read, in windows of {longest} tokens."

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        from kerasbert.tasks import tags_graph

        return tags_graph.unserved(served)

    def pipeline_tag(self, task: Task) -> str:
        return "token-classification"

    def described(self) -> str:
        return (
            "`words`, `labels` [B, W] string, `starts`, `ends` [B, W] int32 in characters, `scores` [B, W] float32, the first "
            "`lengths` [B] int32 of each; of tags in BIO or IOBES also `entities`, `entity_labels` [B, E] string, "
            "`entity_starts`, `entity_ends` [B, E] int32, the first `entity_counts` [B] int32 of each; `truncated` [B] bool: "
            f"words behind {MOST_ROWS:,} windows have no label. Signature `words` takes `words` [B, W] string, texts that are "
            "split already, and `lengths` [B] int32, how many of each row are words, and returns the same"
        )


def answered(
    names: Sequence[str],
    outputs: Outputs,
    targets: Sequence[Sequence[int]],
    encoded: "Encoded",
    table: np.ndarray | None = None,
) -> Iterator[tuple[list[str], list[str]]]:
    """The tags of each input and those that it gets, by name; O for a word that no token stands for."""
    for target, at in zip(targets, encoded.of()):
        numbers: list[int] = best_labels(encoded.rows[at], outputs[at], table)[0].tolist()
        yield [names[i] for i in target], [names[i] if i >= 0 else OUTSIDE for i in numbers]


def _each(labels: Sequence[str]) -> list[tuple[str, int]]:
    return [(label, place) for place, label in enumerate(labels)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _nats(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Cross-entropy of each word: [n, L], [n] -> [n]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(target)), target]


KIND = Tags()
