"""Ways to damage bytes, json and zip files; each takes what is good and a `random.Random`."""

import copy
import io
import json
import random
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

EXTREMES = (0, 1, -1, 2, 127, 128, 255, 32767, 65535, 65536, 2**31 - 1, -(2**31), 2**24, 0x7F800000, 0x7FC00000)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, 1e308, -1e-320, 2**31 - 1, 2**63, 10**40, float("nan"), float("inf")),
    *("", "x", "../../x", "*", "\0", "\ud800", "a\nb", "x" * 100_000, [], [[]], {}, {"": 0}),
)
DEEP = "DEEP"  # stands for a list in a list, 100,000 times


def _range(data: bytes, draw: random.Random) -> tuple[int, int]:
    """Begin and end of 1 to 4,096 bytes, short ones as often as long ones."""
    size = min(len(data), int(2 ** draw.uniform(0, 12)))
    begin = draw.randrange(len(data) - size + 1)
    return begin, begin + size


def flip(data: bytes, draw: random.Random) -> bytes:
    """One bit."""
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


def set_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to eight bytes, anywhere."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(data))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
    return bytes(changed)


def cut(data: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return data[: draw.randrange(len(data))]


def zero(data: bytes, draw: random.Random) -> bytes:
    """A range of zeros, as a lost page leaves it."""
    begin, end = _range(data, draw)
    return data[:begin] + bytes(end - begin) + data[end:]


def double(data: bytes, draw: random.Random) -> bytes:
    """A range stands there twice."""
    begin, end = _range(data, draw)
    return data[:end] + data[begin:]


def drop(data: bytes, draw: random.Random) -> bytes:
    """A range is missing."""
    begin, end = _range(data, draw)
    return data[:begin] + data[end:]


def splice(data: bytes, draw: random.Random) -> bytes:
    """A range lies over another one."""
    begin, end = _range(data, draw)
    place = draw.randrange(len(data) - (end - begin) + 1)
    return data[:place] + data[begin:end] + data[place + end - begin :]


def swap(data: bytes, draw: random.Random) -> bytes:
    """Two ranges have changed places."""
    begin, end = _range(data, draw)
    place = draw.randrange(len(data) - (end - begin) + 1)
    changed = bytearray(data)
    changed[place : place + end - begin], changed[begin:end] = data[begin:end], data[place : place + end - begin]
    return bytes(changed)


def insert(data: bytes, draw: random.Random) -> bytes:
    """Bytes that do not belong there."""
    place = draw.randrange(len(data) + 1)
    some = draw.choice((b"\0", b"\xff" * 8, b'"', b"\n", b"[" * 3000, draw.randbytes(draw.choice((1, 4, 64)))))
    return data[:place] + some + data[place:]


def extreme(data: bytes, draw: random.Random) -> bytes:
    """An aligned integer of 1, 2, 4 or 8 bytes is at an extreme; small ones are taken, which are sizes and offsets."""
    width, code = draw.choice(((1, "b"), (2, "h"), (4, "i"), (4, "i"), (8, "q")))
    for _ in range(20):
        place = draw.randrange(max(1, len(data) // width)) * width
        if 0 < int.from_bytes(data[place : place + width], "little") < 65536:
            break
    value = draw.choice(EXTREMES) & (1 << 8 * width) - 1
    written = struct.pack(f"<{code.upper()}", value)
    return data[:place] + written + data[place + width :]


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flip, flip, flip, set_bytes, cut, zero, double, drop, splice, swap, insert),
    *(extreme, extreme, extreme),
)


def damaged(data: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Bytes that differ from `data` -> (name of the mutation, bytes)."""
    while data:
        mutation = draw.choice(BYTES)
        changed = mutation(data, draw)
        if changed != data:
            return mutation.__name__, changed
    return "grown", b"\0"


def damaged_json(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """A json document in which one value, key or element is another one -> (name of the mutation, bytes)."""
    top = [json.loads(content)]
    places = list(_places(top))
    parent, key = draw.choice(places)
    ways = ["value", "value", "near", "near", "deep", "drop", "rename", "copy"]
    way = draw.choice(ways if parent is not top else ["value", "deep"])
    if way == "rename" and not isinstance(parent, dict):
        way = "near"
    if way == "value":
        parent[key] = draw.choice(VALUES)
    elif way == "near":
        parent[key] = _near(parent[key], draw)
    elif way == "rename":
        parent[f"{key}s"] = parent.pop(key)
    elif way == "deep":
        parent[key] = DEEP
    elif way == "drop":
        del parent[key]
    else:
        other, name = draw.choice(places)
        parent[key] = copy.deepcopy(other[name])
    text = json.dumps(top[0]).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    return f"json {way}", text.encode()


def _near(value: Any, draw: random.Random) -> Any:
    """A value like another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw.choice((value + 1, value - 1, value * 2, -value, 0.5, 1e30, str(value)))
    if isinstance(value, str) and value:
        place = draw.randrange(len(value))
        return draw.choice((value[:place], value[:place] + draw.choice("Aa$[:\u0301 ") + value[place + 1 :], value * 2))
    return draw.choice((None, 0, -1, [value], 2**40))


def _places(node: Any) -> Any:
    """Every (container, key) below a node."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def damaged_zip(files: dict[str, bytes], draw: random.Random) -> tuple[str, list[tuple[str, bytes]]]:
    """The members of a zip, one of them other than it was -> (name of the mutation, members)."""
    name = draw.choice(sorted(files))
    ways = ["bytes", "drop", "twice", "rename", "exchange"] + ["json"] * 6 * name.endswith(".json")
    way, members = draw.choice(ways), dict(files)
    if way == "json":
        way, members[name] = damaged_json(files[name], draw)
    elif way == "bytes":
        way, members[name] = damaged(files[name], draw)
    elif way == "drop":
        del members[name]
    elif way == "rename":
        members[draw.choice(("../x", "..", ".", "x" * 300, "a/b", "C:\\x", "x", "bundle.json/"))] = members.pop(name)
    elif way == "exchange":
        other = draw.choice(sorted(files))
        members[name], members[other] = files[other], files[name]
    return f"zip {way}", list(members.items()) + ([(name, damaged(files[name], draw)[1])] if way == "twice" else [])


def zipped(members: list[tuple[str, bytes]]) -> bytes:
    """The bytes of an uncompressed zip; a name may stand in it twice."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


def folders(
    good: Path,
    names: Sequence[str],
    count: int,
    group: str = "",
    after: Callable[[Path, random.Random], Any] | None = None,
) -> Iterator[tuple[str, str, Callable[[Path], Path]]]:
    """Copies of a folder in each of which one file is damaged, for `fuzz.run`.

    Args:
        good: the folder.
        names: of the files that are damaged, one after the other.
        count: int, copies.
        group: str, by default the name of the file.
        after: called with the copy; makes hashes anew, or damages more.
    """
    for number in range(count):
        name = names[number % len(names)]
        draw = random.Random(f"{group} {name} {number}")
        content = (good / name).read_bytes()
        damage = damaged_json if name.endswith(".json") and draw.random() < 0.7 else damaged
        way, changed = damage(content, draw)

        def write(folder: Path, name: str = name, changed: bytes = changed, draw: random.Random = draw) -> Path:
            case = shutil.copytree(good, folder / good.name)
            (case / name).write_bytes(changed)
            if after:
                after(case, draw)
            return case

        yield group or name, f"{way} {name} {number}", write
