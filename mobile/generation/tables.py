"""Each matrix of a float .tflite once, and all of them in half precision.

The converter multiplies a norm's scale into the matrix that reads it. Where that matrix is the table of tokens (T5's output), the
file would hold the table twice: once as it is, for look-ups, and once with its columns scaled.
"""

import numpy as np

from ..tflite import repack
from ..tflite.repack import ModelT, OperatorT, SubGraphT, builtin, inputs_of

ROUNDING = 1e-6  # relative; a float32 product is off by 6e-8
SMALLEST = 1024  # numbers; smaller constants stay float32


def shared(model: ModelT) -> ModelT:
    """Products with a table whose columns are scaled -> MUL by these scales, and the product with the table itself.

    Args:
        model: ModelT of a float file, changed in place.
    """
    s = repack.schema()
    tables, made = _used(model, s.BuiltinOperator.GATHER, 0), {}
    for buffer, (shape, uses) in _used(model, s.BuiltinOperator.FULLY_CONNECTED, 1).items():
        for table, (other, _) in tables.items():
            if buffer != table and shape == other and buffer not in made:
                scale = _scale(_numbers(model, table, shape), _numbers(model, buffer, shape))
                if scale is not None:
                    made[buffer] = (table, scale, uses)
    for table, scale, uses in made.values():
        model.buffers.append(s.BufferT())
        model.buffers[-1].data = np.frombuffer(scale.astype("<f4").tobytes(), np.uint8)
        for graph, operator in uses:
            _scaled(model, graph, operator, table, len(model.buffers) - 1)
    return model


def half(model: ModelT) -> ModelT:
    """Large constants in float16, each with a DEQUANTIZE at the beginning of a graph that reads it; changes `model`."""
    s, done = repack.schema(), set()
    for graph in model.subgraphs:
        first = []
        for index in range(len(graph.tensors)):
            tensor = graph.tensors[index]
            data = model.buffers[tensor.buffer].data
            if data is None or tensor.type != s.TensorType.FLOAT32:
                continue
            if tensor.buffer not in done and len(data) < 4 * SMALLEST:
                continue
            if tensor.buffer not in done:
                numbers = np.frombuffer(data.tobytes(), "<f4").astype("<f2")
                model.buffers[tensor.buffer].data = np.frombuffer(numbers.tobytes(), np.uint8)
                done.add(tensor.buffer)
            source = s.TensorT()
            source.shape, source.type, source.buffer, source.hasRank = (
                tensor.shape,
                s.TensorType.FLOAT16,
                tensor.buffer,
                True,
            )
            tensor.buffer = 0
            graph.tensors.append(source)
            first.append(repack.new_operator(model, "DEQUANTIZE", [len(graph.tensors) - 1], [index]))
        graph.operators = [*first, *graph.operators]
    return model


def _used(model: ModelT, code: int, position: int) -> dict[int, tuple[tuple[int, ...], list]]:
    """Buffer -> shape, and who uses it: large constants that operators of a kind read at a place."""
    found: dict[int, tuple[tuple[int, ...], list]] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if builtin(model, operator) != code:
                continue
            tensor = graph.tensors[inputs_of(operator)[position]]
            data = model.buffers[tensor.buffer].data
            if data is not None and tensor.type == repack.schema().TensorType.FLOAT32 and len(data) >= 4 * SMALLEST:
                shape = tuple(map(int, tensor.shape))
                found.setdefault(tensor.buffer, (shape, []))[1].append((graph, operator))
    return found


def _numbers(model: ModelT, buffer: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(model.buffers[buffer].data.tobytes(), "<f4").reshape(shape)


def _scale(table: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """What the columns of a table were multiplied by to give another matrix: float32 [H]; None where they were not."""
    rows, columns = np.abs(table).argmax(axis=0), np.arange(table.shape[1])
    largest = table[rows, columns]
    scale = np.divide(other[rows, columns], largest, out=np.ones_like(largest), where=largest != 0)
    return scale if np.allclose(table * scale, other, rtol=ROUNDING, atol=0) else None


def _scaled(model: ModelT, graph: SubGraphT, operator: OperatorT, table: int, scale: int) -> None:
    """x @ (table * scale)^T as (x * scale) @ table^T."""
    s, (x, weight, *rest) = repack.schema(), inputs_of(operator)
    by, product, source = s.TensorT(), s.TensorT(), graph.tensors[x]
    by.shape, by.type, by.buffer, by.hasRank = graph.tensors[weight].shape[1:], s.TensorType.FLOAT32, scale, True
    product.shape, product.shapeSignature, product.type = source.shape, source.shapeSignature, source.type
    product.hasRank, product.buffer = True, 0
    graph.tensors += [by, product]
    mul = repack.new_operator(model, "MUL", [x, len(graph.tensors) - 2], [len(graph.tensors) - 1], s.MulOptionsT())
    graph.operators.insert(next(i for i, other in enumerate(graph.operators) if other is operator), mul)
    graph.tensors[weight].buffer = table
    operator.inputs = np.asarray([len(graph.tensors) - 1, weight, *rest], np.int32)
