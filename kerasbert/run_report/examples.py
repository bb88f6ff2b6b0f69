"""The texts behind the worst answers: read again where they lie, for a run keeps the numbers of the rows alone."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.run_report.facts import Facts
from kerasbert.storage import files
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.tasks.rows import RowText

HIDDEN = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
LONGEST = 600  # characters of a text, of what was expected and of what was answered


@dataclasses.dataclass(frozen=True)
class Example:
    """An answer. Args: row: which row it is of. parts: name -> text. expected, answered: str."""

    row: str
    parts: dict[str, str]
    expected: str
    answered: str


def examples(facts: Facts) -> tuple[list[Example], str]:
    """The worst answers with their texts, and why there are none."""
    listed = facts.dev.get("wrong", {}).get("listed", [])
    if not listed:
        return [], ""
    if why := _gone(facts):
        return [], why
    try:
        return _examples(facts, listed), ""
    except InputError as error:
        return [], f"Their texts cannot be read again: {error}"


def _gone(facts: Facts) -> str:
    """Why the rows cannot be read again; empty where they can."""
    hashes = facts.settings.get("data") or {}
    paths = dict(facts.run.get("data") or {})
    if not paths or set(hashes) != set(paths):
        return "The rows were in memory, and a run keeps no texts: fine-tune from files to see them here."
    for split, path in paths.items():
        name = os.path.basename(str(path))
        if not os.path.isfile(path):
            return f"{name} is not where it was, and a run keeps no texts: put it back to see them here."
        if files.sha256(path) != hashes[split]:
            return f"{name} has changed since, and a run keeps no texts: they are not shown."
    return ""


def _examples(facts: Facts, listed: Sequence[Json]) -> list[Example]:
    from kerasbert.tasks.task import task_with
    from kerasbert.training.splits import measured

    task = task_with(facts.task, facts.labels)
    rows, _ = measured(task, run=Path(facts.place), split="dev")
    found, held = [], [int(number) for number in str(facts.run.get("held_out") or "").split()]
    for each in listed:
        number: int = each["row"]
        if not 0 <= number < len(rows.texts):
            raise InputError(f"dev.json names row {number} of {len(rows.texts)}: it is damaged")
        text, label = rows.texts[number], rows.labels[number] if rows.labels else ""
        parts = text if isinstance(text, tuple) else (text,)
        shown = task.how.shown(task, text, rows.targets[number], label, each["answer"])
        named = {name: _joined(part) for name, part in zip(task.parts, parts)}
        named = {name: short(part) for name, part in named.items() if part.strip() != shown[0].strip()}  # a target
        where = f"row {held[number] + 1:,}" if number < len(held) else f"dev row {number + 1:,}"
        found.append(Example(where, named, *(short(each) for each in shown)))
    return found


def _joined(part: "RowText") -> str:
    """A text, or a list of texts: choices with a bar between them."""
    return part if isinstance(part, str) else " | ".join(map(_joined, part))


def short(text: str, most: int = LONGEST) -> str:
    r"""A text without line ends, cut where it is long, which it says; characters that hide or turn others are spelled out.

    >>> print(short("a\u202eb " + "c" * 900, 10))
    a\u202eb c... (10 of 909 characters)
    """
    text = " ".join(text.split()).translate(HIDDEN)
    return text if len(text) <= 1.5 * most else f"{text[:most]}... ({most} of {len(text):,} characters)"
