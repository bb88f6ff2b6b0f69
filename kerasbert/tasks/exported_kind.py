"""What a kind of task reads, and answers in exported files, SavedModels and .tflite; the kind itself is `tasks.base.TaskKind`."""

import copy
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from kerasbert import answers
from kerasbert.answers.base import TextOrParts
from kerasbert.errors import InputError
from kerasbert.family import Family
from kerasbert.inputs import Input, Row, Tensor
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.base import Task
    from kerasbert.text.base import Tokenizer
    from kerasbert.text.graph import GraphTokenizer

# target of `compress` -> who reads its files, and the answers that it has
READERS = {
    "mediapipe": ("MediaPipe", "a classification or vectors of one text"),
    "task_library": ("the Task Library", "a classification or vectors of one text, or spans"),
}

MOST_ROWS = (
    1 << 12
)  # that a SavedModel reads of one text: a document of megabytes does not fail the calls that it is joined with


class CallOption(NamedTuple):
    """An option of a call that the signature `options` of a SavedModel takes as an input [B].

    Args:
        own: what the model answers with where nothing is said; a float's input is float32, an int's int32.
        expected: str, for an error, "a number above 0". fits: values [B] -> bool [B].
    """

    own: int | float
    expected: str
    fits: Callable[[Tensor], Tensor]


class Signature(NamedTuple):
    """A signature that a kind has beside those of all kinds.

    Args:
        inputs: name -> dtype and number of axes. served: as `Exported.served`.
    """

    inputs: Mapping[str, tuple[str, int]]
    served: Callable[..., dict[str, Tensor]]


T = TypeVar("T")  # a Task, whose file imports this one


class Exported:
    """The part of a kind that the exporters ask.

    Attributes:
        name: str, as that of its `answers.Kind`.
        answers: the side of the phone. options: by name. per_token: bool, whether its head reads every token.
        averaged: bool, whether the outputs of several models have a mean.
        examples: str, the API of TF Serving by tf.Example that has such answers, "classify" or "regress"; "" for none.
        left_out: heads of pretraining without which its answers are right where they are zero alone.
    """

    name = ""
    averaged = True
    examples = ""
    left_out: tuple[str, ...] = ()
    _options: JsonMap = MappingProxyType({})

    def configured(self, options: Mapping[str, object]) -> Self:
        """The kind with options of a task."""
        if not options:
            return self
        other = copy.copy(self)
        other._options = dict(options)
        other.__dict__.pop("answers", None)
        return other

    @functools.cached_property
    def answers(self) -> answers.Kind:
        """The side of the phone, with the same options."""
        return answers.find(self.name).configured(self._options)

    def pipeline_tag(self, task: "Task") -> str:
        """What the Hugging Face hub calls the task, for a model card; "" where it has no name for it."""
        return ""

    def settled(self, task: "Task", heads: "Mapping[str, keras.layers.Layer]") -> "Task":
        """The task with the options that are made of the weights of a model's heads: what its answers and files take.

        A model's `task` is always this one, so that the two cannot differ.
        """
        return task

    @property
    def options(self) -> JsonMap:
        """Its options by name."""
        return self.answers.options

    @property
    def per_token(self) -> bool:
        """Whether its head reads every token."""
        return self.answers.per_token

    # What the network reads, and its numbers

    def of_family(self, task: T, family: Family) -> T:
        """The task as a model of that family learns it.

        Raises:
            InputError: such a model cannot.
        """
        self.reads(family)
        return task

    def reads(self, family: Family) -> tuple[Input, ...]:
        """What a network of that family reads of a text that is answered.

        Raises:
            InputError: it has no vectors of texts.
        """
        if family.reads_tree and not self.answers.trees:
            raise InputError(
                f"{family.name} reads sentence trees, which a {self.name} does not make of its texts: take classification, tags, "
                "or a BERT"
            )
        reads = family.text_inputs(f"it writes texts and gives no {self.name}, take the task generation")
        return tuple(each for each in reads if each.focus in ("", self.answers.focus))

    @property
    def targets_read(self) -> tuple[Input, ...]:
        """What it reads beside that in training."""
        return ()

    @property
    def program(self) -> str:
        """What `output` depends on beside the model: a graph is made for each."""
        return ""

    @property
    def written_behind(self) -> int:
        """Tokens that it writes in the row that it reads, which leave the row so many fewer."""
        return 0

    def prompts(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows of training as rows that are answered."""
        return rows

    def output(self, model: "keras.Model", inputs: Mapping[str, Tensor]) -> Tensor:
        """What a task's model gives for a batch of rows, as `metrics` takes it: logits or values."""
        return next(iter(model(inputs).values()))

    # In the graph

    def answered(self, model: "keras.Model", inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a SavedModel returns of rows, by name."""
        return self.exported(model, model(inputs), inputs)

    def exported(
        self, model: "keras.Model", outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What a SavedModel returns, by name; the first is the output of `device`."""
        return {self.answers.output: self.device(outputs, inputs)}

    def described(self) -> str:
        """What a SavedModel returns, for its README."""
        return f"`{self.answers.output}`"

    def longer(self, longest: int) -> str:
        """What becomes of texts of more than so many tokens, for a SavedModel's README."""
        return f"Texts are truncated after {longest} tokens; `truncated` [B] bool says which lost some."

    def strings(self, task: "Task") -> tuple[str, ...]:
        """Names of the texts that a SavedModel takes: one for each part of an input."""
        return ("text_a", "text_b") if task.pair else ("text",)

    def numbers(self, texts: Sequence[Any]) -> dict[str, list[int]]:
        """Numbers that a SavedModel takes beside the texts, int32 [B]: by name, those of inputs as `kb.predict` takes them."""
        return {}

    @property
    def call_options(self) -> Mapping[str, CallOption]:
        """Options of a call by name, as `kb.predict` has them, for each text of its own: signature `options`; none here."""
        return {}

    def of_examples(self, served: Mapping[str, Tensor], labels: Sequence[str]) -> dict[str, Tensor]:
        """What `served` gives, as the API `examples` has it."""
        raise NotImplementedError

    def signatures(self, tokenizer: "Tokenizer") -> Mapping[str, Signature]:
        """Signatures of its own by name, for a tokenizer; none here."""
        return {}

    def served(
        self,
        run: Callable[[dict[str, Tensor]], dict[str, Tensor]],
        tokenizer: "GraphTokenizer",
        strings: Mapping[str, Tensor],
        length: int,
        labels: Sequence[str],
    ) -> dict[str, Tensor]:
        """What a SavedModel answers of texts, in the graph; here of inputs that are a row each.

        A kind whose inputs are several rows overrides it, and `unserved`. First dimension of an answer: B.

        Args:
            run: token_ids, padding_mask, segment_ids, int32 [R, W], and `owners`, int32 [R], where R is not B -> what
                `exported` gives, [R, ...]; also for R = 0. It runs the model on a limited number of rows at once.
            tokenizer: of the graph (`text.graph`). strings: part name -> string [B], of a list [B, C]; and `numbers`, and all
                `call_options` or none.
            length: int, most tokens of a row. labels: their names.
        """
        texts = [each for name, each in strings.items() if name not in self.numbers(())]
        packed, truncated = tokenizer.cut_to(*self.prompted(texts), length=length)
        return run(packed) | {"truncated": truncated}

    def prompted(self, texts: list[Tensor]) -> list[Tensor]:
        """Strings [B] of each part of an input with what `answers.rows` puts before them."""
        return texts

    def probes(self, texts: Sequence[str], parts: int) -> list[TextOrParts]:
        """Inputs that a SavedModel is compared on: of short, long, empty and odd texts.

        Args:
            parts: of an input.
        """
        return list(itertools.pairwise(texts)) if parts > 1 else list(texts)

    def unserved(self, served: Mapping[str, np.ndarray], labels: Sequence[str]) -> list[Json] | None:
        """What a SavedModel answered -> the json of `kb.predict`'s answers; None where its outputs are the rows' own."""
        return None

    def device(self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
        """The one float tensor of a .tflite: [B, C], or [B, S, C] of tokens; probabilities of `label_scores`."""
        from keras import ops

        values = next(iter(outputs.values()))
        return ops.softmax(values, axis=-1) if self.answers.label_scores else values

    def check_target(self, target: str) -> None:
        """Refuse a reader of .tflite files that has no such answers.

        Args:
            target: a name in READERS.
        """
        reader, answers = READERS[target]
        raise InputError(f"the model answers with {self.name}, expected {answers}: {reader} has no other")

    def reader_outputs(self, target: str) -> tuple[str, ...]:
        """Names of the outputs that a reader looks for beside the kind's own, each a column of it, [1, S].

        Args:
            target: a name in READERS, or "kerasbert".
        """
        return ()
