"""Mutated bundles, texts and indexes under the address and undefined-behaviour sanitizers."""

import re
import struct
import subprocess

import pytest

from kerasbert.export import bundle
from kerasbert.mobile.native import build
from tests.mobile.native.test_answers import CASES, made
from tests.mobile.native.test_index import index_of
from tests.mobile.native.tokenizers import SMALL, files
from tests.support import ROOT

NAMES = (
    *("wordpiece added", "bpe space added", "unigram lower added"),
    *("bpe llama3 added", "bpe nfc added", "metaspace added"),
)


def corpus(folder) -> list[str]:
    """A file for each tokenizer and case: what a bundle holds; and indexes."""
    paths = []
    for i, case in enumerate(CASES):
        content = bundle.unpack(made(case, files(SMALL[NAMES[i % len(NAMES)]]())).to_zip())
        path = folder / f"{i}.files"
        parts = [struct.pack("<QQ", len(name), len(data)) + name.encode() + data for name, data in content.items()]
        path.write_bytes(b"".join(parts))
        paths.append(str(path))
    packed = made("vector", files(SMALL[NAMES[0]]())).to_zip()
    for width, count in ((1, 3), (3, 10), (64, 5)):
        (folder / str(width)).mkdir()
        paths.append(str(index_of(packed, width, folder / str(width), count)[1]))
    return paths


def fuzz(folder, seconds: int, seed: int) -> str:
    """What a run of the fuzzer says."""
    few = [*build.SANITIZERS, "-DKB_MEMOS=64"]  # words of unigram that are remembered
    program = build.build(folder / "fuzz", few, [ROOT / "tests/mobile/native/fuzz.c"])
    done = subprocess.run([program, str(seconds), str(seed), *corpus(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_a_few_seconds_of_fuzzing(tmp_path):
    said = fuzz(tmp_path, 6, seed=1)
    assert "runs without a finding" in said
    opened, of = map(int, re.findall(r"(\d+) of (\d+) indexes opened", said)[0])
    assert of // 10 < opened < of > 200  # a reader that only refuses is not tried


@pytest.mark.full
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_ten_minutes_of_fuzzing(tmp_path, seed):
    print(fuzz(tmp_path, 600, seed))
