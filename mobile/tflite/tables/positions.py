"""The table of positions, of which a program takes the first rows: as many as a file reads, and in int8.

No look-up: the converter folds the rows of a fixed length into a constant that is added, which `repack.slim` stores once. In a
signature of any length STRIDED_SLICE takes them.
"""

import numpy as np

from ... import tensor_names
from .. import repack
from ..editor import Editor, by_row
from ..repack import ModelT, OperatorT, SubGraphT, builtin, inputs_of


def shortened(blob: bytes, longest: int) -> bytes:
    """A file of any length whose tables of positions have the rows of `longest` tokens; a bucket's has them anyway.

    Such a table is a constant, or a float16 one that is unpacked, of which STRIDED_SLICE takes the rows from a known one on.
    """
    model, s = repack.read(blob), repack.schema()
    for graph in model.subgraphs:
        readers: dict[int, list] = {}
        for operator in graph.operators:
            for index in inputs_of(operator):
                readers.setdefault(index, []).append(operator)
        for operator in graph.operators:
            if builtin(model, operator) != s.BuiltinOperator.STRIDED_SLICE:
                continue
            index, begin = inputs_of(operator)[:2]
            chain = [graph.tensors[index]]
            for other in graph.operators:
                if index in map(int, other.outputs) and builtin(model, other) == s.BuiltinOperator.DEQUANTIZE:
                    chain.insert(0, graph.tensors[int(other.inputs[0])])
            table, first = model.buffers[chain[0].buffer], model.buffers[graph.tensors[begin].buffer].data
            shared = sum(tensor.buffer == chain[0].buffer for tensor in graph.tensors) > 1 or len(readers[index]) > 1
            if table.data is None or first is None or len(first) != 4 or shared:
                continue
            rows = int(first.view("<i4")[0]) + longest
            if len(chain[0].shape) == 2 and 0 < rows < chain[0].shape[0]:
                table.data = table.data[: len(table.data) // int(chain[0].shape[0]) * rows]
                for tensor in chain:
                    tensor.shape = np.asarray([rows, tensor.shape[1]], np.int32)
    return repack.write(model)


def lowered(blob: bytes) -> bytes:
    """A slim file whose tables of positions are int8 with a scale for each row; the file itself where it has none.

    A table is one of positions where rows are sliced off and added to something: rotations are multiplied with, and biases of
    T5 are squares of which no rows are taken.
    """
    model = repack.read(blob)
    found = {buffer for graph in model.subgraphs for buffer in _sliced(model, graph)}
    tables = [buffer for buffer in found if all(_added(model, graph, buffer) for graph in model.subgraphs)]
    if not tables:
        return blob
    editor = Editor(model)
    for buffer in sorted(tables):
        for graph in model.subgraphs:
            for index, tensor in enumerate(list(graph.tensors)):
                if tensor.buffer == buffer and not all(_slices(model, o) for o in _readers(graph, index)):
                    repack.sliced(model, graph, index, buffer, tensor.shape)
        _lower(model, editor, buffer)
    made = editor.finished()
    tensor_names.complete(made)
    return repack.write(made)


def _slices(model: ModelT, operator: OperatorT) -> bool:
    kinds = repack.schema().BuiltinOperator
    return builtin(model, operator) in (kinds.SLICE, kinds.STRIDED_SLICE)


def _readers(graph: SubGraphT, index: int) -> list[OperatorT]:
    return [operator for operator in graph.operators if index in inputs_of(operator)]


def _sliced(model: ModelT, graph: SubGraphT) -> list[int]:
    """Buffers of float constants of two axes, ones before them aside, of which rows are sliced off."""
    found = []
    for operator in graph.operators:
        if not _slices(model, operator):
            continue
        tensor = graph.tensors[inputs_of(operator)[0]]
        data, shape = model.buffers[tensor.buffer].data, [int(n) for n in tensor.shape if n != 1]
        floats = tensor.type == repack.schema().TensorType.FLOAT32
        if floats and data is not None and len(data) >= repack.SMALLEST_PREFIX and len(shape) == 2:
            found.append(tensor.buffer)
    return found


def _added(model: ModelT, graph: SubGraphT, buffer: int) -> bool:
    """Whether whatever reads a table in a graph adds it, whole or rows of it."""
    kinds = repack.schema().BuiltinOperator
    wanted = [index for index, tensor in enumerate(graph.tensors) if tensor.buffer == buffer]
    while wanted:
        for operator in _readers(graph, wanted.pop()):
            if _slices(model, operator) or builtin(model, operator) in (kinds.RESHAPE, kinds.EXPAND_DIMS):
                wanted += map(int, operator.outputs)
            elif builtin(model, operator) != kinds.ADD:
                return False
    return True


def _lower(model: ModelT, editor: Editor, buffer: int) -> None:
    """SLICE of the int8 rows and of their scales, DEQUANTIZE of the whole numbers, MUL."""
    places = [
        (number, place)
        for number, graph in enumerate(model.subgraphs)
        for place, operator in enumerate(graph.operators)
        if _slices(model, operator) and graph.tensors[inputs_of(operator)[0]].buffer == buffer
    ]
    number, place = places[0]
    graph = model.subgraphs[number]
    shape = graph.tensors[inputs_of(graph.operators[place])[0]].shape
    x = np.frombuffer(model.buffers[buffer].data.tobytes(), "<f4").reshape(-1, int(shape[-1]))
    data, scale = by_row(x)
    editor.rows(places, buffer, data, scale)
