"""The exported files in environments of their own: MediaPipe's reader, and a phone's (numpy and an interpreter)."""

import json
import os
import subprocess
import venv

import numpy as np
import pytest

from tests.mobile.conftest import WORDS
from tests.support import ROOT, python

pytestmark = pytest.mark.slow

CLASSIFY = """
import json, sys
from mediapipe.tasks.python import text
from mediapipe.tasks.python.core.base_options import BaseOptions
options = text.TextClassifierOptions(base_options=BaseOptions(model_asset_path=sys.argv[1]))
with text.TextClassifier.create_from_options(options) as classifier:
    rows = [classifier.classify(line).classifications[0].categories for line in json.load(open(sys.argv[2]))]
json.dump([[(c.category_name, c.score) for c in row] for row in rows], open(sys.argv[3], "w"))
"""
EMBED = """
import json, sys
from mediapipe.tasks.python import text
from mediapipe.tasks.python.core.base_options import BaseOptions
options = text.TextEmbedderOptions(base_options=BaseOptions(model_asset_path=sys.argv[1]))
with text.TextEmbedder.create_from_options(options) as embedder:
    rows = [embedder.embed(line).embeddings[0].embedding.tolist() for line in json.load(open(sys.argv[2]))]
json.dump(rows, open(sys.argv[3], "w"))
"""
ODD = (
    "dúll",
    "DÚLL",
    "the\xa0plot",
    "\u200fvery",
    "ba\xadd",
    "\ufeffa",
    "\u3000it",
    "Ã",
    "“not”",
    "中",
    "film\0bad",
    "x" * 101,
)
PHONE = """
import json, sys, time
from kerasbert.mobile.runtime import load
answer = load(sys.argv[1], cache=sys.argv[2])(["a good film"])[0]
seconds = time.process_time()  # of the processor, Python's own start included: another test may run beside
assert "tensorflow" not in sys.modules
print(json.dumps([answer.to_json(), seconds]))
"""


def environment(directory, *packages):
    """Path of the Python of a fresh virtual environment, or a skip where the packages cannot be had."""
    venv.create(directory, with_pip=True)
    interpreter = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = subprocess.run([interpreter, "-m", "pip", "install", "-q", *packages], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install {' '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")
    return interpreter


def sentences(count):
    """Sentences of the tiny vocabulary, of 1 to 30 words, some longer than the model's length."""
    return [
        " ".join(WORDS[(i * 7 + j * (i + 3)) % len(WORDS)].strip("#") for j in range(1 + i % 30)) for i in range(count)
    ]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """What MediaPipe makes of texts: (script, file, texts) -> its json; in an environment of its own."""
    folder = tmp_path_factory.mktemp("mediapipe")
    interpreter = environment(folder / "venv", "mediapipe>=0.10")

    def read(script, file, texts):
        (folder / "texts.json").write_text(json.dumps(texts))
        command = [interpreter, "-c", script, file, folder / "texts.json", folder / "out.json"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((folder / "out.json").read_text())

    return read


def test_mediapipe_gives_the_same_labels_and_scores(mediapipe_file, reader):
    from kerasbert.mobile import mediapipe
    from kerasbert.mobile.runtime import load

    texts = [
        *sentences(194),
        "A GOOD Film!",
        "un-likeable",
        "bad ... very, very bad",
        "unknownword",
        "film",
        "'not' good?",
        # read otherwise than by the model's own tokenizer
        *(f"{before} good {after}" for before in ODD for after in ("film", "fílm", "É")),
    ]
    runner = load(mediapipe_file[0], cache=False)
    own = runner(texts)
    runner.tokenizer = mediapipe.tokenizer(runner.tokenizer)
    ours = runner(texts)
    assert len(ours) == 200 + 3 * len(ODD)
    assert [a.scores for a in own[:200]] == [a.scores for a in ours[:200]]
    assert sum(a.scores != b.scores for a, b in zip(own, ours)) > len(ODD)
    for answer, row in zip(ours, reader(CLASSIFY, mediapipe_file[0], texts), strict=True):
        assert row[0][0] == answer.label
        assert dict(row) == pytest.approx(answer.scores, abs=1e-3)
    assert len({answer.label for answer in ours}) > 1


def test_mediapipes_embedder_gives_the_keras_vectors(run, reader, tmp_path):
    import kerasbert as kb
    from kerasbert.mobile import compress

    encoder, out = kb.load(run).encoder, tmp_path / "vectors.tflite"
    compress(encoder, "float32", out, target="mediapipe", length=32)
    texts = sentences(60)
    expected = kb.encode(encoder, texts, pooling="mean", length=32)
    np.testing.assert_allclose(reader(EMBED, out, texts), expected, atol=1e-3)
    assert expected.std(axis=0).max() > 0.1


def test_averaged_vectors_and_mediapipe_give_the_same_label(reader, tmp_path):
    """200 sentences by the regex tokenizer, capitals and accents included, and one of more than 256 words."""
    import kerasbert as kb
    from kerasbert.mobile.runtime import load

    texts = [*sentences(150), *(f"{text.title()}, don't!" for text in sentences(20)), *map(str.upper, sentences(18))]
    texts += [f"{odd} good film" for odd in (*ODD[:9], "terribl\u00e9", "don't")] + ["bad " * 300]
    assert len(texts) == 200
    report, model = averaged(tmp_path / "x.tflite")
    runner = load(tmp_path / "x.tflite", cache=False)
    assert report["lengths"] == [256]
    assert [(each.name, each.signature) for each in runner.bundle.inputs] == [("token_ids", "ids")]
    ours = runner(texts)
    for answer, wanted in zip(ours, kb.predict(model, texts, length=256), strict=True):
        assert answer.scores == pytest.approx(wanted.scores, abs=1e-4)
    for answer, row in zip(ours, reader(CLASSIFY, tmp_path / "x.tflite", texts), strict=True):
        assert row[0][0] == answer.label
        assert dict(row) == pytest.approx(answer.scores, abs=1e-3)
    assert len({answer.label for answer in ours}) == 3
    assert ours[-1].truncated


def averaged(out):
    """A file of averaged vectors for MediaPipe, of words with their capitals; its report, and the model."""
    import kerasbert as kb
    from kerasbert.checkpoints.vectors import WordVectors, write_vectors
    from kerasbert.mobile import compress
    from kerasbert.tasks.model import TaskModel
    from kerasbert.tasks.task import Task

    generator = np.random.default_rng(2)
    words = [*(word for word in WORDS if word.isalpha()), "don't", "d", "terribl"]
    write_vectors(
        WordVectors(words, generator.normal(0, 3, (len(words), 8)).astype("float32")), out.parent / "x.vec", "vec"
    )
    settings = {"file": "x.vec", "settings": {"words": "regex", "lowercase": True}}
    (out.parent / "vectors.json").write_text(json.dumps(settings))
    encoder = kb.load(out.parent)
    model = TaskModel(encoder, Task("opinions", labels={"0": "bad", "1": "so so", "2": "good"}))
    model.build()
    kernel = model.heads["classifier"].weights[0]
    kernel.assign(generator.normal(0, 2, kernel.shape))
    report = compress(model, "float32", out, target="mediapipe")
    return report, model


def test_runtime_with_numpy_and_an_interpreter_alone(int8_file, tmp_path):
    from kerasbert.mobile.runtime import load

    interpreter = environment(tmp_path / "venv", "numpy", "ai-edge-litert")
    command = [interpreter, "-c", PHONE, str(int8_file[0]), str(tmp_path / "cache")]
    times = []
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), **_path()})
        assert done.returncode == 0, done.stderr
        answer, seconds = json.loads(done.stdout)
        times.append(seconds)
    expected = load(int8_file[0], cache=False)(["a good film"])[0]
    assert answer["label"] == expected.label
    assert answer["scores"] == pytest.approx(expected.scores, abs=1e-5)
    assert min(times) < 0.5, times


def _path():
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def test_another_process_writes_the_same_bytes(run, int8_file, tmp_path):
    out = tmp_path / "again.tflite"
    call = "mobile.compress(sys.argv[1], out=sys.argv[2], lengths='any', length=24, min_agreement=0.9)"
    code = f"import sys; from kerasbert import mobile; {call}"
    python("-c", code, run, out, PYTHONHASHSEED="7")
    assert out.read_bytes() == int8_file[0].read_bytes()
