"""Bytes that a compiled step moves between HBM and the chip, and what its loops repeat.

XLA's own count, "bytes accessed", takes every operand of every instruction for a read of HBM: what stays in the chip's
fast memory (VMEM, 128 MiB on v5e) too, and an array that is fetched in four slices four times in whole. It counts a loop
once, and so do its FLOPs. Neither count has the padding of tiles, which is moved with an array.
"""

import dataclasses
import math
import re

from kerasbert.tpu_check.module import Array, Computation, Instruction, Module, parse

# names and views of what is there
VIEWS = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
CUTS = {"slice", "dynamic-slice", "gather"}  # they read as much of the first operand as they give
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


def repeated_flops(text: str) -> float:
    """FLOPs of the matrix products of a lowered module that loops repeat, beyond the first turn."""
    module = parse(text)
    once = Module({name: _turning_once(there) for name, there in module.computations.items()}, module.entry)
    return module.total(_product) - once.total(_product)


def _turning_once(there: Computation) -> Computation:
    """A computation whose loops are calls."""
    loops = {name: one for name, one in there.items() if one.opcode == "while"}
    return there | {name: dataclasses.replace(one, opcode="call") for name, one in loops.items()}


def _product(one: Instruction, there: Computation) -> float:
    match = _CONTRACTED.search(one.rest)
    if one.opcode != "dot" or not match:
        return 0.0
    sizes = there[one.operands[0]].arrays[0].sizes
    contracted = math.prod(sizes[int(axis)] for axis in match[1].split(",") if axis)
    return 2.0 * math.prod(one.arrays[0].sizes) * contracted


def cycles(text: str) -> int:
    """The compiler's own estimate for one run of a compiled module."""
    return int(parse(text).total(lambda one, there: sum(map(int, _CYCLES.findall(one.rest)))))


def hbm_bytes(text: str) -> int:
    """Bytes that a compiled module reads from and writes to HBM in one run.

    Args:
        text: of a module after memory was assigned.
    """
    module = parse(text)
    return int(module.total(lambda one, there: _moved(one, there, module.computations)))


def _moved(one: Instruction, there: Computation, computations: dict[str, Computation]) -> float:
    """Bytes of one instruction that is no loop, branch or call."""
    if one.opcode in VIEWS or one.opcode.endswith("-done") or "ConcatBitcast" in one.rest:
        return 0
    given: list[tuple[Array, ...]] = [there[name].arrays if name in there else () for name in one.operands]
    if one.opcode in ("copy-start", "slice-start"):  # (to, from, flag) and (from, to, flag)
        target = one.arrays[one.opcode == "slice-start"]
        return target.moved + given[0][0].part(target.size)
    inside = computations.get(one.called[0], {}) if one.opcode == "fusion" else there
    read = sum(_read(arrays, i, one, inside, computations) for i, arrays in enumerate(given))
    return read + _written(one, inside)


def _read(
    arrays: tuple[Array, ...], place: int, one: Instruction, inside: Computation, computations: dict[str, Computation]
) -> float:
    """Bytes of an operand that are read: where it is only cut, its share that the cuts give."""
    if not any(array.moved for array in arrays):
        return 0
    if one.opcode != "fusion":
        used = _used_by(one, one.operands[place], inside, computations)
    else:
        parameter = _parameters(inside, [place])
        used = _used(parameter[0], inside, computations) if parameter else math.inf
    return sum(array.part(used) for array in arrays)


def _parameters(there: Computation, places: list[int]) -> list[str]:
    """Names of a computation's arguments at these places."""
    wanted = {str(place) for place in places}
    return [x.name for x in there.values() if x.opcode == "parameter" and x.inside in wanted]


def _used(name: str, inside: Computation, computations: dict[str, Computation]) -> float:
    """Bytes that a computation reads of one of its values; infinity for all of them."""
    if inside[name].root:
        return math.inf
    return sum(_used_by(user, name, inside, computations) for user in inside.values() if name in user.operands)


def _used_by(user: Instruction, name: str, inside: Computation, computations: dict[str, Computation]) -> float:
    """As `_used`, by one instruction."""
    if user.opcode == "bitcast":
        return _used(user.name, inside, computations)
    if user.opcode == "fusion":
        nested = computations.get(user.called[0], {})
        places = [i for i, operand in enumerate(user.operands) if operand == name]
        return sum(_used(x, nested, computations) for x in _parameters(nested, places))
    if user.operands[:1] == (name,) and user.opcode in CUTS:
        return sum(array.size for array in user.arrays)
    if user.operands[:1] == (name,) and user.opcode == "dynamic-update-slice":
        return 0  # written in place
    return math.inf


def _written(one: Instruction, inside: Computation) -> float:
    """Bytes of the results; of one that is updated in place those of the update."""
    root = next((x for x in inside.values() if x.root), one) if one.opcode == "fusion" else one
    makers = [inside.get(name) for name in root.operands] if root.opcode == "tuple" else [root] * len(one.arrays)
    return sum(array.part(_update(maker, inside)) for array, maker in zip(one.arrays, makers))


def _update(maker: Instruction | None, inside: Computation) -> float:
    """Bytes that a result takes in where it is an array with another written into it; else infinity."""
    while maker is not None and maker.opcode == "bitcast":
        maker = inside.get(maker.operands[0])
    if maker is None or maker.opcode != "dynamic-update-slice" or maker.operands[1] not in inside:
        return math.inf
    return sum(array.size for array in inside[maker.operands[1]].arrays)
