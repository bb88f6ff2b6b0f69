"""SuperGLUE's eight tasks (Wang et al., 2019b): the official jsonl files, and the files of its server.

A row of a file is one input or several: a pair of texts that is classified, or a text with choices.

- BoolQ, CB, RTE: passage and question, premise and hypothesis. WiC: the word and the first sentence, the second sentence.
- COPA: premise and question, two choices.
- MultiRC: each answer of a question is a pair of its own, the passage, then question and answer; F1 over all answers (F1a).
- ReCoRD: the passage, and the query with each entity in the place of @placeholder, the first right one being the target. Its own
  F1 and exact match, which count every right entity, are the server's.
- WSC: the text, and the text with the first span in the place of the pronoun, as GLUE's WNLI has it.

RTE's model answers the diagnostics too: AX-b.jsonl and AX-g.jsonl.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kerasbert.answers.base import Answered
from kerasbert.data.reading import plain_name
from kerasbert.data.sources import NumberedRow, numbered_table
from kerasbert.errors import InputError
from kerasbert.registry import register_reader, register_task
from kerasbert.storage.json_view import Json
from kerasbert.tasks.base import Task

PLACEHOLDER = "@placeholder"
QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def _label(value: object) -> object:
    """A label as it stands in the file: true and 1 of json as text."""
    return json.dumps(value) if isinstance(value, bool | int) else value


def _labelled(row: Json, **parts: object) -> Iterator[Json]:
    yield parts | ({"label": _label(row["label"])} if "label" in row else {})


def _boolq(row: Json) -> Iterator[Json]:
    return _labelled(row, text=row["passage"], text_b=row["question"])


def _inference(row: Json) -> Iterator[Json]:
    one, other = ("sentence1", "sentence2") if "sentence1" in row else ("premise", "hypothesis")  # AX-b's names
    return _labelled(row, text=row[one], text_b=row[other])


def _copa(row: Json) -> Iterator[Json]:
    asked = QUESTIONS[row["question"]]
    return _labelled(row, text=f"{row['premise']} {asked}", text_b=[row["choice1"], row["choice2"]])


def _wic(row: Json) -> Iterator[Json]:
    return _labelled(row, text=f"{row['word']}: {row['sentence1']}", text_b=row["sentence2"])


def _wsc(row: Json) -> Iterator[Json]:
    target, words = row["target"], row["text"].split()
    begin = target["span2_index"]
    end = begin + len(target["span2_text"].split())
    if type(begin) is not int or not 0 <= begin < len(words):
        raise ValueError(f"span2_index is {begin!r}, expected the number of one of {len(words)} words")
    return _labelled(row, text=row["text"], text_b=" ".join([*words[:begin], target["span1_text"], *words[end:]]))


def _multirc(row: Json) -> Iterator[Json]:
    for question in row["passage"]["questions"]:
        for answer in question["answers"]:
            yield from _labelled(answer, text=row["passage"]["text"], text_b=f"{question['question']} {answer['text']}")


def _record(row: Json) -> Iterator[Json]:
    passage, names = row["passage"]["text"], entities(row)
    for query in row["qas"]:
        filled = [query["query"].replace(PLACEHOLDER, name) for name in names]
        parts: Json = {"text": passage.replace("\n@highlight\n", " "), "text_b": filled}
        if "answers" in query:
            right = {answer["text"] for answer in query["answers"]}
            found = [i for i, name in enumerate(names) if name in right]
            if not found:
                raise ValueError(f"none of the answers of the query {query.get('idx')!r} is an entity of the passage")
            parts["label"] = str(found[0])
        yield parts


def entities(row: Json) -> list[str]:
    """The entities of a passage of ReCoRD, each once, in the order of their places; `end` is their last character."""
    passage = row["passage"]
    places = sorted((each["start"], each["end"]) for each in passage["entities"])
    return list(dict.fromkeys(passage["text"][start : end + 1] for start, end in places))


PAIR: Json = {"text": "text", "text_b": "text_b"}
CHOICE: Json = {"kind": "choice", **PAIR}
TRUTH = {"false": "false", "true": "true"}
INFERENCE = {name: name for name in ("entailment", "not_entailment")}
# task -> (what makes inputs of a row, name of the server's file, the declaration)
TASKS: dict[str, tuple[Callable[[Json], Iterator[Json]], str, Json]] = {
    "boolq": (_boolq, "BoolQ", PAIR | {"labels": TRUTH}),
    "cb": (
        _inference,
        "CB",
        PAIR | {"labels": {name: name for name in ("entailment", "contradiction", "neutral")}, "metric": "f1_macro"},
    ),
    "copa": (_copa, "COPA", CHOICE),
    "multirc": (_multirc, "MultiRC", PAIR | {"labels": {"0": "wrong", "1": "right"}, "metric": "f1_positive"}),
    "record": (_record, "ReCoRD", CHOICE),
    "rte": (_inference, "RTE", PAIR | {"labels": INFERENCE}),
    "wic": (_wic, "WiC", PAIR | {"labels": TRUTH}),
    "wsc": (_wsc, "WSC", PAIR | {"labels": TRUTH}),
}
FILES = {split: (f"{name}.jsonl",) for split, name in (("train", "train"), ("dev", "val"), ("test", "test"))}


def _objects(source: str | os.PathLike) -> list[NumberedRow]:
    """(line, object) of each line of a file, numbers as json has them."""
    return numbered_table(source, raw=True)


def read(source: Path, task: Task) -> list[NumberedRow]:
    """(line, columns) of each input of a file of SuperGLUE; a file without labels has no such column.

    Raises:
        InputError: a row that is none of the task's, with file and line.
    """
    make, found = TASKS[task.name.rpartition("/")[2]][0], []
    for line, row in _objects(source):
        try:
            found += [(line, _checked(parts)) for parts in make(row)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{source}, line {line}: no row of {task.name} ({why})") from error
    return found


def _checked(parts: Json) -> Json:
    choices = parts["text_b"] if isinstance(parts["text_b"], list) else [parts["text_b"]]
    strange = next((each for each in [parts["text"], *choices] if not isinstance(each, str)), None)
    if strange is not None or None in (parts["text"], *choices):
        raise ValueError(f"{strange!r:.40} stands where a text is expected")
    return parts


def knows(task: Task) -> bool:
    """Whether SuperGLUE's server takes answers of a task."""
    return task.reader == "superglue"


def submission(
    folder: str | os.PathLike, task: Task, source: str | os.PathLike, answers: Sequence[Answered]
) -> tuple[Path, str]:
    """The file of SuperGLUE's server for the answers to a test file: its path, and its content.

    Args:
        source: the test file, whose idx are given back; its name tells RTE's diagnostics. answers: of each input, in order.
    """
    name, stem = task.name.rpartition("/")[2], plain_name(source).stem
    called = stem if name == "rte" and stem in ("AX-b", "AX-g") else TASKS[name][1]
    path = Path(folder) / f"{called}.jsonl"
    if not answers:
        return path, ""
    rest = iter([answer.to_json() for answer in answers])
    lines = [line for _, row in _objects(source) for line in _answered(name, row, rest)]
    return path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def _answered(name: str, row: Json, rest: Iterator[Json]) -> Iterator[Json]:
    """The lines of the server's file for a row, of the answers that follow."""
    if name == "multirc":
        questions = [
            {
                "idx": asked["idx"],
                "answers": [{"idx": each["idx"], "label": _right(next(rest))} for each in asked["answers"]],
            }
            for asked in row["passage"]["questions"]
        ]
        yield {"idx": row["idx"], "passage": {"questions": questions}}
    elif name == "record":
        names = entities(row)
        yield from ({"idx": query["idx"], "label": names[next(rest)["index"]]} for query in row["qas"])
    elif name == "copa":
        yield {"idx": row["idx"], "label": next(rest)["index"]}
    else:
        said = next(rest)["label"]
        yield {"idx": row["idx"], "label": said.capitalize() if name == "wsc" else said}  # the server's True and False


def _right(answer: Json) -> int:
    return int(answer["label"] == "right")


register_reader("superglue", read)
for _name, (_, _, _about) in TASKS.items():
    register_task(f"superglue/{_name}", Task(f"superglue/{_name}", **_about, reader="superglue", files=FILES))
