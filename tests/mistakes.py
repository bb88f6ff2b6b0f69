"""Mistakes of a first hour, and what the two commands say of each: python -m tests.mistakes [TEXT]

Each line of mistakes.tsv is a command and what its refusal must say, which names the remedy. Run as a program, every command
is a process of its own, and a row is printed of each: status, lines, CPU seconds, whether TensorFlow was imported, whether
the remedy was named. `tests/test_mistakes.py` runs them in one process, in which importing TensorFlow is refused.
"""

import contextlib
import functools
import io
import json
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerasbert.retrieval.folder import seal

HEAVY = ("tensorflow", "keras", "torch", "jax")  # what no refusal may import
TABLE = Path(__file__).with_name("mistakes.tsv")
MODEL = {"format": 1, "family": "bert", "name": "bert/tiny", "spec": {"embeddings": {"positions": 512}}}
TASK = {"name": "classification", "kind": "classification", "text": "text", "label": "label"}
TASKS = {
    "model": TASK,
    "encoder": None,
    "pairs": TASK | {"text_b": "text_b", "inputs": "pair"},
    "tagger": {"name": "ner", "kind": "tags", "text": "words", "label": "ner", "reader": "conll"},
    "asked": {
        "name": "squad",
        "kind": "span",
        "text": "question",
        "text_b": "context",
        "label": "answers",
        "reader": "squad",
    },
    "numbers": {"name": "regression", "kind": "regression", "text": "text", "label": "score"},
}
VECTOR = {"name": "sts", "kind": "vector", "text": "sentence1", "text_b": "sentence2", "label": "score"}
TASKS["vectors"] = VECTOR | {"options": {"dense": [{"width": 64, "activation": "tanh", "bias": True}]}}
WEIGHT = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
INDEX: dict[str, Any] = {
    "index": 2,
    "model": {"path": None, "precision": "float32"},
    "count": 1,
    "width": 8,
    "dtype": "float32",
    "query_prompt": None,
}
INDEX["settings"] = dict.fromkeys(("pooling", "dims", "length", "language", "prompt_name"))
INDEX["files"] = {}
INDEX["seal"] = seal(INDEX)
ROWS = "".join(f"a film {i},{'pos' if i % 2 else 'neg'}\n" for i in range(40))
FILES: dict[str, str | bytes] = {
    "rows.csv": f"text,label\n{ROWS}",
    "rows.tsv": "text\tlabel\na\tpos\n",
    "dev.csv": "text,label\na film,pos\nanother,neg\n",
    "other.csv": "text,label\na film,pos\nanother,great\n",
    "columns.csv": f"Review,Rating\n{ROWS}",
    "typo.csv": f"txt,label\n{ROWS}",
    "one.csv": "text,label\n" + "".join(f"a film {i},pos\n" for i in range(40)),
    "few.csv": "text,label\na,pos\nb,neg\n",
    "gap.csv": "text,label\na,pos\nb,\nc,neg\n",
    "empty.csv": "",
    "upper.csv": f"Text,Label\n{ROWS}",
    "frame.parquet": b"nope",
    "frame.pkl": b"\x80\x04",
    "page.html": "<html><body>x</body></html>",
    "notebook.ipynb": '{"cells": []}',
    "nul.csv": b"text,label\na\x00b,pos\n",
    "header.csv": "text,label\n",
    "fields.tsv": "text\tlabel\na\tpos\tx\n",
    "bytes.tsv": b"text\xff\xfe\n",
    "latin.csv": "text,label\ncaf\u00e9 \u2013 fine,pos\n".encode("cp1252"),
    "scored.csv": "sentence1,sentence2,score\n" + "".join(f"a film {i},a movie {i},{i % 5}\n" for i in range(20)),
    "belong.csv": "anchor,positive\n" + "".join(f"a film {i},a movie {i}\n" for i in range(20)),
    "lines.txt": "".join(f"a film {i}\n" for i in range(20)),
    "words.csv": "text,score\na,good\nb,bad\n",
    "broken.jsonl": '{"text": "a", "label": "pos"}\n{"text": "b", "label": \n',
    "list.json": "[1, 2",
    "book.xlsx": b"PK\x03\x04" + bytes(60),
    "page.pdf": b"%PDF-1.7\n" + bytes(60),
    "photo.png": b"\x89PNG\r\n\x1a\n" + bytes(60),
    "texts.txt": "a gripping film\n",
    "empty.txt": "",
    "blank.txt": "\n \n",
    "recipe.yaml": "model: bert/tiny\nstepz: 3\n",
    "bad.yaml": "model: [bert/tiny\n",
    "plan.yaml": "stages:\n  - quantise: {}\n",
    "plugin.py": "def f(:\n",
    "needs.py": "import no_such_module_of_mine\n",
    "file.tflite": b"nothing of a model" * 9,
    "mine.keras": b"PK\x03\x04" + bytes(60),
    "model.onnx": b"\x08\x07" + bytes(60),
    "model.h5": b"\x89HDF\r\n\x1a\n" + bytes(60),
    "taken/letter.txt": "dear",
    "taken.tflite": "mine",
    "taken.csv": "mine\n",
    "folder/notes.txt": "x",
    "hf/config.json": '{"model_type": "bert"}',
    "bare/config.json": '{"model_type": "bert"}',
    "bare/model.safetensors": b"",
    "deberta/config.json": '{"model_type": "deberta-v2"}',
    "pickled/config.json": '{"model_type": "bert", "hidden_size": 8}',
    "pickled/pytorch_model.bin": b"\x80\x02",
    "adapter/adapter_config.json": "{}",
    "saved/saved_model.pb": b"\x08\x01",
    "unfinished/run.json": "{}",
    "damaged/model.json": '{"format": 1,',
    "records/train/manifest.json": "{}",
    "plan/plan.json": "{}",
    "file.kbindex": b"KBINDEX\x01" + bytes(60),
    "index/index.json": json.dumps(INDEX),
    "masked/model.json": json.dumps(MODEL | {"task": None}),
    "masked/tokenizer/vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nfilm\n",
    "headless/model.json": json.dumps(MODEL | {"task": None}),
    "headless/weights.safetensors": len(WEIGHT).to_bytes(8, "little") + WEIGHT + bytes(4),
    "tokenizer/vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nfilm\n",
    "nomask/vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
    "glue/train.tsv": "sentence\tlabel\n" + "".join(f"a film {i}\t{i % 2}\n" for i in range(20)),
    "squad.json": '{"data": []}',
    "qa.csv": "question,context,answer\nwho,he did,he\n",
    "asked.csv": "question,context\nwho,he did\n",
    "tag.csv": "words,tag\nEU rejects,B-ORG O\n",
    "tags.conll": "EU B-ORG\nrejects O\n\n",
    "spoiled.conll": "EU\nrejects O\n\n",
}


def files(place: Path) -> None:
    """Write what the commands name."""
    for name, content in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    for name, task in TASKS.items():
        (place / name).mkdir()
        (place / name / "model.json").write_text(json.dumps(MODEL | {"task": task, "labels": ["neg", "pos"]}))


def table() -> list[tuple[str, str]]:
    """(command, what its refusal must say) of each line."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [(command.strip(), said.strip()) for command, said in (line.split("\t", 1) for line in lines)]


class Refused(BaseException):
    """An import of what takes seconds."""


class Guard:
    """Refuses imports; the first place in sys.meta_path."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """None, which leaves it to the others, or the refusal."""
        if name.partition(".")[0] in HEAVY:
            raise Refused(name)


def within(lines: list[str]) -> Iterator[tuple[str, int | None, str, str]]:
    """(command, status, stderr, what was imported) of each, in this process and the current folder."""
    from kerasbert import cli
    from kerasbert.mobile import cli as mobile

    for each in (cli, mobile):  # made once: that takes longer than all the rest
        each.parser = functools.cache(each.parser)
    sys.meta_path.insert(0, Guard())  # pyright: ignore[reportArgumentType]
    sys.stdin = io.StringIO("")
    for line in lines:
        program, *words = shlex.split(line)
        said, heavy, status = io.StringIO(), "", None
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = (mobile if program == "kerasbert-mobile" else cli).main(words)
            except SystemExit as leave:
                status = leave.code if isinstance(leave.code, int) else 1
            except Refused as refused:
                heavy = str(refused)
        yield line, status, said.getvalue(), heavy


def compiled(place: Path) -> None:
    """Compile what the commands import: an installed package has its bytecode, a checkout may be forbidden to write any."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(PYTHONPYCACHEPREFIX=str(place / ".bytecode"))
    code = "import sys; from tests import mistakes\nfor _ in mistakes.within(sys.argv[1:]): pass"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    lines = [line for line, _ in table()]
    subprocess.run([sys.executable, "-c", code, *lines], cwd=place, env=environment, check=True, capture_output=True)


def quick(line: str, place: Path, most: float = 0.5, tries: int = 3) -> dict[str, Any]:
    """`alone`, again where it took more than `most` seconds, the least of them: a busy machine takes more of the same work."""
    found = alone(line, place)
    for _ in range(tries - 1):
        if found["seconds"] > most:
            found["seconds"] = min(found["seconds"], alone(line, place)["seconds"])
    return found


def alone(line: str, place: Path) -> dict[str, Any]:
    """What a command of its own does: status, stderr, CPU seconds, whether it imported TensorFlow."""
    program, *words = shlex.split(line)
    module = "kerasbert.mobile.cli" if program == "kerasbert-mobile" else "kerasbert.cli"
    code = f"import sys; from {module} import main; s = 1\ntry: s = main(sys.argv[1:])\n"
    code += "except SystemExit as e: s = e.code\nfinally: print('\\n::', 'tensorflow' in sys.modules)\nsys.exit(s)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=place, env=environment, capture_output=True, text=True, input=""
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    heavy = done.stdout.rpartition("::")[2].strip() == "True"
    return {"status": done.returncode, "said": done.stderr, "seconds": seconds, "heavy": heavy}


def names(said: str, expected: str) -> bool:
    """Whether a refusal is an error's line that says what it must."""
    return said.startswith("error: ") and expected in re.sub(r"\s+", " ", said)


def main() -> None:
    """Run them, those with TEXT in their command where it is given, and print a table and its summary."""
    rows, chosen = [], sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder))
        compiled(Path(folder))
        for line, expected in table():
            if chosen in line:
                found = quick(line, Path(folder))
                rows.append((found, names(found["said"], expected)))
                told = "remedy" if rows[-1][1] else "NONE"
                count, heavy = found["said"].count("\n"), "TensorFlow" if found["heavy"] else ""
                print(f"{found['status']}\t{count}\t{found['seconds']:.2f}\t{told}\t{heavy}\t{line}", flush=True)
                print(f"\t{found['said'].strip()[:400]}", flush=True)
    seconds = [found["seconds"] for found, _ in rows]
    print(f"{len(rows)} mistakes: {sum(found['status'] == 2 for found, _ in rows)} with status 2, ", end="")
    print(f"{sum(found['said'].count(chr(10)) == 1 for found, _ in rows)} of one line, ", end="")
    print(f"{sum(named for _, named in rows)} name the remedy, {sum(f['heavy'] for f, _ in rows)} import TensorFlow; ")
    print(f"CPU seconds: median {statistics.median(seconds):.2f}, most {max(seconds):.2f}; ", end="")
    slow = [found for found, _ in rows if found["seconds"] > 0.5]
    hub = sum("the hub" in found["said"] for found in slow)
    print(f"{len(slow)} above 0.5, {hub} of which asked the hub, whose library takes 0.2 to import")


if __name__ == "__main__":
    main()
