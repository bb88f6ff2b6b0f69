"""Signatures, operands and scales: what neither the flatbuffer's verifier nor XNNPACK's delegate looks at before use.

A valid flatbuffer may hold a BATCH_MATMUL of one operand, or of operand -1, and the delegate then reads beyond the list;
a zero point that is no int8 is a segmentation fault as well, and so are a signature of a subgraph that is not there and a
tensor that is read before an operator gave it. A reader of its own, because the generated schema takes longer to import
than a model to load, and needs `flatbuffers`.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kerasbert.errors import InputError

# operands by number in the schema's BuiltinOperator: the operators that a transformer is converted to
_ONE = (
    "BITCAST CAST DEQUANTIZE GELU QUANTIZE RSQRT SHAPE SOFTMAX TANH LOGISTIC SQRT SQUARE EXP LOG NEG ABS RELU SQUEEZE "
    "LOGICAL_NOT"
)
_TWO = (
    "ADD SUB MUL DIV BATCH_MATMUL EXPAND_DIMS FULLY_CONNECTED GATHER MEAN SUM REDUCE_MAX REDUCE_PROD RESHAPE TRANSPOSE "
    "MAXIMUM MINIMUM POW SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD LESS LESS_EQUAL GREATER GREATER_EQUAL EQUAL NOT_EQUAL "
    "LOGICAL_AND LOGICAL_OR GATHER_ND EMBEDDING_LOOKUP BROADCAST_TO CUMSUM FILL ARG_MAX TILE PAD SPLIT"
)
_THREE = "SLICE SELECT SELECT_V2 RANGE"
_FOUR = "STRIDED_SLICE ONE_HOT"
NUMBERS = {
    "ADD": 0, "CONCATENATION": 2, "DEQUANTIZE": 6, "EMBEDDING_LOOKUP": 7, "FULLY_CONNECTED": 9, "LOGISTIC": 14,
    "MUL": 18, "RELU": 19, "RESHAPE": 22, "SOFTMAX": 25, "TANH": 28, "PAD": 34, "GATHER": 36, "TRANSPOSE": 39,
    "MEAN": 40, "SUB": 41, "DIV": 42, "SQUEEZE": 43, "STRIDED_SLICE": 45, "EXP": 47, "SPLIT": 49, "CAST": 53,
    "MAXIMUM": 55, "ARG_MAX": 56, "MINIMUM": 57, "LESS": 58, "NEG": 59, "GREATER": 61, "GREATER_EQUAL": 62,
    "LESS_EQUAL": 63, "SELECT": 64, "SLICE": 65, "TILE": 69, "EXPAND_DIMS": 70, "EQUAL": 71, "NOT_EQUAL": 72, "LOG": 73,
    "SUM": 74, "SQRT": 75, "RSQRT": 76, "SHAPE": 77, "POW": 78, "REDUCE_PROD": 81, "REDUCE_MAX": 82, "PACK": 83,
    "LOGICAL_OR": 84, "ONE_HOT": 85, "LOGICAL_AND": 86, "LOGICAL_NOT": 87, "FLOOR_DIV": 90, "SQUARE": 92, "FILL": 94,
    "FLOOR_MOD": 95, "RANGE": 96, "SQUARED_DIFFERENCE": 99, "ABS": 101, "GATHER_ND": 107, "QUANTIZE": 114,
    "SELECT_V2": 123, "BATCH_MATMUL": 126, "CUMSUM": 128, "BROADCAST_TO": 130, "GELU": 150,
    "BITCAST": 159,
}  # fmt: skip
NAMES = {number: name for name, number in NUMBERS.items()}
OPERANDS = {
    NUMBERS[name]: count for count, names in enumerate((_ONE, _TWO, _THREE, _FOUR), start=1) for name in names.split()
} | {NUMBERS["CONCATENATION"]: None, NUMBERS["PACK"]: None}
"""Operator -> operands; None: any number. FULLY_CONNECTED has a bias beside them, which may be -1."""

LIMITS = {9: (-128, 127), 3: (0, 255)}
"""Type of a tensor (INT8, UINT8) -> its least and largest zero point; that of others is 0."""

TINY = np.finfo(np.float32).tiny

_U16, _I32, _U32, _F32 = (struct.Struct(code) for code in ("<H", "<i", "<I", "<f"))


def check(path: Path) -> None:
    """Refuse operators without their operands; how many there must be is known for those in OPERANDS.

    Args:
        path: a file whose flatbuffer was verified.
    Raises:
        InputError: a signature's subgraph or tensor is not there; an operator has too few or too many operands, one
            that is missing or that nothing gave before, no result, or one that is there already; or a tensor's scales
            are not finite, not as many as its zero points, or its zero points are not of its type.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        root = _U32.unpack_from(data)[0]
        codes = [_code(data, code) for code in _tables(data, root, 1)]
        _check_signatures(path, data, root)
        constants = {
            i for i, buffer in enumerate(_tables(data, root, 4)) if _field(data, buffer, 0) or _field(data, buffer, 1)
        }
        seen: set[tuple[int, int]] = set()  # tensors share what describes their scales
        for graph in _tables(data, root, 2):
            steps = []  # of the tensors: (type, scale or 0)
            ready = set(_numbers(data, graph, 1))  # the subgraph's inputs, constants, and what operators gave
            for tensor in _tables(data, graph, 0):
                if _number(data, tensor, 2) in constants:
                    ready.add(len(steps))
                steps.append(_step(path, data, tensor, len(steps), seen))
            for operator in _tables(data, graph, 3):
                _check_operator(path, data, operator, codes[_number(data, operator, 0)], steps, ready)


def _code(data: mmap.mmap, code: int) -> int:
    """The number of an operator in the schema: older files have it as a byte."""
    old, new = _field(data, code, 0), _field(data, code, 3)
    return max(data[old] if old else 0, _I32.unpack_from(data, new)[0] if new else 0)


def _step(path: Path, data: mmap.mmap, tensor: int, number: int, seen: set[tuple[int, int]]) -> tuple[int, float]:
    """A tensor's type, and its scale where it has one alone, else 0.

    Args:
        number: the tensor's, in its subgraph.
        seen: places of scales that were looked at, with the type of their tensors.
    Raises:
        InputError: it keeps its value from call to call, or its scales are none.
    """
    if (variable := _field(data, tensor, 5)) and data[variable]:
        raise InputError(
            f"{path} has the tensor {number} that keeps its value from call to call, expected none: it is damaged. Write the "
            "file again"
        )
    place, kind = _field(data, tensor, 4), _field(data, tensor, 1)
    kind = data[kind] if kind else 0
    if not place:
        return kind, 0.0
    about = place + _U32.unpack_from(data, place)[0], kind
    if about not in seen:
        seen.add(about)
        _check_scales(path, data, *about)
    begin, count = _vector(data, about[0], 2)
    return kind, _F32.unpack_from(data, begin)[0] if count == 1 else 0.0


def _check_operator(path: Path, data: mmap.mmap, operator: int, code: int, steps: list, ready: set[int]) -> None:
    """An operator has its operands, of tensors that are there; what it gives is there then."""
    operands, results = _numbers(data, operator, 1), _numbers(data, operator, 2)
    if not ready.issuperset(operands) and not ready.issuperset(number for number in operands if number >= 0):
        raise _unordered(path, "reads", operands)
    if code in OPERANDS:
        _check(path, code, operands, results, steps)
    if code == NUMBERS["STRIDED_SLICE"]:
        _check_slice(path, data, operator)
    if not ready.isdisjoint(results):
        raise _unordered(path, "gives", results)
    ready.update(results)


def _unordered(path: Path, what: str, tensors: tuple[int, ...]) -> InputError:
    return InputError(
        f"{path} has an operator that {what} the tensors {list(tensors)!s:.40}, expected each given once, before it is read: "
        "it is damaged. Write the file again"
    )


def _check_signatures(path: Path, data: mmap.mmap, root: int) -> None:
    """A SignatureDef's subgraph and tensors are there; the interpreter takes their numbers as they are."""
    tensors = [_vector(data, graph, 0)[1] for graph in _tables(data, root, 2)]
    for signature in _tables(data, root, 7):
        graph = _number(data, signature, 4)
        numbers = [_number(data, tensor, 1) for side in (0, 1) for tensor in _tables(data, signature, side)]
        if graph >= len(tensors) or any(number >= tensors[graph] for number in numbers):
            raise InputError(
                f"{path} has a signature of the tensors {numbers!s:.40} of subgraph {graph}, expected one of "
                f"{len(tensors)} and its own: it is damaged. Write the file again"
            )


def _check(path: Path, code: int, inputs: tuple[int, ...], outputs: tuple[int, ...], steps: list) -> None:
    count, name = OPERANDS[code], NAMES[code]
    if name == "FULLY_CONNECTED" and len(inputs) == 3:
        inputs = inputs[:2]
    if len(inputs) != (count or len(inputs) or 1) or min(inputs) < 0 or not outputs or min(outputs) < 0:
        raise InputError(
            f"{path} has a {name} of the tensors {list(inputs)!s:.40} that gives {list(outputs)!s:.40}, "
            f"expected {count or 'some'} and a result: it is damaged. Write the file again"
        )
    if name in ("ADD", "SUB"):
        (kind, one), (other, two), (third, result) = (steps[index] for index in (*inputs, outputs[0]))
        # TFLite aborts where the scales of eight bits do not fit
        if not kind == other == third or (kind in LIMITS and not 0 < 2 * max(one, two) < result * 2**20):
            raise InputError(
                f"{path} has an {name} of the types {kind} and {other} and scales {one:.3g} and {two:.3g} that gives "
                f"{third} with {result:.3g}: it is damaged. Write the file again"
            )


def _check_slice(path: Path, data: mmap.mmap, operator: int) -> None:
    """StridedSliceOptions: their last field makes an end a length, which XNNPACK takes and computes beyond the tensor."""
    place = _field(data, operator, 4)
    options = place + _U32.unpack_from(data, place)[0] if place else 0
    offset = _field(data, options, 5) if options else 0
    if offset and data[offset]:
        raise InputError(
            f"{path} has a STRIDED_SLICE by offsets, expected one by ends: it is damaged. Write the file again"
        )


def _check_scales(path: Path, data: mmap.mmap, table: int, kind: int) -> None:
    """QuantizationParameters of a tensor of a type (a number of the schema); TFLite compares their number with the shape."""
    scales, points = _array(data, table, 2, "<f4"), _array(data, table, 3, "<i8")
    least, largest = LIMITS.get(kind, (0, 0))
    good = len(scales) == len(points) and np.isfinite(scales).all() and (scales >= 0).all()
    good = good and (len(scales) != 1 or scales[0] >= TINY)
    if not good or (points < least).any() or (points > largest).any():
        raise InputError(
            f"{path} has {len(scales)} scales {scales[:3]!s:.40} and {len(points)} zero points {points[:3]!s:.40} of a "
            f"tensor of type {kind}: it is damaged. Write the file again"
        )


def _field(data: mmap.mmap, table: int, number: int) -> int:
    """Place of a table's field, or 0."""
    fields = table - _I32.unpack_from(data, table)[0]
    if 4 + 2 * number >= _U16.unpack_from(data, fields)[0]:
        return 0
    offset = _U16.unpack_from(data, fields + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _number(data: mmap.mmap, table: int, number: int) -> int:
    """A table's uint32, 0 by default."""
    place = _field(data, table, number)
    return _U32.unpack_from(data, place)[0] if place else 0


def _vector(data: mmap.mmap, table: int, number: int) -> tuple[int, int]:
    """Place of the first element of a table's vector, and how many there are."""
    place = _field(data, table, number)
    if not place:
        return 0, 0
    place += _U32.unpack_from(data, place)[0]
    return place + 4, _U32.unpack_from(data, place)[0]


def _tables(data: mmap.mmap, table: int, number: int) -> Iterator[int]:
    """Places of the tables in a table's vector."""
    begin, count = _vector(data, table, number)
    for place in range(begin, begin + 4 * count, 4):
        yield place + _U32.unpack_from(data, place)[0]


def _array(data: mmap.mmap, table: int, number: int, code: str) -> np.ndarray:
    """A table's vector of numbers, copied: the map closes."""
    begin, count = _vector(data, table, number)
    return np.frombuffer(data, code, count, begin).copy()


def _numbers(data: mmap.mmap, table: int, number: int) -> tuple[int, ...]:
    """The int32 of a table's vector."""
    begin, count = _vector(data, table, number)
    return struct.unpack_from(f"<{count}i", data, begin)
