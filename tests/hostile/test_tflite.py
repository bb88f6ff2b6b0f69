"""Hostile .tflite files: whatever is done to one, there is an answer or one line; never a signal, a hang, a traceback."""

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kerasbert.export import bundle
from tests.hostile import fuzz, mutations

KEPT, ANEW = "digest kept", "digest anew"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four good files: dynamic int8 of any length, float32 and static int8 of two lengths, and one that reads a language."""
    from kerasbert.mobile import compress
    from tests.mobile.conftest import TEXTS, make_run

    folder = tmp_path_factory.mktemp("good")
    run = make_run(folder / "run")
    compress(run, out=folder / "any.tflite", lengths="any", length=24, min_agreement=0)
    compress(run, "float32", folder / "buckets.tflite", lengths=[8, 24], texts=TEXTS)
    settings = {"lengths": [8, 24], "texts": TEXTS, "calibration": TEXTS * 4, "min_agreement": 0}
    compress(run, "static_int8", folder / "static.tflite", **settings)
    spoken = {"languages": {"en": 0, "fr": 1}, "settings": {"language": "fr"}}
    spec = {"embeddings.languages": 2, "blocks.layers": 2}
    speaks = make_run(folder / "speaks", name="xlm/mlm-tlm-xnli15-1024", spec=spec, **spoken)
    compress(speaks, out=folder / "language.tflite", lengths=[8, 24], min_agreement=0)
    return [folder / f"{name}.tflite" for name in ("any", "buckets", "static", "language")]


def mutated(data: bytes, seed: str) -> tuple[str, str, bytes]:
    """(group, name, bytes); the half with the digest made anew is what a hash cannot tell, the other what accidents do."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        name, changed = mutations.damaged(data, draw)
        return KEPT, f"{name} {seed}", changed
    archive = zipfile.ZipFile(io.BytesIO(data))
    begin = min(entry.header_offset for entry in archive.infolist())
    front, members = data[:begin], {entry.filename: archive.read(entry) for entry in archive.infolist()}
    if draw.random() < 0.6:
        name, front = mutations.damaged(front, draw)
        settings = json.loads(members[bundle.SETTINGS]) | {"digest": hashlib.sha256(front).hexdigest()}
        members[bundle.SETTINGS] = json.dumps(settings).encode()
        return ANEW, f"{name} {seed}", front + mutations.zipped(list(members.items()))
    name, changed = mutations.damaged_zip(members, draw)
    return ANEW, f"{name} {seed}", front + mutations.zipped(changed)


def cases(data: bytes, count: int, seed: str) -> Iterator[tuple[str, str, Callable[[Path], Path]]]:
    """Mutations of a file."""
    for number in range(count):
        group, name, changed = mutated(data, f"{seed} {number}")

        def write(folder: Path, changed: bytes = changed) -> Path:
            (folder / "case.tflite").write_bytes(changed)
            return folder / "case.tflite"

        yield group, name, write


def check(files, worker: fuzz.Worker, count: int) -> None:
    """`count` mutations, as many of each file."""
    for path in files:
        print(f"\n{path.name}")
        table, lines = fuzz.run(worker, "tflite", path, cases(path.read_bytes(), count // len(files), path.stem))
        for group in (KEPT, ANEW):
            assert not any(table[group][outcome] for outcome in fuzz.BAD), lines
        assert not any(table[KEPT][outcome] for outcome in ("near", "other")), lines
        assert table[KEPT]["error"] > 0.8 * table[KEPT].total()  # the mutations do damage
        assert table[ANEW]["error"] < table[ANEW].total()  # and the digest that was made anew is taken


@pytest.mark.slow
def test_a_slice_of_hostile_files(files, worker):
    check(files, worker, 150)


@pytest.mark.full
def test_hostile_files(files, worker):
    check(files, worker, 3000)
