"""The programs of a model that writes, and the float .tflite that holds them all, each weight once.

`encode_{S}` (of a decoder alone `prefill_{P}`) reads a text of S tokens, `decode_step_{T}` gives the logits of the next token in
a text of T places: the model's own `start` and `step`. What goes from one to the next is the state of `layers.cache`, under its
names. All steps read a source of the longest S: else there would be as many programs of a step as pairs of S and T.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import registry
from kerasbert.captured_output import captured
from kerasbert.errors import InputError
from kerasbert.export.bundle import LOGITS, ROLES, STEP, Signature
from kerasbert.inputs import Input, Tensor
from kerasbert.layers.cache import FIXED
from kerasbert.storage import scratch
from ..tflite import buckets, convert

if TYPE_CHECKING:
    import keras


SHORTEST = 16  # tokens of the smallest bucket


@dataclasses.dataclass(frozen=True)
class Program:
    """One signature to be.

    Args:
        role: str, of `bundle.ROLES`.
        length: int, along the role's axis.
        function: dict of arrays -> dict of arrays.
        reads: name -> (shape, dtype).
        gives: names of what the function gives.
    """

    role: str
    length: int
    function: Callable[[dict], dict]
    reads: Mapping[str, tuple[tuple[int, ...], str]]
    gives: tuple[str, ...]

    @property
    def name(self) -> str:
        """The signature's."""
        return f"{self.role}_{self.length}"

    @property
    def signature(self) -> Signature:
        """What the bundle says of it."""
        return Signature(self.role, self.name, {ROLES[self.role]: self.length}, {name: name for name in self.gives})


def doubling(longest: int) -> tuple[int, ...]:
    """Buckets of a file that writes, each twice as long as the one before; the last is `longest`.

    >>> doubling(100), doubling(8)
    ((16, 32, 64, 100), (8,))
    """
    lengths = []
    while SHORTEST << len(lengths) < longest:
        lengths.append(SHORTEST << len(lengths))
    return (*lengths, longest)


def programs(
    body: "keras.Model", role: str, declared: Sequence[Input], lengths: Sequence[int], places: Sequence[int]
) -> list[Program]:
    """All programs of a model.

    Args:
        body: the network, with `start` and `step`.
        role: "encode" or "prefill", what reads.
        declared: what it reads of a text.
        lengths: the buckets of what reads, ascending. places: those of the steps.
    """
    source, found = role == "encode", []
    keep = (lambda name: name.startswith(FIXED)) if source else (lambda name: not name.startswith(FIXED))
    zeros = {each.name: np.zeros([n or 1 for n in each.shape(lengths[-1])], each.dtype) for each in declared}
    state = body.start(zeros, places[0] if source else lengths[-1])
    fixed = {name: (tuple(value.shape), "float32") for name, value in state.items() if name.startswith(FIXED)}
    moving = {name: tuple(value.shape) for name, value in state.items() if name not in fixed}
    if any(len(shape) != 4 for shape in moving.values()):
        name = registry.family_of(body).name
        raise InputError(
            f"{name} carries a recurrent state, with which no .tflite writes yet: export a SavedModel, which does, or compress "
            "another task of its encoder"
        )

    def read(length: int) -> Callable[[dict], dict]:
        def call(batch: dict) -> dict:
            given = body.start({**batch, "position_ids": _positions(batch["token_ids"])}, 1 if source else length)
            given = {name: value for name, value in given.items() if keep(name)}
            return {name: _widened(value, lengths[-1]) for name, value in given.items()} if source else given

        return call

    def step(batch: dict) -> dict:
        logits, after = body.step(*(batch[name] for name in STEP), {n: x for n, x in batch.items() if n not in STEP})
        return {LOGITS: logits, **{name: value for name, value in after.items() if name not in fixed}}

    for length in lengths:
        reads: dict[str, tuple] = {each.name: (each.shape(length), each.dtype) for each in declared}
        found.append(Program(role, length, read(length), reads, tuple(filter(keep, state))))
    for count in places:
        own = {name: ((*shape[:2], count, shape[3]), "float32") for name, shape in moving.items()}
        reads = {**dict.fromkeys(STEP, ((1,), "int32")), **fixed, **own}
        found.append(Program("decode_step", count, step, reads, (LOGITS, *own)))
    return found


def _positions(token_ids: Tensor) -> Tensor:
    """0, 1, ... [1, S], by an operator that the converter does not compute.

    Of known positions it would keep what they give: rows of a table in float beside the table in int8, T5's distances [N, S, S].
    """
    from keras import ops

    return ops.expand_dims(ops.arange(token_ids.shape[1], dtype="int32"), 0) + ops.minimum(token_ids, 0)


def _widened(x: Tensor, length: int) -> Tensor:
    """What a source of fewer tokens gives, as that of `length`: padded with zeros, [B, S] or [B, N, S, D]."""
    from keras import ops

    axis = 1 if len(x.shape) == 2 else 2
    if x.shape[axis] == length:
        return x
    return ops.pad(x, [(0, length - x.shape[axis] if i == axis else 0) for i in range(len(x.shape))])


def converted(model: "keras.Model", found: Sequence[Program]) -> bytes:
    """A float .tflite of these programs; two lengths of each role are converted and the others derived where that can be.

    Args:
        model: the Keras model that owns the weights.
    """
    longest = {each.role: each.length for each in found}  # of sources the longest is not padded: a program of its own
    groups: dict[tuple[str, bool], dict[int, Program]] = {}
    for each in found:
        alone = each.role == "encode" and each.length == longest[each.role]
        groups.setdefault((each.role, alone), {})[each.length] = each
    sampled = [group[n] for group in groups.values() for n in (buckets.sample(group) if len(group) > 2 else group)]
    data = _file(model, sampled)
    if len(sampled) == len(found):
        return data
    named = ({length: each.name for length, each in group.items()} for group in groups.values())
    return buckets.add(data, *named) or _file(model, found)


def _file(model: "keras.Model", found: Sequence[Program]) -> bytes:
    with scratch.folder() as directory, captured() as log:
        convert.save(model, {each.name: (each.function, each.reads) for each in found}, directory)
        return convert.converted(directory, [each.name for each in found], "float32", log)
