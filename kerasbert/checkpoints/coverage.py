"""Which tensor of theirs goes where: every weight of ours is assigned once, every tensor of theirs is used, compared or named.

Anything else is an error that lists all of it: a silent random initialisation is the worst bug an import can have.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kerasbert.checkpoints.forms import Shape
from kerasbert.checkpoints.names import Dialect, matches
from kerasbert.errors import InputError


@dataclasses.dataclass(frozen=True)
class Pair:
    """A weight of ours and the tensor it is read from."""

    ours: str
    theirs: str
    transpose: bool
    shape: Shape


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What an import would do: str() is the table.

    Args:
        pairs: what is assigned.
        copies: (their tensor, the tensor of theirs that it must equal).
        ignored: their tensors that a pattern names.
        missing, extra, misshaped: lines of text; all empty where the checkpoint fits.
        headless: whether a head that the configuration declares is missing altogether.
    """

    pairs: tuple[Pair, ...]
    copies: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    misshaped: tuple[str, ...]
    headless: bool = False

    @property
    def fits(self) -> bool:
        """Whether every weight is assigned and no tensor is left over."""
        return not (self.missing or self.extra or self.misshaped)

    def problems(self, where: object) -> InputError:
        """One line that lists everything that does not fit."""
        found = [
            f"{len(lines)} {kind}: {', '.join(lines)}"
            for kind in ("missing", "extra", "misshaped")
            if (lines := getattr(self, kind))
        ]
        hint = (
            " A tensor that has no place here is dropped by ignore=[PATTERN] (--ignore PATTERN)." if self.extra else ""
        )
        if self.headless:
            hint += " A head that the file was saved without is left out by the pattern of its names."
        return InputError(f"{where} does not fit the model. {'; '.join(found)}.{hint}")

    def __str__(self) -> str:
        width = max((len(pair.ours) for pair in self.pairs), default=0)
        lines = [
            f"{pair.ours:{width}}  <- {pair.theirs} {list(pair.shape)}{' transposed' if pair.transpose else ''}"
            for pair in self.pairs
        ]
        lines += [f"equal copy: {copy} = {original}" for copy, original in self.copies]
        for kind in ("ignored", "missing", "extra", "misshaped"):
            lines += [f"{kind}: {text}" for text in getattr(self, kind)]
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in ("missing", "extra", "misshaped"))
        return "\n".join([*lines, f"{len(self.pairs)} weights assigned, {counts}"])


def cover(
    dialect: Dialect, expected: Mapping[str, Shape], found: Mapping[str, Shape], ignore: Iterable[str] = ()
) -> Coverage:
    """Which tensor of theirs goes where.

    Args:
        dialect: their names.
        expected: our name -> shape of every weight.
        found: their name -> shape of every tensor in the file.
        ignore: patterns of further tensors that the user drops, or of a head that is not there.
    """
    wanted = _wanted(dialect, expected)
    known = {*found, *(name for head in dialect.heads for name in dialect.tensors_of(head))}
    check_patterns(ignore, known)
    ignored = [name for name in sorted(found) if matches(name, (*dialect.ignored, *ignore))]
    taken, copies, extra = _taken(dialect, wanted, {name: found[name] for name in sorted(found) if name not in ignored})
    pairs, misshaped = [], []
    for theirs, name in taken.items():
        ours, shape, transpose = wanted[theirs]
        if tuple(found[name]) == shape:
            pairs.append(Pair(ours, name, transpose, shape))
        else:
            misshaped.append(f"{name} received {list(found[name])} expected {list(shape)}")
    order = {ours: index for index, ours in enumerate(expected)}
    return Coverage(
        pairs=tuple(sorted(pairs, key=lambda pair: order[pair.ours])),
        copies=tuple((copy, taken[original]) for copy, original in copies.items()),
        ignored=tuple(ignored),
        missing=tuple(f"{name} {list(shape)}" for name, (_, shape, _) in wanted.items() if name not in taken),
        extra=tuple(extra),
        misshaped=tuple(misshaped),
        headless=_headless({ours for ours, *_ in wanted.values()}, {wanted[name][0] for name in taken}),
    )


def check_patterns(ignore: Iterable[str], names: Collection[str]) -> None:
    """Refuse a pattern of tensors to drop that names none.

    Raises:
        InputError: which one.
    """
    for pattern in ignore:
        if not any(matches(name, [pattern]) for name in names):
            raise InputError(f"ignore {pattern!r} matches no tensor. Remove it or compare with the table of a dry run")


def _wanted(dialect: Dialect, expected: Mapping[str, Shape]) -> dict[str, tuple[str, Shape, bool]]:
    """Their name -> our name, its shape there, and whether it is transposed there."""
    wanted: dict[str, tuple[str, Shape, bool]] = {}
    for ours, shape in expected.items():
        theirs, transpose = dialect.theirs(ours)
        if theirs in wanted:
            raise InputError(f"{ours} and {wanted[theirs][0]} are both called {theirs} in this checkpoint format")
        wanted[theirs] = ours, tuple(reversed(shape)) if transpose else tuple(shape), transpose
    return wanted


def _taken(
    dialect: Dialect, wanted: Collection[str], found: Mapping[str, Shape]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Today's name -> the name in the file of what is wanted, copies -> their originals, and lines of what is left over."""
    taken: dict[str, str] = {}
    copies: dict[str, str] = {}
    extra: list[str] = []
    for name, shape in found.items():
        spelled = dialect.spelled(name, wanted)
        if spelled in wanted and spelled in taken:
            extra.append(f"{name} {list(shape)} (a second {taken[spelled]})")
        elif spelled in wanted:
            taken[spelled] = name
        elif original := next((each for each in dialect.originals(spelled) if each in wanted), None):
            copies[name] = original
        else:
            extra.append(f"{name} {list(shape)}")
    for copy, original in list(copies.items()):
        # some writers keep only the copy
        if original not in taken:
            taken[original] = copy
            del copies[copy]
    return taken, copies, extra


def _headless(expected: set[str], found: set[str]) -> bool:
    """Whether a head is expected of which nothing was found."""
    heads = [{name.split("/")[1] for name in names if name.startswith("heads/")} for names in (expected, found)]
    return bool(heads[0] - heads[1])
