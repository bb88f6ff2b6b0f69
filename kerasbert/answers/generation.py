"""A text that is written: packed sources and targets, ids -> text, agreement."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from kerasbert import inputs
from kerasbert.answers.base import Kind, Outputs, Parts, Text, truncated_json
from kerasbert.answers.decoding import Decoding
from kerasbert.blanks import blank
from kerasbert.errors import InputError
from kerasbert.inputs import PAD, Input, Row
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer

WRITTEN = Input("decoder_token_ids", "BT", pad=PAD, filled_by="kind")
"""What the decoder has written before each token of a target: its start token, then the target without its end."""

PLACE = Input("target_place", "B", filled_by="kind")
"""Where the target begins in a row of source and target, of an encoder that writes at [MASK]s."""

NUMBER = Input("seed", "B", filled_by="kind")
"""Which text of a call a row is of: drawn tokens depend on it."""

BEGINNINGS = ("bert2bert", "bertshare", "bert2rnd", "rnd2bert")
"""How an encoder-decoder begins with a pretrained encoder (Rothe et al., 2020, section 3)."""

DECODING = {field.name: field.default for field in dataclasses.fields(Decoding) if field.name != "max_new_tokens"}


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text that was written.

    `score`: its log-probability by the length penalty that ranked it. `truncated`: bool, whether a part of the source was not
    read; in `to_json` only where it is true. `sequences`: all texts that were asked for (`num_return_sequences`), this one
    first; in `to_json` only where there are several.
    """

    text: str
    score: float
    truncated: bool = False
    sequences: tuple["Generation", ...] = ()

    def to_json(self) -> dict:
        """A plain dict."""
        several = {"sequences": [{"text": each.text, "score": each.score} for each in self.sequences]}
        return {"text": self.text, "score": self.score, **(several if self.sequences else {}), **truncated_json(self)}


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """What a row of a source says beside its tokens.

    Args:
        tokenizer: turns ids into text.
        target: ids that are learnt, with the end token; None of a source without one.
        prompt: int, tokens that stand before the target in the same row; 0 where a decoder of its own reads the target.
        cut: bool, whether the target lost tokens.
    """

    tokenizer: "Tokenizer | None"
    target: Sequence[int] | None = None
    prompt: int = 0
    cut: bool = False


class GenerationKind(Kind):
    """[score, ids] of a row, float32 [1 + T], of several texts one behind the other: a text ends at the tokenizer's `sep`.

    Options:
        prefix: str, in front of every source (Raffel et al., 2020, section 2.4), as "translate English to German: ".
        separator: str, between source and target in one row, of a decoder alone; "" where it goes on from the source, which loses
            its beginning where it is too long.
        target_length: int T, tokens of a target with its end; longer ones are cut, and no more are written.
        max_tokens: int, tokens that are written at most in a call, 0 for target_length; the room of the source stays as it is.
        masked: bool, whether each token is written at a [MASK], as an encoder alone does (`layers.masked_writer`). The family
            says it.
        decoder: str, what fine-tuning makes of an encoder: "alone", a model that writes at [MASK]s, or one of BEGINNINGS, an
            encoder-decoder.
        start: str, the special token that the decoder starts with, of `text.base.PARTS` or a piece, such as a language
            ("ro_RO" of mBART); "" of one stack, which reads source and target as one row. The family says it.
        smoothing: float, of the labels in training (Szegedy et al., 2016; 0.1 in Vaswani et al., 2017, section 5.4).
        beams, temperature and all others of `decoding.Decoding`, whose `max_new_tokens` is target_length.
    """

    name = "generation"
    trees = False
    output = "generated"
    agrees_by = "tokens"
    columns = ("text", "score")
    asked = 1
    learned = ("masked", "decoder", "start", "smoothing")
    defaults = MappingProxyType(
        {
            **{
                "prefix": "",
                "separator": "\n",
                "target_length": 64,
                "max_tokens": 0,
                "masked": False,
                "decoder": "alone",
            },
            **{"start": "pad", "smoothing": 0.0},
            **DECODING,
        }
    )

    def configured(self, options: JsonMap | None) -> Self:
        kind = super().configured(options)
        if not 0 <= kind.options["max_tokens"] <= kind.target_length:
            raise InputError(
                f"max_tokens is {kind.options['max_tokens']}, expected 1 to target_length, {kind.target_length}, or 0 for as many"
            )
        kind.decoding  # noqa: B018 (it checks them)
        if kind.options["decoder"] not in ("alone", *BEGINNINGS):
            known = ", ".join(("alone", *BEGINNINGS))
            raise InputError(f"option decoder is {kind.options['decoder']!r}, expected one of {known}")
        return kind

    @property
    def decoding(self) -> Decoding:
        """How it writes."""
        options = {name: self.options[name] for name in DECODING}
        return Decoding(max_new_tokens=self.options["max_tokens"] or self.target_length, **options)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (NUMBER,) if self.decoding.draws else ()

    @property
    def one_row(self) -> bool:
        """Whether source and target stand in one row, as one stack reads them."""
        return self.masked or not self.options["start"]

    @property
    def masked(self) -> bool:
        """Whether each token is written at a [MASK]."""
        return self.options["masked"]

    @property
    def goes_on(self) -> bool:
        """Whether the target follows the last token of its source, so that a source loses its beginning."""
        return self.one_row and not self.masked and not self.options["separator"]

    @property
    def reader(self) -> str:
        return "prefill" if self.one_row else "encode"

    @property
    def target_length(self) -> int:
        return self.options["target_length"]

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        source, *target = (tokenizer.to_text(part) for part in cast(tuple[Text, ...], parts))
        if blank(source):
            raise InputError("a source is empty, expected a text to write from")
        prompt = self._behind if self.masked else self._joined if self.one_row else self._packed
        row = prompt(tokenizer, self.options["prefix"] + source, target[0] if target else None, length)
        drawn = {each.name: 0 for each in self.inputs}  # training draws nothing; in a call `prompt` numbers the texts
        return [dataclasses.replace(row, values={**row.values, **drawn})]

    def _packed(self, tokenizer: "Tokenizer", source: str, target: str | None, length: int) -> Row:
        """The row of an encoder; its decoder reads the target with the special tokens around it."""
        row = inputs.row(*tokenizer.cut_to(source, length=length), About(tokenizer))
        if target is None:
            return row
        ids, most = self._written(tokenizer, target), self.target_length
        cut = len(ids) > most
        ids = self._written(tokenizer, target, most) if cut else ids
        values = {**row.values, WRITTEN.name: [self.start_of(tokenizer), *ids[:-1]]}
        return dataclasses.replace(row, values=values, about=About(tokenizer, ids, cut=cut))

    def _written(self, tokenizer: "Tokenizer", target: str, length: int | None = None) -> list[int]:
        """What the decoder learns to write of a target: it with what stands around a text, a forced first token in its place.

        A decoder that starts with a piece of its own, as with a language, writes the text and the end token alone.
        """
        if not hasattr(tokenizer, f"{self.options['start']}_id"):
            ids = tokenizer.encode(target)
            return [*(ids if length is None else ids[: length - 1]), tokenizer.sep_id]
        ids = list(tokenizer.pack(target, length=length)[0])
        first = self.options["forced_bos_token_id"]
        return ids if first is None or tokenizer.single[0].text else [first, *ids[1:]]

    def _joined(self, tokenizer: "Tokenizer", source: str, target: str | None, length: int) -> Row:
        """The row of a decoder alone: source, separator, target, end."""
        separator = tokenizer.encode(self.options["separator"])
        if not separator and self.options["separator"]:
            raise InputError(
                f"the separator {self.options['separator']!r} has no token, expected a text that the tokenizer reads "
                "(option separator), or nothing, where a source is gone on from"
            )
        ids, room = tokenizer.encode(source), self._room(length, len(separator))
        prompt, truncated = [*(ids[-room:] if self.goes_on else ids[:room]), *separator], len(ids) > room
        if not prompt:
            raise InputError(f"a source has no tokens, expected a text to write from. Received: {source!r:.60}")
        return self._continued(tokenizer, prompt, target, truncated)

    def _behind(self, tokenizer: "Tokenizer", source: str, target: str | None, length: int) -> Row:
        """The row of an encoder alone: a source with its special tokens, target, end."""
        if tokenizer.mask_id is None:
            raise InputError(
                "the tokenizer has no mask token, at which an encoder writes: expected one, such as BERT's"
            )
        special = len(tokenizer.pack("")[0])
        room = special + self._room(length, special)
        prompt, _, truncated = tokenizer.cut_to(source, length=room)
        row = self._continued(tokenizer, prompt, target, truncated)
        if target is not None:
            masks = [tokenizer.mask_id] * len(row.about.target)
            row.values = {**row.values, WRITTEN.name: masks, PLACE.name: len(prompt)}
        return row

    def _room(self, length: int, taken: int) -> int:
        """Tokens of a source in a row, beside those of the target and some more."""
        if (room := length - self.target_length - taken) < 1:
            raise InputError(
                f"{length} tokens have no room for a source beside {self.target_length} of a target: raise --length or lower "
                "target_length (--set task.target_length=N)"
            )
        return room

    def _continued(self, tokenizer: "Tokenizer", prompt: list[int], target: str | None, truncated: bool) -> Row:
        """The row of a prompt, and of what is written behind it."""
        if target is None:
            return inputs.row(prompt, [0] * len(prompt), truncated, About(tokenizer, None, len(prompt)))
        written = [*tokenizer.encode(target), tokenizer.sep_id]
        cut = len(written) > self.target_length
        if cut:
            written = [*written[: self.target_length - 1], tokenizer.sep_id]
        token_ids = [*prompt, *written]
        about = About(tokenizer, written, len(prompt), cut)
        return inputs.row(token_ids, [0] * len(token_ids), truncated, about)

    def start_of(self, tokenizer: "Tokenizer") -> int:
        """The id that the decoder starts with.

        Raises:
            InputError: the tokenizer has no such token.
        """
        start = self.options["start"]
        found = getattr(tokenizer, f"{start}_id", None)
        found = tokenizer._ids.get(start) if found is None else found
        if found is None:
            raise InputError(
                f"start is {start!r}, which the tokenizer has not: expected pad, cls, sep or a piece of it, such as a language"
            )
        return found

    def prompt(self, row: Row, number: int) -> Row:
        """The row of a source without its target.

        Args:
            number: int, of its text in the call.
        """
        about, length = row.about, row.about.prompt or row.length
        names = (name for name in row.values if name not in (WRITTEN.name, PLACE.name, NUMBER.name))
        values = {name: row.values[name] if name == "padding_mask" else row.values[name][:length] for name in names}
        return Row({**values, NUMBER.name: number}, length, row.truncated, About(about.tokenizer, None, about.prompt))

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return outputs

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Generation:
        row, several = rows[0], np.reshape(outputs[0], (self.options["num_return_sequences"], -1))
        written = [Generation(text_of(row.about.tokenizer, each[1:]), float(each[0])) for each in several]
        return dataclasses.replace(
            written[0], truncated=row.truncated, sequences=tuple(written) if len(written) > 1 else ()
        )

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        if not all(np.isfinite(row).all() for row in received):
            return 0.0
        same = [np.mean(np.equal(a[1:], b[1:])) for a, b in zip(expected, received)]
        return float(np.mean(same)) if same else 1.0

    def cut(self, count: int, texts: int, longest: int, tense: str = "are") -> str:
        said = super().cut(count, texts, longest, tense)
        return said.replace("truncated", "truncated at their beginning") if self.goes_on else said

    def told(self, rows: Sequence[Row]) -> list[str]:
        cut = sum(row.about.cut for row in rows)
        share = f"{cut} of {len(rows)} targets ({cut / max(1, len(rows)):.1%})"
        longest = f"{self.target_length} tokens"
        return [f"{share} have more than {longest} and are cut (--set task.target_length=N)"] if cut else []

    def text(self, answer: Json) -> str:
        return answer["text"]


def text_of(tokenizer: "Tokenizer", ids: Sequence[int] | np.ndarray) -> str:
    """The text of what was written: ids up to the end token, special tokens left out."""
    ids = [int(i) for i in ids]
    return tokenizer.decode(ids[: ids.index(tokenizer.sep_id)] if tokenizer.sep_id in ids else ids)


KIND = GenerationKind()
