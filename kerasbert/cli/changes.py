"""What --set says: changes of a Spec, of an objective and of a task's kind."""

import argparse
import json
from collections.abc import Sequence

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap

OBJECTIVE = "objective."  # what the path of an objective's setting begins with in --set
OBJECTIVE_FLAGS = {
    "static_masks": "static",
    "select": "select",
}  # settings of the masked LM that have options of their own


def changes_of(pairs: Sequence[str]) -> Json:
    """`a.b=1` -> {"a.b": 1}; values are json, else text."""
    found = {}
    for pair in pairs:
        path, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair!r} has no '=', expected FIELD=VALUE such as dropout=0")
        try:
            found[path] = json.loads(value)
        except ValueError:
            found[path] = {"none": None, "None": None, "True": True, "False": False}.get(value, value)
    return found


def objective_of(options: argparse.Namespace, recipe: str | JsonMap | None = None) -> tuple[Json, Json]:
    """The changes of the Spec, and the objective's name and settings, of --set, --objective and a recipe's `objective`.

    >>> options = argparse.Namespace(objective="ernie", set=["dropout=0", "objective.rate=0.2"])
    >>> objective_of(options)
    ({'dropout': 0}, {'name': 'ernie', 'rate': 0.2})
    """
    changes, chosen = changes_of(options.set), {"name": recipe} if isinstance(recipe, str) else dict(recipe or {})
    name = getattr(options, "objective", None)
    if name and name != chosen.get("name"):
        chosen = {"name": name}  # the recipe's settings are those of another
    settings = {path: getattr(options, flag, None) for flag, path in OBJECTIVE_FLAGS.items()}
    settings = {path: value for path, value in settings.items() if value}
    for path in [path for path in changes if path.startswith(OBJECTIVE)]:
        settings[path.removeprefix(OBJECTIVE)] = changes.pop(path)
    return changes, chosen | settings
