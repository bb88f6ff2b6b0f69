"""Length buckets: convert a model at two lengths, derive the subgraphs of all others from those two.

The subgraphs of two lengths differ in numbers alone: sizes in shapes and reshapes, which are straight lines in the
length, and the position table, cut to the length. Converting costs 4-10 s a length for MiniLM and as much memory as
the weights; deriving costs nothing. Where the two differ in any other way the answer is None: convert every length.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from types import ModuleType

import numpy as np

from kerasbert.errors import InputError
from . import repack
from .repack import ModelT, OperatorT, SignatureDefT, SubGraphT, TensorT

# Denser where sentences are. Multiples of 4: XNNPACK's int8 kernels take 4 rows at a time on AVX2 and ARM (5 with AVX512-VNNI).
# From 64 on multiples of 16, which softmax and attention's products like (80 tokens cost what 75 do), and of each of them the
# first multiple of 4 behind it: else a text of 65 to 68 tokens costs what 80 do, .63 of ONNX Runtime's time instead of .59.
# A bucket of a 6-layer model costs 36 kB of file, about 1 ms of launch and 1 MB of memory, whether it is used or not.
BUDGET = 15  # lengths up to 128: 540 kB of file, 13 MB of memory
_LONG = (64, 68, 80, 84, 96, 100, 112, 116, 128)
LENGTHS = (8, 16, 24, 32, 40, 48, *_LONG)
# For models asked to read more than LENGTHS. Half as many were 251 kB less of MiniLM's 512 tokens, and 8 to 14% more time for
# texts of 129, 170, 200, 260, 400 and 470 tokens.
LONGER = (144, 160, 176, 192, 208, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512)
# Where it is known how long the texts are: these, so that no text is padded by more than half or 16 tokens, and others where they
# save most: as many as BUDGET has left, LEAST at least and MORE at most.
COARSE = (16, 32, 48, *_LONG)
LEAST, MORE = 3, 6
STEP = 4
# One signature that takes every length: 9 MB less memory and a faster launch, and 0.2-0.6 ms for each change of length. No
# bucket stands beside it: the converter folds LayerNorm's scale into the kernels where it knows the length, so 6 MB of
# MiniLM's 24 would not be shared.
ANY = "any"
SAMPLED = 24  # the second length that is converted; any but the longest would do


def choose(
    most: int | None,
    target: str,
    length: int | None,
    lengths: Sequence[int] | str | None,
    trained: int | None = None,
    seen: Sequence[int] = (),
) -> tuple[int, ...]:
    """The buckets of a file, ascending, none longer than the model's `most` positions; of "any" the longest alone.

    Args:
        most: int, or None for a model without such a bound.
        trained: int, the length that the task was trained with, the longest where none is given; None: 128 at most.
        seen: how many tokens texts of the task have, some or all of them; none where nobody knows.
    Raises:
        InputError: no such lengths.
    """
    if isinstance(lengths, str) and lengths != ANY:
        raise InputError(f"lengths is {lengths!r}, expected numbers of tokens or {ANY!r}")
    fixed = () if lengths == ANY else tuple(lengths or ())
    for value in [*fixed, *((length,) if length is not None else ())]:
        if value < 3 or (most and value > most):
            wanted = f"3 to {most}: the model has {most} positions" if most else "at least 3"
            raise InputError(f"length is {value}, expected {wanted}")
    if target != "kerasbert" and lengths:
        raise InputError(f"target {target} takes one --length, expected no --lengths: it reads one subgraph")
    longest = length or max(fixed or (min(trained or LENGTHS[-1], most or trained or LENGTHS[-1]),))
    if target != "kerasbert" or lengths == ANY:
        return (longest,)
    base = (*(COARSE if seen else LENGTHS), *LONGER)
    sizes = tuple(sorted({size for size in fixed or base if size < longest} | {longest}))
    return sizes if fixed or not seen else denser(sizes, seen, min(MORE, max(LEAST, BUDGET - len(sizes))))


def depend_on_texts(target: str, lengths: Sequence[int] | str | None) -> bool:
    """Whether `choose` asks how long texts are."""
    return target == "kerasbert" and not lengths


def denser(sizes: Sequence[int], seen: Sequence[int], more: int) -> tuple[int, ...]:
    """Lengths, and others between them, so that texts are padded by as few tokens as can be.

    Args:
        sizes: int, ascending.
        seen: tokens of texts; those of more than the longest are truncated to it.
        more: int, how many may be added, multiples of STEP. Those that save nothing are not.

    >>> denser((16, 32), [3, 4, 9, 21, 22, 31], 2)
    (4, 16, 24, 32)
    """
    candidates = sorted({0, *sizes, *range(STEP, max(sizes), STEP)})
    below = np.searchsorted(np.sort(np.minimum(seen, max(sizes))), candidates, side="right")  # texts of at most so many
    fixed = np.cumsum(np.isin(candidates, sizes))  # no chosen length is passed over
    # (tokens computed, lengths added): the least for texts up to each candidate, by how many were added
    best: list[dict[int, tuple[int, tuple[int, ...]]]] = [{0: (0, ())}]
    for j in range(1, len(candidates)):
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        added = candidates[j] not in sizes
        for i in range(j):
            if fixed[j] - fixed[i] > (not added):
                continue
            padded = candidates[j] * int(below[j] - below[i])
            for count, (tokens, taken) in best[i].items():
                entry = (tokens + padded, (*taken, candidates[j]))
                if count + added <= more and (count + added not in found or entry < found[count + added]):
                    found[count + added] = entry
        best.append(found)
    # of equal sums the fewest lengths
    _, _, chosen = min((tokens, count, taken) for count, (tokens, taken) in best[-1].items())
    return chosen


def add(data: bytes, *groups: dict[int, str]) -> bytes | None:
    """A .tflite with signatures for two lengths -> one with all of them, in ascending order of length.

    Args:
        data: a file with two signatures of each group: the longest and another; of a group of one or two with all of them.
        groups: dict of length -> signature name, of the file to be: signatures that differ in their length alone.
    Returns:
        bytes, or None where a subgraph cannot be derived from two.
    """
    model = repack.read(data)
    entries = {entry.signatureKey.decode(): entry for entry in model.signatureDefs}
    graphs, kept = [], []
    for signatures in groups:
        found = _group(
            model, {length: entries[name] for length, name in signatures.items() if name in entries}, signatures
        )
        if found is None:
            return None
        for entry, graph in found:
            entry.subgraphIndex = len(graphs)
            graphs.append(graph)
            kept.append(entry)
    model.subgraphs, model.signatureDefs = graphs, kept
    return repack.write(model)


def _group(
    model: ModelT, made: dict[int, SignatureDefT], signatures: dict[int, str]
) -> list[tuple[SignatureDefT, SubGraphT]] | None:
    """The signatures of one group with their subgraphs, those that are not made derived from the two that are."""
    if made.keys() == signatures.keys() and len(made) < 3:
        return [(made[length], model.subgraphs[made[length].subgraphIndex]) for length in sorted(made)]
    if len(made) != 2 or max(made) != max(signatures):
        return None
    small, large = sorted(made)
    pair = model.subgraphs[made[small].subgraphIndex], model.subgraphs[made[large].subgraphIndex]
    if _names(made[small]) != _names(made[large]) or not same_program(model, *pair):
        return None
    if _squares(model, *pair, small, large):
        return None
    found = []
    for length in sorted(signatures):
        if length in made:
            graph = pair[length == large]
        else:
            graph = _derive(model, *pair, (length - small, large - small), length)
        if graph is None:
            return None
        graph.name = signatures[length].encode()  # else several have one name, which the converter's quantizer refuses
        entry = copy.copy(made[large])
        entry.signatureKey = signatures[length].encode()
        found.append((entry, graph))
    return found


def sample(lengths: Iterable[int]) -> tuple[int, int]:
    """The two lengths of three or more that `add` derives the others from."""
    longest = max(lengths)
    return min(set(lengths) - {longest}, key=lambda length: (abs(length - SAMPLED), length)), longest


def only(data: bytes, names: Iterable[str]) -> bytes:
    """A file with the signatures of these names alone."""
    model, names = repack.read(data), set(names)
    model.signatureDefs = [entry for entry in model.signatureDefs if entry.signatureKey.decode() in names]
    graphs = [model.subgraphs[entry.subgraphIndex] for entry in model.signatureDefs]
    for index, entry in enumerate(model.signatureDefs):
        entry.subgraphIndex = index
    model.subgraphs = graphs
    return repack.write(model)


def lengths(data: bytes) -> dict[int, str]:
    """Length -> signature name of a file with a signature for each length."""
    model = repack.read(data)
    found = {}
    for entry in model.signatureDefs:
        tensors = model.subgraphs[entry.subgraphIndex].tensors
        found[max(int(tensors[each.tensorIndex].shape[1]) for each in entry.inputs)] = entry.signatureKey.decode()
    return found


def _names(entry: SignatureDefT) -> list[tuple]:
    return sorted((part.name, part.tensorIndex) for part in [*entry.inputs, *entry.outputs])


def same_program(model: ModelT, a: SubGraphT, b: SubGraphT) -> bool:
    """Whether two subgraphs are the same operators on the same tensors, sizes aside."""
    if len(a.tensors) != len(b.tensors) or len(a.operators) != len(b.operators):
        return False
    if list(a.inputs) != list(b.inputs) or list(a.outputs) != list(b.outputs):
        return False
    for one, two in zip(a.operators, b.operators):
        if one.opcodeIndex != two.opcodeIndex or list(one.inputs) != list(two.inputs):
            return False
        if list(one.outputs) != list(two.outputs) or _options(one) != _options(two):
            return False
    return all(
        x.type == y.type and len(_shape(x)) == len(_shape(y)) and _kept(model, x) == _kept(model, y)
        for x, y in zip(a.tensors, b.tensors)
    )


def _options(operator: OperatorT) -> tuple:
    """An operator's options without the sizes, which are in its tensors too."""
    values = vars(operator.builtinOptions) if operator.builtinOptions is not None else {}
    return operator.builtinOptionsType, tuple((k, str(v)) for k, v in sorted(values.items()) if k != "newShape")


def _shape(tensor: TensorT) -> list[int]:
    return [] if tensor.shape is None else [int(size) for size in tensor.shape]


def _kept(model: ModelT, tensor: TensorT) -> bool:
    """Whether a tensor is a constant."""
    return model.buffers[tensor.buffer].data is not None


def _derive(model: ModelT, a: SubGraphT, b: SubGraphT, step: tuple[int, int], length: int) -> SubGraphT | None:
    """The subgraph at another length: every number on the line through a's and b's; None where one is not on a line."""
    s = repack.schema()
    graph = copy.copy(b)
    graph.tensors, graph.operators = [], []
    for x, y in zip(a.tensors, b.tensors):
        tensor = copy.copy(y)
        if y.shape is not None:
            tensor.shape = _line(x.shape, y.shape, step)
        if tensor.shape is None and y.shape is not None:
            return None
        if x.buffer != y.buffer and _kept(model, y):
            data = _constant(model, x, y, tensor, step, s)
            if data is None:
                return None
            tensor.buffer = len(model.buffers)
            model.buffers.append(s.BufferT())
            model.buffers[tensor.buffer].data = data
        graph.tensors.append(tensor)
    for operator in b.operators:
        operator = copy.copy(operator)
        if hasattr(operator.builtinOptions, "newShape"):
            operator.builtinOptions = copy.copy(operator.builtinOptions)
            operator.builtinOptions.newShape = None
        graph.operators.append(operator)
    return graph


def _squares(model: ModelT, a: SubGraphT, b: SubGraphT, small: int, large: int) -> bool:
    """Whether a size grows with the square of the length, as of [S, S] made flat: two lengths put it on a line as well."""
    sizes = [size for x, y in zip(a.tensors, b.tensors) for size in zip(_shape(x), _shape(y))]
    for x, y in zip(a.tensors, b.tensors):
        if y.type == repack.schema().TensorType.INT32 and _kept(model, x) and _kept(model, y):
            one, two = (np.frombuffer(model.buffers[t.buffer].data.tobytes(), "<i4") for t in (x, y))
            sizes += zip(one.tolist(), two.tolist())
    return any(i != k and i * large**2 == k * small**2 for i, k in sizes)


def _line(x: np.ndarray, y: np.ndarray, step: tuple[int, int]) -> np.ndarray | None:
    """x + (y - x) * step, for int32 vectors; None where that is not whole."""
    rise = (np.asarray(y, np.int64) - np.asarray(x, np.int64)) * step[0]
    if np.any(rise % step[1]):
        return None
    return (np.asarray(x, np.int64) + rise // step[1]).astype(np.int32)


def _constant(
    model: ModelT, x: TensorT, y: TensorT, tensor: TensorT, step: tuple[int, int], s: ModuleType
) -> np.ndarray | None:
    """Bytes of a constant at another length: the same, a beginning of the longer one, or int32 on a line."""
    one, two = model.buffers[x.buffer].data, model.buffers[y.buffer].data
    if len(one) == len(two):
        if np.array_equal(one, two):
            return two
        if x.type != s.TensorType.INT32:
            return None
        line = _line(np.frombuffer(one.tobytes(), "<i4"), np.frombuffer(two.tobytes(), "<i4"), step)
        return None if line is None else np.frombuffer(line.astype("<i4").tobytes(), np.uint8)
    whole, part, wanted = _shape(y), _shape(x), _shape(tensor)
    if not repack.is_prefix(one, two) or not repack.first_rows(whole, part):
        return None
    return two[: len(two) // math.prod(whole) * math.prod(wanted)]
