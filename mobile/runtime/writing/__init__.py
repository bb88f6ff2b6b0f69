"""A text is written: what reads the source runs once, then a step for each token (`answers.beam_search` says which)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from kerasbert.answers.base import Kind
from kerasbert.answers.beam_search import growing, searched
from kerasbert.errors import InputError
from kerasbert.export.bundle import LOGITS, Bundle
from kerasbert.inputs import Row
from kerasbert.text.base import Tokenizer
from .programs import Programs, State

if TYPE_CHECKING:
    from kerasbert.answers.generation import GenerationKind


class Writer:
    """One file's programs.

    Args:
        bundle: Bundle.
        programs: Programs.
        kind: answers.Kind, configured.
        tokenizer: of the file.
    """

    def __init__(self, bundle: Bundle, programs: Programs, kind: Kind, tokenizer: Tokenizer) -> None:
        self.bundle, self.programs, self.tokenizer = bundle, programs, tokenizer
        self.kind = cast("GenerationKind", kind)
        self.steps = {places: each.name for places, each in bundle.of("decode_step").items()}
        self.role = next(iter(bundle.reading.values())).role
        outputs = next(iter(bundle.of("decode_step").values())).outputs
        self.moving = [name for ours, name in outputs.items() if ours != LOGITS]
        self.logits = outputs[LOGITS]
        self.inputs: dict[int, State] = {}  # places -> the inputs of a step beside its state
        self.blank: dict[int, State] = {}  # places -> a state of zeros

    def asked(self, options: Mapping[str, object]) -> "GenerationKind":
        """The kind with the options of a call.

        Raises:
            InputError: an option that a file cannot change, or a value that it cannot have.
        """
        if settled := [name for name in options if name in self.kind.learned]:
            raise InputError(
                f"{settled[0]} is an option of training alone, and the file holds what it made: leave it out"
            )
        if "target_length" in options:
            most = self.kind.target_length
            raise InputError(f"target_length is the file's own, {most}: max_tokens says how many tokens are generated")
        kind = self.kind.configured(options)
        if kind.decoding.coverage_penalty:
            raise InputError(
                f"coverage_penalty is {kind.decoding.coverage_penalty}, expected 0: the steps of a .tflite do not say what "
                "they attend to"
            )
        kind.decoding.check(self.programs.width(next(iter(self.steps.values())), self.logits))
        return kind

    def write(
        self,
        row: Row,
        arrays: dict[str, np.ndarray],
        length: int,
        number: int = 0,
        kind: Kind | None = None,
    ) -> np.ndarray:
        """What is written for a row: [score, ids] of each text, float32 [N * (1 + T)], padded with the end.

        Args:
            arrays: what the program that reads takes. length: its bucket. number: of the text in its call. kind: of `asked`.
        """
        kind, end = cast("GenerationKind", kind or self.kind), self.tokenizer.sep_id
        with _Text(self, row, arrays, length) as text:
            found = searched(text, text.prompt, kind.decoding, end_id=end, row=number)
        for _, score in found:
            _check(score)
        padded = [[score, *ids, *[end] * (kind.target_length - len(ids))] for ids, score in found]
        return np.array(padded, np.float32).ravel()

    def grow(
        self, row: Row, arrays: dict[str, np.ndarray], length: int, kind: Kind
    ) -> Iterator[tuple[list[int], float]]:
        """The ids and the score of one text, after each token.

        Raises:
            InputError: at once; beams, or several texts, of which none is known before the last token.
        """
        for name in ("beams", "num_return_sequences"):
            if (count := kind.options[name]) > 1:
                raise InputError(f"{name} is {count}, expected 1: a text is known at its end alone then (generate)")
        return self._grow(row, arrays, length, cast("GenerationKind", kind))

    def _grow(
        self, row: Row, arrays: dict[str, np.ndarray], length: int, kind: "GenerationKind"
    ) -> Iterator[tuple[list[int], float]]:
        end = self.tokenizer.sep_id
        with _Text(self, row, arrays, length) as text:
            for ((ids, score),) in growing(text, text.prompt, kind.decoding, end_id=end):
                _check(score)
                yield ids, score

    def follow(self, row: Row, arrays: dict[str, np.ndarray], length: int, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """The logits in front of each of some ids that are written one after the other: float32 [V]."""
        origin = np.zeros(1, np.int32)
        with _Text(self, row, arrays, length) as text:
            before = [text.prompt[-1], *ids[:-1]]
            for column, token in enumerate(before, len(text.prompt) - 1):
                yield text(np.array([token], np.int32), column, origin)[0][0]


def _check(score: float) -> None:
    if not np.isfinite(score):
        raise ValueError(f"logits that are not finite: {score}")


class _Text:
    """A text that is being written: `answers.beam_search.Step`."""

    def __init__(self, writer: Writer, row: Row, arrays: dict[str, np.ndarray], length: int) -> None:
        self.writer, self.programs = writer, writer.programs
        bundle, kind = writer.bundle, writer.kind
        self.name = bundle.reading[length].name
        self.prompt = [kind.start_of(writer.tokenizer)] if writer.role == "encode" else list(row.token_ids)
        self.read: State = {}
        if writer.role == "encode" or len(self.prompt) > 1:  # a prompt's last token is a step's
            self.read = self.programs.run(self.name, self.programs.made(self.name, arrays))
        self.states: list[State] = [{}]
        self.own = False  # whether the states are outputs of a step
        self.places = 0
        if writer.role == "prefill":
            self._grow(len(self.prompt))
            if self.read:
                self.states = [
                    self._filled({part: self.programs.read(self.name, part, self.read[part]) for part in writer.moving})
                ]

    def __enter__(self) -> "_Text":
        return self

    def __exit__(self, *_: object) -> None:
        self._release()
        if self.read:
            self.programs.done(self.name, self.read)

    def __call__(self, token_ids: np.ndarray, column: int, origin: np.ndarray) -> tuple[np.ndarray, None]:
        if column >= self.places:
            self._grow(column + 1)
        writer, name = self.writer, self.writer.steps[self.places]
        inputs = writer.inputs[self.places]
        fixed = self.read if writer.role == "encode" else {}
        self.programs.put(inputs, "column", np.array([column], np.int32))
        states = []
        for token, at in zip(token_ids, origin):
            self.programs.put(inputs, "token_ids", np.array([token], np.int32))
            states.append(self.programs.run(name, {**fixed, **inputs, **self.states[at]}))
        self._release()
        self.states, self.own = states, True
        return np.stack([self.programs.read(name, writer.logits, state[writer.logits])[0] for state in states]), None

    def _release(self) -> None:
        for state in self.states if self.own else ():
            self.programs.done(self.writer.steps[self.places], state)
        self.own = False

    def _grow(self, least: int) -> None:
        """Go on with more places."""
        writer, old = self.writer, self.places
        self.places = next(places for places in writer.steps if places >= least)
        name = writer.steps[self.places]
        if self.places not in writer.inputs:
            zero = np.zeros(1, np.int32)
            writer.inputs[self.places] = self.programs.made(name, {"token_ids": zero, "column": zero})
        if not old:
            if self.places not in writer.blank:
                writer.blank[self.places] = self._filled({})
            self.states = [writer.blank[self.places]] * len(self.states)
            return
        last = writer.steps[old]
        values = [
            {part: self.programs.read(last, part, state[part]) for part in writer.moving} for state in self.states
        ]
        bigger, self.places = self.places, old
        self._release()
        self.places = bigger
        self.states = [self._filled(each) for each in values]

    def _filled(self, values: dict[str, np.ndarray]) -> State:
        """A state that begins with these places; zeros elsewhere."""
        writer, arrays = self.writer, {}
        for part in writer.moving:
            shape = self.programs.shape(writer.steps[self.places], part)
            arrays[part] = np.zeros(shape, np.float32)
            if part in values:
                had = min(values[part].shape[2], shape[2])
                arrays[part][:, :, :had] = values[part][:, :, :had]
        return self.programs.made(writer.steps[self.places], arrays)
