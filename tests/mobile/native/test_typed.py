"""Typed answers in other languages == what the Python runtime answers; each language cuts the texts of spans out itself."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import StoredIndex, load
from kerasbert.mobile.runtime.stored_index import write as write_index
from tests.mobile.native.networks import TASKS, network
from tests.mobile.native.runners import litert
from tests.mobile.native.script import word
from tests.mobile.native.test_answers import close
from tests.mobile.native.test_runner import asked
from tests.mobile.native.tools import in_chromium, needed, npm
from tests.support import ROOT

pytestmark = pytest.mark.native
HERE = ROOT / "tests/mobile/native"
CLASSES = {
    "classification": "Classifier",
    "multi_label": "Classifier",
    "regression": "Regressor",
    "vector": "Embedder",
    "choice": "Chooser",
    "span": "QuestionAnswerer",
    "tags": "Tagger",
    "tokens": "MaskFiller",
}
WASM = {"rel": 1e-4, "most": 1e-5}  # it sums in another order than the machine's own code, without a fused multiply-add


class Asked(NamedTuple):
    """A file, its inputs as lines, and the answers that they must have."""

    task: str
    path: Path
    kind: str
    lines: list[str]
    answers: list[Any]


def units(text: str, at: int) -> int:
    """An offset of code points in units of UTF-16."""
    return len(text[:at].encode("utf-16-le")) // 2


def span(each: dict, source: str) -> list:
    """A span as the drivers print it."""
    places = [units(source, each[name]) for name in ("start", "end")]
    return [each["text"], each.get("label", ""), each["score"], *places]


def form(kind: str, answer: dict, texts: list[str]) -> list:
    """What a driver prints for an answer's json."""
    if kind in ("classification", "multi_label"):
        scores, chosen = answer["scores"], answer.get("labels", [answer.get("label")])
        best = max(scores, key=lambda name: scores[name])
        labels = [[name, score, i, name in chosen] for i, (name, score) in enumerate(scores.items())]
        found = [best, scores[best], labels]
    elif kind == "regression":
        found = [answer["value"]]
    elif kind == "vector":
        found = [answer["values"], 1.0]  # the cosine to itself
    elif kind == "choice":
        index = answer["index"]
        choices = [[text, score, i, i == index] for i, (text, score) in enumerate(zip(texts[1:], answer["scores"]))]
        found = [index, answer["score"], choices]
    elif kind == "span":
        found = [span(answer, texts[1]), [span(each, texts[1]) for each in answer.get("alternatives", [])]]
    elif kind == "tags":
        source, columns = " ".join(texts), ("words", "labels", "scores", "starts", "ends")
        words = [
            dict(zip(("text", "label", "score", "start", "end"), row)) for row in zip(*(answer[c] for c in columns))
        ]
        found = [[span(each, source) for each in words], [span(each, source) for each in answer["entities"]]]
    else:
        tokens = [[[t["token"], t["score"], t["id"], i == 0] for i, t in enumerate(mask)] for mask in answer["tokens"]]
        found = [answer["text"], tokens]
    return [*found, answer.get("truncated", False)]


@pytest.fixture(scope="module", params=TASKS)
def file(request, tmp_path_factory) -> Asked:
    """A file of each kind and 200 inputs: emoji, right to left, Chinese, combining marks."""
    path, lines, answers = network(request.param, tmp_path_factory.mktemp("typed")), [], []
    with load(path, cache=False) as python:
        kind = python.bundle.kind
        for number, text in enumerate(asked(request.param, 200)):
            prompt = ("query", "", None)[number % 3] if kind == "vector" else None
            words = kind == "tags" and not isinstance(text, str)
            parts = text if isinstance(text, tuple) else (text,)
            texts = list(text) if words else [t for p in parts for t in (p if isinstance(p, tuple) else (p,))]
            before = [] if prompt is None else [prompt]  # a driver takes it as a first text
            lines.append(" ".join([str(int(words)), *map(word, before + texts)]))
            answers.append(form(kind, python([text], prompt_name=prompt)[0].to_json(), texts))
    return Asked(request.param, path, kind, lines, answers)


def plain(answer: Any) -> Any:
    """Strings of hexadecimal digits as text."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return bytes.fromhex(answer).decode() if isinstance(answer, str) else answer


def same(said: list[str], file: Asked, **tolerance: float) -> None:
    """What a driver printed must be the answers. tolerance: of `close`."""
    assert len(said) == len(file.answers), said[-1:]
    for number, (line, wanted) in enumerate(zip(said, file.answers)):
        assert not line.startswith("error"), line
        close(wanted, plain(json.loads(line)), f"{file.task} {number}", **tolerance)


def follow(command: list, file: Asked, **tolerance: float) -> None:
    """Give a driver the lines of a file."""
    line = [*command, CLASSES[file.kind], file.path, litert()]
    done = subprocess.run(line, input="\n".join(file.lines) + "\n", capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    same(done.stdout.splitlines(), file, **tolerance)


def told(command: list, name: str, path: Path, lines: str = "") -> str:
    """What a driver says of a file that is not to be opened, or of inputs that are refused."""
    line = [*command, name, path, litert()]
    done = subprocess.run(line, input=lines, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check_refusals(command: list, file: Asked, folder: Path, missing: str) -> None:
    """What a driver says of a file that is not there, and of one that answers with another kind than asked."""
    assert missing in told(command, "Classifier", folder / "none.tflite")
    other = "Tagger" if file.kind != "tags" else "Embedder"
    assert f"error the file answers with {file.kind}, expected" in told(command, other, file.path)


def test_in_cpp(cpp, file):
    follow(cpp, file)


def test_what_cpp_is_told(cpp, file, tmp_path):
    check_refusals(cpp, file, tmp_path, "cannot read")


def test_the_cpp_header_without_exceptions(tmp_path):
    """And with a compiler's strictest warnings."""
    (gcc,) = needed("g++")
    use = '#include "kerasbert.hpp"\nint main() { return kerasbert::Tagger::open("none").value().kind() == "tags"; }'
    (tmp_path / "x.cpp").write_text(use)
    flags = [
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wshadow=local",
        "-Werror",
        "-pedantic",
        f"-I{build.FOLDER}",
    ]
    for more in (["-fno-exceptions", "-fno-rtti"], []):
        subprocess.run([gcc, *flags, *more, "-c", "-o", tmp_path / "x.o", tmp_path / "x.cpp"], check=True)


def test_on_the_jvm(java, file):
    follow(java, file)


def test_what_the_jvm_is_told(java, file, tmp_path):
    check_refusals(java, file, tmp_path, "cannot read")
    if file.kind == "tags":
        assert told(java, "Tagger", file.path, "cancel\n") == "cancelled true: the answer was cancelled\n"
    if file.kind == "choice":
        assert "error an input has 1 choices, expected at least two" in told(java, "Chooser", file.path, "0 61 62\n")
    if file.kind == "vector":
        assert "error no prompt 'a': the file has passage, query" in told(java, "Embedder", file.path, "0 61 62\n")


def test_in_node(node, file):
    follow(node, file, **WASM)


def test_what_node_is_told(node, file, tmp_path):
    check_refusals(node, file, tmp_path, "no such file")


@pytest.fixture(scope="module")
def served(node) -> Iterator[tuple[Path, str]]:
    """The project of `node` behind a server -> its folder and address."""
    folder = Path(node[1]).parent
    for name in ("typed.html", "typed.mjs"):
        shutil.copy(HERE / name, folder)
    handler = functools.partial(Silent, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/typed.html"
        server.shutdown()


class Silent(http.server.SimpleHTTPRequestHandler):
    """Of the project's files."""

    def log_message(self, *_: Any) -> None:
        pass


def test_in_chromium(served, file):
    """The package as npm installs it, in a page without a bundler."""
    folder, address = served
    shutil.copy(file.path, folder / "model.tflite")
    (folder / "job.json").write_text(json.dumps({"name": CLASSES[file.kind], "lines": file.lines}))
    same(json.loads(in_chromium(address)["state"]), file, **WASM)


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Asked:
    """A file of vectors, its index of 200 texts, and the three nearest to each of them, without those that are there twice.

    After the file's default prompt, as the drivers ask for vectors.
    """
    path, texts = network("sts", tmp_path_factory.mktemp("searched")), list(dict.fromkeys(asked("sts", 200)))
    with load(path, cache=False) as python:
        write_index(python, ((f"n{i}", text) for i, text in enumerate(asked("sts", 200))), f"{path}.kbindex")
        index = StoredIndex(python, f"{path}.kbindex")
        found = [
            [[hit.index, hit.score, hit.id, hit.text] for hit in index.nearest(text, 3, "passage")] for text in texts
        ]
    return Asked("sts", path, "index", [f"0 {word(text)}" for text in texts], found)


@pytest.mark.parametrize("language", ["cpp", "java", "node"])
def test_an_index_is_searched_alike(language, searched, request):
    """A number of a vector that the machine rounds otherwise moves a score in the third digit, and may change equals' places."""
    line = [*request.getfixturevalue(language), "Index", searched.path, litert()]
    done = subprocess.run(
        line, input="\n".join(searched.lines) + "\n", capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [plain(json.loads(each)) for each in done.stdout.splitlines()]
    assert len(said) == len(searched.answers)
    same_hits = 0
    for hits, wanted in zip(said, searched.answers):
        assert [hit[1] for hit in hits] == pytest.approx([hit[1] for hit in wanted], abs=5e-3)
        same_hits += [[*hit[:1], *hit[2:]] for hit in hits] == [[*hit[:1], *hit[2:]] for hit in wanted]
    assert same_hits >= 0.95 * len(said)


def test_the_types(node):
    """An app in TypeScript compiles with the types of the installed package; no other may be called."""
    folder, tsc = Path(node[1]).parent, npm() / "node_modules" / "typescript" / "bin" / "tsc"
    shutil.copy(HERE / "typed.mts", folder)
    flags = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "false"]
    done = subprocess.run([node[0], tsc, *flags, folder / "typed.mts"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
