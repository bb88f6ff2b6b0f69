"""What is asked of the portable core where Python is not: lines that a driver reads, and the lines that it must answer with.

A line is a word and its arguments, bytes as hexadecimal digits, `-` for none of them:

    tokenizer NAME CONTENT ...     opens it                  -> nothing
    text TEXT                      [ids, starts, ends, ids]  (of kb_tokenize, and of kb_encode)
    units UTF16                    the same of what languages of UTF-16 may hold: lone surrogates
    pack LENGTH FIRST [SECOND]     [ids, segments, truncated]
    model BUNDLE                   [kind, longest row]
    input WORDS TEXT ...           [[ids, segments, position, truncated], ...]
    answer FLOATS ...              what the answer's `to_json` gives, of the rows before
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerasbert import answers
from kerasbert.text import Tokenizer, load_tokenizer
from kerasbert.text.base import SURROGATE
from tests.mobile.native.test_answers import close, inputs_of, made, outputs_of
from tests.mobile.native.tokenizers import SMALL, byte_strings, files, texts

Script = tuple[list[str], list[Any]]
CASES = {
    "wordpiece added": ("classification", "choice", "span plain", "tags", "tags stride"),
    "bpe space added": ("multi_label", "tokens", "span", "tags crf"),
    "unigram lower added": ("regression", "vector", "span", "tags"),
}


def word(text: str | bytes) -> str:
    """A text as an argument; lone surrogates as `runtime.native` passes them."""
    data = text if isinstance(text, bytes) else SURROGATE.sub("\ufffd", text).encode()
    return data.hex() or "-"


def of_texts(tokenizer: Tokenizer, strings: Sequence[str | bytes]) -> Script:
    """Ids and offsets of strings, and now and then a pair packed."""
    content, draw = files(tokenizer), random.Random(4)
    lines = [" ".join(["tokenizer", *(word(part) for item in content.items() for part in item)])]
    expected: list[Any] = []
    for number, text in enumerate(strings):
        tokens = tokenizer.tokenize(text)
        lines.append(f"text {word(text)}")
        expected.append([tokens.ids, tokens.starts, tokens.ends, tokenizer.encode(text)])
        if number % 10 == 0:
            length, second = draw.randint(8, 60), draw.choice(strings)
            lines.append(f"pack {length} {word(text)} {word(second)}")
            ids, segments = tokenizer.pack(text, second, length)
            expected.append([ids, segments, len(tokenizer.pack(text, second)[0]) > length])
    return lines, expected


def of_units(tokenizer: Tokenizer) -> Script:
    """Ids and offsets of strings with lone surrogates, which count as U+FFFD."""
    content = files(tokenizer)
    lines = [" ".join(["tokenizer", *(word(part) for item in content.items() for part in item)])]
    expected = []
    for text in ("a\ud800b the", "\udc00", "the \U0001f600 \ud83d", "un\udfffaffable \U0001f600"):
        tokens = tokenizer.tokenize(text)
        lines.append(f"units {text.encode('utf-16-be', 'surrogatepass').hex()}")
        expected.append([tokens.ids, tokens.starts, tokens.ends, tokenizer.encode(text)])
    return lines, expected


def of_answers(case: str, name: str, count: int) -> Script:
    """Rows and answers of inputs of a kind, on random outputs."""
    content = files(SMALL[name]())
    tokenizer, said = load_tokenizer(content), made(case, content)
    kind, draw = answers.find(said.kind).configured(said.options), random.Random(2)
    lines, expected = [f"model {word(said.to_zip())}"], [[said.kind, said.longest]]
    strings = texts(60, seed=11)[:-1]
    for _ in range(count):
        parts = inputs_of(kind.name, draw, strings)
        rows = kind.rows(tokenizer, parts, said.longest)
        words = kind.name == "tags" and isinstance(parts[0], tuple)
        flat = [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]
        lines.append(" ".join(["input", str(int(words)), *map(word, flat)]))
        expected.append(
            [
                [
                    list(map(int, row.token_ids)),
                    list(row.values["segment_ids"]),
                    int(row.values.get("positions", [-1])[0]),
                    bool(row.truncated),
                ]
                for row in rows
            ]
        )
        outputs = [outputs_of(kind, row, len(said.labels), tokenizer.size) for row in rows]
        lines.append(" ".join(["answer", *(word(np.ascontiguousarray(each, "<f4").tobytes()) for each in outputs)]))
        expected.append(kind.decode(parts, rows, outputs, said.labels).to_json())
    return lines, expected


def parts(strings: int, inputs: int) -> Iterator[Script]:
    """Of every small tokenizer some strings and a tenth as many of bytes; of every kind some inputs."""
    for name, make in SMALL.items():
        tokenizer = make()
        yield of_texts(tokenizer, [*texts(strings, seed=20)[:-1], *byte_strings(strings // 10, seed=21), "", b"\0"])
        for case in CASES.get(name, ()):
            yield of_answers(case, name, inputs)


def compare(answered: str, expected: Sequence[Any]) -> None:
    """A driver's lines are those of Python; floating-point numbers within 1e-6."""
    found = answered.removesuffix("\n").split("\n")
    wrong = next((line for line in found if line.startswith("error")), "")
    assert len(found) == len(expected), wrong or f"{len(found)} lines, expected {len(expected)}"
    for number, (line, wanted) in enumerate(zip(found, expected)):
        assert not line.startswith("error"), f"line {number}: {line}"
        close(json.loads(json.dumps(wanted)), json.loads(line), f"line {number}: {line[:80]}")
