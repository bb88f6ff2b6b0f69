"""Names -> families, sizes, and what a third party plugs in. Standard library only."""

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError, unknown
from kerasbert.inputs import TEXT, Input
from kerasbert.spec import Spec


@dataclasses.dataclass(frozen=True)
class Family:
    """One paper: its Spec, its sizes and what goes with them.

    Args:
        name: str, as in `bert/base`.
        spec: Spec of the base size.
        sizes: size name -> difference from `spec` (dotted paths).
        encoder: the class of the encoder, called as `encoder(spec)`.
        paper: str, authors, year, title.
        tokenizer: str, kind of tokenizer.
        objective: str, name of the pretraining objective.
        names: checkpoint names by dialect ("hf", "tf1", "keras_hub"), rows of `checkpoints.names`.
        aliases: other size name -> size name.
        inputs: what the network reads (`kerasbert.inputs`).
        readout: what of its outputs stands for a text: the "first" token (or the pooler's vector), the "last" real one,
            or the "mean" over them.
    """

    name: str
    spec: Spec
    sizes: Mapping[str, Mapping[str, Any]]
    encoder: Callable
    paper: str
    tokenizer: str = "wordpiece"
    objective: str = "bert"
    names: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inputs: tuple[Input, ...] = TEXT
    readout: str = "first"

    def derive(self, name: str, *, spec: Mapping[str, Any], **changes: Any) -> "Family":
        """Another paper as a difference from this one."""
        return dataclasses.replace(self, name=name, spec=self.spec.derive(spec), **changes)

    def size(self, name: str) -> Spec:
        """The Spec of one size, or an error that names the nearest."""
        known = self.aliases.get(name, name)
        if known not in self.sizes:
            every = [f"{self.name}/{size}" for size in (*self.sizes, *self.aliases)]
            raise unknown("model", f"{self.name}/{name}", every, "kerasbert list models")
        return self.spec.derive(self.sizes[known])


FAMILIES: dict[str, Family] = {}
OBJECTIVES: dict[str, Any] = {}
TASKS: dict[str, Any] = {}
SEGMENTERS: dict[str, Callable] = {}
_plugins: dict[str, dict[str, str]] = {}  # module or entry point that was loaded -> {"file", "sha256"} of a file
_paths: dict[str, str] = {}  # module of a plug-in file -> where it was read


def register(family: Family) -> Family:
    """Make a family known by its name."""
    return _add(FAMILIES, family.name, family)


def register_objective(name: str, objective: Any) -> Any:
    """Make a pretraining objective known by its name."""
    return _add(OBJECTIVES, name, objective)


def register_task(name: str, task: Any) -> Any:
    """Make a task known by its name."""
    return _add(TASKS, name, task)


def register_segmenter(name: str, segmenter: Callable) -> Callable:
    """Make a segmenter known by its name: text -> [(start, end)] of its words, phrases or entities, in characters."""
    return _add(SEGMENTERS, name, segmenter)


def _add(table: dict[str, Any], name: str, value: Any) -> Any:
    if name in table and table[name] is not value:
        raise InputError(f"{name!r} is registered already: choose another name")
    table[name] = value
    return value


@functools.cache
def _load(package: str) -> None:
    """Import every module of a package of ours, so that it registers what it holds."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


@functools.cache
def _entry_points() -> None:
    for point in importlib.metadata.entry_points(group="kerasbert.plugins"):
        point.load()
        _plugins[point.name] = {}


def families() -> dict[str, Family]:
    """Every known family by name; importing them needs the extra `tensorflow`."""
    _load("kerasbert.models")
    _entry_points()
    return FAMILIES


def objectives() -> dict[str, Any]:
    """Every known pretraining objective by name; some stand in their paper's file."""
    _load("kerasbert.objectives")
    _load("kerasbert.models")
    _entry_points()
    return OBJECTIVES


def tasks() -> dict[str, Any]:
    """Every known task by name."""
    _load("kerasbert.tasks")
    _entry_points()
    return TASKS


def segmenters() -> dict[str, Callable]:
    """Every segmenter that a plug-in registered, by name."""
    _entry_points()
    return SEGMENTERS


@functools.cache
def shipped() -> dict[str, Any]:
    """The index of what ships with the package: models with parameters and Spec, names, defaults of the training functions.

    Nothing is imported for it; `python -m tests.make_index` writes it anew.
    """
    return json.loads(Path(__file__).with_name("shipped.json").read_text())


def plugged() -> bool:
    """Whether a plug-in file or an entry point brought something, which no index knows."""
    _entry_points()
    return bool(_plugins)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that nothing has, without importing TensorFlow; a plug-in's name is looked up later.

    Args:
        kind: "model", "objective", "task", "optimizer", "schedule", "precision" or "select".

    Raises:
        InputError: no such name; the nearest is given.
    """
    known = shipped()[f"{kind}s"]
    known = [row["name"] for row in known] + list(shipped()["aliases"]) if kind == "model" else known
    if str(name) not in known and not plugged():
        where = f"kerasbert list {kind}s" if kind in ("model", "objective", "task") else ", ".join(known)
        raise unknown({"select": "select function"}.get(kind, kind), name, known, where)


def shipped_model(name: str) -> dict[str, Any] | None:
    """The index' row of a model or an alias, or None where a plug-in may have it.

    Raises:
        InputError: as `check_name`.
    """
    check_name("model", name)
    name = shipped()["aliases"].get(name, name)
    return next((row for row in shipped()["models"] if row["name"] == name), None)


def list_models() -> list[str]:
    """Names of all models, `family/size`."""
    return [f"{family.name}/{size}" for family in families().values() for size in family.sizes]


def find(name: str) -> tuple[Family, Spec]:
    """Family and Spec of `family/size`.

    Raises:
        InputError: no such model; the nearest name is given.
    """
    family, _, size = str(name).partition("/")
    if family not in families() or not size:
        every = [*list_models(), *(f"{f.name}/{alias}" for f in families().values() for alias in f.aliases)]
        raise unknown("model", name, every, "kerasbert list models")
    return families()[family], families()[family].size(size)


def family(name: str) -> Family:
    """The family of that name."""
    if name not in families():
        raise unknown("model family", name, families(), "kerasbert list models")
    return families()[name]


def family_of(encoder: Any) -> Family:
    """The family of an encoder: what it was built or loaded as, else the first one that has its class and kind of Spec.

    Raises:
        InputError: no family has that class.
    """
    if name := getattr(encoder, "model_name", None):
        return family(name.partition("/")[0])
    kinds = type(encoder), type(getattr(encoder, "spec", None))
    found = next((f for f in families().values() if kinds == (f.encoder, type(f.spec))), None)
    if found is None:
        raise InputError(f"no family has the encoder {type(encoder).__name__}: register one")
    return found


def objective(name: str) -> Any:
    """The pretraining objective of that name."""
    if name not in objectives():
        raise unknown("objective", name, objectives(), "kerasbert list objectives")
    return objectives()[name]


def task(name: str) -> Any:
    """The task of that name."""
    if name not in tasks():
        raise unknown("task", name, tasks(), "kerasbert list tasks")
    return tasks()[name]


def plugin_files() -> list[str]:
    """The plug-in files that were loaded, for a process that is to load them too."""
    return list(_paths.values())


def plugin_digest(path: str | os.PathLike) -> str:
    """Hex sha256 of a plug-in's file.

    Raises:
        InputError: no such file.
    """
    if not Path(path).is_file():
        raise InputError(f"no plug-in file {path}")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def load_plugin(path: str | os.PathLike) -> dict[str, str]:
    """Run a third party's file, which registers models, objectives, tasks or tokenizers.

    Returns:
        {"file", "sha256"}: what a run records, so that it can be repeated.
    """
    path, digest = Path(path), plugin_digest(path)
    name = f"kerasbert_plugin_{digest[:12]}"
    if name not in sys.modules:
        module_spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(module_spec)
        try:
            module_spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    _plugins[name], _paths[name] = {"file": path.name, "sha256": digest}, str(path.absolute())
    return _plugins[name]


def plugin_of(brought: Any) -> dict[str, str] | None:
    """{"file", "sha256"} of the plug-in file that brought a function or an object's class, or None for one of ours."""
    return _plugins.get(brought.__module__)
