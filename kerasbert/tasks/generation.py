"""A text that is written from a text: translation, summaries, and every task whose answer is put into words."""

import json

import numpy as np
import tensorflow as tf
from keras import ops

from kerasbert import registry
from kerasbert.answers.generation import NUMBER, WRITTEN, GenerationKind, text_of
from kerasbert.answers.generation import Generation as Written
from kerasbert.errors import InputError
from kerasbert.inputs import NAMES, target_places
from kerasbert.layers.search import generate
from kerasbert.objectives.lm_loss import token_sums
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
    averaged = False
    left_out = ("lm",)
    answers: GenerationKind  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]

    def check_metric(self, task):
        super().check_metric(task)
        text_metrics.check(task.metric)

    # Rows of a file

    def of_family(self, task, family):
        self.reads(family)
        start = family.encoder.first_token if family.kind == "seq2seq" else ""
        smoothing = task.options.get("smoothing", getattr(family.encoder, "label_smoothing", 0.0))
        return task.optioned({"start": start, "smoothing": smoothing})

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
        family, decoding = registry.family_of(encoder), self.answers.decoding
        longest = family.longest(encoder.spec)
        if longest and decoding.max_new_tokens > longest:
            raise InputError(
                f"target_length is {decoding.max_new_tokens}, expected at most the model's {longest} positions"
            )
        decoding.check(encoder.spec.embeddings.vocabulary)
        return {}, {}

    def readout(self, task, encoder):
        return None

    def outputs(self, task, logits):
        return {"sequence": logits}

    def losses_of(self, model, logits, batch):
        body, about = model.body, {"smoothing": self.options["smoothing"]}
        nats, right = token_sums(body, logits, batch["label"], batch["label_weight"], **about)
        return {"label": nats, "label/accuracy": right}

    # What is written

    @property
    def program(self):
        return json.dumps(dict(self.options), sort_keys=True)

    def prompts(self, rows):
        return [self.answers.prompt(row, i) for i, row in enumerate(rows)]

    def output(self, model, inputs):
        written = self.written(model, inputs)
        score = ops.expand_dims(written["score"], 1)
        return ops.concatenate([score, ops.cast(written["token_ids"], "float32")], axis=1)

    def written(self, model, inputs):
        """What the model writes of sources: token_ids int32 [B, T], score float32 [B]."""
        body, tokenizer, answers = model.body, model.tokenizer, self.answers
        read = {each.name: inputs[each.name] for each in self.reads(registry.family_of(body)) if each.name in inputs}
        start = None if answers.one_row else answers.start_of(tokenizer)
        ids = {"start_id": start, "end_id": tokenizer.sep_id, "pad_id": tokenizer.pad_id}
        return generate(body, read, answers.decoding, **ids, rows=inputs.get(NUMBER.name))

    # Export, in the graph

    def answered(self, model, inputs):
        return self.written(model, inputs)

    def described(self):
        return (
            "`text` [B] string, what the model writes, `score` [B] float32, its log-probability, and `truncated` [B] bool, "
            "whether a part of the source was not read; signature `ids` returns `token_ids` [B, T] int32, which the end token "
            "and padding close, and `score`"
        )

    def probes(self, texts, parts):
        return [text for text in texts if text.strip()]  # an empty source is refused

    def served(self, run, tokenizer, strings, length, labels=()):
        (texts,) = strings.values()
        packed, truncated = self._prompts(tokenizer, tf.strings.join([self.options["prefix"], texts]), length)
        written = run(packed)
        ids = written["token_ids"]
        over = tf.cumsum(tf.cast(ids == tokenizer.source.sep_id, tf.int32), axis=1) > 0
        kept = tf.ragged.boolean_mask(ids, ~over)
        return {"text": tokenizer.detokenize(kept), "score": written["score"], "truncated": truncated}

    def _prompts(self, tokenizer, texts, length):
        """`answers.rows` of sources without targets, in the graph: inputs [B, W], and whether tokens are missing [B]."""
        if not self.answers.one_row:
            return tokenizer.pack(texts, length=length), tokenizer.truncates(texts, length=length)
        separator, ids = tokenizer.source.encode(self.options["separator"]), tokenizer.encode(texts)
        room = length - self.answers.target_length - len(separator)
        kept = ids[:, :room]
        ending = tf.tile([separator], [kept.nrows(), 1])
        joined = tf.concat([kept, tf.cast(ending, kept.dtype)], axis=1)
        mask = tf.ones_like(joined).to_tensor()
        packed = zip(NAMES, (joined.to_tensor(tokenizer.pad_id), mask, tf.zeros_like(mask)), strict=True)
        return dict(packed), ids.row_lengths() > room

    def unserved(self, served, labels):
        columns = zip(served["text"], served["score"], served["truncated"], strict=True)
        return [Written(text.decode(), float(score), bool(cut)).to_json() for text, score, cut in columns]

    # Evaluation

    def metrics(self, task, outputs, targets, encoded=None):
        written = [text_of(row.about.tokenizer, output[1:]) for row, output in zip(encoded.rows, outputs)]
        return text_metrics.measured(written, targets, task.metric)


KIND = Generation()
