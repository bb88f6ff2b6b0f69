"""A module of HLO read off its text: computations, instructions, how often loops turn. Standard library only."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
BYTES |= {"s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\](?:\{([^{}]*)\})?")
_TILE = re.compile(r":T\(([\d,]+)\)")
_LINE = re.compile(
    r"^\s*(?P<root>ROOT )?%?(?P<name>[\w.-]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][\w-]*)\((?P<rest>.*)$"
)
_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.-]+)|branch_computations=\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Array:
    """One array of an instruction's shape.

    Args:
        sizes: of its axes.
        size: bytes of its numbers.
        stored: bytes with the padding of its layout's tiles: of a last axis of 1 a TPU keeps 128.
        hbm: whether it lies in HBM: a layout with `S(1)` is in the chip's own memory.
    """

    sizes: tuple[int, ...]
    size: int
    stored: int
    hbm: bool

    @property
    def moved(self) -> int:
        """Bytes from or to HBM where all of it is read or written."""
        return self.stored if self.hbm else 0

    def part(self, size: float) -> float:
        """Bytes from or to HBM where `size` bytes of its numbers are read or written; more than there are is all."""
        return self.moved * min(1.0, size / self.size) if self.size else 0.0


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Args:
        name, opcode: str.
        root: whether it is the computation's result.
        arrays: of its shape, those of a tuple in a row.
        operands: their names.
        inside: what stands in the brackets behind the opcode.
        rest: what stands behind them.
    """

    name: str
    opcode: str
    root: bool
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    inside: str
    rest: str

    @property
    def called(self) -> list[str]:
        """Computations that it runs."""
        found = []
        for one, several in _CALLED.findall(self.rest):
            found += [one] if one else re.findall(r"[\w.-]+", several)
        return found


Computation = dict[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Module:
    """Computations by name, and the name of the one that the program begins with."""

    computations: dict[str, Computation]
    entry: str

    def total(self, cost: Callable[[Instruction, Computation], float]) -> float:
        """The sum of `cost` over what one run executes; a loop counts as often as it turns, of branches the dearest."""

        @functools.cache
        def of(name: str) -> float:
            there = self.computations.get(name, {})
            return sum(one(instruction, there) for instruction in there.values())

        def one(instruction: Instruction, there: Computation) -> float:
            if instruction.opcode == "while":
                return self.turns(instruction) * sum(map(of, instruction.called))
            if instruction.opcode == "call":
                return sum(map(of, instruction.called))
            if instruction.opcode == "conditional":
                return max(map(of, instruction.called), default=0)
            return cost(instruction, there)

        return of(self.entry)

    def turns(self, loop: Instruction) -> int:
        """How often a loop turns: the least bound that its condition compares with, 1 where there is none.

        TensorFlow's loops count from 0 in steps of 1.
        """
        if known := _TURNS.search(loop.rest):
            return int(known[1])
        condition = re.search(r"condition=%?([\w.-]+)", loop.rest)
        return min(self._bounds(condition[1]), default=1) if condition else 1

    def _bounds(self, name: str) -> list[int]:
        there, found = self.computations.get(name, {}), []
        for one in there.values():
            for called in one.called:
                found += self._bounds(called)
            if one.opcode == "compare" and "direction=LT" in one.rest:
                bounds = [there[operand] for operand in one.operands if operand in there]
                found += [int(x.inside) for x in bounds if x.opcode == "constant" and x.inside.isdecimal()]
        return found


def parse(text: str) -> Module:
    """The text of a module, lowered or compiled -> Module."""
    computations: dict[str, Computation] = {}
    entry, now = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            now = head["name"]
            computations[now] = {}
            entry = now if head["entry"] else entry
        elif now and (match := _LINE.match(line)):
            found = _instruction(match)
            computations[now][found.name] = found
    return Module(computations, entry)


def _instruction(match: re.Match) -> Instruction:
    rest, depth, end = match["rest"], 1, 0
    for end, letter in enumerate(rest):  # noqa: B007  # read after the loop
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            break
    operands = tuple(re.findall(r"%([\w.-]+)", rest[:end]))
    arrays = _arrays(match["shape"])
    return Instruction(match["name"], match["opcode"], bool(match["root"]), arrays, operands, rest[:end], rest[end:])


def _arrays(shape: str) -> tuple[Array, ...]:
    found = []
    for kind, sizes, layout in _ARRAY.findall(shape):
        axes, width = _numbers(sizes), BYTES.get(kind, 0)
        stored = width * math.prod(_padded(axes, layout))
        found.append(Array(axes, width * math.prod(axes), stored, "S(" not in layout))
    return tuple(found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


def _padded(axes: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Sizes of axes that a layout such as `1,0:T(8,128)` keeps in whole tiles; it names the fastest axis first."""
    tile = _TILE.search(layout)
    found = list(axes)
    if tile and axes:
        order = _numbers(layout.partition(":")[0])
        for axis, unit in zip(order, reversed(_numbers(tile[1]))):
            found[axis] = -(-axes[axis] // unit) * unit
    return tuple(found)
