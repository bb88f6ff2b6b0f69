"""A run's directory: what it was asked to do, so that it can be resumed, refused or repeated.

It may be an address (gs://bucket/run): an object store cannot append, so metrics.jsonl is written there with every
checkpoint.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import progress, provenance
from kerasbert.checkpoints.run_checkpoints import FOLDER
from kerasbert.errors import InputError
from kerasbert.lazy import later
from kerasbert.storage import files, folders, places, scratch
from kerasbert.storage.aside import Aside
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.storage.remote import is_remote
from kerasbert.training.run_differences import differences
from kerasbert.training.run_lock import RunLock

if TYPE_CHECKING:
    from kerasbert.training.config import TrainConfig

make_schedule = later("kerasbert.training.schedules", "make_schedule")  # of Keras
FORMAT = 1
TOKEN_LENGTHS = "token_lengths"  # of the rows of a fine-tuning, which the lengths of a file for phones are chosen by


@dataclasses.dataclass
class Run:
    """A run and its place.

    A run that replaces an older one is begun beside it, and takes its place with the first complete checkpoint.

    Attributes:
        place: Path, or str where it is an address.
        description: what run.json holds.
        finished: whether it had done all its steps when opened.
        beside: where it lies while the older run has its place; None of another run. discarded: whether it was deleted there.
    """

    place: Path | str
    description: Json
    finished: bool
    waiting: list[str] = dataclasses.field(default_factory=list)
    beside: Path | None = None
    discarded: bool = False
    lock: RunLock | None = None  # of the process that trains it
    _aside: Aside | None = None  # of the process that began it

    @property
    def directory(self) -> Path | str:
        """Where the run lies now; of a run on several machines another may have moved it."""
        return self.place if self.beside is None or not self.beside.is_dir() else self.beside

    def settle(self) -> None:
        """Take the place of the older run, which is deleted.

        Raises:
            InputError: the older one holds files that are not ours by now.
        """
        if self._aside is None:
            return
        places.check_folder(self.place, replace=True)
        cache = Path(self.place) / "cache"  # what both may read
        if cache.is_dir() and not (self._aside.new / "cache").exists():
            os.rename(cache, self._aside.new / "cache")
        self._aside.put(replace=True)
        self.beside = self._aside = None
        if self.lock is not None:
            self.lock.take()

    def part(self) -> None:
        """Lie for good beside the older run, which keeps its place: `.failed` and, for the next ones, a number."""
        if self._aside is None:
            return
        place = Path(os.path.realpath(self.place))
        names = (f"{place.name}.failed{number or ''}" for number in itertools.count())
        self.place = next(path for path in map(place.with_name, names) if not os.path.lexists(path))
        os.rename(self._aside.new, self.place)
        self.abandon()

    def abandon(self) -> None:
        """Delete what was begun beside an older run."""
        if self._aside is not None:
            self._aside.discard()
            self.discarded = True
        self.beside = self._aside = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What a disk refuses within is told with where the run lies that the same command goes on with."""
        try:
            yield
        except InputError as error:
            if self._aside is not None or self.discarded:
                raise
            with files.kept(self.directory):
                raise error

    def finish(self) -> None:
        """Write down that all steps were made."""
        self.flush()
        self.description |= {"finished_steps": self.description["settings"]["steps"], "finished": provenance.now()}
        _write_json(self.directory, self.description)

    def log(self, record: Mapping[str, object]) -> None:
        """Append a line to metrics.jsonl; non-finite values are dropped: JSON has no NaN."""
        kept = {name: value for name, value in record.items() if not isinstance(value, float) or math.isfinite(value)}
        line = json.dumps(kept) + "\n"
        if is_remote(self.directory):
            self.waiting.append(line)
            return
        path = Path(self.directory) / "metrics.jsonl"
        with files.writing(path), path.open("a", encoding="utf-8") as file:
            file.write(line)

    def flush(self) -> None:
        """Write the lines that wait for a checkpoint."""
        if self.waiting:
            path = folders.join(self.directory, "metrics.jsonl")
            folders.write(path, (folders.read(path) or b"") + "".join(self.waiting).encode())
            self.waiting = []

    def records(self) -> list[Json]:
        """The whole lines of metrics.jsonl."""
        found = []
        for line in (folders.read(folders.join(self.directory, "metrics.jsonl")) or b"").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):  # being written when the process was killed, or damaged
                continue
            if isinstance(record, dict) and isinstance(record.get("step", 0), int):
                found.append(record)
        return found

    def rewind(self, step: int) -> None:
        """Drop the metrics of updates after `step`, which are made again."""
        kept = [json.dumps(record) + "\n" for record in self.records() if record.get("step", 0) <= step]
        folders.write(folders.join(self.directory, "metrics.jsonl"), "".join(kept))
        self.waiting = []

    def grow(self, settings: "TrainConfig", step: int) -> str | None:
        """Write into `history` where a run that was given more steps left its first schedule; what is to be said of it.

        Args:
            settings: TrainConfig, with the new steps.
            step: int, updates that were made.
        """
        waiting = [entry for entry in self.description.get("history", []) if "until" not in entry]
        if not waiting:
            return None
        asked = self.description["settings"].get("warmup")

        def rate(steps: int, update: int) -> float:
            warmup = steps // 10 if asked is None else asked
            options = settings.schedule_options
            return float(make_schedule(settings.schedule, settings.learning_rate, steps, warmup, options)(update))

        for entry in waiting:
            rates = [rate(entry["steps"], max(step - 1, 0)), rate(settings.updates, step)]
            entry |= {"until": step, "schedule": settings.schedule, "learning_rates": rates}
        _write_json(self.directory, self.description)
        before, after = rates
        return (
            None
            if not step
            else (
                f"{self.directory} was to have {waiting[-1]['steps']} updates and now has {settings.steps}: the learning rate "
                f"goes from {before:.3g} at update {step} to {after:.3g} at update {step + 1}. run.json records both schedules; "
                "--overwrite trains anew under one"
            )
        )

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """The folder of the run's model directory; a copy of it where the run is at an address."""
        if not is_remote(self.directory):
            yield Path(self.directory)
            return
        with scratch.folder() as folder:
            folders.download(
                str(self.directory), Path(folder), ("run.json", "model.json", "weights.safetensors", "tokenizer")
            )
            yield Path(folder)


def _write_json(directory: Path | str, value: object) -> None:
    folders.write(folders.join(directory, "run.json"), json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@dataclasses.dataclass(frozen=True)
class DataPlaces:
    """Where the rows of a run lie; their hashes are among its settings.

    Args:
        data: split -> file, for `data_of`, or rows in memory.
        held_out: numbers of the rows that are held out of the training rows, one text; None with dev rows of their own.
        token_lengths: how many tokens the training rows have, from the least to the most (`Encoded.length_quantiles`).
    """

    data: JsonMap = dataclasses.field(default_factory=dict)
    held_out: str | None = None
    token_lengths: Sequence[int] = ()

    def to_json(self) -> Json:
        """What run.json says of them: nothing where there are none."""
        if not self.data:
            return {}
        paths = {split: path for split, path in self.data.items() if isinstance(path, str | os.PathLike)}
        told = {"data": {split: os.path.abspath(path) for split, path in paths.items()}, "held_out": self.held_out}
        return told | ({TOKEN_LENGTHS: list(self.token_lengths)} if self.token_lengths else {})


def open_run(
    out: str | os.PathLike,
    kind: str,
    settings: Mapping[str, object],
    *,
    data: DataPlaces = DataPlaces(),
    overwrite: bool = False,
    strategy: str | None = None,
    quiet: bool = False,
) -> Run:
    """Begin a run in a folder, or go on with the one it holds.

    Args:
        out: the run's directory.
        kind: "pretrain", "finetune" or "distill".
        settings: json, everything that the result depends on, with `steps`.
        data: where the rows lie.
        overwrite: start afresh in the place of an older run.
        strategy: where it trains, for run.json; going on elsewhere is no difference, and said unless quiet.
        quiet: bool.

    Raises:
        InputError: the folder holds something else, or another run: the fields that differ are named.
    """
    directory = os.fspath(out) if is_remote(out) else Path(out)
    settings = json.loads(json.dumps(dict(settings)))
    description = {"format": FORMAT, "kind": kind, "settings": settings, "environment": provenance.environment()}
    description["made"] = provenance.made()
    if strategy:
        description["strategy"] = strategy
    description |= data.to_json()
    try:
        old = _read(directory)
        if old is not None and overwrite:
            return _begin_anew(directory, description)
        if old is None:
            _begin(directory, description)
            return Run(directory, description, finished=False)
    except folders.tf.errors.OpError as error:
        raise folders.refused(directory, error) from error
    return _gone_on(directory, old, description, quiet)


def _gone_on(directory: Path | str, old: Json, new: JsonMap, quiet: bool) -> Run:
    """The run that `old` describes, as `new` asks for it: with more steps perhaps, or at another place."""
    settings, strategy = new["settings"], new.get("strategy")
    if differ := differences(old, new):
        raise another_run(directory, differ)
    changed = [name for name, value in new["environment"].items() if old.get("environment", {}).get(name) != value]
    finished = old.get("finished_steps") == settings["steps"]
    if changed and not finished:
        warnings.warn(
            f"{directory} was begun elsewhere ({', '.join(changed)} differ): the result will not be the same to the bit",
            stacklevel=3,
        )
    moved = bool(strategy) and old.get("strategy", strategy) != strategy
    if moved and not finished:
        progress.say(f"{directory} was begun on {old['strategy']}: on {strategy} the rounding differs", quiet=quiet)
    if old["settings"]["steps"] != settings["steps"]:  # the trainer adds at which update the schedule changed
        old.setdefault("history", []).append({"steps": old["settings"]["steps"]})
    if old["settings"] != settings or (moved and not finished):  # more steps, another place
        old |= {"settings": settings} | ({"strategy": strategy} if moved else {})
        _write_json(directory, old)
    return Run(directory, old, finished)


def another_run(directory: str | os.PathLike, differ: Sequence[str]) -> InputError:
    """The error of a place that holds another run: what differs is told in words."""
    return InputError(f"{directory} holds another run: {'; '.join(differ)}. Choose another --out or pass --overwrite")


def _begin_anew(directory: Path | str, description: Json) -> Run:
    """Begin a run where an older one is: beside it; at an address, which has no rename, in its place."""
    if is_remote(directory):
        folders.remove(str(directory))
        _begin(directory, description)
        return Run(directory, description, finished=False)
    aside = Aside(places.check_folder(directory, replace=True), folder=True)
    files.write_json(aside.new / "run.json", description)
    places.mark(aside.new)
    return Run(directory, description, finished=False, beside=aside.new, _aside=aside)


def check_place(out: str | os.PathLike, overwrite: bool = False, inputs: Iterable[object] = ()) -> None:
    """Refuse a place where no run can be, before anything is read.

    Args:
        out: the run's directory; of an address nothing is asked here.
        overwrite: whether a run that is there is to be replaced.
        inputs: what is read: paths, or lists and dicts of some; what is none is passed over.
    """
    if is_remote(out):
        return
    every = itertools.chain.from_iterable(
        each.values() if isinstance(each, Mapping) else each if isinstance(each, list | tuple) else [each]
        for each in inputs
    )
    names = [name for name in every if isinstance(name, str | os.PathLike)]
    real = places.check_begun(out, "run.json", "run", overwrite, names, several=True)
    for folder in (real, real / FOLDER):
        files.sweep(folder)


def run_in(out: str | os.PathLike) -> Json | None:
    """What run.json in a run's own folder or address holds; None where it holds no run."""
    return _read(os.fspath(out) if is_remote(out) else Path(out))


def data_of(directory: str | os.PathLike) -> dict[str, Path]:
    """The train and dev files of a fine-tuned run, if they still lie where they did and hold the same; else none."""
    described = description_of(directory) or {}
    hashes = (described["settings"].get("data") or {}) if "data" in described else {}
    found = {}
    if hashes and set(hashes) != set(described["data"]):  # some were in memory
        return {}
    for split, path in described.get("data", {}).items():
        if not os.path.isfile(path) or files.sha256(path) != hashes.get(split):
            return {}
        found[split] = Path(path)
    return found


def description_of(directory: str | os.PathLike) -> Json | None:
    """What run.json of a run, or of RUN@STEP, holds; None where there is none."""
    if not is_remote(directory) and not os.path.exists(directory):
        directory = os.fspath(directory).rpartition("@")[0] or directory
    return run_in(directory)


def rows_of(directory: str | os.PathLike) -> Json | None:
    """What run.json tells of a fine-tuning's rows, for a model that is made of the run's and not trained; None without any."""
    described = description_of(directory)
    if not described or "data" not in described:
        return None
    names = ("steps", "data", "seed", *(["reading"] if "reading" in described["settings"] else []))
    settings = {name: described["settings"].get(name) for name in names}
    kept = {name: described[name] for name in ("format", "data", "held_out", TOKEN_LENGTHS) if name in described}
    return kept | {"kind": "rewritten", "settings": settings}


def _begin(directory: Path | str, description: JsonMap) -> None:
    used = (
        folders.names(directory)
        if is_remote(directory)
        else (path := Path(directory)).exists() and (not path.is_dir() or any(path.iterdir()))
    )
    if used:
        raise InputError(f"{directory} holds something that is not a run. Choose another --out")
    if is_remote(directory):
        _write_json(directory, description)
        return
    with files.new_directory(directory) as folder:
        files.write_json(folder / "run.json", description)


def _read(directory: Path | str) -> Json | None:
    path = folders.join(directory, "run.json")
    content = folders.read(path)
    if content is None:
        return None
    try:
        old = json.loads(content)
        _ = old["settings"]["steps"], old["kind"]
        return old
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}). Choose another --out or remove the folder") from error


def say_finished(directory: str | os.PathLike, steps: int | None, quiet: bool) -> None:
    """Tell that nothing is trained, for a run has all its steps."""
    progress.say(f"{directory} is finished: {steps} steps were made", quiet=quiet)
