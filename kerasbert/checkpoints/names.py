"""What others call the weights and settings of a family: rows that stand beside each model as data."""

import dataclasses
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kerasbert.checkpoints.buffers import Expected
from kerasbert.checkpoints.forms import Form
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    import numpy as np

    from kerasbert.checkpoints.readers import Reader
    from kerasbert.spec import Spec


TORCH_LEAVES: Mapping[str, tuple[str, ...]] = {  # as torch calls the weights of its modules, a matrix [out, in]
    "kernel": (".weight", "T"),
    "bias": (".bias",),
    "gamma": (".weight",),
    "beta": (".bias",),
    "table": (".weight",),
}
GATED: Mapping[str, str] = {  # as Hugging Face calls the activation of a gated network -> ours
    "silu": "gated_swish",
    "gelu": "gated_gelu",
    "gelu_new": "gated_gelu_tanh",
    "relu": "gated_relu",
    "swish": "gated_swish",  # other names of theirs for these; the first is written
    "gelu_python": "gated_gelu",
    "gelu_pytorch_tanh": "gated_gelu_tanh",
    "gelu_fast": "gated_gelu_tanh",
}


LIST = "list"  # third item of a row of `Dialect.config`


@dataclasses.dataclass(frozen=True)
class Class:
    """A class of theirs.

    Args:
        heads: names of those that it has.
        pooler: whether it has one.
        rows: (ours, theirs) that go before the others in its files.
        shapes: its heads that are not as in `Dialect.heads`.
        fixed: what is `Dialect.fixed` for it besides.
        refused: why nothing here computes it; "" for a class that is computed.
        without: patterns of the tensors of its heads, of a refused class whose encoder is computed here.
        numbers: whether it gives the second text and what stands behind it the segment 1, whatever its tokenizer says.
    """

    heads: tuple[str, ...] = ()
    pooler: bool = True
    rows: tuple[tuple[str, ...], ...] = ()
    shapes: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    refused: str = ""
    without: tuple[str, ...] = ()
    numbers: bool = False


def of_family(classes: Mapping[str, Class], old: str, new: str) -> dict[str, Class]:
    """The classes of another family that has the same, by its name in theirs: `Bert` -> `Ernie`."""
    return {name.replace(old, new): each for name, each in classes.items()}


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How others write down a family: the names of its weights and the keys of its configuration.

    A paper whose files are read or written by a rule of its own has a subclass that overrides `reads`, `read_config`,
    `write_config`, `written`, `computes`, `in_file` or `copied`.

    Args:
        rows: (ours, theirs) of a layer or of one weight, (ours, theirs, "T") where theirs is transposed; `{i}` is the
            number of the block, `{j}` of a part in it.
        leaves: what the weights of a layer are called: our leaf -> (their suffix,) or (their suffix, "T").
        heads: head name -> {weight: shape}, the shape in the letters E, H, R (H - E), V, L (labels), F or numbers; None for a
            head of ours that their format has no place for, which is left out on export.
        config: (path in the Spec, their key), with a third item n where ours is n times theirs (and is not written), or
            `LIST` where theirs may be one.
        fixed: their key -> the only value that this family can compute, or a function of the configuration that tells.
        silent: their key -> what holds where a configuration lacks it, or a function of the configuration that tells.
        values: their key -> {their value: ours}, of those that are written otherwise; of an activation all that there are.
        classes: their class name -> what it is (the first that fits is written on export).
        model_types: other families of theirs that compute the same under the same names (camembert is roberta).
        prefix: start of their names that a bare encoder's file leaves out.
        renames: (regular expression, replacement): other spellings of a part of their names -> today's.
        tied: their name -> the name it must be an equal copy of, or several of which the first that a model has.
        ignored: patterns of tensors that are no weights -> what belongs there (`buffers`), which is compared, or None where
            nothing reads them (optimizer slots).
        stored: their name of such a tensor that their classes load -> what an export writes there, of the Spec.
        forms: patterns of tensors that are stored in another form than ours -> it (`forms`); rows name the parts of one that
            holds several with `#0`, `#1` after the name of the layer.
        spec: what the family's Spec is in these files where it is not the usual one.
        special: their key -> the part of the tokenizer whose id an export writes there.
        unprojected: whether E = H means in their files, as in ours, that embeddings are not projected.
        unread: patterns of their keys that change no number, beside those of all families (`closed`) -> why not; of a key of
            training alone, the values at which an import says nothing of it.
    """

    # what no configuration says, of the Spec: what computes it is told at each call; the tensors of a file say it (`in_file`)
    by_call: ClassVar[tuple[str, ...]] = ()
    by_file: ClassVar[tuple[str, ...]] = ()
    # copies in `tied` that they store and compute nothing with
    spare: ClassVar[tuple[str, ...]] = ()
    # objects of their configuration whose keys are read and written as `encoder.hidden_size`
    halves: ClassVar[tuple[str, ...]] = ()

    rows: tuple[tuple[str, ...], ...]
    leaves: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Mapping[str, str] | None]
    config: tuple[tuple, ...]
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    silent: Mapping[str, object] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Mapping[Any, object]] = dataclasses.field(default_factory=dict)
    classes: Mapping[str, Class] = dataclasses.field(default_factory=dict)
    model_types: tuple[str, ...] = ()
    prefix: str = ""
    renames: tuple[tuple[str, str], ...] = ()
    tied: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ignored: Mapping[str, Expected | None] = dataclasses.field(default_factory=dict)
    stored: Mapping[str, Callable[..., "np.ndarray"]] = dataclasses.field(default_factory=dict)
    forms: Mapping[str, Form] = dataclasses.field(default_factory=dict)
    spec: JsonMap = dataclasses.field(default_factory=dict)
    special: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unprojected: bool = False
    unread: Mapping[str, str | tuple[object, ...]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_names(cls, other: "Dialect") -> Self:
        """The names of another with the methods of this class."""
        return cls(**{field.name: getattr(other, field.name) for field in dataclasses.fields(Dialect)})

    # What one paper may override

    def reads(self, config: JsonMap) -> bool:
        """Whether a configuration of its `model_types` is of this family, where several have one of these types."""
        return True

    def read_config(self, config: Json) -> Json:
        """Their configuration as `config` reads it; what it is silent about was filled in."""
        return config

    def write_config(self, config: Json, spec: "Spec") -> Json:
        """What is written, of a configuration as `config` writes it: the inverse of `read_config`, and keys that are not read."""
        return config

    def written(self, spec: "Spec") -> JsonMap:
        """Paths of the Spec -> what an export writes there, where ours may leave it to the rest."""
        return {}

    def computes(self, kind: str, spec: "Spec") -> bool:
        """Whether their class `kind` computes what a model of the Spec does: classes that differ in more than heads."""
        return True

    def in_file(self, spec: "Spec", tensors: "Reader") -> "Spec":
        """The Spec with what the tensors of a file say (paths in `by_file`); `tensors` is its Reader."""
        return spec

    def copied(self, theirs: Collection[str]) -> Mapping[str, str]:
        """Their names of what an export writes a second time -> of what, by the names of what it writes once."""
        return {copy: self.originals(copy)[0] for copy in self.spare if self.originals(copy)[0] in theirs}

    def derive(self, *replace: tuple[str, str], rows: tuple[tuple[str, ...], ...] = (), **changes: Any) -> Self:
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
            "ignored": {renamed(pattern): expected for pattern, expected in self.ignored.items()},
            "stored": {renamed(name): made for name, made in self.stored.items()},
        }
        return dataclasses.replace(self, **(names | changes))

    def class_of(self, architecture: str | None) -> str | None:
        """The class whose heads a class of theirs has: the known one that ends alike, such as `...ForMaskedLM`.

        >>> ROBERTA = Dialect((), {}, {}, (), classes={"RobertaModel": Class(), "RobertaForMaskedLM": Class(("mlm",))})
        >>> ROBERTA.class_of("CamembertForMaskedLM"), ROBERTA.class_of("RobertaForCausalLM")
        ('RobertaForMaskedLM', 'RobertaForCausalLM')
        """
        if architecture is None or architecture in self.classes:
            return architecture
        ending = _ending(architecture)
        return next((name for name in self.classes if ending and _ending(name) == ending), architecture)

    @property
    def architectures(self) -> dict[str, tuple[str, ...]]:
        """Classes of theirs that are computed here -> their heads."""
        return {name: each.heads for name, each in self.classes.items() if not each.refused}

    def pooled(self, architecture: str | None) -> bool:
        """Whether a class of theirs has a pooler."""
        return self.classes.get(architecture or "", Class()).pooler

    @property
    def own_heads(self) -> tuple[str, ...]:
        """Heads of ours that their format has no place for."""
        return tuple(name for name, shapes in self.heads.items() if shapes is None)

    def shapes(self, head: str) -> Mapping[str, str]:
        """Shapes of a head that their format has, in letters."""
        return self.heads[head] or {}

    def of(self, architecture: str | None) -> Self:
        """The names and heads in files of one class of theirs.

        Raises:
            InputError: nothing here computes that class.
        """
        own = self.classes.get(architecture or "", Class())
        if own.refused:
            bare = next((name for name, each in self.classes.items() if not (each.heads or each.refused)), None)
            ignored = " ".join(f"--ignore '{pattern}'" for pattern in own.without)
            alone = (
                f". For its encoder write {bare} as architectures of config.json, import with {ignored} and fine-tune"
            )
            raise InputError(f"{architecture} {own.refused}: no such model here{alone if ignored else ''}")
        more = {
            "rows": (*own.rows, *self.rows),
            "heads": {**self.heads, **own.shapes},
            "fixed": {**self.fixed, **own.fixed},
        }
        return dataclasses.replace(self, **more)

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

    def spelled(self, name: str, known: Collection[str]) -> str:
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
        any where the file is a bare encoder's, without the prefix, or one of which the file holds only what a head of the
        class has too (ModernBERT's layer in front of labels and masked tokens).
        """
        if architecture is not None and self.architectures and architecture not in self.architectures:
            return []
        names, ignore = set(names), tuple(ignore)
        whole = any(name.startswith(self.prefix) for name in names)
        declared = self.architectures.get(architecture or "", ()) if whole else ()
        theirs = {head: self.tensors_of(head) for head in self.heads if head not in self.own_heads}
        taken = {name for head in declared for name in theirs.get(head, ())}
        return [
            head
            for head, tensors in theirs.items()
            if (head in declared and not all(matches(name, ignore) for name in tensors))
            or names & (tensors if head in declared else tensors - taken)
        ]

    def tensors_of(self, head: str) -> set[str]:
        """Their names of a head's weights."""
        return {self.theirs(f"heads/{head}/{weight}")[0] for weight in self.shapes(head)}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a shell pattern (`*`, `?`) names the tensor."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _ending(architecture: str) -> str | None:
    """What a class is for: `ForMaskedLM`, `WithLMHeadModel`, `Model`."""
    found = re.search(r"For[A-Z]\w*$|WithLMHeadModel$|Model$", architecture)
    return found[0] if found else None
