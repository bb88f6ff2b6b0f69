"""A third party's task in one file: a label for every word (Devlin et al., 2019, section 5.3: the first piece of a word).

A table has columns text and label, words and labels with blanks between them: "the cat sleeps", "DET NOUN VERB".
The phone reads this file too, so that Keras is imported where training is.
"""

import dataclasses

import numpy as np

from kerasbert import answers, inputs
from kerasbert.errors import InputError
from kerasbert.registry import register_task
from kerasbert.tasks import base


@dataclasses.dataclass(frozen=True)
class Tags:
    """A label for every word; None for words of a text's end that was cut off."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"words": list(self.words), "labels": list(self.labels)} | (
            {"truncated": True} if self.truncated else {}
        )


class TagsKind(answers.Kind):
    """Probabilities [S, C] of the labels; the first token of a word answers for it."""

    name, output, agrees_by = "example_tags", "probabilities", "labels"
    per_token = labelled = True

    def rows(self, tokenizer, parts, length):
        text = tokenizer.to_text(parts[0])
        token_ids, segment_ids = tokenizer.pack(text, length=length)
        specials = [bool(item.text) for item in tokenizer.single]
        kept = len(token_ids) - specials.count(False)
        starts = tokenizer.tokenize(text).starts
        begins = np.searchsorted(starts, _begins(text))  # number of a word's first token
        about = begins + specials.index(True)
        truncated = kept < len(starts)
        return [inputs.row(token_ids, segment_ids, truncated, about[begins < kept])]

    def decode(self, parts, rows, outputs, labels):
        words = parts[0].split()
        best = [labels[i] for i in outputs[0][rows[0].about].argmax(-1)]
        return Tags(tuple(words), (*best, *[None] * (len(words) - len(best))), rows[0].truncated)

    def text(self, answer):
        return " ".join(label or "?" for label in answer["labels"])


def _begins(text):
    """Where the words begin, in characters."""
    ends = np.cumsum([len(word) + 1 for word in text.split(" ")])
    return [end - len(word) - 1 for word, end in zip(text.split(" "), ends) if word]


def training():
    """The side of training."""
    from kerasbert.layers.heads import LabelHead

    class TagsTask(base.TaskKind):
        """Cross-entropy of the label of each word; accuracy over words."""

        name = "example_tags"

        def with_labels(self, task, source, lines, values):
            found = sorted({label for value in values for label in value.split()})
            return task if task.labels else dataclasses.replace(task, labels={label: label for label in found})

        def targets(self, task, source, lines, values, texts):
            number = {label: i for i, label in enumerate(task.labels)}
            targets = []
            for line, text, value in zip(lines, texts, values):
                labels = value.split()
                if len(labels) != len(text.split()) or not set(labels) <= set(number):
                    raise InputError(
                        f"{source}, line {line}: {value!r}, expected a known label for each word of {text!r}"
                    )
                targets.append(np.array([number[label] for label in labels], "int32"))
            return targets

        def group(self, target):
            return len(target)

        def batch(self, task, rows, targets, count, length):
            label, weight = np.zeros((count, length), "int32"), np.zeros((count, length), "float32")
            for i, (row, target) in enumerate(zip(rows, targets)):
                label[i, row.about], weight[i, row.about] = target[: len(row.about)], 1
            return {"label": label, "label_weight": weight}

        def heads(self, encoder, task):
            spec, policy = encoder.spec, {"name": "classifier", "dtype": encoder.dtype_policy}
            head = LabelHead(len(task.labels), spec.initializer, spec.dropout, **policy)
            return {"classifier": head}, {"classifier": (None, None, spec.hidden)}

        def metrics(self, task, outputs, targets, encoded=None):
            places = [row.about for row in encoded.rows]
            right = [output[at].argmax(-1) == target[: len(at)] for output, at, target in zip(outputs, places, targets)]
            return {"accuracy": float(np.concatenate(right).sum() / sum(map(len, targets)))}

    return TagsTask()


answers.register(TagsKind())
base.register("example_tags", training)
register_task("example_tags", base.Task("example_tags", kind="example_tags"))
