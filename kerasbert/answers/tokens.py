"""What stands behind the masks of a text (Devlin et al., 2019, section 3.1: the masked language model)."""

import dataclasses
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np

from kerasbert import inputs
from kerasbert.answers import nearness
from kerasbert.answers.base import Kind, Outputs, Parts, Text, softmax, truncated_json
from kerasbert.errors import InputError
from kerasbert.inputs import Input, Row
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer

SPELLINGS = ("[MASK]", "<mask>")  # of any tokenizer; its own mask token is read too
BLANKS = r"[\t-\r\x1c-\x20\x{85}\p{Z}]"  # RE2's; Python's \s are the same characters
END = re.compile(r"\s+\Z")
POSITIONS = Input("positions", "BP", filled_by="kind")


class Filling(NamedTuple):
    """A token for a mask: its text, its probability among all tokens of the vocabulary, and its number."""

    token: str
    score: float
    id: int


@dataclasses.dataclass(frozen=True)
class FillMask:
    """The best tokens for each mask, and the text with the best of all filled in.

    `truncated`: bool, whether a mask was read without a part of its text; in `to_json` only where it is true.
    """

    text: str
    tokens: tuple[tuple[Filling, ...], ...]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        tokens = [[filling._asdict() for filling in mask] for mask in self.tokens]
        return {"text": self.text, "tokens": tokens, **truncated_json(self)}


class TokensKind(Kind):
    """Logits [V] of the token at `positions` [1], a row for each mask: in a text that is too long with the tokens around it."""

    name = "tokens"
    trees = False
    output = "probabilities"
    agrees_by = "tokens"
    columns = ("text",)
    inputs = (POSITIONS,)
    defaults = MappingProxyType({"top": 5})

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        pieces, mask = between_masks(tokenizer, parts[0]), tokenizer.mask_id
        assert mask is not None  # `between_masks` refuses others
        ids: list[int] = []
        places: list[int] = []
        for i, piece in enumerate(pieces):
            if i:
                places.append(len(ids))
                ids.append(mask)
            # a mask token takes in the blanks before it, as those of RoBERTa, ALBERT and XLM-R do
            ids += tokenizer.encode(piece if i == len(pieces) - 1 else END.sub("", piece))
        specials = sum(not item.text for item in tokenizer.single)
        budget = length - specials
        if budget < 1:
            raise InputError(f"length is {length}, expected at least {specials + 1}: a mask and the special tokens")
        return [_row(tokenizer, ids, place, budget) for place in places]

    def example(self, made: str) -> str:
        words = made.split() or [""]
        words[len(words) // 2] = SPELLINGS[0]
        return " ".join(words)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return softmax(outputs)

    def signal(self, outputs: Outputs, owners: np.ndarray | None = None, rows: Sequence[Row] = ()) -> np.ndarray:
        return nearness.logs(np.stack(list(outputs))) if len(outputs) else np.zeros((0, 1))

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> FillMask:
        tokenizer, masks = rows[0].about, []
        for scores in outputs:
            best = np.argsort(-scores[: tokenizer.size], kind="stable")[: self.options["top"]].tolist()
            masks.append(tuple(Filling(spelled(tokenizer, i), float(scores[i]), i) for i in best))
        text = _filled(tokenizer, tokenizer.to_text(parts[0]), [mask[0].id for mask in masks])
        return FillMask(text, tuple(masks), any(row.truncated for row in rows))

    def ranking(self, top: int | None, threshold: float | None) -> Self:
        kind = super().ranking(top, threshold)
        return kind if top is None else kind.configured({"top": top})

    def limited(self, answer: FillMask, top: int | None, threshold: float | None) -> FillMask:
        if threshold is None:
            return answer
        kept = tuple(tuple(filling for filling in mask if filling.score >= threshold) for mask in answer.tokens)
        return dataclasses.replace(answer, tokens=kept)

    def text(self, answer: Json) -> str:
        return answer["text"]

    def line(self, answer: Json, text: str) -> str:
        return answer["text"]


def between_masks(tokenizer: "Tokenizer", text: Text | tuple[Text, ...]) -> list[str]:
    """What stands before, between and behind the masks of a text.

    Raises:
        InputError: it has none, or the tokenizer has no mask token.
    """
    if tokenizer.mask_id is None:
        raise InputError("the tokenizer has no mask token, expected one: T5's and GPT-2's have none")
    pieces = re.split(pattern(tokenizer), tokenizer.to_text(cast(Text, text)))
    if len(pieces) < 2:
        mask = tokenizer.specials["mask"]
        raise InputError(f"{text!r:.60} has no mask, expected {mask} where a token is to be filled in")
    return pieces


def pattern(tokenizer: "Tokenizer") -> str:
    """The masks of a text as a regular expression, for Python's and RE2."""
    spellings = dict.fromkeys((tokenizer.specials["mask"], *SPELLINGS))
    return "|".join(map(re.escape, spellings))


def _row(tokenizer: "Tokenizer", ids: list[int], place: int, budget: int) -> inputs.Row:
    """The row of a mask: all tokens, or those around it."""
    start = max(0, min(place - budget // 2, len(ids) - budget))
    kept = ids[start : start + budget]
    token_ids, segment_ids, begins = tokenizer.join(kept)
    first = next(begin for begin, item in zip(begins, tokenizer.single) if item.text)
    row = inputs.row(token_ids, segment_ids, len(kept) < len(ids), tokenizer)
    return dataclasses.replace(row, values={**row.values, POSITIONS.name: [first + place - start]})


def spelled(tokenizer: "Tokenizer", token_id: int) -> str:
    """A token as text: a continuation of WordPiece with its ##, byte BPE with the blank that it holds."""
    special = token_id in tokenizer.special_ids
    return tokenizer.vocabulary[token_id] if special else tokenizer.decode([token_id])


def filling(tokenizer: "Tokenizer", token_id: int) -> str:
    """What a token puts in the place of a mask: its text without ## and the blanks around it."""
    token = spelled(tokenizer, token_id)
    return token.removeprefix("##") if tokenizer.kind == "wordpiece" else token.strip(" ")


def _filled(tokenizer: "Tokenizer", text: str, ids: list[int]) -> str:
    """The text with tokens in the place of its masks; the blanks before one go where the token continues a word."""
    pieces = re.split(pattern(tokenizer), text)
    for i, token_id in enumerate(ids):
        before = END.sub("", pieces[i]) if tokenizer.continues(token_id) else pieces[i]
        pieces[i] = before + filling(tokenizer, token_id)
    return "".join(pieces)


KIND = TokensKind()
