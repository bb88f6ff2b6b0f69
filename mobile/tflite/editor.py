"""Changes to a .tflite's weights: the operators that compute with an int8 matrix, with an int8 table, with codes."""

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np

from . import repack
from .repack import ModelT, OperatorT, QuantizationT, SubGraphT, TensorT, builtin, inputs_of
from .tables.product import CENTROIDS, Coded


@dataclasses.dataclass(frozen=True)
class Weight:
    """A constant that only matrix products and look-ups read.

    Args:
        name: str, of the layer that owns it, such as `block_3/attention/query`.
        kind: "matrix" [outputs, inputs], "table" [rows, width], or "tied": a table whose rows are the outputs of a product too.
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


def read_at(model: ModelT, number: int, place: int) -> int:
    """The tensor that a product or a look-up has its weight in."""
    operator = model.subgraphs[number].operators[place]
    product = builtin(model, operator) == repack.schema().BuiltinOperator.FULLY_CONNECTED
    return inputs_of(operator)[1 if product else 0]


def by_row(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 with a scale for each row: float32 [R, C] -> int8 [R, C], float32 [R]; off by at most scale / 2."""
    scale = np.abs(x).max(axis=1) / np.float32(127)
    scale = np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
    return np.clip(np.rint(x / scale[:, None]), -127, 127).astype(np.int8), scale


def copied(model: ModelT) -> ModelT:
    """A model whose graphs may be edited; the buffers' bytes are shared."""
    made = copy.copy(model)
    made.buffers = [copy.copy(buffer) for buffer in model.buffers]
    made.operatorCodes = list(model.operatorCodes)
    made.subgraphs = [copy.copy(graph) for graph in model.subgraphs]
    for graph in made.subgraphs:
        graph.tensors = [copy.copy(tensor) for tensor in graph.tensors]
        graph.operators = [copy.copy(operator) for operator in graph.operators]
    return made


class Editor:
    """Changes to a model that add operators: gathered by place, applied at the end, so that numbers stay valid."""

    def __init__(self, model: ModelT) -> None:
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
        scales, width = self._buffer(scale.astype("<f4")), x.shape[1]
        for number, place in weight.users:
            graph = self.model.subgraphs[number]
            operator = graph.operators[place]
            table, ids = inputs_of(operator)
            result = graph.tensors[int(operator.outputs[0])]
            ones = self._scales(np.ones(1), np.zeros(1))
            graph.tensors[table].type, graph.tensors[table].quantization = self.s.TensorType.INT8, ones
            column = self._constant(graph, graph.tensors[table], result.type, scales, [len(scale), 1])
            small = self._like(graph, result, self.s.TensorType.INT8, width, scale=ones)
            unit, plain = self._like(graph, result, result.type, 1), self._like(graph, result, result.type, width)
            second, final = copy.copy(operator), [int(operator.outputs[0])]
            operator.outputs = np.asarray([small], np.int32)
            second.inputs, second.outputs = np.asarray([column, ids], np.int32), np.asarray([unit], np.int32)
            self.after.setdefault((number, place), []).append(second)
            self._add((number, place), "DEQUANTIZE", [small], [plain])
            self._add((number, place), "MUL", [plain, unit], final, self.s.MulOptionsT())

    def tied(self, weight: Weight, x: np.ndarray) -> None:
        """One int8 table for both: its look-ups and its products have the same scale for a row."""
        code = self.s.BuiltinOperator.FULLY_CONNECTED
        products = tuple(at for at in weight.users if builtin(self.model, self._at(*at)) == code)
        scaled = {(number, read_at(self.model, number, place)) for number, place in products}
        others = tuple(at for at in weight.users if at not in products)
        for number, place in others:
            operator, graph = self._at(number, place), self.model.subgraphs[number]
            table, ids = inputs_of(operator)
            if (number, table) in scaled:  # a tensor of its own: that of the product has the scales
                operator.inputs = np.asarray([self._tensor(graph, copy.copy(graph.tensors[table])), ids], np.int32)
        self.matrix(dataclasses.replace(weight, users=products), x)
        self.table(dataclasses.replace(weight, users=others), x)

    def _at(self, number: int, place: int) -> OperatorT:
        return self.model.subgraphs[number].operators[place]

    def codes(self, weight: Weight, coded: Coded) -> None:
        """Rows of codes and what they stand for: GATHER, CAST, ADD of each group's first centroid, GATHER, DEQUANTIZE, RESHAPE
        and, where groups are of two widths, GATHER of the columns.
        """
        kinds, (groups, wide) = self.s.TensorType, (coded.codes.shape[1], coded.book.shape[1])
        self._set(weight.buffer, coded.codes)
        starts = self._buffer(np.arange(groups, dtype="<i4") * CENTROIDS)
        book, columns = self._buffer(coded.book), self._buffer(coded.columns.astype("<i4"))
        scale = self._scales(np.full(1, coded.scale), np.zeros(1))
        shapes: dict[tuple, int] = {}
        for at in weight.users:
            graph = self.model.subgraphs[at[0]]
            operator = graph.operators[at[1]]
            table, final = graph.tensors[inputs_of(operator)[0]], int(operator.outputs[0])
            result = graph.tensors[final]
            table.type, table.shape = kinds.UINT8, np.asarray(coded.codes.shape, np.int32)
            first = self._constant(graph, table, kinds.INT32, starts, [groups])
            centroids = self._constant(graph, table, kinds.INT8, book, coded.book.shape, scale)
            small, whole, places = (
                self._like(graph, result, kind, groups) for kind in (kinds.UINT8, kinds.INT32, kinds.INT32)
            )
            parts = self._like(graph, result, kinds.INT8, groups, wide, scale=scale)
            plain = self._like(graph, result, kinds.FLOAT32, groups, wide)
            uneven = len(coded.columns) < groups * wide
            row = self._like(graph, result, kinds.FLOAT32, groups * wide) if uneven else final
            operator.outputs = np.asarray([small], np.int32)
            cast = self.s.CastOptionsT()
            cast.inDataType, cast.outDataType = kinds.UINT8, kinds.INT32
            self._add(at, "CAST", [small], [whole], cast)
            self._add(at, "ADD", [whole, first], [places], self.s.AddOptionsT())
            self._add(at, "GATHER", [centroids, places], [parts], self.s.GatherOptionsT())
            self._add(at, "DEQUANTIZE", [parts], [plain])
            rows = result.shape if result.shapeSignature is None else result.shapeSignature
            shape = (*(int(n) for n in rows[:-1]), groups * wide)
            if shape not in shapes:
                shapes[shape] = self._buffer(np.asarray(shape, "<i4"))
            given = self._constant(graph, table, kinds.INT32, shapes[shape], [len(shape)])
            self._add(at, "RESHAPE", [plain, given], [row])
            if uneven:
                along = self.s.GatherOptionsT()
                along.axis = len(shape) - 1
                order = self._constant(graph, table, kinds.INT32, columns, [len(coded.columns)])
                self._add(at, "GATHER", [row, order], [final], along)

    def rows(self, places: Sequence[tuple[int, int]], buffer: int, data: np.ndarray, scale: np.ndarray) -> None:
        """Rows that are sliced off a table, int8 times the row's own scale: a slice of both, DEQUANTIZE, MUL.

        Args:
            places: (subgraph, operator) of the slices. data, scale: of `by_row`.
        """
        self._set(buffer, data)
        scales, ones = self._buffer(scale.astype("<f4")), self._scales(np.ones(1), np.zeros(1))
        for at in places:
            operator, graph = self._at(*at), self.model.subgraphs[at[0]]
            table, *where = inputs_of(operator)
            tensor, final = graph.tensors[table], int(operator.outputs[0])
            result = graph.tensors[final]
            column = self._constant(graph, tensor, result.type, scales, [*tensor.shape[:-1], 1])
            tensor.type, tensor.quantization = self.s.TensorType.INT8, ones
            small = self._like(graph, result, self.s.TensorType.INT8, int(tensor.shape[-1]), scale=ones)
            unit, plain = (
                self._like(graph, result, result.type, 1),
                self._like(graph, result, result.type, int(tensor.shape[-1])),
            )
            if builtin(self.model, operator) == self.s.BuiltinOperator.SLICE:
                size = self._buffer(np.asarray([*result.shape[:-1], 1], "<i4"))
                where[1] = self._constant(
                    graph, graph.tensors[where[1]], self.s.TensorType.INT32, size, [len(result.shape)]
                )
            second = copy.copy(operator)
            second.inputs, second.outputs = np.asarray([column, *where], np.int32), np.asarray([unit], np.int32)
            operator.outputs = np.asarray([small], np.int32)
            self.after.setdefault(at, []).append(second)
            self._add(at, "DEQUANTIZE", [small], [plain])
            self._add(at, "MUL", [plain, unit], [final], self.s.MulOptionsT())

    def finished(self) -> ModelT:
        """The model with the added operators in their places."""
        for number, graph in enumerate(self.model.subgraphs):
            operators = []
            for place, operator in enumerate(graph.operators):
                operators.append(operator)
                operators += self.after.get((number, place), [])
            graph.operators = operators
        return self.model

    def _scales(self, scale: np.ndarray, zero: np.ndarray) -> QuantizationT:
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

    def _like(self, graph: SubGraphT, tensor: TensorT, kind: int, *last: int, scale: QuantizationT = None) -> int:
        """A computed tensor of the rows of another and other numbers in each."""
        made = copy.copy(tensor)
        made.type, made.quantization = kind, scale
        for name in ("shape", "shapeSignature"):
            if getattr(tensor, name) is not None:
                setattr(made, name, np.asarray([*getattr(tensor, name)[:-1], *last], np.int32))
        return self._tensor(graph, made)

    def _constant(
        self,
        graph: SubGraphT,
        other: TensorT,
        kind: int,
        buffer: int,
        shape: Sequence[int],
        scale: QuantizationT = None,
    ) -> int:
        """A constant beside another one."""
        made = copy.copy(other)
        made.type, made.quantization, made.buffer = kind, scale, buffer
        made.shape, made.shapeSignature = np.asarray(shape, np.int32), None
        return self._tensor(graph, made)

    @staticmethod
    def _tensor(graph: SubGraphT, tensor: TensorT) -> int:
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

    def _add(self, at: tuple, name: str, inputs: list, outputs: list, options: object = None) -> None:
        operator = self.s.OperatorT()
        operator.opcodeIndex = self._code(getattr(self.s.BuiltinOperator, name))
        operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray(outputs, np.int32)
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(self.s.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.after.setdefault(at, []).append(operator)
