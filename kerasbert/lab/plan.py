"""What an experiment will run: folder, seeds, budget. Refused here, before TensorFlow is imported."""

import dataclasses
import json
import os
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kerasbert.checkpoints.json_files import read_json
from kerasbert.data.processes import available
from kerasbert.data.sources import check_files, read_documents
from kerasbert.errors import InputError
from kerasbert.lab import recipes, twin
from kerasbert.lab.recipes import Experiment
from kerasbert.storage import files, places
from kerasbert.storage.json_view import Json

FORMAT = 1
MARKER, LINES, TEXT = "lab.json", "results.jsonl", "text.txt"
START = 20.0  # seconds of a process that no budget shortens: imports and compilation
LEAST = 0.1  # of the updates
MOST = 1000  # seeds
LETTERS = set(string.ascii_lowercase)  # of the labelled rows
LATIN = 0.1  # of the characters of a text; of English and German it is .75


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment in its folder.

    Args:
        factor: what the updates are multiplied with. processes: at once.
        text: the user's file to pretrain on, or None for the five novels.
    """

    experiment: Experiment
    folder: Path
    seeds: int
    factor: float
    processes: int
    text: str | None = None

    def groups(self) -> list[tuple[int, list[str]]]:
        """(seed, arms): what one process runs, which pretrains once for all arms that pretrain alike."""
        return [(seed, arms) for seed in range(self.seeds) for arms in alike(self.experiment)]

    def told(self) -> list[str]:
        """Lines that say what will be run, and for how long."""
        experiment, arms = self.experiment, self.experiment.arms
        minutes = estimate(experiment, self.seeds, self.processes, self.factor)
        lines = [
            f"{experiment.name}: {len(arms)} arms x {self.seeds} seeds, {self.processes} processes, about {minutes:.0f} min"
        ]
        if self.factor < 1:
            lines.append(f"the budget shortens it: all updates times {self.factor:.2f}, the same for every arm")
        return lines + self._told_of_text() if self.text is not None else lines

    def _told_of_text(self) -> list[str]:
        documents = (self.folder / TEXT).read_text("utf-8").split("\n\n")
        lines = []
        if labelled(self.experiment):
            line = f"{self.text} is pretrained on; labelled rows are those of the novels and samples that ship"
            lacking = LETTERS - twin.characters(documents)
            lines.append(f"{line}, whose words with {', '.join(sorted(lacking))} are [UNK]" if lacking else line)
        if twofold(self.experiment):
            share = sum(map(len, documents[1::2])) / sum(map(len, documents))
            lines.append(f"{share:.0%} of it in the second language: every second of its {len(documents):,} documents")
        return lines


def labelled(experiment: Experiment) -> bool:
    """Whether labelled rows are read, which are English."""
    return any(arm.get("finetune") for arm in experiment.arms.values())


def twofold(experiment: Experiment) -> bool:
    """Whether some text is in a second language."""
    return any("twin" in arm["data"] for arm in experiment.arms.values())


def alike(experiment: Experiment) -> list[list[str]]:
    """Arms by what they pretrain."""
    groups: dict[str, list[str]] = {}
    for name, arm in experiment.arms.items():
        groups.setdefault(json.dumps([arm["data"], arm["pretrain"]], sort_keys=True), []).append(name)
    return list(groups.values())


def estimate(experiment: Experiment, seeds: int, processes: int, factor: float = 1.0) -> float:
    """Minutes: the recipe's, by seeds and processes, of which starting is not scaled."""
    starts = len(alike(experiment)) * START / 60
    whole = experiment.minutes * 2 / recipes.SEEDS  # of a seed in one process
    return seeds * (starts + max(0.0, whole - starts) * factor) / processes


def scale(experiment: Experiment, seeds: int, processes: int, minutes: float | None) -> float:
    """The factor on the updates that fits into a budget, at most 1.

    Raises:
        InputError: it would be under LEAST; with what fits.
    """
    if minutes is None:
        return 1.0
    starts = estimate(experiment, seeds, processes, 0.0)
    factor = (minutes - starts) / max(1e-9, estimate(experiment, seeds, processes) - starts)
    if factor < LEAST:
        least = estimate(experiment, seeds, processes, LEAST)
        raise InputError(
            f"{minutes:g} minutes leave less than a tenth of the updates of {experiment.name} with {seeds} seeds on "
            f"{processes} processes: take --minutes {least:.1f} or more, or fewer --seeds (2 at least)"
        )
    return min(1.0, factor)


def make(
    name: str,
    out: str | os.PathLike,
    seeds: int | None = None,
    minutes: float | None = None,
    text: str | os.PathLike | None = None,
) -> Plan:
    """The plan of a new folder, or of one that is gone on with.

    Raises:
        InputError: no such experiment; too few seeds; a folder that holds something else, or was begun otherwise.
    """
    experiment = recipes.find(name)
    seeds = recipes.SEEDS if seeds is None else seeds
    if seeds < 2:
        raise InputError(f"seeds must be at least 2, for one has no spread. Received: {seeds}")
    if seeds > MOST:
        raise InputError(f"seeds must be at most {MOST:,}. Received: {seeds}")
    if minutes is not None and not 0 < minutes < 1e6:
        raise InputError(f"minutes must be more than 0. Received: {minutes:g}")
    if text is not None:
        check_files([text])
    folder = places.check_begun(out, MARKER, "lab", inputs=[text] if text is not None else [])
    processes = max(1, min(available(), seeds * len(alike(experiment))))
    said = {
        "format": FORMAT,
        "experiment": name,
        "seeds": seeds,
        "minutes": minutes,
        "text": None if text is None else files.sha256(text),
    }
    path = folder / MARKER
    if path.is_file():
        factor = _begun(path, said, experiment, os.fspath(out))
    else:
        factor = scale(experiment, seeds, processes, minutes)
        if text is not None:
            documents = ["\n".join(lines) for lines in read_documents([text])]
            _check_text(text, documents, experiment)
            files.write_atomic(folder / TEXT, "\n\n".join(documents) + "\n")
        files.write_json(path, said | {"factor": factor, "arms": experiment.scaled(factor)})
    return Plan(experiment, folder, seeds, factor, processes, None if text is None else os.fspath(text))


def _check_text(path: str | os.PathLike, documents: Sequence[str], experiment: Experiment) -> None:
    """Refuse a text that cannot fill a batch (it has no more tokens than characters), lacks the letters of the labelled rows or
    cannot be divided into two languages.
    """
    least = max(arm["pretrain"].get("batch", 1) * arm["data"].get("length", 1) for arm in experiment.arms.values())
    size = sum(map(len, documents))
    if size < least:
        raise InputError(
            f"{path} has {size:,} characters, and an update of {experiment.name} reads {least:,} tokens: give a text of "
            "thousands of sentences"
        )
    if labelled(experiment) and (share := _latin(documents)) < LATIN:
        others = ", ".join(name for name in recipes.names() if not labelled(recipes.find(name)))
        raise InputError(
            f"{path} has {share:.0%} Latin letters, and labelled rows are English: its vocabulary would not have their words. "
            f"Experiments without labels: {others}"
        )
    if len(documents) < 2 and twofold(experiment):
        raise InputError(
            f"{path} is one document, and the two languages of {experiment.name} are of different ones: leave a blank line "
            "between documents"
        )


def _latin(documents: Sequence[str]) -> float:
    """The share of the letters of the labelled rows in the characters of a text."""
    counts = Counter("".join(documents))
    every = {character: number for character, number in counts.items() if twin.NORMAL[character].strip()}
    return sum(number for character, number in every.items() if twin.NORMAL[character] in LETTERS) / sum(every.values())


def _begun(path: Path, said: Json, experiment: Experiment, out: str) -> float:
    """The factor that a folder was begun with.

    Raises:
        InputError: it was begun with something else, or is damaged.
    """
    old = read_json(path)
    try:
        factor = float(old["factor"])
        kept = {key: old[key] for key in said}
        same = old["arms"] == experiment.scaled(factor)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}). Choose another --out") from error
    changed = [key for key in said if kept[key] != said[key]] or ([] if same else ["the recipe"])
    if changed:
        told = "; ".join(f"{key} {kept[key]}" for key in changed if key in ("experiment", "seeds", "minutes"))
        raise InputError(
            f"{out} was begun with another {', '.join(changed)}{f' ({told})' if told else ''}. Choose another --out"
        )
    return factor


def finished(folder: Path) -> list[Json]:
    """The lines of results.jsonl; one that a kill cut off is passed over.

    Raises:
        InputError: a line that is none of ours.
    """
    path = folder / LINES
    found = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else [], 1):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict) or not {"arm", "seed", "seconds"} <= record.keys():
            raise InputError(f"{path}, line {number}: expected an arm, a seed and its figure: it is damaged")
        found.append(record)
    return found
