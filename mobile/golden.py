"""A file tests itself elsewhere: texts with the ids, outputs and answers that it gave here, and their replay on a device.

jsonl. The first line says what the others are of: {"golden": 1, "sha256", "kind", "model", "quantization", "tolerance"}. Each
other line is {"text", "ids", "outputs", "answer"}: the ids of each of the text's rows, the outputs of each as {"shape",
"every", "values"} (every n-th number, so that at most LARGEST are kept), and the answer's json. No TensorFlow.
"""

import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kerasbert.errors import InputError
from kerasbert.options import checked
from kerasbert.storage import places, scratch
from kerasbert.storage.files import sha256, write_atomic
from kerasbert.storage.json_view import Json
from . import samples
from .runtime import Runner, load

FORMAT = 1
LARGEST = 4096  # numbers of a row's outputs that are kept
OWN = 50  # texts of the task
TOLERANCES = {"float32": 1e-4, "fp16": 5e-3}
ROUNDED = 0.05  # of int8 files: another processor's float32 may round an activation to the next step
TRAPS = (
    "",
    " ",
    "\t\n\r ",
    "a",
    "HELLO World, hELLO wORLD",
    "Ünïcödé naïve façade Ångström",
    "Cafe\u0301 cafe\u0301s n\u0303 o\u0308",  # combining marks
    "Straße STRASSE ß ẞ",
    "İstanbul ISTANBUL ısı",
    "ΟΔΥΣΣΕΥΣ Σίσυφος",
    "ﬁrst ﬂoor ½ ⅓ № ™ ㎏ ＡＢＣ１２３",
    "中文分词 测试，日本語テスト ひらがな カタカナ 한국어 문장",
    "مرحبا بالعالم שלום עולם",
    "नमस्ते दुनिया สวัสดีชาวโลก",
    "😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱 𐍈",
    "zero\u200bwidth joi\u200dner soft\u00adhyphen \ufeffbom \u2060word",
    "no\u00a0break thin\u2009space ideographic\u3000space line\u2028separator",
    "nul\x00 bell\x07 delete\x7f escape\x1b c1\x85",
    "\ufffd replaced \ufffe",
    "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <mask> <pad> <unk>",
    "▁low ▁ ## ##ing Ġthe",
    "don't can't we'll I'd it's o'clock",
    "“quotes” ‘single’ «guillemets» — dash – en ‐ hyphen … !?",
    "3.14 1,000,000 -5 +5 5% $9.99 €10 1/2 2026-11-23 12:34",
    "https://example.com/a?b=c&d=1#e user@example.com #tag @name",
    "a_b snake_case CamelCase camelCase x86_64 C++ f(x)=y^2",
    "!!!???...,,,;;;:::",
    "x" * 101,
    "x" * 200,
    "é" * 60,
    "word" * 40 + " end",
    "many     blanks   between \t\t words ",
    "  leading and trailing  ",
)
"""Texts that tokenizers are known to read differently."""


def texts(runner: Runner, own: Sequence[object] = ()) -> Iterator[object]:
    """Inputs of the file's kind: the traps, two that fill each bucket, one that is too long, and the task's own.

    Args:
        own: the task's; the first OWN of them.
    """
    kind, pair = runner.kind, runner.bundle.pair or len(runner.bundle.parts) > 1
    for number, trap in enumerate(TRAPS):
        yield kind.example((trap, TRAPS[number - 1]) if pair else trap)
    yield from filling(runner)
    yield from own[:OWN]


def filling(runner: Runner) -> Iterator[object]:
    """Inputs of the vocabulary's words that fill each bucket, and one that is longer than the longest."""
    pair, example = runner.bundle.pair or len(runner.bundle.parts) > 1, runner.kind.example
    words = " ".join(map(str, samples.generated(runner.tokenizer, 100))).split()
    first = words[0] if pair else None
    lengths = [1, *runner.lengths]
    for before, length in itertools.pairwise(lengths):
        for wanted in sorted({before + 1, length}):
            taken = words[:1]
            for word in words[1 : length + 1]:
                more = " ".join([*taken, word])
                if len(runner.tokenizer.pack(more, first)[0]) > wanted:
                    break
                taken.append(word)
            yield example((words[0], " ".join(taken)) if pair else " ".join(taken))
    many = " ".join((words * (1 + 2 * lengths[-1] // len(words)))[: 2 * lengths[-1]])
    yield example((words[0], many) if pair else many)


def lines(runner: Runner, own: Sequence[object] = ()) -> Iterator[str]:
    """The lines of a golden file; a text that the kind refuses is left out."""
    bundle = runner.bundle
    tolerance = TOLERANCES.get(bundle.quantization, ROUNDED)
    head = {"golden": FORMAT, "sha256": sha256(runner.path), "kind": bundle.kind, "model": bundle.model}
    yield _line(head | {"quantization": bundle.quantization, "tolerance": tolerance})
    for text in texts(runner, own):
        text = _plain(text)
        try:
            trace = runner.trace(text)
        except InputError:
            continue
        outputs = [_told(row) for row in trace.outputs]
        yield _line({"text": text, "ids": trace.ids, "outputs": outputs, "answer": trace.answer.to_json()})


def made(file: bytes, own: Sequence[object] = ()) -> bytes:
    """A golden file.

    Args:
        file: bytes of a .tflite. own: inputs of its task.
    """
    with scratch.folder() as directory:
        path = Path(directory) / "model.tflite"
        path.write_bytes(file)
        with load(path, cache=False) as runner:
            return "".join(lines(runner, own)).encode()


def written(
    out: Path, blob: bytes, golden: str | os.PathLike | None, own: Sequence[object], overwrite: bool = False
) -> Json:
    """Put a .tflite in its place, and the golden file beside it; what a report says of that one.

    A kill between the two leaves an older golden file, which `verify` refuses: it names the .tflite by the sha256 of all of it.

    Args:
        golden: path of the golden file; None for none. own: inputs of the task. overwrite: bool, replace what is there.

    Raises:
        InputError: somebody else has made a file there, which has been looked for before it took an hour.
    """
    content = b"" if golden is None else made(blob, own)
    places.check_file(out, overwrite, "tflite")
    write_atomic(out, blob)
    if golden is None:
        return {}
    write_atomic(Path(golden), content)
    return {"golden": str(golden), "golden_texts": content.count(b"\n") - 1}


@checked
def verify(runner: Runner, path: str | os.PathLike, tolerance: float | None = None) -> tuple[int, str]:
    """Replay a golden file.

    Args:
        runner: Runner of the file that it is of. path: the golden file.
        tolerance: float, by which numbers may differ; by default what the file says: 1e-4 (float32), 5e-3 (fp16), 0.05 (int8).

    Returns:
        how many texts were replayed, and what differs first: the line, the text, the place; empty where nothing does.

    Raises:
        InputError: it cannot be read, is damaged or of a later format, or of another .tflite.
    """
    if not isinstance(runner, Runner):
        raise InputError(f"runner is a {type(runner).__name__}, expected what load(FILE) gives")
    try:
        content = Path(path).read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Expected a file of compress --golden") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no UTF-8, expected a file of compress --golden") from error
    rows = content.split("\n")
    head = _parsed(path, 1, rows[0], ("golden", "sha256", "tolerance"))
    if head["golden"] != FORMAT:
        raise InputError(
            f"{path} has format {head['golden']!r:.40}, expected {FORMAT}: install the kerasbert that wrote it"
        )
    if head["sha256"] != (received := sha256(runner.path)):
        raise InputError(
            f"{path} is of the file with sha256 {str(head['sha256'])[:12]}, received one with {received[:12]}: give the file "
            "that it was written with, or write both again (compress --golden --overwrite)"
        )
    limit = head["tolerance"] if tolerance is None else tolerance
    if type(limit) not in (int, float) or not limit >= 0:
        raise InputError(f"tolerance is {limit!r:.40}, expected a number of at least 0")
    cases = [(number, row) for number, row in enumerate(rows[1:], 2) if row.strip()]
    if not cases:
        raise InputError(f"{path} has no texts, expected some: write it again (compress --golden)")
    for count, (number, row) in enumerate(cases):
        case = _parsed(path, number, row, ("text", "ids", "outputs", "answer"))
        try:
            trace = runner.trace(_input(case["text"]))
        except InputError as error:
            raise InputError(f"{path}, line {number}: {getattr(error, 'reason', error)}") from error
        received = {"ids": trace.ids, "outputs": [_told(output) for output in trace.outputs]}
        received["answer"] = json.loads(_line(trace.answer.to_json()))
        for part in ("ids", "outputs", "answer"):
            found = difference(case[part], received[part], limit if part != "ids" else 0.0, part)
            if found:
                return count + 1, f"line {number}, text {json.dumps(case['text'], ensure_ascii=False)[:80]}: {found}"
    return len(cases), ""


def difference(expected: object, received: object, tolerance: float, where: str) -> str:
    """What differs first of two json values, and where; empty where they are the same but for floats within a tolerance.

    >>> difference({"a": [1, 0.5]}, {"a": [1, 0.7]}, 0.1, "answer")
    'answer.a[1] is 0.7, expected 0.5'
    """
    if isinstance(expected, dict) and isinstance(received, dict) and expected.keys() == received.keys():
        pairs = [(f"{where}.{name}", expected[name], received[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(received, list) and len(expected) == len(received):
        pairs = [(f"{where}[{i}]", *both) for i, both in enumerate(zip(expected, received))]
    elif isinstance(expected, float) and isinstance(received, float | int) and not isinstance(received, bool):
        near = abs(expected - received) <= tolerance * max(1.0, abs(expected)) or expected == received
        return "" if near else f"{where} is {received:.6g}, expected {expected:.6g}"
    else:
        same = expected == received and type(expected) is type(received)
        return "" if same else f"{where} is {_shown(received)}, expected {_shown(expected)}"
    return next((found for name, one, two in pairs if (found := difference(one, two, tolerance, name))), "")


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]


def _told(output: np.ndarray) -> Json:
    """At most LARGEST numbers of a row's output."""
    every = max(1, math.ceil(output.size / LARGEST))
    values = [float(f"{value:.7g}") for value in output.ravel()[::every].tolist()]
    return {"shape": list(output.shape), "every": every, "values": values}


def _line(value: object) -> str:
    return json.dumps(value, allow_nan=False) + "\n"  # ASCII: U+2028 ends a line elsewhere


def _plain(text: object) -> object:
    """An input as json holds it: bytes as text."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return [_plain(part) for part in text] if isinstance(text, list | tuple) else text


def _input(text: object) -> object:
    """What json made of an input: lists are tuples again."""
    return tuple(_input(part) for part in text) if isinstance(text, list) else text


def _parsed(path: str | os.PathLike, number: int, row: str, names: Sequence[str]) -> Json:
    try:
        found = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: no json ({error}). Write it again (compress --golden)") from error
    if not isinstance(found, dict) or not set(names) <= set(found):
        raise InputError(f"{path}, line {number}: expected {', '.join(names)}. Write it again (compress --golden)")
    return found
