"""A .tflite is a FlatBuffer: read it, leave out what repeats from bucket to bucket, write it again.

The converter shares the weights between the signatures of a file and nothing else: every subgraph has its own scales and
zero points per channel, names, shapes, and its own float copy of the first S position vectors. For MiniLM-L6-H384 that
is 0.3-0.6 MB a bucket; shared it is about 36 kB. FlatBuffers allows it: an offset may point at what another object uses.
"""

import copy
import math
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import flatbuffers
import numpy as np

from .. import tensor_names

IDENTIFIER = b"TFL3"
ALIGNMENT = 16  # of weights, as the schema's force_align says; Python's generated code forgets it
# objects of the schema; its generated code takes arrays for lists, so no checker can look into them
ModelT = Any
SubGraphT = Any
OperatorT = Any
TensorT = Any
SignatureDefT = Any
QuantizationT = Any
SMALLEST_PREFIX = 4096  # bytes; below that a copy costs less than an operator


def schema() -> ModuleType:
    """The TFLite schema's generated classes, from ai-edge-litert."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


class SharingBuilder(flatbuffers.Builder):
    """A builder that writes equal vectors and equal strings once."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.seen: dict[tuple, int] = {}

    def CreateNumpyVector(self, x: np.ndarray) -> int:
        """Offset of a vector; bytes (weights) are aligned."""
        key = (x.dtype.str, x.tobytes())
        if key not in self.seen:
            if x.dtype == np.uint8:
                self.Prep(ALIGNMENT, x.nbytes)
            self.seen[key] = super().CreateNumpyVector(x)
        return self.seen[key]

    def CreateString(self, s: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> int:
        """Offset of a string."""
        key = ("string", s)
        if key not in self.seen:
            self.seen[key] = super().CreateString(s, encoding, errors)
        return self.seen[key]


def read(data: bytes) -> ModelT:
    """Bytes of a .tflite -> ModelT, the schema's object form."""
    s = schema()
    return s.ModelT.InitFromObj(s.Model.GetRootAs(data, 0))


def write(model: ModelT) -> bytes:
    """ModelT -> bytes of a .tflite."""
    size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
    builder = SharingBuilder(size + (1 << 20))
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def slim(data: bytes) -> bytes:
    """The same model in fewer bytes and less memory: no repeated tables, one position table."""
    model = read(data)
    _gather_halves(model)
    _share_prefixes(model)
    _part_biases(model)
    _plain_for_gpus(model)
    tensor_names.name(model)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.quantization is not None and tensor.quantization.scale is None:
                tensor.quantization = None
            if model.buffers[tensor.buffer].data is None:
                tensor.buffer = 0  # by convention the empty buffer: "computed"
    _drop_unused_buffers(model)
    return write(model)


def _gather_halves(model: ModelT) -> None:
    """Look the rows of a float16 table up before they become float32, and unpack a matrix where it is first read.

    The converter makes the whole table float32 and looks up in that, once for every signature (MiniLM: 46 MB each). The GATHER
    of tflite-runtime reads no float16: it takes the rows as int16, which BITCAST then calls float16. XNNPACK puts whatever can
    be computed into a graph's first piece: of matrices unpacked there it would give all to the next piece as tensors.
    """
    s = schema()
    for graph in model.subgraphs:
        unpacked: dict[int, OperatorT] = {}
        for operator in graph.operators:
            if builtin(model, operator) == s.BuiltinOperator.DEQUANTIZE:
                source = graph.tensors[operator.inputs[0]]
                if source.type == s.TensorType.FLOAT16 and model.buffers[source.buffer].data is not None:
                    unpacked[int(operator.outputs[0])] = operator
        if not unpacked:
            continue
        operators, late = [], {id(operator) for operator in unpacked.values()}
        for operator in graph.operators:
            if id(operator) in late:
                continue
            if _looks_up(model, operator) and int(operator.inputs[0]) in unpacked:
                operators += _rows_unpacked(model, graph, operator, unpacked[int(operator.inputs[0])])
                continue
            for index in inputs_of(operator):
                if index in unpacked and id(unpacked[index]) in late:
                    operators.append(unpacked[index])
                    late.remove(id(unpacked[index]))
            operators.append(operator)
        graph.operators = operators


def builtin(model: ModelT, operator: OperatorT) -> int:
    """The BuiltinOperator of an operator."""
    code = model.operatorCodes[operator.opcodeIndex]
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def inputs_of(operator: OperatorT) -> list[int]:
    """Tensor numbers that an operator reads; -1 for one that is left out."""
    return [] if operator.inputs is None else [int(index) for index in operator.inputs]


def _looks_up(model: ModelT, operator: OperatorT) -> bool:
    """Whether an operator takes rows of a table."""
    options = operator.builtinOptions
    if builtin(model, operator) != schema().BuiltinOperator.GATHER:
        return False
    return options is None or not (options.axis or options.batchDims)


def _rows_unpacked(model: ModelT, graph: SubGraphT, lookup: OperatorT, unpacking: OperatorT) -> list[OperatorT]:
    """GATHER of a table's float32 as GATHER of its int16, BITCAST to float16 and DEQUANTIZE of the rows."""
    s = schema()
    table, final = graph.tensors[unpacking.inputs[0]], int(lookup.outputs[0])
    made = [copy.copy(table), copy.copy(graph.tensors[final]), copy.copy(graph.tensors[final])]
    for tensor, kind in zip(made, (s.TensorType.INT16, s.TensorType.INT16, s.TensorType.FLOAT16)):
        tensor.type, tensor.name = kind, None
    first = len(graph.tensors)
    graph.tensors += made
    unpacking = copy.copy(unpacking)
    cast = new_operator(model, "BITCAST", [first + 1], [first + 2], s.BitcastOptionsT())
    lookup.inputs, lookup.outputs = np.asarray([first, lookup.inputs[1]], np.int32), np.asarray([first + 1], np.int32)
    unpacking.inputs, unpacking.outputs = np.asarray([first + 2], np.int32), np.asarray([final], np.int32)
    return [lookup, cast, unpacking]


def _share_prefixes(model: ModelT) -> None:
    """Replace a constant that is the beginning of a longer one by a slice of the longer one.

    The position table, which the converter cuts to each bucket's length and folds into it.
    """
    s = schema()
    users: dict[int, list[tuple[SubGraphT, int]]] = {}
    for graph in model.subgraphs:
        for index, tensor in enumerate(graph.tensors):
            data = model.buffers[tensor.buffer].data
            if data is not None and len(data) >= SMALLEST_PREFIX and tensor.type == s.TensorType.FLOAT32:
                users.setdefault(tensor.buffer, []).append((graph, index))
    longest_first = sorted(users, key=lambda buffer: -len(model.buffers[buffer].data))
    for place, whole in enumerate(longest_first):
        data = model.buffers[whole].data
        if data is None:
            continue
        shape = users[whole][0][0].tensors[users[whole][0][1]].shape
        for part in longest_first[place + 1 :]:
            prefix = model.buffers[part].data
            if prefix is None or not is_prefix(prefix, data):
                continue
            cut = [graph.tensors[index].shape for graph, index in users[part]]
            if all(first_rows(shape, other) for other in cut):
                for graph, index in users[part]:
                    sliced(model, graph, index, whole, shape)
                model.buffers[part].data = None


def is_prefix(prefix: np.ndarray, data: np.ndarray) -> bool:
    """Whether bytes are the beginning of longer bytes."""
    return len(prefix) < len(data) and np.array_equal(prefix, data[: len(prefix)])


def first_rows(whole: Sequence[int], part: Sequence[int]) -> bool:
    """Whether [1, .., R, ...] and [1, .., r, ...] differ in one axis alone, with nothing but ones before it."""
    if len(whole) != len(part):
        return False
    differ = [i for i, (a, b) in enumerate(zip(whole, part)) if a != b]
    return len(differ) == 1 and all(size == 1 for size in whole[: differ[0]])


def sliced(model: ModelT, graph: SubGraphT, index: int, buffer: int, shape: np.ndarray) -> None:
    """Make tensor `index` of a graph computed: SLICE of the constant in `buffer`, at the graph's beginning."""
    s = schema()
    tensor = graph.tensors[index]
    size = np.asarray(tensor.shape, np.int32)
    source = s.TensorT()
    source.shape, source.type, source.buffer, source.hasRank = np.asarray(shape, np.int32), tensor.type, buffer, True
    graph.tensors.append(source)
    begin, end = _constant(model, graph, np.zeros_like(size)), _constant(model, graph, size)
    tensor.buffer = 0
    graph.operators.insert(0, new_operator(model, "SLICE", [begin - 1, begin, end], [index], s.SliceOptionsT()))


def _part_biases(model: ModelT) -> None:
    """Add the bias of int8 products behind them where layers share the kernel and not the bias.

    XNNPACK's weight cache packs an int8 kernel together with the bias and finds both by the kernel alone: every later layer
    would get the first one's bias. The converter makes such pairs of ALBERT's layers: it folds a norm's beta into the
    bias of what reads it, and the first layer reads another norm than the others.
    """
    s = schema()
    readers: dict[bytes, list[tuple[SubGraphT, OperatorT]]] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if builtin(model, operator) != s.BuiltinOperator.FULLY_CONNECTED:
                continue
            kernel, result = graph.tensors[operator.inputs[1]], graph.tensors[operator.outputs[0]]
            data = model.buffers[kernel.buffer].data
            if data is not None and kernel.type == s.TensorType.INT8 and result.type == s.TensorType.FLOAT32:
                readers.setdefault(data.tobytes(), []).append((graph, operator))
    for pairs in readers.values():
        biases = {_bias(model, graph, operator) for graph, operator in pairs}
        for graph, operator in pairs if len(biases) > 1 else ():
            if _bias(model, graph, operator):
                _part_bias(model, graph, operator)


def _bias(model: ModelT, graph: SubGraphT, operator: OperatorT) -> bytes:
    """The bytes of a product's bias; empty where it has none."""
    index = int(operator.inputs[2]) if len(operator.inputs) > 2 else -1
    data = model.buffers[graph.tensors[index].buffer].data if index >= 0 else None
    return b"" if data is None else data.tobytes()


def _part_bias(model: ModelT, graph: SubGraphT, operator: OperatorT) -> None:
    """x @ kernel + bias in two operators; the activation goes with the second."""
    s, final = schema(), int(operator.outputs[0])
    product = _computed(graph, final, _sizes(graph.tensors[final]))
    add = new_operator(model, "ADD", [product, int(operator.inputs[2])], [final], s.AddOptionsT())
    add.builtinOptions.fusedActivationFunction = operator.builtinOptions.fusedActivationFunction
    operator.builtinOptions = copy.copy(operator.builtinOptions)
    operator.builtinOptions.fusedActivationFunction = s.ActivationFunctionType.NONE
    operator.inputs = np.asarray([*operator.inputs[:2], -1], np.int32)
    operator.outputs = np.asarray([product], np.int32)
    graph.operators.insert(next(i for i, other in enumerate(graph.operators) if other is operator) + 1, add)


def _plain_for_gpus(model: ModelT) -> None:
    """Look rows up by ids on one axis, and divide a float vector by its norm in operators that a GPU has.

    LiteRT's accelerator (2.3.0) takes no GATHER of ids [1, S] and no L2_NORMALIZATION. What reads constants alone it refuses too:
    the SLICE that takes the positions of several lengths, and a GATHER in its place.
    """
    s = schema()
    for graph in model.subgraphs:
        operators, flat = [], {}  # ids -> the same on one axis
        for operator in graph.operators:
            code, read = builtin(model, operator), inputs_of(operator)
            if _looks_up(model, operator) and len(_sizes(graph.tensors[read[1]])) > 1:
                operators += _flat_look_up(model, graph, operator, flat)
            elif code == s.BuiltinOperator.L2_NORMALIZATION and graph.tensors[read[0]].type == s.TensorType.FLOAT32:
                operators += _unit(model, graph, operator)
            else:
                operators.append(operator)
        graph.operators = operators


def _flat_look_up(model: ModelT, graph: SubGraphT, lookup: OperatorT, flat: dict[int, int]) -> list[OperatorT]:
    """GATHER between two RESHAPE; ids that were flattened already, or are constants, need no first one."""
    s = schema()
    (table, ids), final, before = inputs_of(lookup), int(lookup.outputs[0]), []
    sizes, result = _sizes(graph.tensors[ids]), _sizes(graph.tensors[final])
    if result.count(-1) > 1:
        return [lookup]  # RESHAPE finds one size at most
    count = -1 if -1 in sizes else math.prod(sizes)
    if ids not in flat:
        flat[ids] = _computed(graph, ids, [count])
        if model.buffers[graph.tensors[ids].buffer].data is None:
            shape = _constant(model, graph, np.asarray([count]))
            before.append(new_operator(model, "RESHAPE", [ids, shape], [flat[ids]], s.ReshapeOptionsT()))
    rows = _computed(graph, final, [count, *_sizes(graph.tensors[table])[1:]])
    lookup.inputs, lookup.outputs = np.asarray([table, flat[ids]], np.int32), np.asarray([rows], np.int32)
    back = [rows, _constant(model, graph, np.asarray(result))]
    return [*before, lookup, new_operator(model, "RESHAPE", back, [final], s.ReshapeOptionsT())]


def _unit(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[OperatorT]:
    """x / max(|x|, 1e-6) on the last axis, as L2_NORMALIZATION has it."""
    s, x, final = schema(), int(operator.inputs[0]), int(operator.outputs[0])
    sizes = _sizes(graph.tensors[x])
    squares, (total, norm, most) = _computed(graph, x, sizes), (_computed(graph, x, [*sizes[:-1], 1]) for _ in range(3))
    constants = np.asarray([len(sizes) - 1]), np.asarray([1e-6], np.float32)
    axis, least = (_constant(model, graph, values) for values in constants)
    along = s.ReducerOptionsT()
    along.keepDims = True
    return [
        new_operator(model, "MUL", [x, x], [squares], s.MulOptionsT()),
        new_operator(model, "SUM", [squares, axis], [total], along),
        new_operator(model, "SQRT", [total], [norm]),
        new_operator(model, "MAXIMUM", [norm, least], [most], s.MaximumMinimumOptionsT()),
        new_operator(model, "DIV", [x, most], [final], s.DivOptionsT()),
    ]


def _sizes(tensor: TensorT) -> list[int]:
    """A tensor's shape; -1 for a size that is chosen at run time."""
    shape = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
    return [] if shape is None else [int(size) for size in shape]


def _computed(graph: SubGraphT, like: int, sizes: Sequence[int]) -> int:
    """Add a tensor of another one's type, scale and buffer to a graph -> its index."""
    tensor = copy.copy(graph.tensors[like])
    tensor.name, tensor.shape = None, np.asarray([max(size, 1) for size in sizes], np.int32)
    tensor.shapeSignature = np.asarray(sizes, np.int32) if -1 in sizes else None
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _constant(model: ModelT, graph: SubGraphT, values: np.ndarray) -> int:
    """Add a constant to a graph, of float32 or int32 -> its tensor index."""
    s = schema()
    floats = values.dtype == np.float32
    model.buffers.append(s.BufferT())
    model.buffers[-1].data = np.frombuffer(values.astype("<f4" if floats else "<i4").tobytes(), np.uint8)
    tensor = s.TensorT()
    tensor.shape, tensor.buffer = np.asarray([len(values)], np.int32), len(model.buffers) - 1
    tensor.hasRank, tensor.type = True, s.TensorType.FLOAT32 if floats else s.TensorType.INT32
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def new_operator(model: ModelT, name: str, inputs: list[int], outputs: list[int], options: Any = None) -> OperatorT:
    """An operator by its name, of no graph yet."""
    s = schema()
    operator = s.OperatorT()
    operator.opcodeIndex = operator_code(model, getattr(s.BuiltinOperator, name))
    operator.inputs, operator.outputs = np.asarray(inputs, np.int32), np.asarray(outputs, np.int32)
    if options is not None:
        operator.builtinOptions = options
        operator.builtinOptionsType = getattr(s.BuiltinOptions, type(options).__name__.removesuffix("T"))
    return operator


def operator_code(model: ModelT, builtin: int) -> int:
    s = schema()
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == builtin:
            return index
    code = s.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def _drop_unused_buffers(model: ModelT) -> None:
    """Renumber the buffers that something refers to; buffer 0 stays, empty."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    metadata = model.metadata or []
    used = sorted({0} | {tensor.buffer for tensor in tensors} | {entry.buffer for entry in metadata})
    number = {old: new for new, old in enumerate(used)}
    for item in [*tensors, *metadata]:
        item.buffer = number[item.buffer]
    model.buffers = [model.buffers[old] for old in used]
    model.metadataBuffer = None  # of the schema's version 1; the named metadata replaced it


def operators(data: bytes) -> dict[str, int]:
    """Operator name -> how often, over all subgraphs, the custom ones by their own name."""
    s = schema()
    names = {value: name for name, value in vars(s.BuiltinOperator).items() if isinstance(value, int)}
    model = s.Model.GetRootAs(data, 0)
    codes = []
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = builtin == s.BuiltinOperator.CUSTOM and code.CustomCode()
        codes.append(custom.decode() if custom else names.get(builtin, str(builtin)))
    graphs = [model.Subgraphs(index) for index in range(model.SubgraphsLength())]
    every = (graph.Operators(index) for graph in graphs for index in range(graph.OperatorsLength()))
    counts = Counter(codes[operator.OpcodeIndex()] for operator in every)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
