"""Checkpoints of Hugging Face's transformers: config.json with safetensors, or by consent torch pickles; in and out."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import answers, registry
from kerasbert.answers.vector import prompt_tokens
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints import (
    cross_encoders,
    generation_config,
    hf_files,
    hub,
    readers,
    sentence_transformers,
    source,
    static_embeddings,
)
from kerasbert.checkpoints.directory import read_model_json
from kerasbert.checkpoints.fit import NamedFormat
from kerasbert.checkpoints.formats import Answers, ImportOptions, Opened
from kerasbert.checkpoints.plans import Plan
from kerasbert.errors import InputError
from kerasbert.family import Family
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


@dataclasses.dataclass
class OpenedHf(Opened):
    """A folder of transformers."""

    def answers(self, task: Json | None, classes: int, spec: Spec, asked: ImportOptions) -> Answers:
        """What the heads answer; a CrossEncoder of before release 5.4 says so in the configuration."""
        if asked.pair is False:
            return Answers(task)
        task, told = cross_encoders.from_before(self.config or {}, task, classes, self.folder, spec)
        return Answers(task, None, told)

    def generation(self, pieces: "Tokenizer | None", family: Family) -> tuple[Json, list[str]]:
        """As its generation_config.json says."""
        return generation_config.read(self.folder, self.config or {}, pieces, family)


class HuggingFace(NamedFormat):
    """A folder or a file of transformers, or a name on the hub."""

    names = "hf"
    reads = (*NamedFormat.reads, "revision")
    title = "a checkpoint of Hugging Face"

    def looks_like(self, path: Path) -> bool:
        """Whether there is a config.json with weights beside it, or nothing, and the name may be one on the hub."""
        if not path.exists():
            return hub.looks_like_name(os.fspath(path))
        return (path / "config.json").is_file() and any((path / name).is_file() for name in readers.HF_FILES)

    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """What an import would do, as of `Format`; of a table and a mean too."""
        place, origin = self.fetched(path, asked)
        theirs = sentence_transformers.opened(place) if place.is_dir() else None
        if theirs is not None and theirs.static:
            own = origin is not None and static_embeddings.is_model2vec(place)
            return static_embeddings.plan(place, None if own else theirs, asked, origin)
        return super().plan(path, asked)

    def fetched(self, path: Path, asked: ImportOptions) -> tuple[Path, dict[str, str] | None]:
        """The folder or the file, of a name on the hub that of the cache, and {"hub", "revision"} of a name."""
        name = os.fspath(path)
        if not path.exists() and hub.looks_like_name(name):
            place, commit = hub.fetch(name, asked.revision)
            return place, {"hub": name, "revision": commit}
        if asked.revision is not None:
            raise InputError(f"revision {asked.revision!r} is of a name on the hub, and {name} is none: leave it out")
        return path, None

    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open it; a name on the hub is fetched first."""
        path, origin = self.fetched(path, asked)
        theirs = sentence_transformers.opened(path) if path.is_dir() else None
        place = path if theirs is None else theirs.transformer
        tensors, folder = readers.open_hf(place, asked.allow_pickle)
        about = {"folder": folder, "tensors": tensors, "config": configs.read_config(folder), "origin": origin}
        return OpenedHf(place, **about) if theirs is None else OpenedSentenceTransformers(place, **about, theirs=theirs)

    def family_of(self, opened: Opened) -> str | None:
        """The family whose names its model_type has; of a family's own type another's, where the class is (T5's encoder)."""
        if opened.config is None or "model_type" not in opened.config:
            return None
        said, kinds = opened.model_type, opened.config.get("architectures")
        families, shipped = registry.families(), registry.shipped()
        # of ours those alone that have something to say: all of them take half a second to import
        others = [name for name in families.added() if name not in shipped["families"]]
        own = [said] if said in shipped["families"] else []
        names: list[str] = [*shipped["model_types"].get(said, ()), *own, *others]
        known = {name: families[name].names[self.names] for name in names if self.names in families[name].names}
        fitting = [name for name, dialect in known.items() if said in dialect.model_types]
        fitting = [name for name in fitting if known[name].reads(opened.config)] or fitting
        if said in known:
            kind = kinds[0] if isinstance(kinds, list) and kinds else None
            fitting = [name for name in fitting if kind in known[name].architectures]
        return next(iter(fitting), None)

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write config.json, model.safetensors and the tokenizer's files; of averaged vectors a StaticEmbedding."""
        run = source.directory(run)
        if static_embeddings.is_static(run):
            static_embeddings.write(run, path, overwrite)
            return
        hf_files.write(run, path, overwrite)


@dataclasses.dataclass(kw_only=True)
class OpenedSentenceTransformers(OpenedHf):
    """A folder of transformers with modules.json around it.

    Args:
        theirs: the directory. vector: json of the task of its vectors, once it is known.
    """

    theirs: sentence_transformers.Theirs
    vector: Json | None = None

    def answers(self, task: Json | None, classes: int, spec: Spec, asked: ImportOptions) -> Answers:
        """What its modules answer."""
        found = Answers(*self.theirs.tasks(spec, task, classes))
        self.vector = found.vector
        if found.vector:
            found.heads = self.theirs.heads(found.vector["options"], spec.hidden, asked.allow_pickle)
        return found

    def tokenizer(self, spec: Spec, asked: ImportOptions) -> "Tokenizer | None":
        """The folder's tokenizer, with lower-cased texts where its settings ask for that."""
        pieces = self.theirs.tokenizer(super().tokenizer(spec, asked))
        options = (self.vector or {}).get("options", {})
        if pieces is not None and options.get("include_prompt") is False:
            options["prompt_tokens"] = prompt_tokens(pieces, options["prompts"])
        return pieces

    def leave(self) -> None:
        """Note what nobody read of its own files."""
        self.theirs.leave()


class SentenceTransformers(HuggingFace):
    """A folder of sentence-transformers, which stands around one of transformers."""

    title = "a model of sentence-transformers"

    def looks_like(self, path: Path) -> bool:
        """Whether there is a list of modules."""
        return (path / sentence_transformers.MODULES).is_file()

    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open it, as `HuggingFace`."""
        opened = super().open(path, asked)
        if not isinstance(opened, OpenedSentenceTransformers):
            raise InputError(f"{path} has no {sentence_transformers.MODULES}, which {self.title} has: leave --from out")
        return opened

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write the folder of a model that answers with vectors."""
        run = source.directory(run)
        task = read_model_json(run).task
        if not task or "pooling" not in answers.find(task["kind"]).defaults:
            raise InputError(f"{run} answers with no vectors, which {self.title} is for: write it as hf")
        super().write(run, path, overwrite)


class Model2Vec(HuggingFace):
    """A folder of model2vec, which is one of sentence-transformers too."""

    reads = static_embeddings.READS
    title = "a model of model2vec"

    def looks_like(self, path: Path) -> bool:
        """Whether the configuration says so."""
        return path.is_dir() and static_embeddings.is_model2vec(path)

    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """What an import would do: unknown pieces are left out of the mean, as model2vec does it."""
        place, origin = self.fetched(path, asked)
        if not self.looks_like(place):
            raise InputError(f"{path} has no config.json with the model_type model2vec: leave --from out")
        return static_embeddings.plan(place, None, asked, origin)

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write config.json, model.safetensors, tokenizer.json and modules.json."""
        run = source.directory(run)
        if not static_embeddings.is_static(run):
            raise InputError(f"{run} is no table of vectors, which {self.title} is: kerasbert static makes one of it")
        static_embeddings.write(run, path, overwrite, model2vec=True)


registry.register_format("model2vec", Model2Vec())
registry.register_format("sentence_transformers", SentenceTransformers())
registry.register_format("hf", HuggingFace())
