"""What a process of the lab runs: the text, vocabulary and records once, then a seed of some arms. Prints a json line an arm."""

import json
import random
import shutil
import string
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import keras

import kerasbert
from kerasbert import report
from kerasbert.data import read_lines, read_table
from kerasbert.errors import NonFinite
from kerasbert.lab import plan as plans
from kerasbert.lab import twin
from kerasbert.quickstart import books, measure, samples
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.text.train import train_wordpiece

VOCABULARY = 4000
DEV, TEST = 500, 2000  # sentences that choose the best weights, and that the figure is of
REVERSED = {"train": 20_000, "dev": 200, "test": 500}  # rows of words backwards


def main(folder: str, seed: str, names: str, text: str) -> None:
    """A process: prepare what all share (seed "-"), or run a seed of the named arms, a json list."""
    place = Path(folder)
    arms = json.loads((place / plans.MARKER).read_text("utf-8"))["arms"]
    if seed == "-":
        prepare(place, arms, text or None)
        return
    figure = json.loads(names)
    for name in figure["arms"]:
        print(json.dumps(run(place, name, arms[name], int(seed), figure)), flush=True)


def prepare(folder: Path, arms: Mapping[str, JsonMap], text: str | None) -> None:
    """Write data/, twins/, tokenizer/ and records/; what is there already is left."""
    if not (folder / "data").exists():
        with files.new_directory(folder / "data", inside=True) as new:
            for name, content in samples.contents().items():
                files.write_atomic(new / name, content)
            books.write(new / "authors")
            _cut(new / "authors")
            _write_reversed(new / "reverse")
    corpus = Path(text) if text else folder / "data/authors/train.txt"
    kinds = sorted({arm["data"]["twin"] for arm in arms.values() if "twin" in arm["data"]})
    for kind in kinds:
        if not (folder / "twins" / kind).exists():
            with files.new_directory(folder / "twins" / kind, inside=True) as new:
                twin.write(new, corpus, folder / "data/authors/test.tsv", kind)
    if not (folder / "tokenizer").exists():
        texts = [corpus, *(folder / "twins" / kind / "whole.txt" for kind in kinds)]
        tokenizer = train_wordpiece(read_lines(texts), VOCABULARY)
        with files.new_directory(folder / "tokenizer") as new:
            tokenizer.save(new)
    tokenizer = kerasbert.load_tokenizer(folder / "tokenizer")
    for name, arm in arms.items():
        place = records(folder, arms, name)
        if not place.exists():
            settings = dict(arm["data"])
            own = folder / "twins" / settings.pop("twin") / "text.txt" if "twin" in settings else corpus
            kerasbert.write_records([own], tokenizer, place, processes=1, **settings)


def records(folder: Path, arms: Mapping[str, Mapping[str, object]], name: str) -> Path:
    """The records of an arm: those of the first arm that has the same."""
    first = next(other for other, arm in arms.items() if arm["data"] == arms[name]["data"])
    return folder / "records" / _folder(first)


def runs(folder: Path, group: str, seed: int) -> Path:
    """Where a seed of the arms that pretrain alike is, by the first of them."""
    return folder / "runs" / f"{_folder(group)}-{seed}"


def _folder(arm: str) -> str:
    """The name of an arm's folder: its own may hold a slash."""
    return arm.replace("/", "-")


def _cut(folder: Path) -> None:
    """Sentences and authors into parts by a fixed draw: dev.tsv of the train chapters, TEST lines of the others."""
    for source, parts in (("train", {"dev": DEV, "train": None}), ("test", {"test": TEST})):
        header, *lines = (folder / f"{source}.tsv").read_text("utf-8").splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        for name, count in parts.items():
            files.write_atomic(folder / f"{name}.tsv", header + "".join(lines[:count]))
            lines = lines[count or 0 :]


def _write_reversed(folder: Path) -> None:
    """Letters at random and the same backwards, for a Transformer that begins from nothing."""
    draw = random.Random(0)
    for name, count in REVERSED.items():
        words = [draw.choices(string.ascii_lowercase, k=draw.randint(4, 10)) for _ in range(count)]
        rows = "".join(f"{' '.join(word)}\t{' '.join(reversed(word))}\n" for word in words)
        files.write_atomic(folder / f"{name}.tsv", f"source\ttarget\n{rows}")


def run(folder: Path, name: str, arm: JsonMap, seed: int, asked: JsonMap) -> Json:
    """An arm of a seed -> its line of results.jsonl.

    Args:
        asked: {"arms": those of the process, "figure": of the recipe}.
    """
    clock = time.monotonic()
    found: Json = {"arm": name, "seed": seed}
    arms = json.loads((folder / plans.MARKER).read_text("utf-8"))["arms"]
    place, figure = runs(folder, asked["group"], seed), asked["figure"]
    try:
        if arm["pretrain"]["steps"]:
            _pretrain(records(folder, arms, name), place / "pretrained", arm, seed)
        elif not (place / "pretrained").exists():
            _begin(folder, place / "pretrained", arm["pretrain"], seed)
        tuned = _finetuned(folder, place, name, arm, seed) if figure["of"] == "test" else []
        last = [place / "pretrained", *tuned][-1]
        found |= {"parameters": _parameters(last), "figure": _figure(folder, last, arm, figure)}
        for each in tuned:  # their figure is kept
            shutil.rmtree(each)
    except NonFinite as error:
        found |= {"figure": None, "error": str(error)}
    return found | {"seconds": round(time.monotonic() - clock, 1)}


def _pretrain(place: Path, out: Path, arm: JsonMap, seed: int) -> None:
    settings = {"log_every": 50, "save_every": 0, "quiet": True} | arm["pretrain"]
    kerasbert.pretrain(settings.pop("model"), place, out=out, seed=seed, **settings)


def _begin(folder: Path, out: Path, settings: JsonMap, seed: int) -> None:
    """New weights, which no text has trained."""
    tokenizer = kerasbert.load_tokenizer(folder / "tokenizer")
    keras.utils.set_random_seed(seed)
    changes = {"embeddings.vocabulary": tokenizer.size, **settings["changes"]}
    kerasbert.save(kerasbert.build(settings["model"], **changes), out, tokenizer=tokenizer)


def _parameters(run: Path) -> int:
    """Weights of the encoder, of which shared ones count once."""
    model = kerasbert.load(run)
    return int(getattr(model, "encoder", model).count_params())


def _figure(folder: Path, run: Path, arm: JsonMap, figure: JsonMap) -> float:
    """The reported figure: a metric on test rows, or the last one that the pretraining logged."""
    if figure["of"] == "pretrain":
        return float(report.curves(run)[figure["name"]][-1][1])
    metrics = kerasbert.evaluate(run, rows_of(folder, arm["test"]), batch=64)["metrics"]
    return float(metrics[arm["test"].get("name", figure["name"])])


def rows_of(folder: Path, test: Mapping[str, str]) -> Path:
    """The file that an arm's `test` names, in the second language where it says so."""
    rows = folder / "data" / test["data"]
    return folder / "twins" / test["twin"] / rows.name if "twin" in test else rows


def _finetuned(folder: Path, place: Path, name: str, arm: JsonMap, seed: int) -> list[Path]:
    """Directories of the fine-tuned model and, of an arm that distils, its student."""
    settings = {"quiet": True, "seed": seed} | arm["finetune"]
    task, data = settings.pop("task"), folder / "data" / settings.pop("data")
    if rows := settings.pop("rows", None):
        drawn = place / f"rows-{rows}"
        drawn.mkdir(exist_ok=True)
        files.write_atomic(drawn / "train.tsv", drawn_rows(data / "train.tsv", settings["label_column"], rows, seed))
        shutil.copyfile(data / "dev.tsv", drawn / "dev.tsv")
        data = drawn
    tuned, student = place / _folder(name), place / f"{_folder(name)}, student"
    kerasbert.finetune(place / "pretrained", task, data, out=tuned, **settings)
    if "distill" not in arm:
        return [tuned]
    settings = {"data": data, "out": student, "seed": seed} | arm["distill"]
    if "unlabelled" in settings:
        settings["unlabelled"] = folder / "data" / settings["unlabelled"]
    _distil(tuned, settings)
    return [tuned, student]


def _distil(teacher: Path, settings: Mapping[str, object]) -> None:
    """`kerasbert-mobile distill`, a command above this package, with options of these names.

    Raises:
        InputError: what it says at its end.
    """
    changes = settings.get("changes") or {}
    assert isinstance(changes, Mapping)
    options = [f"--set={field}={json.dumps(value)}" for field, value in changes.items()]
    options += [f"--{key.replace('_', '-')}={value}" for key, value in settings.items() if key != "changes"]
    measure.mobile("distill", teacher, *options)


def drawn_rows(path: Path, column: str, each: int, seed: int) -> str:
    """A tsv of so many rows of every label, drawn by the seed: the same for all arms of it."""
    table, draw = read_table(path, columns=["text", column]), random.Random(seed)
    labels = sorted({row[column] for row in table})
    rows = [row for label in labels for row in draw.sample([row for row in table if row[column] == label], each)]
    draw.shuffle(rows)
    return f"text\t{column}\n" + "".join(f"{row['text']}\t{row[column]}\n" for row in rows)  # as books.write has it


if __name__ == "__main__":
    main(*sys.argv[1:])
