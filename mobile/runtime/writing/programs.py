"""Several signatures of a file, run one after the other: what one gives is what another takes.

By an ai-edge-litert CompiledModel the arrays stay in its buffers, and those that a step gave are handed to the next one; by a
plain Interpreter they go through numpy. Outputs have no order that one could rely on: everything goes by the signature's names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.export.bundle import LOGITS, MAX_WIDTH, STEP, Bundle, Signature
from kerasbert.inputs import Tensor, size_of
from ..system.quiet import unheard

if TYPE_CHECKING:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.interpreter import Interpreter


Shape = tuple[int, ...]
Tensors = dict[str, tuple[Shape, type]]  # name -> (shape, numpy's type)
State = dict[str, Tensor]  # what programs take and give, by name: buffers of an interpreter, or numpy arrays


class Buffers:
    """By a CompiledModel.

    Args:
        model: ai_edge_litert's CompiledModel.
    """

    def __init__(self, model: "CompiledModel") -> None:
        self.model: Any = model  # None once it is closed
        self.signatures = model.get_signature_list()
        self.shapes: dict[str, dict[str, Shape]] = {}
        self.idle: dict[str, list[State]] = {}  # outputs that nobody reads any more

    def close(self) -> None:
        """Let go of the model."""
        self.model = None
        self.idle.clear()

    def run(self, name: str, given: State) -> State:
        """What a signature gives: name -> what `given` may hold, and `read` reads.

        Args:
            given: name -> what `made` or `run` gave.
        """
        index, signature = self.model.get_signature_index(name), self.signatures[name]
        names, idle = signature["outputs"], self.idle.setdefault(name, [])
        outputs = idle.pop() if idle else dict(zip(names, self.model.create_output_buffers(index)))
        self.model.run_by_index(index, [given[part] for part in signature["inputs"]], [outputs[part] for part in names])
        return outputs

    def done(self, name: str, outputs: State) -> None:
        """What a run of a signature gave is not needed any more."""
        if self.model is not None:
            self.idle[name].append(outputs)

    def made(self, name: str, arrays: Mapping[str, np.ndarray]) -> State:
        """Some inputs of a signature, with these values; `put` writes others into them."""
        with unheard():  # litert makes its default environment at the first write
            made = {part: self.model.create_input_buffer_by_name(name, part) for part in arrays}
            for part, values in arrays.items():
                made[part].write(values)
        return made

    def shape(self, name: str, part: str) -> Shape:
        """Of an input of a signature."""
        return tuple(map(int, self.model.get_input_tensor_details(name)[part]["shape"]))

    def width(self, name: str, part: str) -> int:
        """The last axis of an output of a signature."""
        return self._shape(name, part)[-1]

    def _shape(self, name: str, part: str) -> Shape:
        if name not in self.shapes:
            details = self.model.get_output_tensor_details(name)
            self.shapes[name] = {key: tuple(map(int, each["shape"])) for key, each in details.items()}
        return self.shapes[name][part]

    def put(self, made: State, part: str, values: np.ndarray) -> None:
        """Other values."""
        made[part].write(values)

    def read(self, name: str, part: str, given: Tensor) -> np.ndarray:
        """The values of an output of a signature."""
        shape = self._shape(name, part)
        return given.read(int(np.prod(shape)), np.float32).reshape(shape)


class Arrays:
    """The same by a plain Interpreter, through numpy.

    Args:
        model: an Interpreter with `get_signature_runner`.
    """

    def __init__(self, model: "Interpreter") -> None:
        self.model, self.runners = model, {}

    def run(self, name: str, given: State) -> State:
        """As `Buffers.run`."""
        if name not in self.runners:
            runner = self.model.get_signature_runner(name)
            self.runners[name] = runner, list(runner.get_input_details())
        runner, names = self.runners[name]
        return runner(**{part: given[part] for part in names})

    def done(self, name: str, outputs: State) -> None:
        """Nothing: numpy keeps count."""

    def made(self, name: str, arrays: Mapping[str, np.ndarray]) -> State:
        """As `Buffers.made`."""
        return dict(arrays)

    def shape(self, name: str, part: str) -> Shape:
        """As `Buffers.shape`."""
        return tuple(map(int, self.model.get_signature_runner(name).get_input_details()[part]["shape"]))

    def width(self, name: str, part: str) -> int:
        """As `Buffers.width`."""
        return int(self.model.get_signature_runner(name).get_output_details()[part]["shape"][-1])

    def put(self, made: State, part: str, values: np.ndarray) -> None:
        """As `Buffers.put`."""
        made[part] = values

    def read(self, name: str, part: str, given: Tensor) -> np.ndarray:
        """As `Buffers.read`."""
        return given


Programs = Buffers | Arrays


def check_programs(model: "Interpreter", bundle: Bundle, path: Path) -> None:
    """Compare the signatures of a file that writes with each other: what one gives another must take.

    Args:
        model: an Interpreter whose tensors are not allocated yet.
    Raises:
        InputError: a signature, input or output is not there or has another shape or type.
    """
    fixed: Tensors = {}
    largest: Tensors = {}
    for length, signature in bundle.reading.items():
        inputs, largest = _sides(model, signature, path)
        wanted = {}
        for each in bundle.inputs:
            shape = tuple(size_of(axis, length, each.places) for axis in each.axes)
            wanted[each.signature] = (shape, np.dtype(each.dtype).type)
        _same(path, signature.name, inputs, wanted)
        if signature.role == "encode":
            fixed = fixed or largest
            _same(path, signature.name, largest, fixed)
    logits: tuple[Shape, type] | None = None
    for places, signature in bundle.of("decode_step").items():
        inputs, moving = _sides(model, signature, path)
        given = moving.pop(signature.outputs[LOGITS])
        logits = logits or given
        if len(given[0]) != 2 or not 1 <= given[0][1] <= MAX_WIDTH:
            raise _wrong(path, signature.name, LOGITS, given, "[1, V]")
        _same(path, signature.name, {LOGITS: given}, {LOGITS: ((1, logits[0][1]), np.float32)})
        for part, (shape, kind) in moving.items():
            if len(shape) != 4 or shape[2] != places or kind is not np.float32:
                raise _wrong(path, signature.name, part, (shape, kind), f"float32 of {places} places")
        _same(path, signature.name, inputs, {**dict.fromkeys(STEP, ((1,), np.int32)), **fixed, **moving})
        if not fixed:
            longest = bundle.lengths[-1]
            first = {part: ((*shape[:2], longest, shape[3]), kind) for part, (shape, kind) in moving.items()}
            _same(path, bundle.reading[longest].name, largest, first)


def _sides(model: "Interpreter", signature: Signature, path: Path) -> tuple[Tensors, Tensors]:
    """Inputs and outputs of a signature."""
    if signature.name not in model.get_signature_list():
        raise _wrong(path, signature.name, "signature", "absent", "what its bundle names")
    runner, sides = model.get_signature_runner(signature.name), []
    for side in (runner.get_input_details(), runner.get_output_details()):
        sides.append({key: (tuple(map(int, one["shape_signature"])), one["dtype"]) for key, one in side.items()})
    _same(path, signature.name, dict.fromkeys(sides[1], True), dict.fromkeys(signature.outputs.values(), True))
    return sides[0], sides[1]


def _same(path: Path, name: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    if found != wanted:
        part = min(key for key in {**found, **wanted} if found.get(key) != wanted.get(key))
        raise _wrong(path, name, part, found.get(part, "absent"), wanted.get(part, "absent"))


def _wrong(path: Path, name: str, part: str, found: object, wanted: object) -> InputError:
    return InputError(
        f"{path}: in the signature {name!r:.40} {part!r:.40} is {found!s:.60}, expected {wanted!s:.60}. Write the file again"
    )
