"""What the scripts share: recipes by name, and errors of one line."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import kerasbert as kb
except ModuleNotFoundError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import kerasbert as kb

RECIPES = Path(__file__).resolve().parent / "recipes"


def recipe_path(name: str) -> Path:
    """The file of a recipe: a path, or the name of one in recipes/."""
    path = Path(name)
    if path.is_file():
        return path
    known = sorted(file.stem for file in RECIPES.glob("*.yaml"))
    if name not in known:
        raise kb.InputError(f"no recipe {name!r}: neither a file nor one of {', '.join(known)}")
    return RECIPES / f"{name}.yaml"


def section(name: str, part: str) -> dict:
    """A section of a recipe, which must have it."""
    found = getattr(kb.read_recipe(recipe_path(name)), part)
    if not found:
        raise kb.InputError(f"recipe {name!r} has no {part} section")
    return dict(found)


def run(work: Callable[[], None]) -> None:
    """Do the work; a mistake of the user is one line and status 2."""
    try:
        work()
    except (kb.InputError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
