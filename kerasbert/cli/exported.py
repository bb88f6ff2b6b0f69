"""`kerasbert serve-check`: an exported SavedModel as a server would load it."""

import argparse
import json
import re
import subprocess
from pathlib import Path

from kerasbert import children
from kerasbert.cli.parser import Declare, show
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json

WAIT = 1800  # seconds


def _serve_check(options: argparse.Namespace) -> int:
    found = report(options.directory)
    show(found if options.json else None, options.json, "\n".join(lines(found)))
    return 1 if found["problems"] else 0


def report(directory: str) -> Json:
    """What a process without kerasbert finds of an exported SavedModel.

    Raises:
        InputError: there is none, or TensorFlow cannot load it.
    """
    folder = Path(directory)
    from kerasbert.export import serve_check

    for name in ("saved_model.pb", serve_check.SUMS, serve_check.WARM_UP):
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}: expected a folder that `kerasbert export` wrote, such as NAME/1")
    command = children.isolated(serve_check.__file__, str(folder.resolve()))
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    if done.returncode:
        told = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        said = next((line for line in reversed(told) if re.match(r"[\w.]+(Error|Exception)\b", line)), told[-1])
        raise InputError(f"{folder} cannot be loaded or answers nothing: {said[:300]}")
    return json.loads(done.stdout.splitlines()[-1])


def lines(found: Json) -> list[str]:
    """The report for a reader."""
    told = [f"problem: {each}" for each in found["problems"]]
    if "tensorflow" in found:
        text = ", ".join(found["operators_of_tensorflow_text"]) or "none"
        told.append(f"TensorFlow {found['tensorflow']}, tensorflow_text {found['tensorflow_text']}")
        told.append(f"{found['operators']} operators, of tensorflow_text: {text}")
    if "signatures" in found:
        told.append(f"loaded in {found['load_s']} s, warm-up {found['warm_up_s']} s")
        for name, times in found["signatures"].items():
            told.append(f"{name}: first call after the warm-up {times['first_ms']} ms, later {times['later_ms']} ms")
    return [*told, "as exported" if not found["problems"] else f"{len(found['problems'])} problems"]


def add(command: Declare) -> None:
    """Declare the command."""
    add = command("serve-check", _serve_check, "load an exported SavedModel as a server would, and compare its answers")
    add.add_argument("directory", metavar="DIR", help="what `kerasbert export` wrote, such as NAME/1")
    add.add_argument("--json", action="store_true")
