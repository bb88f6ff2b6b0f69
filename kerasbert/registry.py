"""Names -> families, sizes, and what a third party plugs in. Standard library only."""

import functools
import hashlib
import importlib
import importlib.util
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kerasbert.errors import InputError, unknown
from kerasbert.family import Family

if TYPE_CHECKING:  # a phone, which looks up a tokenizer here, needs no Spec
    from kerasbert.spec import Spec

T = TypeVar("T")


_plugins: dict[str, dict[str, str]] = {}  # module or entry point that was loaded -> {"file", "sha256"} of a file
_paths: dict[str, str] = {}  # module of a plug-in file -> where it was read
_loading: list[str] = []  # modules of plug-in files that are being run
_brought: dict[str, str] = {}  # family -> module of the plug-in file that registered it


@functools.cache
def _load(home: str) -> None:
    """Import a module of ours, or every module of a package, so that it registers what it holds."""
    package = importlib.import_module(home)
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        importlib.import_module(f"{home}.{module.name}")


@functools.cache
def _entry_points() -> None:
    import importlib.metadata  # here: it costs as much as everything else at the start of a small program

    for point in importlib.metadata.entry_points(group="kerasbert.plugins"):
        point.load()
        _plugins[point.name] = {}


class Table(MutableMapping[str, T]):
    """Names -> values of one kind: what ships and what plug-ins add.

    A table is a mapping. Its homes are imported on first use; the entry points of other packages are imported where all
    names are asked for, or one that is not among ours.

    Args:
        kind: str, what one entry is, for errors.
        homes: modules, or packages of which every module, that fill the table.
        everything: str, where all the names are told; None: the error lists them.
        index: str, the part of `shipped` that names the module of each entry, in their order: one that is asked for by its
            name is imported alone.

    >>> breads = Table("bread")
    >>> breads.add("rye", 1, "roggen")
    1
    >>> breads.find("roggen"), breads.name("roggen"), list(breads)
    (1, 'rye', ['rye'])
    >>> breads.find("rey")
    Traceback (most recent call last):
    kerasbert.errors.InputError: no bread 'rey'. Nearest: 'rye'. All: rye
    """

    def __init__(self, kind: str, *homes: str, everything: str | None = None, index: str = ""):
        self.kind, self.homes, self.everything, self.index = kind, homes, everything, index
        self.rows: dict[str, T] = {}
        self.aliases: dict[str, str] = {}  # other name -> name

    def add(self, name: str, value: T, *aliases: str) -> T:
        """Enter a value by its name and other names of it.

        Raises:
            InputError: a name is taken by another value.
        """
        for taken in (name, *aliases):
            self._load_one(taken)  # ours of that name; in its own module nothing is left to import
            if self.rows.get(self.aliases.get(taken, taken), value) is not value:
                raise InputError(f"{taken!r} is registered already: choose another name")
        self.rows[name] = value
        self.aliases |= dict.fromkeys(aliases, name)
        return value

    def find(self, name: str) -> T:
        """The value of a name or alias.

        Raises:
            InputError: no such name; the nearest is given.
        """
        return self[self.name(name)]

    def name(self, name: str) -> str:
        """The name that an entry has in files: an alias is replaced. Raises as `find`."""
        if name in self:
            return self.aliases.get(name, name)
        raise unknown(self.kind, name, [*self, *self.aliases], self.everything or ", ".join(self))

    def _load(self) -> None:
        for home in self.homes:
            _load(home)

    def _modules(self) -> dict[str, str]:
        """Entry of ours -> its module, as far as the index tells."""
        return shipped().get(self.index, {})

    def _load_one(self, name: str) -> None:
        """Import the module of an entry of ours that the index knows."""
        if name not in self.rows and (module := self._modules().get(name)):
            importlib.import_module(module)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        self._load_one(name)
        if name in self.rows:
            return True
        self._load()
        if name not in self.rows and name not in self.aliases:
            _entry_points()
        return name in self.rows or name in self.aliases

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise KeyError(name)
        return self.rows[self.aliases.get(name, name)]

    def __setitem__(self, name: str, value: T) -> None:
        self.rows[name] = value

    def __delitem__(self, name: str) -> None:
        del self.rows[name]
        self.aliases = {alias: of for alias, of in self.aliases.items() if of != name}

    def __iter__(self) -> Iterator[str]:
        self._load()
        _entry_points()
        known = self._modules()
        return iter(
            [*(name for name in known if name in self.rows), *(name for name in self.rows if name not in known)]
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


FAMILIES: Table[Family] = Table(
    "model family", "kerasbert.models", everything="kerasbert list models", index="families"
)
OBJECTIVES: Table[Any] = Table(  # some stand in their paper's file
    "objective", "kerasbert.objectives", "kerasbert.models", everything="kerasbert list objectives"
)
TASKS: Table[Any] = Table("task", "kerasbert.tasks", everything="kerasbert list tasks")
READERS: Table[Callable] = Table("reader of a task's files", "kerasbert.tasks")
METRICS: Table[Callable] = Table("metric of a plug-in")
TOKENIZERS: Table[Any] = Table("tokenizer kind", "kerasbert.text.files", everything="kerasbert list tokenizers")
SEGMENTERS: Table[Callable] = Table("segmenter")
PACKINGS: Table[Any] = Table("packing", "kerasbert.data.packing", everything="kerasbert data --help")
SELECTIONS: Table[Callable] = Table("select function", "kerasbert.objectives.select")
SCHEDULES: Table[Any] = Table("schedule", "kerasbert.training.schedules")
OPTIMIZERS: Table[Any] = Table("optimizer", "kerasbert.training.optimizers")
# quantization schemes stand in kerasbert.mobile.quantize.schemes: nothing here knows mobile
_TABLES: dict[str, Table] = {  # those of which `check_name` knows more than the index
    "objective": OBJECTIVES,
    "task": TASKS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "select": SELECTIONS,
}


def register(family: Family) -> Family:
    """Make a family known by its name."""
    if _loading:
        _brought[family.name] = _loading[-1]
    return FAMILIES.add(family.name, family)


def register_reader(name: str, read: Callable) -> Callable:
    """Make a reader of files known by its name, for tasks that say `reader=NAME`.

    Args:
        read: (path, task) -> [(line, {column: value})]: of the columns of texts a str or, where the task's kind takes it, a
            list of str, of the label's column any json value; an InputError with file and line for what is wrong.
    """
    return READERS.add(name, read)


def register_metric(name: str, metric: Callable) -> Callable:
    """Make a metric known by its name, for `metric=NAME` of a task of any kind.

    Args:
        metric: (outputs, targets) -> float, larger is better. They are what `TaskKind.metrics` gets: of a classification
            logits [n, L] and numbers of labels [n], of a regression values [n] twice.
    """
    return METRICS.add(name, metric)


def metric_name(metric: str | Callable | None) -> str | None:
    """The name of a metric; a function becomes known by its own, in this process.

    Raises:
        InputError: a function without a name.
    """
    if not callable(metric):
        return metric
    name = getattr(metric, "__name__", "<lambda>")
    if not name.isidentifier():
        raise InputError(f"the metric {metric!r:.60} has no name, which the run is to record: define it with def")
    METRICS.rows[name] = metric  # a cell of a notebook that is run again
    return name


# by name; an InputError where there is no such name
objective = OBJECTIVES.find
task = TASKS.find
register_objective = OBJECTIVES.add  # (name, a subclass of `kerasbert.objectives.base.Objective`)
register_task = TASKS.add  # (name, a Task)
register_segmenter = SEGMENTERS.add  # (name, text -> [(start, end)] of its words, phrases or entities, in characters)
register_tokenizer = TOKENIZERS.add  # (kind, `kerasbert.text.kinds.Kind`)
register_packing = PACKINGS.add  # (name, `kerasbert.data.packing.Packing`)
register_selection = SELECTIONS.add  # (name, a select function as of `kerasbert.objectives.select`)
register_schedule = SCHEDULES.add  # (name, a subclass of `kerasbert.training.schedules.Schedule`)
register_optimizer = (
    OPTIMIZERS.add
)  # (name, a Keras optimizer's class, such as one of `kerasbert.training.optimizers.ByPath`)


def families() -> Table[Family]:
    """Every known family by name; importing them needs the extra `tensorflow`."""
    return FAMILIES


def with_tree(family: Family) -> Family:
    """The family that reads sentence trees with the weights of this one: itself, or the one that says so of its encoder.

    Raises:
        InputError: there is none.
    """
    if family.reads_tree:
        return family
    reading = [other for other in families().values() if other.reads_tree]
    found = next((one for one in reading if getattr(one.encoder, "without_tree", None) is family.encoder), None)
    if found is None:
        names = ", ".join(one.name for one in reading)
        raise InputError(
            f"{family.name} reads no knowledge graph, expected {names} or a family of BERT's encoder: leave the graph out "
            "(--graph)"
        )
    return found


def objectives() -> Table[Any]:
    """Every known pretraining objective by name."""
    return OBJECTIVES


def tasks() -> Table[Any]:
    """Every known task by name."""
    return TASKS


@functools.cache
def shipped() -> dict[str, Any]:
    """The index of what ships with the package: models with parameters and Spec, names.

    Nothing is imported for it; `python -m tests.make_index` writes it anew.
    """
    return json.loads(Path(__file__).with_name("shipped.json").read_text())


def plugged() -> bool:
    """Whether a plug-in file or an entry point brought something, which no index knows."""
    _entry_points()
    return bool(_plugins)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that nothing has, without importing TensorFlow.

    Args:
        kind: "model", "objective", "task", "optimizer", "schedule", "precision" or "select".

    Raises:
        InputError: no such name; the nearest is given.
    """
    plugged()
    known = shipped()[f"{kind}s"]
    if kind == "model":
        brought = [f"{f.name}/{size}" for f in FAMILIES.rows.values() for size in (*f.sizes, *f.aliases)]
        known = [*(row["name"] for row in known), *shipped()["aliases"], *brought]
    elif kind in _TABLES:  # what is in it before its home is imported, plug-ins brought
        table = _TABLES[kind]
        known = [*known, *(other for other in (*table.rows, *table.aliases) if other not in known)]
    if str(name) not in known:
        where = f"kerasbert list {kind}s" if kind in ("model", "objective", "task") else ", ".join(known)
        raise unknown(_TABLES["select"].kind if kind == "select" else kind, name, known, where)


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


def find(name: str) -> tuple[Family, "Spec"]:
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
    return FAMILIES.find(name)


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
    """Run a third party's file, which adds to the tables above (models, objectives, tasks, tokenizers, ...).

    Returns:
        {"file", "sha256"}: what a run records, so that it can be repeated.
    """
    path, digest = Path(path), plugin_digest(path)
    name = f"kerasbert_plugin_{digest[:12]}"
    if name not in sys.modules:
        module_spec = importlib.util.spec_from_file_location(name, path)
        if module_spec is None or module_spec.loader is None:
            raise InputError(f"{path} is no plug-in, expected a Python file (.py)")
        sys.modules[name] = module = importlib.util.module_from_spec(module_spec)
        _loading.append(name)
        try:
            module_spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        finally:
            _loading.pop()
    _plugins[name], _paths[name] = {"file": path.name, "sha256": digest}, str(path.absolute())
    return _plugins[name]


def plugin_of(brought: Any) -> dict[str, str] | None:
    """{"file", "sha256"} of the plug-in file that brought a function, an object's class or an encoder's family.

    None for one of ours.
    """
    family = str(getattr(brought, "model_name", None)).partition("/")[0]
    return _plugins.get(brought.__module__) or _plugins.get(_brought.get(family, ""))
