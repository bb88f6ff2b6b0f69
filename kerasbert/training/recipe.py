"""Recipes: a run as a file of YAML, with the names of `kerasbert.pretrain`'s arguments.

    model: bert/base
    steps: 1_000_000
    phases:
      - {steps: 900_000, data: gs://bucket/128, batch: 1024}
      - {data: gs://bucket/512, batch: 256}
    learning_rate: 1e-4
    set: {dropout: 0.1}

Sections of the same file say how its records are made (`prepare`), what is trained on top (`finetune`) and what is exported
(`export`). `${BUCKET}` is the environment's, one value whatever it holds. A mistake is one line: file, line and field.
"""

import contextlib
import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from kerasbert import spec as specs
from kerasbert.errors import InputError, near
from kerasbert.family import Family
from kerasbert.options import checked, options
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.training.config import FinetuneConfig
from kerasbert.training.pretrain_config import PretrainConfig
from kerasbert.value_types import fits, in_words

if TYPE_CHECKING:
    import yaml

    Node = yaml.ScalarNode | yaml.SequenceNode | yaml.MappingNode


@dataclasses.dataclass(frozen=True)
class Prepare:
    """How the records of a recipe are made, for `tpu_scripts/prepare_data.py`.

    Args:
        out: folder; the records of length N go to out/N.
        lengths: tokens in an example, one set of records each.
        text: files; or None for the novels that ship with the package.
        tokenizer: a folder; or None to learn one of `kind` with `vocabulary` pieces into out/tokenizer.
        vocabulary: int.
        cased: bool; None is the kind's default.
        sentinels: int, of the learned vocabulary (T5).
        layout: str, of the learned vocabulary (xlnet).
        encoding, packing, seed, shards, dupe_factor, words, entities, sentence_borders, allow_loss: see `kerasbert data`.
    """

    out: str
    lengths: Sequence[int]
    text: Sequence[str] | None = None
    tokenizer: str | None = None
    kind: str = "wordpiece"
    vocabulary: int = 30000
    cased: bool | None = None
    sentinels: int = 0
    layout: str | None = None
    encoding: str | None = None
    allow_loss: bool = False
    packing: str = "pairs"
    seed: int = 0
    shards: int | None = None
    dupe_factor: int = 1
    words: str | None = None
    entities: str | None = None
    sentence_borders: bool = False


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe's sections, each a dict of arguments; empty where the file has none.

    Attributes:
        pretrain, finetune, export: of the functions of those names.
        prepare: of `Prepare`.
    """

    pretrain: Json
    prepare: Json
    finetune: Json
    export: Json


EXPORT = {"out": str, "length": int | None}  # of kerasbert.export
KEPT = {
    name
    for kind in (PretrainConfig, FinetuneConfig)
    for name, field in options(kind).items()
    if not field.metadata["recipe"]
}
SET = {"changes": "set"}  # what a recipe calls it, as the command line does


@checked
def read_recipe(path: str | os.PathLike) -> Recipe:
    """Read and check a recipe.

    Args:
        path: a YAML file: the fields of a pretraining, and the sections prepare, finetune and export.

    Returns:
        a Recipe, whose fields are arguments of the functions of their names.

    Raises:
        InputError: no such file, no YAML, an unknown field (the nearest is given), a value of another type, an optimizer,
            schedule, model or Spec field that does not exist; with file and line.
    """
    reader = Reader(path)
    finetune = {"task": str, "data": Any, **fields(FinetuneConfig)}  # of the run that was pretrained
    sections = {"prepare": fields(Prepare), "finetune": finetune, "export": EXPORT}
    known = {"model": str, "data": str, **fields(PretrainConfig)} | dict.fromkeys(sections, JsonMap)
    node = reader.root()
    values = reader.mapping(node, known, "")
    found = {name: {} for name in sections}
    for name, child in reader.items(node, ""):
        if name in sections:
            found[name] = reader.mapping(child, sections[name], f"{name}.")
            values.pop(name)
    _check_pretraining(reader, node, values)
    missing = {"out", "lengths"} - found["prepare"].keys()
    if found["prepare"] and missing:
        raise reader.error(
            dict(reader.items(node, ""))["prepare"], f"prepare has no {' and no '.join(sorted(missing))}"
        )
    if values.get("phases"):
        values.setdefault("data", values["phases"][0].get("data"))
    for section in (values, found["finetune"]):
        if "set" in section:
            section["changes"] = section.pop("set")
    return Recipe(values, **found)


def _check_pretraining(reader: "Reader", node: "Node", values: Json) -> None:
    """What a single value's type does not tell, with the line of the field it is about."""
    from kerasbert import registry
    from kerasbert.training.optimizers import check_optimizer
    from kerasbert.training.phases import Phase, check_phases, make_phases
    from kerasbert.training.schedules import make_schedule

    nodes = {name: child for name, child in reader.items(node, "") if values.get(name) is not None}
    spec = family = None
    if "model" in values and not os.path.isdir(values["model"]):
        with reader.at(nodes["model"], "model"):
            family, spec = registry.find(values["model"])
    for path, child in reader.items(nodes["set"], "set.") if "set" in nodes else ():
        with reader.at(child, f"set.{path}"):
            if spec is not None:
                specs.derive(spec, {path: values["set"][path]})
    for name, check in (
        ("optimizer", check_optimizer),
        ("schedule", lambda name, options: make_schedule(name, 1.0, 1, 0, options)),
    ):
        default = {"optimizer": "adamw", "schedule": "linear"}[name]
        if name in nodes:
            with reader.at(nodes[name], name):
                check(values[name], {})
        if f"{name}_options" in nodes:
            with reader.at(nodes[f"{name}_options"], f"{name}_options"):
                check(values.get(name, default), values[f"{name}_options"])
    known = _objective_settings(reader, nodes, values, family)
    if "warmup" in nodes and "steps" in nodes and values["warmup"] > values["steps"]:
        with reader.at(nodes["warmup"], "warmup"):
            raise InputError(f"{values['warmup']} is more than the {values['steps']} steps")
    if "phases" in nodes:
        for number, child in enumerate(nodes["phases"].value, 1):
            reader.mapping(child, fields(Phase), f"phases[{number}].")
            for name, inner in reader.items(child, f"phases[{number}]."):
                if known and name == "objective" and inner.id == "mapping":
                    reader.mapping(inner, known, f"phases[{number}].objective.")
        with reader.at(nodes["phases"], "phases"):
            defaults = {"data": values.get("data"), "batch": values.get("batch", 256)}
            phases = make_phases(values["phases"], **defaults, accumulate=values.get("accumulate", 1))
            if "steps" in nodes:
                check_phases(phases, values["steps"])


def _objective_settings(
    reader: "Reader", nodes: "Mapping[str, Node]", values: Json, family: Family | None
) -> dict[str, object]:
    """Settings of the objective: dotted path -> type, after a check of the recipe's own.

    They are not known (empty) where another place, such as a model directory, names the objective.
    """
    from kerasbert import registry

    node, value = nodes.get("objective"), values.get("objective")
    name = value.get("name") if isinstance(value, dict) else value
    own = (family.objective if family else "") or registry.Family.objective
    with reader.at(node, "objective") if node else contextlib.nullcontext():
        settings = dict(specs.paths(registry.objective(name or own).settings_class))
    if not (name or family):
        return {}
    if node and node.id == "mapping":
        reader.mapping(node, settings | {"name": str}, "objective.")
    return settings


def fields(of: Callable[..., object]) -> dict[str, object]:
    """Name -> type of the arguments of a function or a class, or the fields of a dataclass, by a recipe's names.

    Without those of the command at hand, such as overwrite, and those for Python alone.
    """
    parameters = inspect.signature(of).parameters.values()
    return {SET.get(p.name, p.name): p.annotation for p in parameters if p.name not in KEPT}


DEEPEST = 50  # mappings and lists inside one another
_NAME = re.compile(r"\$\{(\w+)\}")
_MARKED = re.compile("\ue000(\\w+)\ue001")
# what a plain word means beside text: YAML 1.2's core schema, in which 60:30 and 010 are no numbers, and finite numbers alone
_PLAIN = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.?[0-9]+(?:[eE][-+]?[0-9]+)|\.[0-9]+)",
        "-+.0123456789",
    ),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
}


class Reader:
    """The nodes of a file of YAML, which know their lines."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        try:
            self.text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read recipe {path}: {error}") from error
        # marked before it is parsed, replaced after: whatever a variable holds is one value
        self.text = _NAME.sub("\ue000\\1\ue001", self.text)

    def root(self) -> "Node":
        """The mapping that the file is."""
        import yaml

        self.broken = yaml.YAMLError

        class Loader(yaml.SafeLoader):
            """Plain values alone."""

            yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

        for name, (pattern, first) in _PLAIN.items():
            Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"(?:{pattern})$"), list(first))
        try:
            self.loader = Loader(self.text)
            node = cast("Node | None", self.loader.get_single_node())
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            raise InputError(f"{self.path}:{mark.line + 1 if mark else 1}: not YAML: {problem or error}") from error
        except RecursionError:
            raise InputError(f"{self.path} is nested too deeply, expected at most {DEEPEST} levels") from None
        if node is None:
            raise InputError(f"{self.path}:1: the recipe is empty")
        self._settle(node, 0, set())
        return node

    def _settle(self, node: "Node", depth: int, seen: set[int]) -> None:
        """Put the environment's values into scalars, and refuse types that no field has; `seen`: nodes, which aliases share."""
        if depth and id(node) in seen:
            return
        seen.add(id(node))
        if depth > DEEPEST:
            raise self.error(node, f"nested too deeply, expected at most {DEEPEST} levels")
        if node.id == "scalar":
            if node.value != (value := _MARKED.sub(lambda match: self._variable(node, match[1]), node.value)):
                node.value = value
                if getattr(node, "style", None) is None:  # what is not quoted may be a number
                    node.tag = self.loader.resolve(type(node), value, (True, False))
        else:
            for child in (part for each in node.value for part in (each if isinstance(each, tuple) else (each,))):
                self._settle(child, depth + 1, seen)
        if node.tag.removeprefix("tag:yaml.org,2002:") not in {*_PLAIN, "str", "map", "seq"}:
            raise self.error(node, f"the type {node.tag!r:.60} is none of a recipe's: leave it out")

    def _variable(self, node: "Node", name: str) -> str:
        if name not in os.environ:
            raise self.error(node, f"the environment has no {name}: export {name}=...")
        return os.environ[name]

    def items(self, node: "Node", prefix: str) -> "Iterator[tuple[str, Node]]":
        """(name, node of the value) of a mapping."""
        if node.id != "mapping":
            raise self.error(node, f"{prefix.rstrip('.') or 'a recipe'} must be a mapping of field: value")
        seen = set()
        for key, child in node.value:
            if key.id != "scalar":
                raise self.error(key, f"a field of {prefix.rstrip('.') or 'a recipe'} must be a name")
            if key.value in seen:
                raise self.error(key, f"{prefix}{key.value} is there twice")
            seen.add(key.value)
            yield key.value, child

    def mapping(self, node: "Node", known: Mapping[str, object], prefix: str) -> Json:
        """The values of a mapping, whose names and types must be those of `known`."""
        found = {}
        for name, child in self.items(node, prefix):
            if name not in known:
                raise self.error(
                    child, f"no field {prefix + name!r}. {near(prefix + name, [prefix + other for other in known])}"
                )
            try:
                found[name] = self.loader.construct_object(child, deep=True)
            except (ValueError, self.broken) as error:
                raise self.error(child, f"{prefix}{name}: {getattr(error, 'problem', error)}") from error
            if not fits(found[name], known[name]):
                expected = in_words(known[name])
                raise self.error(child, f"{prefix}{name} must be {expected}. Received: {found[name]!r}")
        return found

    def error(self, node: "Node", message: str) -> InputError:
        """A mistake in the line of a node."""
        return InputError(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def at(self, node: "Node", field: str) -> "_At":
        """Errors within the block are told with the node's line and the field."""
        return _At(self, node, field)


@dataclasses.dataclass
class _At:
    reader: Reader
    node: "Node"
    field: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError | TypeError):
            raise self.reader.error(self.node, f"{self.field}: {error}") from error
