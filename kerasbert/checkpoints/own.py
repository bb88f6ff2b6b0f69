"""Formats of our own that become a model of another family: a model directory, word vectors."""

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import registry
from kerasbert.checkpoints.directory import built, head_arrays, head_names, load_encoder, read_model_json, read_tensors
from kerasbert.checkpoints.formats import Format, ImportOptions
from kerasbert.checkpoints.plans import Imported, Plan
from kerasbert.checkpoints.source import VECTOR_FILES, VECTORS
from kerasbert.checkpoints.vectors import read_vectors, settings_of
from kerasbert.data.reading import plain_name
from kerasbert.errors import InputError

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


MODEL = "model.json"  # of a model directory


class Made(Format):
    """What a model of another family is made of, weights and words as they are: no option says anything of it."""

    reads = ()

    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """A plan without tensors of others."""
        if not asked.model:
            raise InputError(
                f"{path} is {self.title} already: name the model that is to be made of it (--model FAMILY/SIZE)"
            )
        family = registry.family(asked.model.partition("/")[0])
        name = asked.model if "/" in asked.model else f"{asked.model}/{next(iter(family.sizes))}"
        self.check_family(path, family)

        def made(_: Imported) -> Imported:
            encoder = self.make(path, family, name)
            return Imported(family, name, encoder, described={"tokenizer": encoder.tokenizer})

        return Plan(None, family=family, name=name, convert=made)

    @abstractmethod
    def check_family(self, path: Path, family: registry.Family) -> None:
        """Refuse a family that is not made of it."""
        ...

    @abstractmethod
    def make(self, path: Path, family: registry.Family, name: str) -> "SpecModel":
        """The model, with `.tokenizer`."""
        ...


class ModelDirectory(Made):
    """A directory of ours (`Family.made_of`)."""

    title = "a model directory of kerasbert"

    def looks_like(self, path: Path) -> bool:
        """Whether there is a model.json."""
        return (path / MODEL).is_file()

    def check_family(self, path: Path, family: registry.Family) -> None:
        """Refuse a family that is not made of this one."""
        theirs = read_model_json(path).family
        if theirs not in family.made_of:
            known = ", ".join(family.made_of) or "no other family's"
            raise InputError(f"{path} holds a model of {theirs}, and one of {family.name} is made of: {known}")

    def make(self, path: Path, family: registry.Family, name: str) -> "SpecModel":
        """The model, of the other's encoder and what it takes of the heads."""
        encoder, tensors = load_encoder(path)[0], read_tensors(path)
        encoder.heads = {head: head_arrays(tensors, head) for head in head_names(tensors)}
        return family.made_of[read_model_json(path).family](encoder, registry.find(name)[1])


class Vectors(Made):
    """Word vectors (`Family.of_vectors`): a directory that `kerasbert vectors` wrote, or a file."""

    title = "word vectors"

    def looks_like(self, path: Path) -> bool:
        """Whether there is a vectors.json, or a file is called as such files are."""
        return (path / VECTORS).is_file() or (path.is_file() and plain_name(path).suffix.lower() in VECTOR_FILES)

    def check_family(self, path: Path, family: registry.Family) -> None:
        """Refuse a family that does not begin with word vectors."""
        if not family.of_vectors:
            raise InputError(f"{path} holds word vectors, and no model of {family.name} begins with such")

    def make(self, path: Path, family: registry.Family, name: str) -> "SpecModel":
        """The model; what is none of the vectors begins as new."""
        from kerasbert.layers.naming import names  # imports Keras; mistakes are told before that

        assert family.of_vectors is not None  # `check_family` has asked
        spec, arrays, tokenizer = family.of_vectors(read_vectors(path), settings_of(path))
        made = built(family, spec, name)
        weights = names(made)
        for weight, array in arrays.items():
            weights[weight].assign(array)
        made.tokenizer = tokenizer
        return made


registry.register_format("kerasbert", ModelDirectory())
registry.register_format("vectors", Vectors())
