"""What an answer is: packed rows, decoding from numbers, agreement. The phone imports it: numpy at most.

A *kind* has two files: this side, `answers/KIND.py`, and the side of training, `tasks/KIND.py`.
"""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from kerasbert import inputs
from kerasbert.answers import nearness
from kerasbert.blanks import absent
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Input, Row
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.value_types import fits, in_words

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer

Text = str | bytes
Outputs = np.ndarray | Sequence[np.ndarray]  # of rows: [rows, C], or of tokens [S, C] a row
Parts = tuple[Text | tuple[Text, ...], ...]  # of one input: a text, a pair, a text and its choices
TextOrParts = Text | Parts  # one input as rows hold it: a single text by itself
A = TypeVar("A")  # an answer


class Answered(Protocol):
    """What every answer has: `truncated`, whether its input lost tokens, and a form for json."""

    @property
    def truncated(self) -> bool: ...

    def to_json(self) -> Json: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What answers have in common.

    Attributes:
        triples: (subject, predicate, object) of each that a knowledge graph added to the text, once.
    """

    triples: tuple[tuple[str, str, str], ...] = dataclasses.field(default=(), repr=False)


class Kind:
    """What an answer is.

    Attributes:
        name: str.
        output: str, name of the output in exported files.
        per_token: bool, whether a row's output is [S, C]; else it is [C].
        labelled: bool, whether its task has labels: they are found in the training rows and kept with the model.
        agrees_by: str, what `agreement` is a share of, in a word.
        noise: float, by how much more of their variance the scores of a good file may differ than a label's do.
        columns: the fields of an answer that a table gets.
        inputs: what the network reads beside the family's inputs; `rows` fills them.
        named: bool, whether the parts of an input have names in a file; else it is a text, or a pair.
        reader: str, the role of the signatures that read a text (`export.bundle.ROLES`): "answer", which is all; else what it
            gives goes into the steps by which a text is written.
        lists: numbers of the parts of an input that may be a list of texts, such as words or choices.
        annotated: bool, whether the labels may be spans of characters, as annotation tools write them.
        trees: bool, whether `rows` makes the sentence tree of a tokenizer with a knowledge graph, as that of this class does.
        asked: how many of a training row's parts, the first ones, an input of a prediction has; None for all of them.
        focus: str, what of a row the answer turns on, for networks that look at a part of a row in particular: "text" (one
            answer for all of it), "first_text" (a question), "second_text" (a choice); empty: nothing in particular.
        defaults: its options, json values by name, and what holds without them; a task says others (`Task.options`).
        learned: names of the options that training alone reads, and what it made: a call that gives one is refused.
        options: the same with what `configured` was given.
    """

    name = ""
    output = "output"
    per_token = False
    labelled = False
    agrees_by = "answers"
    noise = 1.0
    columns: tuple[str, ...] = ("labels",)
    inputs: tuple[Input, ...] = ()
    named: bool = True
    reader = "answer"
    lists: tuple[int, ...] = ()
    annotated: bool = False
    trees: bool = True
    asked: int | None = None
    focus: str = ""
    defaults: JsonMap = MappingProxyType({})
    learned: tuple[str, ...] = ()

    @property
    def label_scores(self) -> bool:
        """Whether the numbers of an output are logits of the labels, in their order, of which one holds.

        So it is where there are labels; a kind with labels and other outputs, such as K - 1 thresholds, says False.
        """
        return self.labelled

    @property
    def options(self) -> JsonMap:
        """Its options by name."""
        return self.__dict__.get("_options", self.defaults)

    def configured(self, options: JsonMap | None) -> Self:
        """The kind with options in the place of its defaults.

        Raises:
            InputError: an option that it does not have, or a value of another type than the default's.
        """
        if not options:
            return self
        options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        for name, value in options.items():
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise unknown(f"option of a {self.name}", str(name), list(self.defaults), known)
            default, json_value = self.defaults[name], list(value) if isinstance(value, tuple) else value
            if default is not None and not fits(json_value, type(default)):
                said = f"{self.name}'s option {name!r} is {value!r:.60}"
                raise InputError(f"{said}, expected {in_words(type(default))}, such as {default!r:.40}")
        other = copy.copy(self)
        other.__dict__["_options"] = {**self.options, **options}
        return other

    @property
    def carried(self) -> Json:
        """Options that a file must hold for its answers to be right, where parts have no names; the others' files hold all."""
        return {}

    def label_columns(self, label: str) -> tuple[str, ...]:
        """The names of the columns that a task's `label` names: none, or one."""
        return (label,) if label else ()

    def spread(self, names: Sequence[str], row: Json) -> list[Json]:
        """The rows that a row of a table stands for, where a part of those names holds several texts."""
        return [row]

    def joined(self, names: Sequence[str], row: Json, label: str = "") -> Json:
        """A row of a table, with what other columns hold of the parts of those names put into them; `label` is a column too."""
        return row

    def parts(self, value: object, names: Sequence[str], where: str) -> Parts:
        """One input as a caller gives it -> its parts.

        Args:
            value: a text, a tuple of the parts in the order of their names, or a dict of them.
            names: of the parts. where: str, what an error calls the input.

        Raises:
            InputError: another number of parts, other names, or a part that is no text.
        """
        if isinstance(value, Mapping):
            if set(value) != set(names):
                told = ", ".join(map(str, value))
                raise InputError(f"{where} has the parts {told}, expected {', '.join(names)}")
            value = tuple(value[name] for name in names)
        elif isinstance(value, Text) or (len(names) == 1 and not _is_nested(value)):
            value = (value,)
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} is a {type(value).__name__}, expected ({', '.join(names)})")
        if len(value) != len(names):
            raise InputError(f"{where} has {len(value)} parts, expected {len(names)}: ({', '.join(names)})")
        return tuple(self._part(i, each, name, where) for i, (each, name) in enumerate(zip(value, names)))

    def from_line(self, line: str, names: Sequence[str], where: str) -> Parts:
        """An input of several parts from a line: with tabs between them, or a json object of them.

        A list that is the last part takes what is left of the line, an entry a tab.

        Raises:
            InputError: as `parts`.
        """
        if line.startswith("{") and "\t" not in line:
            try:
                said = json.loads(line)
            except ValueError as error:
                raise InputError(f"{where} is no json: {error}") from error
            return self.parts({name: value for name, value in said.items() if name in names}, names, where)
        said, last = tuple(line.split("\t")), len(names) - 1
        if last in self.lists and len(said) > last:
            said = (*said[:last], said[last:])
        if len(said) != len(names):
            raise InputError(
                f"{where} has {line.count(chr(9))} tabs, expected {'<tab>'.join(names)} or a json object of them"
            )
        return self.parts(said, names, where)

    def _part(self, number: int, value: object, name: str, where: str) -> Text | tuple[Text, ...]:
        if isinstance(value, Text):
            return value
        if number in self.lists and not isinstance(value, Mapping) and isinstance(value, Iterable):
            value = tuple(value)
            if all(isinstance(each, Text) for each in value):
                return value
        expected = "str or a list of str" if number in self.lists else "str"
        if absent(value):
            raise InputError(f"{where}: {name} is {value!r}, expected {expected}. Drop the row or fill it")
        held = (
            next((f": it holds {each!r:.40}" for each in value if not isinstance(each, Text)), "")
            if type(value) is tuple
            else ""
        )
        raise InputError(f"{where}: {name} is a {type(value).__name__}, expected {expected}{held}")

    def example(self, made: str | tuple[str, str]) -> Text | Parts:
        """An input of the kind, of a made text, or of a pair where inputs have two parts: for timings and comparisons."""
        return made

    def width(self, labels: Sequence[str]) -> int | None:
        """C of an output; None where the model alone knows it."""
        return len(labels) if self.label_scores else None

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        """One input -> its packed rows, here one, truncated to `length` tokens.

        Args:
            parts: a text, or the texts of a pair; of a part that `lists` names a text or a tuple of texts.
        """
        if tokenizer.knowledge is not None:
            return [tokenizer.knowledge.row(tokenizer, parts, length)]
        texts: Any = parts  # kinds that know lists of texts have `rows` of their own
        return [inputs.row(*tokenizer.cut_to(*texts, length=length))]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """What a task's model gives for a row -> what an exported file gives: softmax where the numbers are logits."""
        return softmax(outputs) if self.label_scores else outputs

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Answered:
        """The answer object of one input.

        Args:
            rows: as `rows` gave them. outputs: of each row, float32 [C], or [S, C] of its real tokens; probabilities
                where `label_scores`.
        """
        raise NotImplementedError

    def answer(
        self,
        run: Callable[[Row], np.ndarray],
        tokenizer: "Tokenizer",
        parts: Parts,
        length: int,
        labels: Sequence[str],
    ) -> Answered:
        """One input -> its answer. A kind that runs its model more than once overrides this.

        Args:
            run: a row -> its output.
        """
        rows = self.rows(tokenizer, parts, length)
        return self.decode(parts, rows, [run(row) for row in rows], labels)

    def ranking(self, top: int | None, threshold: float | None) -> Self:
        """The kind with options by which its answers tell `top` of what they rank.

        Raises:
            InputError: what is no such number, or a kind that ranks nothing (`limited`).
        """
        if top is not None and not (fits(top, int, python=True) and top >= 1):
            raise InputError(f"top is {top!r}, expected a whole number of at least 1")
        if threshold is not None and not (fits(threshold, float, python=True) and 0 <= threshold <= 1):
            raise InputError(f"threshold is {threshold!r}, expected a probability from 0 to 1")
        if type(self).limited is Kind.limited:
            raise InputError(f"top or threshold is given, and a {self.name} ranks nothing: leave them out")
        return self

    def with_prompt(self, name: str | None) -> Self:
        """The kind with another of its prompts before each text, by name: "" for none, None for the default.

        Raises:
            InputError: it has no such prompt; a kind other than vectors has none.
        """
        if name is not None:
            raise InputError(f"prompt_name is {name!r}, and a {self.name} has no prompts: leave it out")
        return self

    def limited(self, answer: Any, top: int | None, threshold: float | None) -> Answered:
        """An answer with at most `top` of what it ranks, best first, each of the probability `threshold` or more.

        The best label, span or token stays what the answer is; its score says how good it is.
        """
        return answer

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        """What its answers are decided by, a row for each decision: float [n, C], here logs of probabilities, or the numbers.

        A file is judged by how near its scores are to the model's (`nearness.fidelity`), a constant answer too.

        Args:
            outputs: of each row, [C] or [S, C] of its real tokens, as exported files give them.
            owners: int [rows], the input of each row; None: a row each. rows: as `rows` packed them. Kinds whose inputs
                have several rows ask both.
        """
        if not len(outputs):
            return np.zeros((0, 1))
        values = np.concatenate(list(outputs)) if self.per_token else np.stack(list(outputs))
        return nearness.logs(values) if self.label_scores else np.reshape(values, (len(values), -1))

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        """How far two sets of outputs mean the same, 1.0 = fully: the share of equal best scores.

        Args:
            expected, received: the same rows in the same order. owners, rows: as of `signal`.
            ties: bool, whether answers count as the same whose scores tie within the file's own rounding (`nearness`).
        """
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        own, other = (self.signal(each, owners, rows) for each in (expected, received))
        return nearness.same_best(own, other, ties)

    def differences(self, expected: Outputs, received: Outputs) -> np.ndarray:
        """|received - expected| of all numbers; of tokens those that both have.

        Args:
            expected, received: as of `agreement`, but rows of tokens may end early.
        """
        if not self.per_token:
            return np.abs(np.asarray(received) - np.asarray(expected))
        pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(expected, received)]
        return np.concatenate([np.abs(b - a).ravel() for a, b in pairs]) if pairs else np.zeros(0, "float32")

    def cut(self, count: int, texts: int, longest: int, tense: str = "are") -> str:
        """What is told of inputs that lost tokens, and what helps.

        Args:
            count: of them, among `texts`. longest: int, tokens of a row.
        """
        share = f"{count} of {texts} texts ({count / max(1, texts):.1%})"
        return f"{share} have more than {longest} tokens and {tense} truncated (--length)"

    def told(self, rows: Sequence[Row]) -> list[str]:
        """What a user should know of packed rows beside that, a line each."""
        return []

    @property
    def target_length(self) -> int | None:
        """Most places of inputs that are as long as a target (T); None where there are none."""
        return None

    @property
    def blocks(self) -> bool:
        """Whether an answer has several lines on the terminal (`lines`)."""
        return type(self).lines is not Kind.lines

    def lines(self, answer: Json) -> list[str]:
        """An answer's json as `kerasbert predict` prints it: a line, of a kind with entities one for each."""
        return [self.text(answer)]

    def line(self, answer: Json, text: str) -> str:
        """An answer's json and its text as `kerasbert-mobile run` prints them."""
        return f"{self.text(answer)}\t{text}"

    def text(self, answer: Json) -> str:
        """An answer's json as a line for the terminal."""
        return "\t".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in answer.values())


def _is_nested(value: object) -> bool:
    """Whether a value is the one part of an input in a tuple, as rows hold a list of words."""
    return isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], list | tuple)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def with_triples(answer: A, rows: Sequence[Row], tokenizer: "Tokenizer") -> A:
    """An answer with what a knowledge graph added to its rows; as it is where there is no graph."""
    if tokenizer.knowledge is None or not isinstance(answer, Answer):
        return answer
    return dataclasses.replace(answer, triples=tuple(inputs.triples_of(rows)))


def truncated_json(answer: Answered) -> dict[str, bool]:
    """`truncated`, only where it is true."""
    return {"truncated": True} if answer.truncated else {}
