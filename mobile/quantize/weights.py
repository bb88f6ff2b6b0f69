"""The weights of a float32 .tflite by the names of the model's layers, and how each of them becomes int8.

The converter quantizes a whole file or nothing. Here it is decided for each weight of one float file, with no conversion
between two decisions. A matrix gets one scale per output, and the interpreter quantizes its float inputs, per token, as it
runs (dynamic range quantization); an embedding table gets one scale per row.
"""

import copy
import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from kerasbert.mobile import repack

SMALLEST = 1024  # numbers; a smaller weight stays float, as in the converter's own dynamic range quantization


@dataclasses.dataclass(frozen=True)
class Weight:
    """A constant that only matrix products, or only look-ups, read.

    Args:
        name: str, of the layer that owns it, such as `block_3/attention/query`.
        kind: "matrix" [outputs, inputs] or "table" [rows, width].
        buffer: int, its buffer. Several weights may have one name: the converter copies a kernel into which it folds
            the scale of a norm, as it does for the shared layers of ALBERT.
        users: tuple of (subgraph, operator) numbers.
        size: int, numbers in it.
    """

    name: str
    kind: str
    buffer: int
    users: tuple[tuple[int, int], ...]
    size: int


def find(model: Any, names: Iterable[str] = ()) -> list[Weight]:
    """The weights of a file that can be int8, in the order in which they are computed with.

    Args:
        model: ModelT of a float32 file, with the names of its tensors.
        names: str, the names of the Keras model's weights, which tell a layer from an operation.
    """
    s = repack.schema()
    layers = _layers(names)
    kinds = {s.BuiltinOperator.FULLY_CONNECTED: ("matrix", 1), s.BuiltinOperator.GATHER: ("table", 0)}
    users: dict[int, list[tuple[str, int, int, str]]] = {}
    for number, graph in enumerate(model.subgraphs):
        for place, operator in enumerate(graph.operators):
            kind, position = kinds.get(builtin(model, operator), ("", -1))
            for at, index in enumerate(inputs_of(operator)):
                buffer = graph.tensors[index].buffer if index >= 0 else 0
                if not buffer or model.buffers[buffer].data is None:
                    continue
                role = kind if at == position and graph.tensors[index].type == s.TensorType.FLOAT32 else ""
                result = (graph.tensors[operator.outputs[0]].name or b"").decode()
                users.setdefault(buffer, []).append((role, number, place, result))
    found = []
    for buffer, uses in users.items():
        size = len(model.buffers[buffer].data) // 4
        if size >= SMALLEST and uses[0][0] and len({role for role, *_ in uses}) == 1:
            places = tuple((number, place) for _, number, place, _ in uses)
            found.append(Weight(_layer(uses[0][3], layers), uses[0][0], buffer, places, size))
    return sorted(found, key=lambda weight: weight.users[0])


def _layers(names: Iterable[str]) -> list[str]:
    """Layers that own a matrix or a table, the longest names first."""
    owners = {name.rpartition("/")[0] for name in names if name.endswith(("/kernel", "/table"))}
    return sorted(owners, key=lambda layer: (-layer.count("/"), layer))


def _layer(tensor: str, layers: list[str]) -> str:
    """The layer that a tensor's name tells of: `m/encoder_1/block_0_1/query_1/MatMul;...` -> `block_0/query`.

    Keras adds a number to a scope that was entered before.
    """
    for layer in layers:
        scope = "/".join(re.escape(part) + r"(_\d+)?" for part in layer.removeprefix("heads/").split("/"))
        if any(re.search(f"(^|/){scope}(/|$)", piece) for piece in tensor.split(";")):
            return layer
    return tensor.split(";")[0]


def builtin(model: Any, operator: Any) -> int:
    """The BuiltinOperator of an operator."""
    code = model.operatorCodes[operator.opcodeIndex]
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def inputs_of(operator: Any) -> list[int]:
    """Tensor numbers that an operator reads; -1 for one that is left out."""
    return [] if operator.inputs is None else [int(index) for index in operator.inputs]


def values(model: Any, weight: Weight) -> np.ndarray:
    """A weight's numbers: float32 [rows, columns]."""
    number, place = weight.users[0]
    operator = model.subgraphs[number].operators[place]
    index = inputs_of(operator)[1 if weight.kind == "matrix" else 0]
    shape = [int(size) for size in model.subgraphs[number].tensors[index].shape]
    return np.frombuffer(model.buffers[weight.buffer].data.tobytes(), "<f4").reshape(shape[0], -1)


def by_row(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 with a scale for each row: float32 [R, C] -> int8 [R, C], float32 [R]; off by at most scale / 2."""
    scale = np.abs(x).max(axis=1) / np.float32(127)
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    return np.clip(np.rint(x / scale[:, None]), -127, 127).astype(np.int8), scale


def lower(model: Any, weights: Iterable[Weight]) -> Any:
    """A copy of a float file's ModelT with these of its weights (of `find`) in int8."""
    made = _copy(model)
    editor = _Editor(made)
    for weight in weights:
        change = editor.matrix if weight.kind == "matrix" else editor.table
        change(weight, values(model, weight))
    return editor.finished()


def _copy(model: Any) -> Any:
    """A model whose graphs may be edited; the buffers' bytes are shared."""
    made = copy.copy(model)
    made.buffers = [copy.copy(buffer) for buffer in model.buffers]
    made.operatorCodes = list(model.operatorCodes)
    made.subgraphs = [copy.copy(graph) for graph in model.subgraphs]
    for graph in made.subgraphs:
        graph.tensors = [copy.copy(tensor) for tensor in graph.tensors]
        graph.operators = [copy.copy(operator) for operator in graph.operators]
    return made


class _Editor:
    """Changes to a model that add operators: gathered by place, applied at the end, so that numbers stay valid."""

    def __init__(self, model: Any):
        self.model, self.s = model, repack.schema()
        self.after: dict[tuple[int, int], list] = {}

    def matrix(self, weight: Weight, x: np.ndarray) -> None:
        """FULLY_CONNECTED with int8 weights."""
        data, scale = by_row(x)
        self._set(weight.buffer, data)
        code = self._code(self.s.BuiltinOperator.FULLY_CONNECTED, 9)
        for number, place in weight.users:
            graph = self.model.subgraphs[number]
            operator = graph.operators[place]
            tensor = graph.tensors[inputs_of(operator)[1]]
            tensor.type, tensor.quantization = self.s.TensorType.INT8, self._scales(scale, np.zeros(len(scale)))
            operator.opcodeIndex = code
            operator.builtinOptions = copy.copy(operator.builtinOptions)
            operator.builtinOptions.asymmetricQuantizeInputs = True

    def table(self, weight: Weight, x: np.ndarray) -> None:
        """Rows of an int8 table times the row's own scale: two GATHER, DEQUANTIZE of the whole numbers, MUL."""
        data, scale = by_row(x)
        self._set(weight.buffer, data)
        scales = self._buffer(scale.astype("<f4"))
        for number, place in weight.users:
            graph = self.model.subgraphs[number]
            operator = graph.operators[place]
            table, ids = inputs_of(operator)
            result = graph.tensors[int(operator.outputs[0])]
            ones = self._scales(np.ones(1), np.zeros(1))
            graph.tensors[table].type, graph.tensors[table].quantization = self.s.TensorType.INT8, ones
            column = copy.copy(graph.tensors[table])
            column.shape, column.type, column.quantization = np.asarray([len(scale), 1], np.int32), result.type, None
            column.buffer = scales
            small, unit, plain = copy.copy(result), copy.copy(result), copy.copy(result)
            small.type, small.quantization = self.s.TensorType.INT8, ones
            for name in ("shape", "shapeSignature"):
                if getattr(result, name) is not None:
                    setattr(unit, name, np.asarray([*getattr(result, name)[:-1], 1], np.int32))
            column, small, unit, plain = (self._tensor(graph, tensor) for tensor in (column, small, unit, plain))
            second, final = copy.copy(operator), [int(operator.outputs[0])]
            operator.outputs = np.asarray([small], np.int32)
            second.inputs, second.outputs = np.asarray([column, ids], np.int32), np.asarray([unit], np.int32)
            self.after.setdefault((number, place), []).append(second)
            self._add((number, place), "DEQUANTIZE", [small], [plain])
            self._add((number, place), "MUL", [plain, unit], final, self.s.MulOptionsT())

    def finished(self) -> Any:
        """The model with the added operators in their places."""
        for number, graph in enumerate(self.model.subgraphs):
            operators = []
            for place, operator in enumerate(graph.operators):
                operators.append(operator)
                operators += self.after.get((number, place), [])
            graph.operators = operators
        return self.model

    def _scales(self, scale: np.ndarray, zero: np.ndarray) -> Any:
        made = self.s.QuantizationParametersT()
        made.scale, made.zeroPoint = np.asarray(scale, np.float32), np.asarray(zero, np.int64)
        made.quantizedDimension = 0
        return made

    def _set(self, buffer: int, data: np.ndarray) -> None:
        self.model.buffers[buffer].data = np.frombuffer(data.tobytes(), np.uint8)

    def _buffer(self, data: np.ndarray) -> int:
        self.model.buffers.append(self.s.BufferT())
        self._set(len(self.model.buffers) - 1, data)
        return len(self.model.buffers) - 1

    @staticmethod
    def _tensor(graph: Any, tensor: Any) -> int:
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def _code(self, operator: int, version: int = 1) -> int:
        for index, code in enumerate(self.model.operatorCodes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == operator and code.version == version:
                return index
        code = self.s.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = operator, min(operator, 127), version
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def _add(self, at: tuple, name: str, inputs: list, outputs: list, options: Any = None) -> None:
        operator = self.s.OperatorT()
        operator.opcodeIndex = self._code(getattr(self.s.BuiltinOperator, name))
        operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray(outputs, np.int32)
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(self.s.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.after.setdefault(at, []).append(operator)


def grid(least: float, largest: float) -> tuple[float, int]:
    """Scale and zero point of int8 that holds a range, and zero exactly."""
    least, largest = min(least, 0.0), max(largest, 0.0)
    scale = float(np.float32((largest - least) / 255)) or 1.0
    return scale, int(np.clip(round(-128 - least / scale), -128, 127))


def dynamic(model: Any, names: Iterable[str]) -> list[str]:
    """Layers whose matrix is int8 and whose input is float, in the last subgraph."""
    s, graph = repack.schema(), model.subgraphs[-1]
    layers = _layers(names)
    found = []
    for operator in graph.operators:
        if builtin(model, operator) == s.BuiltinOperator.FULLY_CONNECTED:
            types = [graph.tensors[index].type for index in inputs_of(operator)[:2]]
            if types == [s.TensorType.FLOAT32, s.TensorType.INT8]:
                found.append(_layer((graph.tensors[int(operator.outputs[0])].name or b"").decode(), layers))
    return list(dict.fromkeys(found))
