"""What a network reads: inputs by name, with their axes, dtype, padding and who fills them. numpy at most.

Axes are letters: B batch, S sequence, T a second sequence (a decoder's), P positions to predict, C choices, M carried state,
W characters of a word.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kerasbert.errors import InputError, unknown

if TYPE_CHECKING:
    import numpy as np

    from kerasbert.text.base import Tokenizer
    from kerasbert.text.knowledge import Triple

PAD = "pad"  # the tokenizer's padding id
WORD = 50  # W
FILLED_BY = ("packing", "setting", "maker", "objective", "kind", "tree")
_ALWAYS = ("packing", "maker", "kind", "tree")
Tensor = (
    Any  # a numpy array, a TensorFlow tensor, or one of Keras without numbers: no checker knows what the latter two can
)
Shape = tuple[Any, ...]  # of a tensor as Keras gives it: numbers, None where a size is open
Values = Mapping[str, Any]
Size = TypeVar("Size", int, int | None)


def listed(given: Any) -> Any:
    """What a caller gave for a list of texts or of paths: one of them by itself is a list of one, never of its characters.

    >>> listed("a text"), listed(("a", "b"))
    (['a text'], ('a', 'b'))
    """
    return [given] if isinstance(given, str | bytes | os.PathLike) else given


def texts_of(given: Any) -> Iterable[object]:
    """The texts of a call to a device's runtime.

    Raises:
        InputError: no list: the names of a table's columns would be answered, a set in any order, or the name of a file.
    """
    if isinstance(given, str | os.PathLike) and os.path.isfile(given):
        raise InputError(f"{given} is a file, expected texts: read it, or kerasbert-mobile run FILE --data {given}")
    texts = listed(given)
    if isinstance(texts, set | frozenset):
        raise InputError("texts is a set, which has no order: give a list, sorted(texts)")
    if hasattr(texts, "columns"):
        raise InputError(
            f"texts is a {type(texts).__name__}, expected a list of texts: give a column, list(table[NAME])"
        )
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) == 0:
        raise InputError(f"texts is a {type(texts).__name__}, expected a list of texts")
    return texts


@dataclasses.dataclass(frozen=True)
class Input:
    """One input of a network.

    Args:
        name: str, the key in the dict that a model is called on.
        axes: str, such as "BS" or "BSS".
        dtype: str, of numpy.
        pad: the number at padded places; PAD is the tokenizer's padding id.
        optional: bool, whether a model can be called without it.
        filled_by: str, one of FILLED_BY. "packing": the tokenizer's rows. "setting": a setting of the call (`setting`).
            "maker": `make`. "tree": the rows of a tokenizer with a knowledge graph (`text.tree`). "kind": the rows of a kind of
            task, which declares it (`answers.Kind.inputs`). "objective" brings it itself, and only where it runs.
        setting: str, the name of the setting, such as "language".
        choices: tokenizer -> {value of the setting: number}.
        make: values of one row {name: [S] or a number} -> its array, with numpy; the phone runs it.
        graph: inputs {name: [B, S] int32 tensor} -> the same for a batch, with `keras.ops`; SavedModels hold it. Of an input
            that a kind fills (inputs, tokenizer) -> it, where the kind's `served` does not pack it.
        places: int, P of a row wherever a file for a phone or a SavedModel reads it.
        focus: str, the `answers.Kind.focus` of the tasks that it is read for; empty: of all, and without a task.
    """

    name: str
    axes: str = "BS"
    dtype: str = "int32"
    pad: int | str = 0
    optional: bool = False
    filled_by: str = "packing"
    setting: str = ""
    choices: "Callable[[Tokenizer], Mapping[str, int]] | None" = None
    make: Callable[[Values], Tensor] | None = None
    graph: Callable[..., Tensor] | None = None
    focus: str = ""
    places: int = 1

    def __post_init__(self) -> None:
        if self.filled_by not in FILLED_BY:
            raise InputError(f"input {self.name!r} is filled by {self.filled_by!r}, expected one of {FILLED_BY}")

    @property
    def sequences(self) -> int:
        """How many of its axes are as long as the sequence."""
        return self.axes.count("S")

    @property
    def own(self) -> bool:
        """Whether it is one list of numbers a row, of a length of its own (P, T)."""
        return self.axes in ("BP", "BT")

    @property
    def open_shape(self) -> tuple[int | None, ...]:
        """Its shape for any rows: None for what depends on them."""
        return tuple(size_of(axis, None) if axis in "SW" else None for axis in self.axes)

    def shape(self, length: int | None) -> tuple[int | None, ...]:
        """Its shape for one row of `length` tokens, B = 1 and P = `places`.

        Raises:
            InputError: an axis that no file for a phone has yet.
        """
        if set(self.axes) - {"B", "S", "P", "W"}:
            raise InputError(
                f"input {self.name!r} has the axes {self.axes}, expected B, S, P and W alone: no .tflite reads others yet"
            )
        return tuple(size_of(axis, length, self.places) for axis in self.axes)


def size_of(axis: str, length: Size, places: int = 1) -> Size | int:
    """The size of an axis for one row of `length` tokens, B = 1 and P = `places`."""
    return {"S": length, "W": WORD, "P": places}.get(axis, 1)


TEXT = (Input("token_ids", pad=PAD), Input("padding_mask"), Input("segment_ids"))
"""What BERT reads."""

NAMES = tuple(each.name for each in TEXT)

POSITIONS, BRANCHES, ENTITIES = (Input(name, filled_by="tree") for name in ("position_ids", "branch_ids", "entity_ids"))
"""A sentence tree (`text.tree`): int32 [B, S] each."""

NO_TREE = (
    "the model reads sentence trees and got {}: it needs a knowledge graph, which `finetune --graph FILE` gives it"
)

_MADE: dict[str, Input] = {}


def register(declared: Input) -> Input:
    """Make an input of a plug-in's family known by its name, so that a phone finds its `make`.

    A phone has no Keras and so no families: a plug-in file that its bundle names is run there, and what it calls with no
    Keras, `register` and `answers.register`, is all that is taken of it. Give the same Input to the family.

    Raises:
        InputError: the name is taken by another input.
    """
    if _MADE.get(declared.name, declared) != declared or declared.name in NAMES:
        raise InputError(f"the input {declared.name!r} is registered already: choose another name")
    _MADE[declared.name] = declared
    return declared


def find(name: str) -> Input:
    """The input that a plug-in registered by that name.

    Raises:
        InputError: no such input, or one that nothing makes.
    """
    if name not in _MADE or _MADE[name].make is None:
        raise unknown("input with a maker", name, list(_MADE), "a plug-in: --plugin FILE")
    return _MADE[name]


def _shifted(values: Values) -> list[int]:
    *others, last = values["token_ids"]
    return [last, *others]


def _shifted_graph(inputs: Values) -> Tensor:
    from keras import ops  # here: a phone has no Keras

    token_ids, count = inputs["token_ids"], ops.sum(inputs["padding_mask"], axis=1, keepdims=True)
    ends = ops.take_along_axis(token_ids, ops.maximum(ops.cast(count, "int32") - 1, 0), axis=1)
    return ops.concatenate([ends, token_ids[:, :-1]], axis=1)


SHIFTED = register(Input("decoder_token_ids", pad=PAD, filled_by="maker", make=_shifted, graph=_shifted_graph))
"""The source once more, as a decoder reads a text that is classified: its end token first (Lewis et al., 2020, section 3.1)."""


def _first_text(ends: Tensor, cumsum: Callable[[Tensor], Tensor]) -> Tensor:
    """What stands before the first separator, [CLS] among it; of a row with one separator [CLS] alone."""
    before = cumsum(ends)
    first = cumsum(ends * 0 + 1) == 1
    return (before == 0) & ((before[..., -1:] > 1) | first)


def _second_text(ends: Tensor, cumsum: Callable[[Tensor], Tensor]) -> Tensor:
    """What stands behind the separators after the first text, its own separator among it."""
    return cumsum((1 - ends) * cumsum(ends)) > 0


def _marking(name: str, part: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor], focus: str) -> Input:
    """An input [B, S] of 0 and 1 for tasks of that focus, made of the separators of a row: its last token, and those like it."""

    def make(values: Values) -> "np.ndarray":
        import numpy as np

        ids = np.asarray(values["token_ids"])
        return part((ids == ids[-1]).astype("int32"), lambda x: np.cumsum(x, axis=-1)).astype("int32")

    def graph(inputs: Values) -> Tensor:
        from keras import ops  # here: a phone has no Keras

        token_ids, real = inputs["token_ids"], ops.cast(inputs["padding_mask"], "int32")
        last = ops.maximum(ops.sum(real, axis=1, keepdims=True) - 1, 0)
        ends = ops.cast(token_ids == ops.take_along_axis(token_ids, last, axis=1), "int32") * real
        marks = part(ends, lambda x: ops.cumsum(ops.cast(x, "int32"), axis=1))
        return ops.cast(marks, "int32") * real

    return register(Input(name, filled_by="maker", make=make, graph=graph, focus=focus))


QUESTION_MASK = _marking("question_mask", _first_text, "first_text")
"""1 = [CLS] or a token of the question, the first text of a row: what Longformer makes global."""
CHOICE_MASK = _marking("choice_mask", _second_text, "second_text")
"""1 = a token of the choice, the second text of a row: what transformers' LongformerForMultipleChoice makes global."""


@dataclasses.dataclass(slots=True)  # frozen takes eight times as long to make, for each text
class Row:
    """One packed row: a text, a pair, or a part of a longer text.

    Args:
        values: input name -> one number per token, or one number for all tokens.
        length: int, tokens.
        truncated: bool, whether tokens of its text are missing.
        about: what the decoding of its outputs needs, such as the characters of each token.
        triples: of a sentence tree those that its branches say. lost: int, how many more found no room.
    """

    values: Values
    length: int
    truncated: bool = False
    about: Any = None
    triples: "tuple[Triple, ...]" = ()
    lost: int = 0

    @property
    def token_ids(self) -> Sequence[int]:
        """Its tokens."""
        return self.values["token_ids"]


def triples_of(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    """The triples that some rows of a text say, each once."""
    return list(dict.fromkeys((head, relation, tail) for row in rows for head, relation, tail in row.triples))


def row(token_ids: Sequence[int], segment_ids: Sequence[int], truncated: bool = False, about: Any = None) -> Row:
    """The row of a tokenizer's `pack`."""
    values = {"token_ids": token_ids, "padding_mask": 1, "segment_ids": segment_ids}
    return Row(values, len(token_ids), truncated, about)


def used(declared: Iterable[Input], settings: Values) -> tuple[Input, ...]:
    """The inputs of a call: those that packing, makers and kinds fill, and those whose setting is given."""
    return tuple(
        [
            each
            for each in declared
            if each.filled_by in _ALWAYS or (each.filled_by == "setting" and each.name in settings)
        ]
    )


def numbers(
    declared: Iterable[Input], tokenizer: "Tokenizer | None", settings: Mapping[str, object] | None
) -> dict[str, int]:
    """Settings of a call -> {input name: number}.

    Args:
        settings: setting -> value, such as {"language": "fr"}; None values are left out.

    Raises:
        InputError: no input takes such a setting, or the value is none of its choices.
    """
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    by_setting = {each.setting: each for each in declared if each.filled_by == "setting"}
    result = {}
    for name, value in given.items():
        if name not in by_setting:
            raise InputError(f"the model takes no {name}. Received: {value!r}. Leave --{name} out")
        each = by_setting[name]
        choices = {} if each.choices is None else dict(each.choices(cast("Tokenizer", tokenizer)))
        if not isinstance(value, str) or value not in choices:
            raise unknown(name, str(value), list(choices), ", ".join(choices) or "none: the model knows no names")
        result[each.name] = int(choices[value])
    return result


def arrays(
    declared: Iterable[Input],
    rows: Sequence[Row],
    length: int,
    *,
    pad_id: int = 0,
    count: int | None = None,
    settings: Mapping[str, int] | None = None,
    target: int | None = None,
) -> "dict[str, np.ndarray]":
    """The arrays that a network reads for some rows, padded.

    Args:
        declared: of the family and of the kind of task; the inputs that objectives fill are left out.
        length: int, S.
        pad_id: int, of the tokenizer.
        count: int, B; rows that fill up the batch see one token, for a row that sees nothing has no softmax.
        settings: input name -> number of a setting, for all rows.
        target: int, most places of T.

    Returns:
        name -> array [B, S] (or by the input's axes).
    """
    import numpy as np

    settings, result = settings or {}, {}
    for each in used(declared, settings):
        pad = pad_id if each.pad == PAD else each.pad
        width = _places(each, rows, target) if each.own else 0
        shape = (count or len(rows), *((width,) if each.own else (size_of(axis, length) for axis in each.axes[1:])))
        # zeros costs a phone a tenth of what full does, for each of its texts
        array = np.full(shape, pad, each.dtype) if pad else np.zeros(shape, each.dtype)
        name = each.name
        values = _values(each, rows, settings)
        if each.axes == "BS":
            for i, value in enumerate(values):
                array[i, : rows[i].length] = value
        elif each.own:
            for i, value in enumerate(values):
                array[i, : len(value)] = value
        else:
            for i, value in enumerate(values):
                array[(i, *(slice(rows[i].length),) * each.sequences)] = value
        if name == "padding_mask":
            array[len(rows) :, 0] = 1
        result[name] = array
    return result


def _values(each: Input, rows: Sequence[Row], settings: Mapping[str, int]) -> list[Tensor]:
    """What stands in an input for each row."""
    if each.filled_by == "maker":
        assert each.make is not None
        return [each.make(packed.values) for packed in rows]
    if each.filled_by == "setting":
        return [settings[each.name]] * len(rows)
    if each.filled_by == "tree" and any(each.name not in packed.values for packed in rows):
        raise InputError(NO_TREE.format("rows without one"))
    return [packed.values[each.name] for packed in rows]


def _places(each: Input, rows: Sequence[Row], most: int | None) -> int:
    """As many places as the row with the most has; of T one of few lengths, each a program of its own."""
    longest = max([each.places, *(len(packed.values[each.name]) for packed in rows)])
    return longest if each.axes == "BP" else target_places(longest, most)


def target_places(longest: int, most: int | None) -> int:
    """T of a batch whose longest target has so many tokens: 16, 32, 64, ... and at most `most`.

    >>> target_places(9, None), target_places(33, 100), target_places(90, 100)
    (16, 64, 100)
    """
    places = max(16, 1 << (longest - 1).bit_length())
    return places if most is None else max(longest, min(places, most))


def with_makers(declared: Iterable[Input], packed: Mapping[str, Tensor], tokenizer: "Tokenizer") -> dict[str, Tensor]:
    """A batch that a graph packed, with what its makers add, and what a kind reads and its `served` did not pack.

    Args:
        tokenizer: of the model.
    """
    result = dict(packed)
    for each in declared:
        if each.filled_by == "maker":
            assert each.graph is not None
            result[each.name] = each.graph(packed)
        elif each.filled_by == "kind" and each.graph is not None and each.name not in packed:
            result[each.name] = each.graph(packed, tokenizer)
    return result
