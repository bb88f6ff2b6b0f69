"""Names -> families, sizes, and what a third party plugs in. Standard library only."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import field_names
from kerasbert.errors import InputError, check_known, nearest, of_plugin, unknown
from kerasbert.family import Family
from kerasbert.options import checked
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.table import PLUGINS, Table, entry_points, shipped

if TYPE_CHECKING:  # a phone, which looks up a tokenizer here, needs no Spec
    import keras

    from kerasbert.checkpoints.formats import Format
    from kerasbert.data.packing import Packing
    from kerasbert.spec import Spec
    from kerasbert.tasks.base import Task
    from kerasbert.text.kinds import Kind
    from kerasbert.training.schedules import Schedule

_paths: dict[str, str] = {}  # module of a plug-in file -> where it was read
_loading: list[str] = []  # modules of plug-in files that are being run
_brought: dict[str, str] = {}  # family -> module of the plug-in file that registered it


FUNCTION = "kerasbert.family:check_function"
DECLARING = tuple(  # modules of tasks and of readers of their files; none of them imports TensorFlow
    f"kerasbert.tasks.{home}"
    for home in "task conll glue glue_files medical_ner multiple_choice pairs squad superglue text_to_text".split()
)
FAMILIES: Table[Family] = Table(
    "model family",
    "kerasbert.models",
    "kerasbert.classics",
    everything="kerasbert list models",
    index="families",
    rules="kerasbert.registry:check_family",
)
OBJECTIVES: Table[Any] = Table(  # some stand in their paper's file
    "objective",
    "kerasbert.objectives",
    "kerasbert.models",
    "kerasbert.classics.objectives",
    "kerasbert.classics",
    everything="kerasbert list objectives",
    rules="kerasbert.objectives.rules:check",
)
TASKS: Table["Task"] = Table("task", *DECLARING, everything="kerasbert list tasks", rules="kerasbert.tasks.rules:check")
READERS: Table[Callable] = Table("reader of a task's files", *DECLARING, rules=FUNCTION)
METRICS: Table[Callable] = Table("metric of a plug-in", rules=FUNCTION)
TOKENIZERS: Table["Kind"] = Table(
    "tokenizer kind", "kerasbert.text.files", everything="kerasbert list tokenizers", rules="kerasbert.text.kinds:check"
)
SEGMENTERS: Table[Callable] = Table("segmenter", rules=FUNCTION)
PACKINGS: Table["Packing"] = Table(
    "packing", "kerasbert.data.packing", everything="kerasbert data --help", rules="kerasbert.data.packing:check"
)
SELECTIONS: Table[Callable] = Table("select function", "kerasbert.objectives.select", rules=FUNCTION)
SCHEDULES: Table["type[Schedule]"] = Table(
    "schedule", "kerasbert.training.schedules", rules="kerasbert.training.schedules:check_class"
)
FORMATS: Table["Format"] = Table(
    "checkpoint format",
    "kerasbert.checkpoints.hf",  # in this order a path is asked what it looks like
    "kerasbert.checkpoints.keras_hub",
    "kerasbert.checkpoints.tf1",
    "kerasbert.classics.allennlp",
    "kerasbert.checkpoints.own",
    "kerasbert.checkpoints.peft",
    index="formats",
    rules="kerasbert.checkpoints.formats:check_format",
)
OPTIMIZERS: Table["type[keras.optimizers.Optimizer]"] = Table(
    "optimizer", "kerasbert.training.optimizers", rules="kerasbert.training.optimizers:check_class"
)
# quantization schemes stand in kerasbert.mobile.quantize.schemes: nothing here knows mobile
_TABLES: dict[str, Table] = {  # those of which `check_name` knows more than the index
    "objective": OBJECTIVES,
    "task": TASKS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "select": SELECTIONS,
}


def check_family(name: str, family: Family) -> None:
    """The rules of FAMILIES: every size derives; objective, tokenizer, readout and dialects exist.

    A plug-in registers its objective and its tokenizer before the family that names them.

    Raises:
        InputError: what the family names does not exist; the nearest name is given.
    """
    if not isinstance(family, Family):
        raise InputError(f"the model family {name!r} is {family!r:.80}, expected a kerasbert.registry.Family")
    family.check()
    for format in family.names:
        if format not in shipped()["formats"]:
            check_known("family", name, FORMATS.kind, format, FORMATS)
    if family.objective and family.objective not in shipped()["objectives"]:  # ours may not be imported yet
        check_known("family", name, OBJECTIVES.kind, family.objective, OBJECTIVES)
    if family.tokenizer:
        check_known("family", name, TOKENIZERS.kind, family.tokenizer, TOKENIZERS)


def register(family: Family) -> Family:
    """Make a family known by its name.

    Raises:
        InputError: the name is taken, or as `check_family`.
    """
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
register_objective = OBJECTIVES.add  # (name, a subclass of `kerasbert.objectives.base.Objective`)
register_task = TASKS.add  # (name, a Task)
register_segmenter = SEGMENTERS.add  # (name, text -> [(start, end)] of its words, phrases or entities, in characters)
register_tokenizer = TOKENIZERS.add  # (kind, `kerasbert.text.kinds.Kind`)
register_packing = PACKINGS.add  # (name, `kerasbert.data.packing.Packing`)
register_selection = SELECTIONS.add  # (name, a select function as of `kerasbert.objectives.select`)
register_schedule = SCHEDULES.add  # (name, a subclass of `kerasbert.training.schedules.Schedule`)
register_format = FORMATS.add  # (name, an instance of a subclass of `kerasbert.checkpoints.formats.Format`)
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


def name_and_settings(objective: str | JsonMap | None) -> tuple[str | None, Json]:
    """What callers say of an objective, a name or settings by dotted path with the `name` among them -> both apart.

    >>> name_and_settings({"name": "wwm", "rate": 0.2})
    ('wwm', {'rate': 0.2})
    """
    settings = {"name": objective} if isinstance(objective, str) else dict(objective or {})
    return settings.pop("name", None), settings


def tasks() -> Table["Task"]:
    """Every known task by name."""
    return TASKS


def plugged() -> bool:
    """Whether a plug-in file or an entry point brought something, which no index knows."""
    entry_points()
    return bool(PLUGINS)


def task(name: str) -> "Task":
    """The task of a name, or of what others call it.

    Raises:
        InputError: no such task; the nearest is given, or what to do in its place.
    """
    check_name("task", name)
    return TASKS.find(task_name(name))


def task_name(name: str) -> str:
    """A task's own name: that of one of ours by the name that others have for it, else the name as it is."""
    return name if name in TASKS.rows or name in TASKS.aliases else field_names.task(str(name))


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
    name = task_name(name) if kind == "task" else name
    if kind == "task" and name not in known and (advice := field_names.ADVICE.get(str(name).lower())):
        raise InputError(f"no task {name!r}: {advice}")
    if kind == "model" and (line := _no_family(str(name), known)):
        raise InputError(line)
    if str(name) not in known:
        where = f"kerasbert list {kind}s" if kind in ("model", "objective", "task") else ", ".join(known)
        raise unknown(_TABLES["select"].kind if kind == "select" else kind, name, known, where)


def _no_family(name: str, known: Sequence[str]) -> str:
    """What to say of a model of a family that is not here; "" of another name."""
    family, slash, _ = name.partition("/")
    families = dict.fromkeys(each.partition("/")[0] for each in known)
    if not slash or nearest(family, families, similar=0.8):
        return ""
    return f"no model family {family!r}: there is {', '.join(families)}. All: kerasbert list models"


def shipped_model(name: str) -> Json | None:
    """The index' row of a model or an alias, or None where a plug-in may have it.

    Raises:
        InputError: as `check_name`.
    """
    check_name("model", name)
    name = shipped()["aliases"].get(name, name)
    return next((row for row in shipped()["models"] if row["name"] == name), None)


@checked
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


def family_of(encoder: object) -> Family:
    """The family of an encoder: what it was built or loaded as, else the first one that has its class and kind of Spec.

    Raises:
        InputError: no family has that class.
    """
    if name := getattr(encoder, "model_name", None):
        return family(name.partition("/")[0])
    kinds = type(encoder), type(getattr(encoder, "spec", None))
    found = next((f for f in families().values() if kinds == (f.encoder, type(f.spec))), None)
    if found is None and hasattr(encoder, "encoder"):
        raise InputError(
            f"a {type(encoder).__name__} of a task stands where its encoder is wanted: build on model.encoder"
        )
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
        except BaseException as error:
            del sys.modules[name]
            raise of_plugin(path, error) from error
        finally:
            _loading.pop()
    PLUGINS[name], _paths[name] = {"file": path.name, "sha256": digest}, str(path.absolute())
    return PLUGINS[name]


def plugin_of(brought: object) -> dict[str, str] | None:
    """{"file", "sha256"} of the plug-in file that brought a function, an object's class or an encoder's family.

    None for one of ours.
    """
    family = str(getattr(brought, "model_name", None)).partition("/")[0]
    return PLUGINS.get(brought.__module__) or PLUGINS.get(_brought.get(family, ""))
