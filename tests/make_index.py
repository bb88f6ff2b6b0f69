"""Write kerasbert/shipped.json, which `list` and `show` read: python -m tests.make_index."""

import importlib
import json
import re
from typing import Any

import keras

from kerasbert import models, registry
from kerasbert import spec as specs
from kerasbert.keras_objects import Later
from kerasbert.registry import FORMATS, OPTIMIZERS, SCHEDULES, SELECTIONS
from kerasbert.tasks import base
from kerasbert.training.config import PRECISIONS
from tests.support import ROOT

PATH = ROOT / "kerasbert" / "shipped.json"


def rows(counted: bool = True) -> list[dict[str, Any]]:
    """A row for each model; counting the parameters takes most of the time."""
    found = []
    for family in registry.families().values():
        if not family.encoder.__module__.startswith("kerasbert."):
            continue  # of a test's plug-in
        for size in family.sizes:
            spec = family.size(size)
            about = {"name": f"{family.name}/{size}", "kind": family.kind, "paper": family.paper}
            about |= {"tokenizer": family.tokenizer, "objective": family.objective}
            about["parameters"] = models.parameters(family.encoder, spec) if counted else None
            found.append(about | {"spec": specs.to_dict(spec)})
    return found


def content(counted: bool = True) -> dict[str, Any]:
    """What the index holds."""
    listed = rows(counted)
    families = [registry.family(name) for name in dict.fromkeys(row["name"].partition("/")[0] for row in listed)]
    return {
        "models": listed,
        "families": {family.name: module_of(family.name) for family in families},
        "aliases": {f"{f.name}/{alias}": f"{f.name}/{size}" for f in families for alias, size in f.aliases.items()},
        "objectives": sorted(n for n, o in registry.objectives().items() if _ours(o)),
        "tasks": sorted(n for n, task in registry.tasks().items() if _ours(task)),
        "unbounded": [family.name for family in families if family.longest(family.spec) is None],
        "model_types": sorted({name for f in families if "hf" in f.names for name in f.names["hf"].model_types}),
        "keras_objects": objects(),
        "metrics": {kind: list(base.find(kind).metrics_known) for kind in base.OURS},
        "optimizers": [name for name, value in OPTIMIZERS.items() if _ours(value)],
        "schedules": [name for name, value in SCHEDULES.items() if _ours(value)],
        "precisions": list(PRECISIONS),
        "formats": {name: type(value).__module__ for name, value in FORMATS.items() if _ours(value)},
        "selects": [name for name, value in SELECTIONS.items() if _ours(value)],
    }


def objects() -> dict[str, str]:
    """Name by which Keras knows a class of ours -> "module:name"."""
    base.find("classification")
    importlib.import_module("kerasbert.tasks.model")
    known = keras.saving.get_custom_objects().items()
    found = {name: value for name, value in known if name.startswith("kerasbert>") and not isinstance(value, Later)}
    return {name: f"{each.__module__}:{each.__qualname__}" for name, each in sorted(found.items()) if _ours(each)}


def module_of(family: str) -> str:
    """The module that registers a family of ours."""
    declared = re.compile(rf'register\([^"]*"{family}"')
    (found,) = (path for path in (ROOT / "kerasbert/models").glob("*.py") if declared.search(path.read_text()))
    return f"kerasbert.models.{found.stem}"


def _ours(value: Any) -> bool:
    """Whether it comes from the package, not from a plug-in that a test registered."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).startswith("kerasbert.")


def main() -> None:
    """Write the index: a row a line."""
    made = content()
    lines = ",\n".join("  " + json.dumps(row) for row in made.pop("models"))
    rest = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in made.items())
    PATH.write_text(f'{{\n "models": [\n{lines}\n ],\n{rest}\n}}\n')


if __name__ == "__main__":
    main()
