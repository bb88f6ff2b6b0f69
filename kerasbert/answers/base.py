"""What an answer is: packed rows, decoding from numbers, agreement. The phone imports it: numpy at most.

A *kind* has two files: this side, `answers/KIND.py`, and the side of training, `tasks/KIND.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasbert import inputs
from kerasbert.inputs import Row


class Kind:
    """What an answer is.

    Attributes:
        name: str. aliases: older names, which files may hold.
        output: str, name of the output in exported files.
        per_token: bool, whether a row's output is [S, C]; else it is [C].
        labelled: bool, whether the numbers stand for labels, in their order.
        agrees_by: str, what `agreement` is a share of, in a word.
        columns: the fields of an answer that a table gets.
        since: int, the first format of bundles that knows it; new kinds leave it at 3.
    """

    name = ""
    aliases: tuple[str, ...] = ()
    output = "output"
    per_token = False
    labelled = False
    agrees_by = "answers"
    columns: tuple[str, ...] = ("labels",)
    since = 3

    def width(self, labels: Sequence[str]) -> int | None:
        """C of an output; None where the model alone knows it."""
        return len(labels) if self.labelled else None

    def rows(self, tokenizer: Any, parts: Sequence[str | bytes], length: int) -> list[Row]:
        """One input -> its packed rows, here one, truncated to `length` tokens.

        Args:
            parts: a text, or the texts of a pair.
        """
        token_ids, segment_ids = tokenizer.pack(*parts, length=length)
        # a row that is not full has lost nothing
        truncated = len(token_ids) == length and len(tokenizer.pack(*parts)[0]) > length
        return [inputs.row(token_ids, segment_ids, truncated)]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """What a task's model gives for a row -> what an exported file gives: softmax where the numbers are logits."""
        return softmax(outputs) if self.labelled else outputs

    def decode(
        self, parts: Sequence[str | bytes], rows: Sequence[Row], outputs: Sequence[np.ndarray], labels: Sequence[str]
    ) -> Any:
        """The answer object of one input.

        Args:
            rows: as `rows` gave them. outputs: of each row, float32 [C], or [S, C] of its real tokens; probabilities
                where labelled.
        """
        raise NotImplementedError

    def answer(
        self,
        run: Callable[[Row], np.ndarray],
        tokenizer: Any,
        parts: Sequence[str | bytes],
        length: int,
        labels: Sequence[str],
    ) -> Any:
        """One input -> its answer. A kind that runs its model more than once overrides this.

        Args:
            run: a row -> its output.
        """
        rows = self.rows(tokenizer, parts, length)
        return self.decode(parts, rows, [run(row) for row in rows], labels)

    def agreement(self, expected: Sequence[np.ndarray], received: Sequence[np.ndarray]) -> float:
        """How far two sets of outputs mean the same, 1.0 = fully: the share of equal best labels.

        Args:
            expected, received: of each row, [C] or [S, C] of its real tokens, the same rows in the same order.
        """
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        same = [np.mean(a.argmax(-1) == b.argmax(-1)) for a, b in zip(expected, received)]
        return float(np.mean(same)) if same else 1.0

    def differences(self, expected: Sequence[np.ndarray], received: Sequence[np.ndarray]) -> np.ndarray:
        """|received - expected| of all numbers; of tokens those that both have.

        Args:
            expected, received: as of `agreement`, but rows of tokens may end early.
        """
        if not self.per_token:
            return np.abs(np.asarray(received) - np.asarray(expected))
        pairs = [(a[: len(b)], b[: len(a)]) for a, b in zip(expected, received)]
        return np.concatenate([np.abs(b - a).ravel() for a, b in pairs]) if pairs else np.zeros(0, "float32")

    def line(self, answer: dict[str, Any], text: str) -> str:
        """An answer's json and its text as `kerasbert-mobile run` prints them."""
        return f"{self.text(answer)}\t{text}"

    def text(self, answer: dict[str, Any]) -> str:
        """An answer's json as a line for the terminal."""
        return "\t".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in answer.values())


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def truncated_json(answer: Any) -> dict[str, bool]:
    """`truncated`, only where it is true."""
    return {"truncated": True} if answer.truncated else {}
