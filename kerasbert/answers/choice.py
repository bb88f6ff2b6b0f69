"""The best of several choices for a text."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.answers import nearness
from kerasbert.answers.base import Answer, Kind, Outputs, Parts, softmax, truncated_json
from kerasbert.errors import InputError
from kerasbert.inputs import Row
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Choice(Answer):
    """The best choice: its number from 0, its text, its probability, and the probability of each in their order.

    `truncated` as of a Classification: of any of the choices' rows.
    """

    index: int
    text: str
    score: float
    scores: tuple[float, ...]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        scores = [float(value) for value in self.scores]
        return {"index": self.index, "text": self.text, "score": float(self.score), "scores": scores} | truncated_json(
            self
        )


class ChoiceKind(Kind):
    """A score [1] for a text with each choice; the softmax is over an input's choices (BERT's run_swag).

    The parts of an input are a text and its choices: a list of at least two texts, or one text that is such a list in json,
    as a cell of a table holds it. A row is the text and one choice; where it is too long the longer of the two loses its
    end, so that a long article makes room for a whole choice.
    """

    name = "choice"
    focus = "second_text"
    output = "score"
    agrees_by = "choices"
    columns = ("index", "text", "score")
    lists = (1,)

    def example(self, made: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        return made[0], (made[1] or "a", made[0] or "b")

    def width(self, labels: Sequence[str]) -> int | None:
        return 1

    def joined(self, names: Sequence[str], row: Json, label: str = "") -> Json:
        """A row with a list of choices, where datasets has {"text": [...], "label": ["A", ...]}, and the number of the label."""
        held = row.get(names[1])
        if not isinstance(held, Mapping) or not isinstance(held.get("text"), list):
            return row
        called = [str(each) for each in held.get("label") or ()]
        number = {label: called.index(str(row[label]))} if str(row.get(label)) in called else {}
        return {**row, names[1]: held["text"], **number}

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        context, choices = parts
        choices = listed(choices)
        packed = [super(ChoiceKind, self).rows(tokenizer, (context, choice), length)[0] for choice in choices]
        return [dataclasses.replace(row, about=number) for number, row in enumerate(packed)]

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Choice:
        scores = softmax(np.concatenate([np.ravel(output) for output in outputs]).astype("float64")).tolist()
        best = max(range(len(scores)), key=scores.__getitem__)
        text = listed(parts[1])[best]
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return Choice(best, text, scores[best], tuple(scores), any(row.truncated for row in rows))

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        """Log-probabilities of the choices of an input; one that has fewer than another is filled up."""
        values = np.array([np.ravel(row)[0] for row in outputs], "float64")
        owners = np.zeros(len(values), int) if owners is None else np.asarray(owners)
        each = [nearness.log_softmax(values[owners == owner]) for owner in np.unique(owners)]
        found = np.full((len(each), max(map(len, each), default=1)), nearness.LEAST)
        for row, logs in zip(found, each):
            row[: len(logs)] = logs
        return found

    def text(self, answer: Json) -> str:
        return f"{answer['index']}\t{answer['score']:.4f}\t{answer['text']}"


def listed(choices: str | bytes | tuple) -> tuple:
    """The choices of an input.

    Args:
        choices: a tuple of texts, or a text that is a list in json, also alone in a tuple.

    Raises:
        InputError: no list, fewer than two choices, an empty one.

    >>> listed('["a cat", "a dog"]')
    ('a cat', 'a dog')
    """
    if isinstance(choices, str | bytes):
        choices = (choices,)
    if len(choices) == 1:  # a cell of a table, a line of a terminal
        try:
            content = json.loads(choices[0])
        except ValueError:
            content = None
        choices = tuple(content) if isinstance(content, list) else choices
    wrong = next((each for each in choices if not isinstance(each, str | bytes)), None)
    if wrong is not None:
        raise InputError(f"a choice is the {type(wrong).__name__} {wrong!r:.40}, expected str")
    if len(choices) < 2:
        held = f": {choices[0]!r:.60}" if choices else ""
        raise InputError(
            f"an input has {len(choices)} choice{'s' * (not choices)}{held}, expected a list of at least two"
        )
    if not all(choices):
        raise InputError(
            f"choice {choices.index('') if '' in choices else choices.index(b'')} is empty, expected a text"
        )
    return choices


KIND = ChoiceKind()
