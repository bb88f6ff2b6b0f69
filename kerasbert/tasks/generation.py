"""A text that is written from a text: translation, summaries, and every task whose answer is put into words."""

import json

import numpy as np
from keras import ops

from kerasbert.answers.generation import WRITTEN, text_of
from kerasbert.errors import InputError
from kerasbert.inputs import target_places
from kerasbert.objectives.base import label_sums
from kerasbert.tasks import tables, text_metrics
from kerasbert.tasks.base import TaskKind


class Generation(TaskKind):
    """Each token of a target from the source and the tokens before it: cross-entropy, with `smoothing` where it is asked for.

    An encoder-decoder reads the target by its decoder; a decoder alone reads source, separator and target as one row, and
    learns the target. Metrics are of the texts that the model writes, see `text_metrics`.
    """

    name = "generation"
    taught = ()
    metrics_known = text_metrics.KNOWN
    head = ""
    pooler = False

    def check_metric(self, task):
        super().check_metric(task)
        text_metrics.check(task.metric)

    # Rows of a file

    def of_family(self, task, family):
        self.reads(family)
        return task.optioned({"start": family.start if family.kind == "seq2seq" else ""})

    def reads(self, family):
        if family.kind == "encoder":
            raise InputError(
                f"{family.name} is an encoder, which writes no text: expected an encoder-decoder or a decoder, such as t5, "
                "bart or gpt2"
            )
        return family.inputs

    @property
    def targets_read(self):
        return () if self.answers.one_row else (WRITTEN,)

    def targets(self, task, source, lines, values, texts):
        for line, text in zip(lines, texts):
            if not isinstance(text, tuple) or not text[0].strip():
                raise InputError(f"{tables.where(source, line)}: {task.text} is empty, expected a text to write from")
        return [target for _, target in texts]

    def group(self, target):
        return 0

    # Batches and network

    def batch(self, task, rows, targets, count, length):
        if not self.answers.one_row:
            length = target_places(max(len(row.about.target) for row in rows), self.answers.target_length)
        label, weight = np.zeros((count, length), "int32"), np.zeros((count, length), "float32")
        for i, row in enumerate(rows):
            first = max(0, row.about.prompt - 1)  # what follows a token is learnt at its place
            at = slice(first, first + len(row.about.target))
            label[i, at], weight[i, at] = row.about.target, 1
        return {"label": label, "label_weight": weight}

    def heads(self, encoder, task):
        return {}, {}

    def readout(self, task, encoder):
        return None

    def outputs(self, task, logits):
        return {"sequence": logits}

    def losses_of(self, model, logits, batch):
        loss, hits = label_sums(model.body.logits(logits), batch["label"], batch["label_weight"])
        return {"label": loss, "label/accuracy": hits}

    # What is written

    @property
    def program(self):
        return json.dumps(dict(self.options), sort_keys=True)

    def prompts(self, rows):
        return [self.answers.prompt(row) for row in rows]

    def output(self, model, inputs):
        return _greedy(model, inputs, self.answers)

    # Evaluation

    def metrics(self, task, outputs, targets, encoded=None):
        written = [text_of(row.about.tokenizer, output[1:]) for row, output in zip(encoded.rows, outputs)]
        return text_metrics.measured(written, targets, task.metric)


def _greedy(model, inputs, answers):
    body, most = model.body, answers.target_length
    tokenizer = body.tokenizer
    end, rows = tokenizer.sep_id, ops.shape(inputs["token_ids"])[0]
    ids = ops.zeros((rows, most + 1), "int32") + answers.start_of(tokenizer)
    place = ops.expand_dims(ops.arange(most + 1, dtype="int32"), 0)

    def body_of(i, ids, score, over):
        logits = body.logits(body({**inputs, "decoder_token_ids": ids[:, :most]})["sequence"])
        logs = ops.log_softmax(ops.take(logits, i, axis=1), axis=-1)
        best = ops.cast(ops.argmax(logs, axis=-1), "int32")
        score = score + ops.where(over, 0.0, ops.max(logs, axis=-1))
        ids = ops.where(place == i + 1, ops.expand_dims(ops.where(over, end, best), 1), ids)
        return i + 1, ids, score, ops.logical_or(over, best == end)

    state = 0, ids, ops.zeros((rows,)), ops.zeros((rows,), "bool")
    _, ids, score, _ = ops.while_loop(lambda i, ids, score, over: i < most, body_of, state)
    return ops.concatenate([ops.expand_dims(score, 1), ops.cast(ids[:, 1:], "float32")], axis=1)


KIND = Generation()
