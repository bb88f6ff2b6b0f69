"""A text that is written from a text: translation, summaries, and every task whose answer is put into words."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import progress, registry
from kerasbert.answers.base import TextOrParts
from kerasbert.answers.generation import NUMBER, PLACE, WRITTEN, GenerationKind, text_of
from kerasbert.answers.generation import Generation as Written
from kerasbert.blanks import RE2, blank
from kerasbert.checkpoints import generation_config
from kerasbert.errors import InputError
from kerasbert.family import Family
from kerasbert.inputs import NAMES, Input, Row, Tensor, target_places
from kerasbert.lazy import Module
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import span_metrics, tables, text_metrics
from kerasbert.tasks.base import Task, TaskKind
from kerasbert.tasks.exported_kind import CallOption
from kerasbert.tasks.judging import Judged
from kerasbert.tasks.rows import Targets

if TYPE_CHECKING:
    import keras

    from kerasbert.layers.encoder import Encoder, SpecModel
    from kerasbert.tasks.base import Heads
    from kerasbert.tasks.batches import Encoded
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.tables import Source
    from kerasbert.text.graph import GraphTokenizer


# imported when they are used: rows are read, and mistakes in them said, without TensorFlow
ops = Module("keras.ops")
tf = Module("tensorflow")
beam_search = Module("kerasbert.layers.beam_search")
lm_loss = Module("kerasbert.objectives.lm_loss")
heads = Module("kerasbert.layers.heads")
masked_writer = Module("kerasbert.layers.masked_writer")


class Generation(TaskKind):
    """Each token of a target from the source and the tokens before it: cross-entropy, with `smoothing` where it is asked for.

    An encoder-decoder reads the target by its decoder; a decoder alone reads source, separator and target as one row, and
    learns the target; an encoder alone does too, and predicts each token at a [MASK] (`layers.masked_writer`). Metrics are of
    the texts that the model writes, see `text_metrics`.
    """

    name = "generation"
    taught = ()
    metrics_known = text_metrics.KNOWN
    head = ""
    pooler = False
    averaged = False
    left_out = ("lm",)
    answers: GenerationKind  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]

    def check_metric(self, task: Task) -> None:
        super().check_metric(task)
        text_metrics.check(task.metric)

    # Rows of a file

    def imported(self, task: Task, generation: JsonMap | None) -> Task:
        if left := (generation or {}).get("unused"):
            progress.say(f"the checkpoint's settings of writing that are not computed here: {', '.join(left)}")
        return task.optioned(generation_config.options_for(generation, task.name))

    def started(self, task: Task, held: JsonMap) -> Task:
        """With how the imported checkpoint writes, where the task names nothing."""
        found = generation_config.options_for(held.get("generation"), task.name)
        found = {name: value for name, value in found.items() if name not in task.options}
        if found.get("min_new_tokens", 0) >= found.get("target_length", self.answers.target_length):
            del found["min_new_tokens"]  # of longer texts than those that are learnt
        if found:
            said = ", ".join(f"{name}={value}" for name, value in found.items())
            progress.say(f"writes as the imported checkpoint says: {said} (others: --set task.NAME=VALUE)")
        return task.optioned(found)

    def goes_on(self, held: JsonMap) -> Collection[str]:
        return ("mlm",)  # of an encoder alone

    def of_family(self, task: Task, family: Family) -> Task:
        if task.options.get("decoder", "alone") != "alone":
            family = self._with_decoder(task, family)
        self.reads(family)
        start = task.options.get("start", family.encoder.first_token) if family.kind == "seq2seq" else ""
        smoothing = task.options.get("smoothing", getattr(family.encoder, "label_smoothing", 0.0))
        masked = family.kind == "encoder"
        if task.options.get("masked", masked) != masked:
            raise InputError(f"masked is {not masked} and {family.name} is of kind {family.kind!r}: leave it out")
        if masked and "separator" in task.options:
            raise InputError(
                f"separator is given and {family.name} is an encoder, which has its special tokens between source and target: "
                "leave it out"
            )
        return task.optioned({"start": start, "smoothing": smoothing} | ({"masked": True} if masked else {}))

    def _with_decoder(self, task: Task, family: Family) -> Family:
        """The family of encoder-decoders that are made of an encoder's."""
        asked = task.options["decoder"]
        if family.kind != "encoder":
            raise InputError(
                f"decoder={asked} is given and {family.name} is of kind {family.kind!r}, which writes itself: leave it out"
            )
        made = {of: each for each in registry.families().values() if not each.one_stack for of in each.made_of}
        if family.name not in made:
            raise InputError(
                f"decoder={asked} makes an encoder-decoder of {', '.join(made)}, and not of {family.name}: leave it out"
            )
        return made[family.name]

    def begun(self, task: Task, encoder: "SpecModel", head: Callable[[str], Mapping[str, np.ndarray]]) -> "SpecModel":
        asked, family = task.options.get("decoder", "alone"), registry.family_of(encoder)
        if asked == "alone" or family.kind != "encoder":
            return encoder
        make: Any = self._with_decoder(task, family).made_of[family.name]
        return make(encoder, None, asked, head=head("mlm"))

    def reads(self, family: Family) -> tuple[Input, ...]:
        if family.kind == "encoder" and not masked_writer.writes_at_masks(family.encoder):
            raise InputError(
                f"{family.name} is an encoder that writes no text, for its tokens are more than their vectors and a mask: "
                "expected one such as bert, roberta or unilm, an encoder-decoder or a decoder, such as t5, bart or gpt2"
            )
        return family.inputs

    @property
    def targets_read(self) -> tuple[Input, ...]:
        if self.answers.masked:
            return (WRITTEN, PLACE)
        return () if self.answers.one_row else (WRITTEN,)

    def targets(
        self, task: Task, source: "Source", lines: Sequence[int], values: Sequence[Any], texts: Sequence[Any]
    ) -> list[str]:
        for line, text in zip(lines, texts):
            if not isinstance(text, tuple) or blank(text[0]):
                raise InputError(f"{tables.where(source, line)}: {task.text} is empty, expected a text to write from")
        return [target for _, target in texts]

    def group(self, target: Any) -> int:
        return 0

    # Batches and network

    def batch(self, task: Task, rows: Sequence[Row], targets: Sequence[Any], count: int, length: int) -> dict:
        apart = self.answers.masked or not self.answers.one_row  # whether the targets' places are an axis of their own
        if apart:
            length = target_places(max(len(row.about.target) for row in rows), self.answers.target_length)
        label, weight = np.zeros((count, length), "int32"), np.zeros((count, length), "float32")
        for i, row in enumerate(rows):
            first = 0 if apart else max(0, row.about.prompt - 1)  # what follows a token is learnt at its place
            at = slice(first, first + len(row.about.target))
            label[i, at], weight[i, at] = row.about.target, 1
        return {"label": label, "label_weight": weight}

    def heads(self, encoder: "Encoder", task: Task) -> "Heads":
        family, decoding = registry.family_of(encoder), self.answers.decoding
        longest = family.longest(encoder.spec)
        if longest and decoding.max_new_tokens > longest:
            raise InputError(
                f"target_length is {decoding.max_new_tokens}, expected at most the model's {longest} positions"
            )
        decoding.check(encoder.spec.embeddings.vocabulary)
        if (family.kind == "encoder") != self.answers.masked:
            raise InputError(
                f"decoder is {self.options['decoder']!r} and the model a {family.name}: finetune makes the one of the other, of "
                "several tasks for all or none"
            )
        if not self.answers.masked:
            return {}, {}
        head = heads.token_head(encoder.token_head, encoder.spec, dtype=encoder.dtype_policy)
        return {"mlm": head}, {"mlm": (None, None, encoder.spec.hidden)}

    def network(self, encoder: "Encoder", heads: "Mapping[str, keras.layers.Layer]") -> Tensor:
        return masked_writer.MaskedWriter(encoder, heads["mlm"]) if self.answers.masked else encoder

    def logits(self, model: "TaskModel", read: Tensor, inputs: Tensor, training: bool = False) -> Tensor:
        return model.network.logits(read) if self.answers.masked else read

    def readout(self, task: Task, encoder: "Encoder") -> str | None:
        return None

    def outputs(self, task: Task, logits: Tensor) -> dict[str, Tensor]:
        return {"sequence": logits}

    def losses_of(self, model: "TaskModel", logits: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        body, about = model.body, {"smoothing": self.options["smoothing"]}
        if self.answers.masked:  # a head of its own, with more than a product
            nats, right = lm_loss.logit_sums(logits, batch["label"], batch["label_weight"], **about)
            return {"label": nats, "label/accuracy": right}
        nats, right = lm_loss.token_sums(body, logits, batch["label"], batch["label_weight"], **about)
        return {"label": nats, "label/accuracy": right}

    # What is written

    @property
    def program(self) -> str:
        return json.dumps(dict(self.options), sort_keys=True)

    @property
    def written_behind(self) -> int:
        return self.answers.target_length if self.answers.one_row else 0

    def prompts(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [self.answers.prompt(row, i) for i, row in enumerate(rows)]

    def output(self, model: "keras.Model", inputs: Mapping[str, Tensor]) -> Tensor:
        written = self.written(model, inputs)
        ids, scores = written.get("sequences"), written.get("scores")
        if ids is None:
            ids, scores = written["token_ids"], written["score"]
        both = ops.concatenate([ops.expand_dims(scores, -1), ops.cast(ids, "float32")], axis=-1)
        return ops.reshape(both, (-1, self.answers.decoding.num_return_sequences * both.shape[-1]))

    def written(self, model: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the model writes of sources, as `generate` gives it."""
        network, tokenizer, answers = model.network, model.tokenizer, self.answers
        read = {
            each.name: inputs[each.name]
            for each in self.reads(registry.family_of(model.encoder))
            if each.name in inputs
        }
        start = None if answers.one_row else answers.start_of(tokenizer)
        ids = {"start_id": start, "end_id": tokenizer.sep_id, "pad_id": tokenizer.pad_id}
        asked = {name: inputs[name] for name in self.call_options if name in inputs}
        return beam_search.generate(network, read, answers.decoding, **ids, rows=inputs.get(NUMBER.name), asked=asked)

    # Export, in the graph

    def answered(self, model: "keras.Model", inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.written(model, inputs)

    def pipeline_tag(self, task: Task) -> str:
        if task.name in ("translation", "summarization"):
            return task.name
        two = self.answers.masked or not self.answers.one_row
        return "text2text-generation" if two else "text-generation"

    def described(self) -> str:
        return (
            "`text` [B] string, what the model writes, `score` [B] float32, its log-probability, and `truncated` [B] bool, "
            "whether a part of the source was not read; signature `ids` returns `token_ids` [B, T] int32, which the end token "
            "and padding close, and `score`"
            + ("; of all texts `texts` and `scores` [B, N]" if self.answers.decoding.num_return_sequences > 1 else "")
            + ("; it draws tokens by `seed` [B] int32, text i of a `kb.predict` as by i" if self.numbers(()) else "")
            + "; the `text` of a blank source is empty"
        )

    def longer(self, longest: int) -> str:
        if not self.answers.one_row:
            return super().longer(longest)
        most, beside = self.answers.target_length, "its special tokens" if self.answers.masked else "the separator"
        return (
            f"A source, {beside} and the {most} tokens that are written have {longest} tokens: the source is truncated."
        )

    def probes(self, texts: Sequence[str], parts: int) -> list[TextOrParts]:
        return [text for text in texts if not blank(text)]  # an empty source is refused

    def numbers(self, texts: Sequence[Any]) -> dict[str, list[int]]:
        return {NUMBER.name: list(range(len(texts)))} if self.answers.decoding.draws else {}

    @property
    def call_options(self) -> dict[str, CallOption]:
        decoding, least = self.answers.decoding, self.answers.decoding.min_new_tokens + 1
        most = decoding.max_new_tokens
        found = {
            "max_tokens": CallOption(
                most, f"a whole number of {least} to {most}", lambda x: tf.logical_and(x >= least, x <= most)
            )
        }
        if decoding.draws:
            temperature, above = decoding.temperature or 1.0, "a number above 0"
            finite = tf.math.is_finite
            found |= {
                "temperature": CallOption(float(temperature), above, lambda x: tf.logical_and(finite(x), x > 0)),
                "top_k": CallOption(
                    decoding.top_k or 0, "a whole number of at least 0, which is all", lambda x: x >= 0
                ),
                "top_p": CallOption(
                    float(decoding.top_p or 1.0), f"{above} and at most 1", lambda x: tf.logical_and(x > 0, x <= 1)
                ),
            }
        return found

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        texts = strings["text"]
        packed, truncated = self._prompts(tokenizer, tf.strings.join([self.options["prefix"], texts]), length)
        written = run(
            packed | {name: strings[name] for name in (*self.numbers(()), *self.call_options) if name in strings}
        )
        empty = tf.strings.regex_full_match(texts, RE2)  # refused in Python, where no other text waits for an answer

        def text(ids: Tensor) -> Tensor:
            over = tf.cumsum(tf.cast(ids == tokenizer.source.sep_id, tf.int32), axis=1) > 0
            return tokenizer.detokenize(tf.ragged.boolean_mask(ids, ~over))

        def filled(values: Tensor, none: Tensor) -> Tensor:
            return tf.where(tf.reshape(empty, [-1, *[1] * (len(values.shape) - 1)]), none, values)

        served = {"text": filled(text(written["token_ids"]), ""), "score": filled(written["score"], 0.0)}
        served["truncated"] = truncated
        if "sequences" in written:
            ids = written["sequences"]
            texts = tf.reshape(text(tf.reshape(ids, [-1, ids.shape[-1]])), tf.shape(ids)[:2])
            served |= {"texts": filled(texts, ""), "scores": filled(written["scores"], 0.0)}
        return served

    def _prompts(self, tokenizer: "GraphTokenizer", texts: Tensor, length: int) -> tuple:
        """`answers.rows` of sources without targets, in the graph: inputs [B, W], and whether tokens are missing [B]."""
        if not self.answers.one_row:
            return tokenizer.cut_to(texts, length=length)
        if self.answers.masked:
            return tokenizer.cut_to(texts, length=length - self.answers.target_length)
        separator, ids = tokenizer.source.encode(self.options["separator"]), tokenizer.encode(texts)
        room = length - self.answers.target_length - len(separator)
        kept = ids[:, -room:] if self.answers.goes_on else ids[:, :room]
        ending = tf.tile(tf.constant([separator], kept.dtype), [kept.nrows(), 1])
        joined = tf.concat([kept, ending], axis=1) if separator else kept
        mask = tf.ones_like(joined).to_tensor()
        packed = zip(NAMES, (joined.to_tensor(tokenizer.pad_id), mask, tf.zeros_like(mask)), strict=True)
        return dict(packed), ids.row_lengths() > room

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        columns = zip(served["text"], served["score"], served["truncated"], strict=True)
        found = [Written(text.decode(), float(score), bool(cut)) for text, score, cut in columns]
        for i, texts in enumerate(served.get("texts", ())):
            several = tuple(Written(text.decode(), float(score)) for text, score in zip(texts, served["scores"][i]))
            found[i] = dataclasses.replace(found[i], sequences=several)
        return [each.to_json() for each in found]

    # Evaluation

    def metrics(self, task: Task, outputs: Tensor, targets: Targets, encoded: Any = None) -> dict[str, float]:
        return text_metrics.measured(self._texts(outputs, encoded), targets, task.metric)

    def _texts(self, outputs: Tensor, encoded: Tensor) -> list[str]:
        """The first text that is written from each source."""
        return [
            text_of(row.about.tokenizer, output[1 : 1 + self.answers.target_length])
            for row, output in zip(encoded.rows, outputs)
        ]

    def judged(self, task: Task, outputs: Tensor, targets: Targets, encoded: "Encoded") -> Judged:
        """Wrong by the words that the text does not share with the expected one (1 - F1); the metrics decide nothing here."""
        written = self._texts(outputs, encoded)
        shared = np.array([span_metrics.squad(*pair)[1] for pair in zip(written, targets)])
        same = np.array([a.strip() == b.strip() for a, b in zip(written, targets)])
        bars = {"the expected text": float(same.mean())} | {
            f"at least {share:.0%} of the words": float((same | (shared >= share)).mean())
            for share in (0.75, 0.5, 0.25)
        }
        picture = {"title": "Words shared with the expected text (F1)", "bars": bars}
        errors = np.where(same, 0.0, np.maximum(1 - shared, 1e-6))
        sampled = text_metrics.sampled(written, targets)
        return Judged(sampled, written.__getitem__, errors, picture=picture)

    def baseline(self, task: Task, targets: Targets, encoded: "Encoded") -> dict[str, float]:
        """Of the commonest expected text, where texts are judged as a whole and some occur several times."""
        most = max(Counter(target.strip() for target in targets).values(), default=0)
        return {"exact_match": most / len(targets)} if most > 1 and task.metric == "exact_match" else {}

    def collapsed(self, task: Task, outputs: Tensor, targets: Targets) -> str:
        if len(set(targets)) > 1 and (outputs[:, 1:] == outputs[:1, 1:]).all():
            return f"all {len(targets)} answers are the same text"
        return ""

    def shown(self, task: Task, text: Any, target: Any, label: Any, answer: Any) -> tuple[str, str]:
        return target, answer or "nothing"


KIND = Generation()
