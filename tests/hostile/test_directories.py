"""Damaged model directories and records: refused in one line, or read as what was written; never another model or other data."""

import collections
import json
import random
import shutil

import numpy as np
import pytest

from kerasbert.checkpoints import load_encoder
from kerasbert.data import write_records
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.layers.naming import values
from tests import tiny

OTHER = "silently other"


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A bit flipped, a byte or a run changed, cut, lengthened, or two runs exchanged; json: a value or a key."""
    content, kind = bytearray(data), draw.randrange(7)
    at = draw.randrange(len(content))
    if data.startswith(b"{") and kind > 2:
        return json_mutated(data, draw)
    if kind == 0:
        content[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        content[at] = draw.randrange(256)
    elif kind == 2:
        content[at : at + draw.randint(1, 64)] = draw.randbytes(draw.randint(1, 64))
    elif kind == 3:
        del content[at:]
    elif kind == 4:
        content[at : at + 64] = bytes(len(content[at : at + 64]))
    elif kind == 5:
        content += draw.randbytes(draw.randint(1, 64))
    else:
        half = len(content) // 2
        content = content[half:] + content[:half]
    return bytes(content)


def json_mutated(data: bytes, draw: random.Random) -> bytes:
    """A field of the json is removed, renamed, or gets another value."""
    tree = json.loads(data)
    spots = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            spots.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(tree)
    node, key = draw.choice(spots)
    value = node[key]
    kind = draw.randrange(4)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[f"{key}s"] = node.pop(key)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        node[key] = draw.choice([None, "", 0, [], {}, -1, [value], "x/../../y", 2**40])
    else:
        node[key] = draw.choice([value + 1, -value, 0, value * 2, 0.5, 1e30, None, str(value)])
    return json.dumps(tree).encode()


def measure(folder, names, read, count, seed=0):
    """Mutate one file after the other `count` times in all -> how often the outcome was what."""
    draw, seen, expected = random.Random(seed), collections.Counter(), read(folder)
    for number in range(count):
        path = folder / names[number % len(names)]
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, draw))
        if path.read_bytes() == whole:
            continue
        try:
            found = read(folder)
            same = found.keys() == expected.keys() and all(np.array_equal(found[n], expected[n]) for n in expected)
            seen["the same" if same else OTHER] += 1
        except InputError as error:
            seen["refused" if "\n" not in str(error) else "several lines"] += 1
        except Exception as error:
            seen[f"traceback: {type(error).__name__}"] += 1
        finally:
            path.write_bytes(whole)
    print(f"{', '.join(sorted({name.rpartition('.')[2] for name in names}))}: {dict(seen)}")
    return seen


def model(folder):
    """Weights, settings and tokenizer of a model directory, as numbers."""
    encoder, info = load_encoder(folder)
    said = f"{info} {encoder.tokenizer.digest()} {encoder.labels}".encode()
    return values(encoder) | {"said": np.frombuffer(said, "uint8")}


def data(folder):
    """Everything that training reads of records."""
    records = Records(folder).verify()
    read = np.concatenate([records.rows(shard) for shard in records.shards])
    said = (
        f"{records.features} {records.dtype} {records.length} {records.manifest['unigram']} {records.tokens}".encode()
    )
    return {"rows": read, "said": np.frombuffer(said, "uint8")}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Shards of several blocks."""
    folder = tmp_path_factory.mktemp("hostile")
    corpus = tiny.corpus(folder / "corpus.txt", documents=400)
    write_records([corpus], tiny.tokenizer(), folder / "records", length=24)
    return folder / "records"


def check(seen):
    assert seen["refused"]
    assert set(seen) <= {"refused", "the same"}, seen


@pytest.mark.slow
def test_a_damaged_model_directory_is_refused(pretrained, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "run")
    names = ["weights.safetensors", "model.json", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"]
    check(measure(folder, names, model, 500))


@pytest.mark.slow
def test_damaged_records_are_refused(records):
    assert Records(records).shards[0].blocks > 2
    check(measure(records, [Records(records).shards[0].file], data, 500))
    check(measure(records, ["manifest.json"], data, 500, seed=1))
