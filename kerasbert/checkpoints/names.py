"""Checkpoint names: rows that stand beside each model as data, and the rule that a file must fit them exactly.

Every weight of ours is assigned once; every tensor of theirs is used, a checked copy, or named in `ignore`. Anything
else is an error that lists all of it: a silent random initialisation is the worst bug an import can have.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kerasbert.errors import InputError

Shape = tuple[int, ...]
TORCH_LEAVES: Mapping[str, tuple[str, ...]] = {  # as torch calls the weights of its modules, a matrix [out, in]
    "kernel": (".weight", "T"),
    "bias": (".bias",),
    "gamma": (".weight",),
    "beta": (".bias",),
    "table": (".weight",),
}


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How others write down a family: the names of its weights and the keys of its configuration.

    Args:
        rows: (ours, theirs) of a layer or of one weight, (ours, theirs, "T") where theirs is transposed; `{i}` is the
            number of the block, `{j}` of a part in it.
        leaves: what the weights of a layer are called: our leaf -> (their suffix,) or (their suffix, "T").
        heads: head name -> {weight: shape}, the shape in the letters E, H, R (H - E), V, L (labels) or numbers.
        config: (path in the Spec, their key), or with a third item n where ours is n times theirs (and is not written).
        fixed: their key -> the only value that this family can compute.
        architectures: their class name -> heads it has (the first that fits is written on export).
        without_pooler: class names of theirs that have no pooler.
        model_types: other families of theirs that compute the same under the same names (camembert is roberta).
        prefix: start of their names that a bare encoder's file leaves out.
        renames: (regular expression, replacement): other spellings of a part of their names -> today's.
        tied: their name -> the name it must be an equal copy of, or several of which the first that a model has.
        ignore: patterns of tensors that are no weights (buffers, optimizer slots).
        unprojected: whether E = H means in their files, as in ours, that embeddings are not projected.
        own_heads: heads of ours that their format has no place for; they are left out on export.
        rows_of: class name of theirs -> rows that go before the others in its files.
        heads_of: class name of theirs -> its heads that are not as in `heads`.
        refused: class name of theirs -> why nothing here computes it.
        spec: what the family's Spec is in these files where it is not the usual one.
        implied: (their key, its value) -> changes of the Spec that come with it.
        silent: their key -> what holds where a configuration lacks it, or a function of the configuration that tells.
        untied: their name of a copy in `tied` -> changes of the Spec where the file's differs: a weight of its own; {} where
            nothing of theirs computes with it.
        activations: their name of an activation -> ours, all that there are; empty for `config.ACTIVATIONS`.
        present: their tensor -> changes of the Spec where a file holds it.
        shift: their key -> what ours is more than theirs.
        joined: patterns of their tensors -> how many of ours each holds side by side on its last axis; rows name the parts
            with `#0`, `#1` after the name of the layer.
        stacked: as `joined`, of tensors that hold ours on their first axis.
        none: their key -> what stands there for None, or a function of the configuration that tells.
        leading: patterns of their tensors with one axis of 1 more than ours, the first.
        by_head: patterns of their tensors [H, N, D], ours [H, N*D].
        values: their key -> {their value: ours}, of those that are written otherwise.
        special: their key -> the part of the tokenizer whose id an export writes there.
        by_class: paths of the Spec that their files do not say: what computes them is told at each call.
        by_layer: their keys that may have one value per layer.
        added: their key -> what an export writes there besides, or a function of the Spec that tells; not read.
        lists: paths in the Spec whose several values their format writes as a list.
        written: path in the Spec -> function of the Spec: what an export writes there, where ours may leave it to the rest.
        fixed_of: class name of theirs -> what is `fixed` for it besides.
    """

    rows: tuple[tuple[str, ...], ...]
    leaves: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Mapping[str, str]]
    config: tuple[tuple, ...]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    architectures: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    without_pooler: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    prefix: str = ""
    renames: tuple[tuple[str, str], ...] = ()
    tied: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    unprojected: bool = False
    own_heads: tuple[str, ...] = ()
    rows_of: Mapping[str, tuple[tuple[str, ...], ...]] = dataclasses.field(default_factory=dict)
    heads_of: Mapping[str, Mapping[str, Mapping[str, str]]] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    implied: Mapping[tuple[str, Any], Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    silent: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    untied: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    present: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    activations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shift: Mapping[str, int] = dataclasses.field(default_factory=dict)
    joined: Mapping[str, int] = dataclasses.field(default_factory=dict)
    stacked: Mapping[str, int] = dataclasses.field(default_factory=dict)
    none: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    leading: tuple[str, ...] = ()
    by_head: tuple[str, ...] = ()
    values: Mapping[str, Mapping[Any, Any]] = dataclasses.field(default_factory=dict)
    special: Mapping[str, str] = dataclasses.field(default_factory=dict)
    added: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    by_class: tuple[str, ...] = ()
    by_layer: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_of: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def derive(self, *replace: tuple[str, str], rows: tuple[tuple[str, ...], ...] = (), **changes: Any) -> "Dialect":
        """Another family's names as a difference: parts of their names replaced, rows that go before the others.

        >>> BERT = Dialect(rows=(("pooler", "bert.pooler.dense"),), leaves={"bias": (".bias",)}, heads={}, config=())
        >>> BERT.derive(("bert.", "electra.")).theirs("pooler/bias")
        ('electra.pooler.dense.bias', False)
        """

        def renamed(name: str) -> str:
            for old, new in replace:
                name = name.replace(old, new)
            return name

        names = {
            "rows": (*rows, *((ours, renamed(theirs), *rule) for ours, theirs, *rule in self.rows)),
            "tied": {renamed(copy): tuple(map(renamed, self.originals(copy))) for copy in self.tied},
            "prefix": renamed(self.prefix),
            "ignore": tuple(map(renamed, self.ignore)),
        }
        return dataclasses.replace(self, **(names | changes))

    def class_of(self, architecture: str | None) -> str | None:
        """The class whose heads a class of theirs has: the known one that ends alike, such as `...ForMaskedLM`.

        >>> ROBERTA = Dialect((), {}, {}, (), architectures={"RobertaModel": (), "RobertaForMaskedLM": ("mlm",)})
        >>> ROBERTA.class_of("CamembertForMaskedLM"), ROBERTA.class_of("RobertaForCausalLM")
        ('RobertaForMaskedLM', 'RobertaForCausalLM')
        """
        known = (*self.architectures, *self.without_pooler, *self.refused)
        if architecture is None or architecture in known:
            return architecture
        ending = _ending(architecture)
        return next((name for name in known if ending and _ending(name) == ending), architecture)

    def of(self, architecture: str | None) -> "Dialect":
        """The names and heads in files of one class of theirs.

        Raises:
            InputError: nothing here computes that class.
        """
        name = architecture or ""
        if name in self.refused:
            raise InputError(f"{name} {self.refused[name]}: no such model here")
        rows, heads = (*self.rows_of.get(name, ()), *self.rows), {**self.heads, **self.heads_of.get(name, {})}
        fixed = {**self.fixed, **self.fixed_of.get(name, {})}
        return dataclasses.replace(self, rows=rows, heads=heads, fixed=fixed, rows_of={}, heads_of={})

    def theirs(self, name: str) -> tuple[str, bool]:
        """Their name of our weight, and whether their matrix is ours transposed.

        Raises:
            InputError: no row holds the weight: their format has no place for it.
        """
        for ours, theirs, *rule in self.rows:
            pattern = re.escape(ours)
            for number in "ij":
                pattern = pattern.replace(re.escape(f"{{{number}}}"), rf"(?P<{number}>\d+)")
            found = re.fullmatch(rf"{pattern}(?:/(?P<leaf>[^/]+))?", name)
            if found and (found["leaf"] is None or found["leaf"] in self.leaves):
                suffix, *leaf_rule = self.leaves[found["leaf"]] if found["leaf"] else ("",)
                for number in "ij":
                    theirs = theirs.replace(f"{{{number}}}", found.groupdict().get(number) or "")
                return theirs + suffix, "T" in (*rule, *leaf_rule)
        raise InputError(f"the weight {name} has no name in this checkpoint format: it cannot be read or written there")

    def spelled(self, name: str, known: Iterable[str]) -> str:
        """Their name in today's spelling, with the prefix where only that makes it known."""
        for old, new in self.renames:
            name = re.sub(old, new, name)
        return self.prefix + name if name not in known and self.prefix + name in known else name

    def originals(self, name: str) -> tuple[str, ...]:
        """What a tensor of theirs may be a copy of: `tied`."""
        found = self.tied.get(name, ())
        return (found,) if isinstance(found, str) else found

    def heads_in(self, names: Iterable[str], architecture: str | None, ignore: Iterable[str] = ()) -> list[str]:
        """Heads of which the file holds at least one tensor, and those that its class has.

        A class of theirs that is not in `architectures` may use a head's names for something else (`classifier` of a
        token classifier), so none of its heads is taken. Neither is a head of the class whose every tensor is ignored,
        or any where the file is a bare encoder's, without the prefix.
        """
        if architecture is not None and self.architectures and architecture not in self.architectures:
            return []
        names, ignore = set(names), tuple(ignore)
        whole = any(name.startswith(self.prefix) for name in names)
        declared = self.architectures.get(architecture or "", ()) if whole else ()
        theirs = {head: self.tensors_of(head) for head in self.heads}
        return [
            head
            for head, tensors in theirs.items()
            if names & tensors or (head in declared and not all(matches(name, ignore) for name in tensors))
        ]

    def tensors_of(self, head: str) -> set[str]:
        """Their names of a head's weights."""
        return {self.theirs(f"heads/{head}/{weight}")[0] for weight in self.heads[head]}


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

    def problems(self, where: Any) -> InputError:
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


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a shell pattern (`*`, `?`) names the tensor."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


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
    wanted = {}
    for ours, shape in expected.items():
        theirs, transpose = dialect.theirs(ours)
        if theirs in wanted:
            raise InputError(f"{ours} and {wanted[theirs][0]} are both called {theirs} in this checkpoint format")
        wanted[theirs] = ours, tuple(reversed(shape)) if transpose else tuple(shape), transpose
    known = {*found, *(name for head in dialect.heads for name in dialect.tensors_of(head))}
    for pattern in ignore:
        if not any(matches(name, [pattern]) for name in known):
            raise InputError(f"ignore {pattern!r} matches no tensor. Remove it or compare with the table of a dry run")

    taken, copies, ignored, extra, misshaped = {}, {}, [], [], []
    for name in sorted(found):
        spelled = dialect.spelled(name, wanted)
        if matches(name, (*dialect.ignore, *ignore)):
            ignored.append(name)
        elif spelled in wanted and spelled in taken:
            extra.append(f"{name} {list(found[name])} (a second {taken[spelled]})")
        elif spelled in wanted:
            taken[spelled] = name
        elif original := next((each for each in dialect.originals(spelled) if each in wanted), None):
            copies[name] = original
        else:
            extra.append(f"{name} {list(found[name])}")
    for copy, original in list(copies.items()):
        # some writers keep only the copy
        if original not in taken:
            taken[original] = copy
            del copies[copy]

    pairs = []
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


def _headless(expected: set[str], found: set[str]) -> bool:
    """Whether a head is expected of which nothing was found."""
    heads = [{name.split("/")[1] for name in names if name.startswith("heads/")} for names in (expected, found)]
    return bool(heads[0] - heads[1])


def _ending(architecture: str) -> str | None:
    """What a class is for: `ForMaskedLM`, `WithLMHeadModel`, `Model`."""
    found = re.search(r"For[A-Z]\w*$|WithLMHeadModel$|Model$", architecture)
    return found[0] if found else None
