"""A checkpoint of others as a model of ours: what would go where (`Plan`), and what was read (`Imported`)."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints.coverage import Coverage, Pair
from kerasbert.checkpoints.directory import Weights, built, named_weights
from kerasbert.checkpoints.forms import Shape
from kerasbert.checkpoints.readers import Reader
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


@dataclasses.dataclass
class Imported:
    """A model of others in our names, not written and not built yet.

    Args:
        family: its family. name: `family/size` or `family`.
        encoder: its Weights, or a built Keras model.
        heads: head name -> {weight: float32 array}.
        task: json of the task of its heads, or None.
        described: tokenizer, labels, source and what else `directory.ModelParts` has; a task of vectors is there alone.
    """

    family: registry.Family
    name: str
    encoder: "SpecModel | Weights"
    heads: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    task: Json | None = None
    described: Json = dataclasses.field(default_factory=dict)

    def build(self) -> "SpecModel":
        """The Keras model; it takes its arrays with it."""
        encoder = self.encoder
        if isinstance(encoder, Weights):
            from kerasbert.layers import initial

            arrays = dict(encoder.arrays)
            with initial.unset():
                encoder = built(self.family, encoder.spec, self.name)
            self.encoder = encoder
            for weight, variable in named_weights(encoder).items():
                variable.assign(arrays.pop(weight))
        encoder.model_name, encoder.heads, encoder.task = self.name, self.heads, self.task
        for name in ("labels", "tokenizer", "source", "generation"):
            setattr(encoder, name, self.described.get(name))
        return encoder


@dataclasses.dataclass
class Plan:
    """What an import would do.

    Args:
        coverage: which tensor goes where; None where a model is made of one of ours. problem: why it does not fit, or None.
        tensors: the Reader of what goes.
        family, name, spec: of the model.
        task, described: as of `Imported`. heads: those that are no tensors of the Reader, as of `Imported`.
        tensor: (pair, their array) -> ours.
        convert: Imported -> Imported of another family (`Family.made_of`).
    """

    coverage: Coverage | None
    problem: InputError | None = None
    tensors: "Reader | None" = None
    family: registry.Family | None = None
    name: str = ""
    spec: specs.Spec | None = None
    task: Json | None = None
    described: Json = dataclasses.field(default_factory=dict)
    heads: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    tensor: Callable[[Pair, np.ndarray], np.ndarray] = lambda pair, values: values.T if pair.transpose else values
    convert: Callable[[Imported], Imported] | None = None

    def dry_run(self) -> Coverage:
        """Which tensor would go where; of what fits each is read, and numbers that are not finite are refused.

        Raises:
            InputError: also where no tensor of others is read.
        """
        if self.coverage is None:
            raise InputError(f"a {self.name} is made of weights and words as they are: leave dry_run out (--dry-run)")
        for pair in self.coverage.pairs if self.problem is None else ():
            _finite(cast("Reader", self.tensors), pair.theirs)
        return self.coverage

    def read(self) -> Imported:
        """The model in our names.

        Raises:
            InputError: it does not fit; a number that is not finite.
        """
        if self.problem is not None:
            raise self.problem
        arrays: dict[str, np.ndarray] = {}
        heads = dict(self.heads)
        for pair in self.coverage.pairs if self.coverage else ():
            read = _finite(cast("Reader", self.tensors), pair.theirs)
            values = np.array(self.tensor(pair, read), "float32", order="C")
            if pair.ours.startswith("heads/"):
                _, head, weight = pair.ours.split("/", 2)
                heads.setdefault(head, {})[weight] = values
            else:
                arrays[pair.ours] = values
        assert self.family is not None  # a plan without one has a problem
        weights = Weights(cast(specs.Spec, self.spec), arrays)  # without a spec `convert` reads nothing of it
        made = Imported(self.family, self.name, weights, heads, self.task, self.described)
        return made if self.convert is None else self.convert(made)


def _finite(reader: Reader, name: str) -> np.ndarray:
    values = reader.read(name)
    if not np.isfinite(values).all():
        raise InputError(f"{name} holds values that are not finite: the checkpoint is damaged")
    return values


def shapes_of(family: registry.Family, spec: specs.Spec) -> dict[str, Shape]:
    """Shapes of an encoder's weights, nothing allocated."""
    from kerasbert.layers.naming import unallocated

    with unallocated():
        return {name: tuple(variable.shape) for name, variable in named_weights(built(family, spec)).items()}


def name_of(family: registry.Family, spec: specs.Spec) -> str:
    """`family/size` where a size has exactly these dimensions, else the family."""
    rates = {"dropout", "attention.dropout", "initializer", "pooler"}
    rates |= {path for dialect in family.names.values() for path in dialect.by_call}
    for size in family.sizes:
        if set(specs.differences(family.size(size), spec)) <= rates:
            return f"{family.name}/{size}"
    return family.name
