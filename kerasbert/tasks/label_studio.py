"""Exports of Label Studio, JSON and JSON-MIN: which field of a task is the text that was annotated, and its entities.

An annotation names the part of the page that it is of (`to_name`), and which labels it chose from (`from_name`). Which field
of `data` the part shows stands in the project's settings, which no export has: it is the field of that name, else the one
field in which every entity stands where it says that it does. All rows of a file have one such field.
"""

from collections.abc import Callable, Mapping, Sequence

from kerasbert.data.dialects import say
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks.spans import Annotated, same
from kerasbert.tasks.tables import Source, where
from kerasbert.tasks.unlabelled import Unlabelled

SPAN = {"start", "end", "labels"}  # of an entity in JSON-MIN
OURS = ("created_at", "updated_at", "annotator")  # of Label Studio itself, in JSON-MIN beside a task's own fields


def is_export(row: object) -> bool:
    """JSON: the fields of a task within `data`."""
    return isinstance(row, Mapping) and isinstance(row.get("data"), Mapping) and "annotations" in row


def is_minimal(row: object) -> bool:
    """JSON-MIN: the fields of a task beside lists of `{start, end, labels}`, each in a field that its from_name calls."""
    return isinstance(row, Mapping) and "annotation_id" in row and bool(_fields(row))


def reader(source: Source, rows: Sequence[tuple[int, JsonMap]], asked: str) -> Callable[[JsonMap], Annotated]:
    """What reads a row of an export.

    Args:
        rows: (line, row) of all of them. asked: name of the task's text, which is the field where one is called so.

    Raises:
        InputError: no field, or more than one, can be the text; annotations that are none, with file and line.
    """
    field = _field(source, rows, asked)

    def read(row: JsonMap) -> Annotated:
        results, others = _results(row)
        spans = Unlabelled("no annotation") if results is None else [result["value"] for result in results]
        return Annotated(_fields(row).get(field), spans, utf16=True, others=others)

    return read


def _field(source: Source, rows: Sequence[tuple[int, JsonMap]], asked: str) -> str:
    """The field that holds the text."""
    held = [(_fields(row), _results(row, where(source, line))[0] or []) for line, row in rows]
    every = [result for _, results in held for result in results]
    fields = list(dict.fromkeys(name for texts, _ in held for name in texts))
    sets = _named(every, "from_name")
    if len(sets) > 1:
        say(f"{source}: entities of {len(sets)} sets of labels ({', '.join(sets)}) are taken together")
    parts = _named(every, "to_name")
    if len(parts) > 1:
        told = f"entities of {len(parts)} texts are marked ({', '.join(parts)}), expected those of one: export one"
        raise InputError(f"{source}: {told}")
    to_name = parts[0] if parts else "text"
    fitting = [name for name in fields if all(_fits(texts.get(name), results) for texts, results in held if results)]
    if asked in fields or len(fields) < 2:
        return asked if asked in fields else next(iter(fields), "")
    if to_name in (fitting or fields):
        return to_name
    if len(fitting) != 1 or not every:
        told = f"in which field the annotated text {to_name!r} stands is not clear: {', '.join(fitting or fields)}"
        raise InputError(f"{source}: {told}. Name it with --text-column")
    others = ", ".join(name for name in fields if name != fitting[0])
    say(f"{source}: the annotated text {to_name!r} is {fitting[0]!r}, where every entity stands, and not {others}")
    return fitting[0]


def _fields(row: JsonMap) -> dict[str, str]:
    """The texts of a task, by the names of their fields."""
    data = row["data"] if is_export(row) else {name: value for name, value in row.items() if name not in OURS}
    return {name: value for name, value in data.items() if isinstance(value, str)}


def _results(row: JsonMap, place: str = "") -> tuple[list[Json] | None, int]:
    """The entities of a row, None where nobody annotated it; and how many other annotations of it are left out.

    The annotation that is marked as ground truth counts, else the first that was not cancelled.

    Args:
        place: what an error calls the row.

    Raises:
        InputError: annotations of another form.
    """
    if not is_export(row):
        lists = {name: value for name, value in row.items() if isinstance(value, list)}
        spans = [(name, each) for name, value in lists.items() for each in value if isinstance(each, Mapping)]
        return [{"from_name": name, "value": each} for name, each in spans if each.keys() >= SPAN], 0
    annotations = row["annotations"] or []
    results = [each.get("result") or [] for each in annotations] if _objects(annotations) else []
    if not _objects(annotations) or not all(
        _objects(each) and _objects([found.get("value") or {} for found in each]) for each in results
    ):
        raise InputError(
            f"{place}: the annotations are not Label Studio's, which are objects with a list `result` of objects"
        )
    done = [each for each in annotations if not each.get("was_cancelled")]
    done.sort(key=lambda each: not each.get("ground_truth"))
    if not done:
        return None, 0
    return [each for each in done[0].get("result") or () if "start" in (each.get("value") or {})], len(done) - 1


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _named(results: Sequence[JsonMap], key: str) -> list[str]:
    """The names that entities have under a key, each once."""
    return list(dict.fromkeys(str(result[key]) for result in results if result.get(key)))


def _fits(text: str | None, results: Sequence[JsonMap]) -> bool:
    """Whether each entity lies in a text, and is there what it says itself; offsets are of characters or UTF-16 units."""
    units = (text or "").encode("utf-16-le", "surrogatepass")
    for value in (result["value"] for result in results):
        start, end, own = value.get("start"), value.get("end"), value.get("text")
        if text is None or type(start) is not int or type(end) is not int or not 0 <= start < end <= len(units) // 2:
            return False
        there = (text[start:end], units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass"))
        if isinstance(own, str) and not any(same(each, own) for each in there):
            return False
    return True
