"""The weights of a float32 .tflite by the names of the model's layers, and how each of them becomes int8.

The converter quantizes a whole file or nothing. Here it is decided for each weight of one float file, with no conversion
between two decisions. A matrix gets one scale per output, and the interpreter quantizes its float inputs, per token, as it
runs (dynamic range quantization); an embedding table gets one scale per row.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from . import repack
from .editor import Editor, Weight, copied, read_at
from .repack import ModelT, builtin, inputs_of
from .tables.product import Coded

SMALLEST = 1024  # numbers; a smaller weight stays float, as in the converter's own dynamic range quantization


def find(model: ModelT, names: Iterable[str] = (), least: int | None = None) -> list[Weight]:
    """The weights of a file that can be int8, in the order in which they are computed with.

    Args:
        model: ModelT of a float32 file, with the names of its tensors.
        names: str, the names of the Keras model's weights, which tell a layer from an operation.
        least: int, numbers of the smallest; None for SMALLEST.
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
        size, roles = len(model.buffers[buffer].data) // 4, {role for role, *_ in uses}
        if size >= (SMALLEST if least is None else least) and "" not in roles:
            places = tuple((number, place) for _, number, place, _ in uses)
            kind = uses[0][0] if len(roles) == 1 else "tied"
            found.append(Weight(_layer(uses[0][3], layers), kind, buffer, places, size))
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


def values(model: ModelT, weight: Weight) -> np.ndarray:
    """A weight's numbers: float32 [rows, columns]."""
    number, place = weight.users[0]
    index = read_at(model, number, place)
    shape = [int(size) for size in model.subgraphs[number].tensors[index].shape]
    return np.frombuffer(model.buffers[weight.buffer].data.tobytes(), "<f4").reshape(shape[0], -1)


def lower(model: ModelT, weights: Iterable[Weight], coded: Mapping[int, Coded] = MappingProxyType({})) -> ModelT:
    """A copy of a float file's ModelT with these of its weights (of `find`) in int8.

    Args:
        coded: buffer of a table -> its codes, which it becomes in the place of int8.
    """
    made = copied(model)
    editor = Editor(made)
    for weight in weights:
        if weight.buffer in coded:
            editor.codes(weight, coded[weight.buffer])
            continue
        change = {"matrix": editor.matrix, "table": editor.table, "tied": editor.tied}[weight.kind]
        change(weight, values(model, weight))
    return editor.finished()


def grid(least: float, largest: float) -> tuple[float, int]:
    """Scale and zero point of int8 that holds a range, and zero exactly."""
    least, largest = min(least, 0.0), max(largest, 0.0)
    scale = float(np.float32((largest - least) / 255)) or 1.0
    return scale, int(np.clip(round(-128 - least / scale), -128, 127))


def dynamic(model: ModelT, names: Iterable[str]) -> list[str]:
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
