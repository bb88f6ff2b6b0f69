"""The character map of a SentencePiece model: strings that become others, as a double array (Aoe, 1989; darts-clone).

A unit holds the byte that leads to it, whether a value lies below and where its children are.
"""

import struct
from array import array
from collections.abc import Mapping

from kerasbert.errors import InputError

LEAF, MATCH = 0x100, 0x800000FF  # bits of a unit: a value is below; what must equal the byte read
FREE = 1 << 31  # a unit that no byte matches
STEPS = 1 << 16  # kept in memory, at most
VALUE = -1  # label of a string's end in the tree
BLOCK, WINDOW = 256, 4096  # units: what an array grows by, where a free place is looked for
KEY = 256  # bytes of a rule's string, at most
VISITS = 1 << 19  # nodes of a tree of rules, at most: a damaged one may go round
LIMIT = 1 << 21  # of the relative positions that a unit holds as they are
DAMAGED_MAP = "damaged: the character map of the SentencePiece model is cut off or changed. Download it again"


class Charsmap:
    """Compiled normalisation rules: the longest of its strings that a text continues with becomes another string.

    >>> rules = Charsmap(compile_charsmap({"``": '"', "E": "e"}))
    >>> rules.longest("``E", 0), rules.longest("``E", 2), rules.longest("x", 0)
    ((2, '"'), (1, 'e'), (1, 'x'))
    """

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        if data and (size % 4 or not 0 < size <= len(data) - 4):
            raise InputError(DAMAGED_MAP)
        self._units = array("I", data[4 : 4 + size])
        if struct.pack("=I", 1) != struct.pack("<I", 1):
            self._units.byteswap()
        self._values = data[4 + size :]
        if self._values and self._values[-1]:
            raise InputError(DAMAGED_MAP)
        self._steps: dict[tuple[int, str], tuple[int, str | None]] = {}
        self.root = _relative(self._units[0]) if self._units else -1

    def step(self, node: int, character: str) -> tuple[int, str | None]:
        """(node, replacement) after one more character; -1 where no string begins like this, None where none ends here."""
        found = self._steps.get((node, character))
        if found is None:
            if len(self._steps) > STEPS:
                self._steps.clear()
            found = self._steps[node, character] = self._step(node, character)
        return found

    def _step(self, node: int, character: str) -> tuple[int, str | None]:
        units, unit = self._units, 0
        if node < 0:
            return -1, None
        for byte in character.encode():
            node ^= byte
            if node >= len(units) or units[node] & MATCH != byte:
                return -1, None
            unit = units[node]
            node ^= _relative(unit)
        return node, self._value(node) if unit & LEAF else None

    def _value(self, node: int) -> str:
        """The string at the node below a leaf."""
        try:
            position = self._units[node] & 0x7FFFFFFF
            return self._values[position : self._values.index(0, position)].decode()
        except (IndexError, ValueError):  # of UnicodeDecodeError too
            raise InputError(DAMAGED_MAP) from None

    def longest(self, text: str, at: int) -> tuple[int, str]:
        """(characters read, what becomes of them) by the longest string; one character stays as it is without one."""
        begin, end = at, len(text)
        node, value = self.step(self.root, text[at])
        at += 1
        read, found = 1, text[begin] if value is None else value
        while node >= 0 and at < end:
            node, value = self.step(node, text[at])
            at += 1
            if value is not None:
                read, found = at - begin, value
        return read, found

    def rules(self) -> dict[str, str]:
        """All of it as string -> string (takes a tenth of a second)."""
        children: dict[int, list[int]] = {}
        for i, unit in enumerate(self._units):
            if not unit >> 31:
                children.setdefault(i ^ unit & 0xFF, []).append(i)
        rules, stack = {}, [(b"", self.root)] if self._units else []
        visits = 0
        while stack:
            key, base = stack.pop()
            visits += 1
            if visits > VISITS or len(key) > KEY:
                raise InputError(DAMAGED_MAP)
            for i in children.get(base, ()):
                unit = self._units[i]
                if i == 0 or not unit & 0xFF:
                    continue
                longer, below = key + bytes([unit & 0xFF]), i ^ _relative(unit)
                if unit & LEAF:
                    try:
                        rules[longer.decode()] = self._value(below)
                    except UnicodeDecodeError:
                        raise InputError(DAMAGED_MAP) from None
                stack.append((longer, below))
        return rules


def _relative(unit: int) -> int:
    """Distance (exclusive or) from a unit to its children."""
    return (unit >> 10) << ((unit & 0x200) >> 6)


def compile_charsmap(rules: dict[str, str]) -> bytes:
    """String -> string as a double array, the inverse of `Charsmap.rules`. Equal subtrees and values are stored once."""
    values, places = bytearray(), {}
    for value in sorted(set(rules.values())):
        places[value] = len(values)
        values += value.encode() + b"\0"
    nodes, root = _nodes({key: places[value] for key, value in rules.items()})
    units = _DoubleArray()
    base_of: dict[int, int] = {}
    stack = [(0, root, 0)]
    while stack:
        at, number, label = stack.pop()
        node = nodes[number]
        new = number not in base_of
        if new:
            base_of[number] = units.place([0 if child == VALUE else child for child, _ in node])
        base = base_of[number]
        if at ^ base >= LIMIT:
            raise InputError(f"{len(rules)} normalisation rules are too many for a character map")
        ends = dict(node).get(VALUE)
        units.units[at] = (at ^ base) << 10 | label | (LEAF if ends is not None else 0)
        if new:
            if ends is not None:
                units.units[base] = ends | 1 << 31
            stack += [(base ^ child, below, child) for child, below in node if child != VALUE]
    packed = units.packed()
    return struct.pack("<I", len(packed)) + packed + bytes(values)


def _nodes(places: Mapping[str, int]) -> tuple[list[tuple], int]:
    """The tree of the bytes of some keys, each subtree once: (the (label, number below or value) of each node, the root)."""
    tree: dict = {}
    for key, place in sorted(places.items()):
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[VALUE] = place
    numbers: dict[tuple, int] = {}  # what is below a node -> its number
    nodes: list[tuple] = []

    def intern(node: dict) -> int:
        content = tuple((label, below if label == VALUE else intern(below)) for label, below in node.items())
        if content not in numbers:
            numbers[content] = len(nodes)
            nodes.append(content)
        return numbers[content]

    return nodes, intern(tree)


class _DoubleArray:
    """Units that are filled, and which of them are taken."""

    def __init__(self) -> None:
        self.units = array("I", [FREE]) * BLOCK
        self.taken = bytearray(BLOCK)
        self.bases: set[int] = set()
        self.taken[0] = 1  # the root's unit, which has no label

    def place(self, labels: list[int]) -> int:
        """A base whose units for these labels are all free, near the end."""
        first, *others = labels
        taken, at = self.taken, max(1, len(self.units) - WINDOW)
        while True:
            if at + BLOCK > len(taken):
                self.units.extend([FREE] * BLOCK)
                taken.extend(bytes(BLOCK))
            at = taken.find(0, at)
            base = at ^ first
            if at >= 0 and base and base not in self.bases and not any(taken[base ^ label] for label in others):
                for label in labels:
                    taken[base ^ label] = 1
                self.bases.add(base)
                return base
            at = at + 1 if at >= 0 else len(taken)

    def packed(self) -> bytes:
        """The units as the file has them, little-endian."""
        if struct.pack("=I", 1) != struct.pack("<I", 1):
            self.units.byteswap()
        return self.units.tobytes()
