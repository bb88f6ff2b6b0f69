"""Two files of which the lines belong together, as fairseq, OpenNMT and older examples have them: train.src and train.tgt."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kerasbert.data.dialects import say
from kerasbert.data.reading import numbered_lines, plain_name
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.tables import Memory

SOURCES, TARGETS = ("source", "src"), ("target", "tgt", "trg")
TABLES = ("tsv", "csv", "json", "jsonl", "parquet", "txt", "md")


def sources(folder: Path, task: Task, splits: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Memory]]:
    """(split, rows) of a folder whose splits are two files of lines: of a task whose two parts are a source and a target.

    The file of a part is called by the part's column (`--text-column en --text-b-column de`: train.en, train.de), or is one of
    `SOURCES` and `TARGETS`: train.src, src-train.txt.

    Raises:
        InputError: which of two files is the source is not said; files of different length; a line beside an empty one.
    """
    if len(task.parts) != 2 or task.label:
        return
    held = {file.name: file for file in sorted(folder.iterdir()) if file.is_file()}
    for split, names in splits.items():
        for name in names:
            known = [_files(held, name, (column, *words)) for column, words in zip(task.parts, (SOURCES, TARGETS))]
            if all(known):
                one, other = (files[0] for files in known)
                yield split, _joined(one, other, task)
                break
            plain = [plain_name(file) for file in held.values()]
            parted = [each for each in plain if each.name.startswith(f"{name}.") and each.suffix[1:] not in TABLES]
            if len(parted) == 2:
                one, other = (each.suffix[1:] for each in parted)
                raise InputError(
                    f"{folder} holds {parted[0].name} and {parted[1].name}: which is the source? Pass --text-column {one} "
                    f"--text-b-column {other}, or the other way round"
                )


def _files(held: Mapping[str, Path], split: str, words: Sequence[str]) -> list[Path]:
    """The files of a split that are called by one of the words: train.src, train.src-tgt.src, src-train.txt, src.train."""
    found = []
    for word in words:
        for file in held.values():
            name = plain_name(file).name
            if name in (f"{word}-{split}.txt", f"{word}.{split}") or (
                name.startswith(f"{split}.") and name.endswith(f".{word}")
            ):
                found.append(file)
    return found


def _joined(one: Path, other: Path, task: Task) -> Memory:
    lines = [[text.strip() for _, text in numbered_lines(file)] for file in (one, other)]
    if len(lines[0]) != len(lines[1]):
        raise InputError(
            f"{one} has {len(lines[0])} lines and {other.name} {len(lines[1])}, expected as many: a line of one belongs to the "
            "same line of the other"
        )
    rows, empty = [], 0
    for number, pair in enumerate(zip(*lines), 1):
        if not any(pair):
            empty += 1
        elif not all(pair):
            file, against = (one, other) if not pair[0] else (other, one)
            raise InputError(f"{file}, line {number} is empty, and {against.name} has a text there. Drop both lines")
        else:
            rows.append(dict(zip(task.parts, pair)))
    if not rows:
        raise InputError(f"{one} and {other.name} hold no text, expected a text a line")
    dropped = f"; {empty} empty in both are dropped" if empty else ""
    say(f"{one}: its lines are {task.text}, those of {other.name} {task.text_b} ({len(rows)} rows{dropped})")
    return Memory(tuple(rows), f"{one} and {other.name}")
