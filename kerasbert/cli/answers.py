"""`kerasbert predict | encode`: texts -> answers and vectors."""

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kerasbert.cli.parser import (
    Declare,
    answer_options,
    answer_options_of,
    base_option,
    encoding_option,
    ensemble_option,
    show,
    task_option,
)
from kerasbert.errors import InputError

LANGUAGE = "of the texts, for a model that reads it (XLM); that of the training by default"


def _predict(options: argparse.Namespace) -> None:
    if sum(map(bool, (options.texts, options.pair, options.data))) > 1:
        raise InputError("texts come as arguments, by --pair or from --data, expected one of them")
    if options.submission and (not options.data or options.out):
        raise InputError("--submission FOLDER goes with --data FILE, and in the place of --out")
    if not options.data and (options.out or options.text_column or options.text_b_column or options.encoding):
        raise InputError("--out, --encoding and the names of columns go with --data FILE")
    for text in options.texts:
        if os.path.isfile(text):
            raise InputError(
                f"{text} is a file, expected a text: pass --data {text} (to read a text of that name use stdin)"
            )
    kind = check_out(options.out, options.overwrite) if options.out else None
    if options.explain and options.ensemble:
        raise InputError("--explain is of one model: leave out --ensemble")
    if options.explain:
        _check_page(options)
    if options.data:
        from kerasbert.data.sources import check_files

        check_files([options.data])
    declared = early_task(options)
    asked = None if declared is None else _asked(options, declared)  # a mistake is told before TensorFlow's import
    from kerasbert.tasks.predict import check_task, longest

    model = opened(options)
    check_task(model)
    longest(model, options.length)
    model.task.optioned(answer_options_of(options))  # refused before any text is read
    answer = _Answers(model, options)
    task = model.task
    asked = _asked(options, task) if asked is None else asked
    if options.submission:
        _submit(options, answer)
    elif options.data:
        _predict_table(options, answer, kind, asked)
    elif asked:
        answer.show(asked)
    else:
        if sys.stdin.isatty():
            print("reading texts from the terminal, one a line; Ctrl-D ends them", file=sys.stderr)
        before = 0
        for lines in arriving(sys.stdin, options.batch):
            numbered = enumerate(lines, before + 1)
            answer.show([_input(line, task, f"line {i}") if line.strip() else None for i, line in numbered])
            before += len(lines)
    if options.explain:
        _explain(options, model, answer.explained)
    answer.tell()


def early_task(options: argparse.Namespace) -> Any:
    """The task of the model of a command, without TensorFlow; None where only loading it tells.

    Raises:
        InputError: a mistake in what was given that the files alone show.
    """
    from kerasbert.checkpoints import source
    from kerasbert.tasks import early

    early.check_numbers(options.length, options.batch)
    chosen = answer_options_of(options)
    for model in options.ensemble or ():
        source.check(model)
    if options.base or options.task:
        return None
    return early.task_of(options.model, chosen)


def _asked(options: argparse.Namespace, task: Any) -> Any:
    """What is to be answered: inputs, or of --data what `answer_tables.read` gives; empty where stdin is read."""
    if options.submission:
        return []
    if options.data:
        from kerasbert.tasks import answer_tables

        named = options.text_column, options.text_b_column
        return answer_tables.read(options.data, [chosen or part for chosen, part in zip(named, task.asked)], task)
    if options.pair and not task.pair:
        raise InputError("--pair gives two texts, the model reads one: give TEXT")
    return [
        *map(tuple, options.pair or ()),
        *(_input(text, task, f"text {i}") for i, text in enumerate(options.texts, 1)),
    ]


def opened(options: argparse.Namespace) -> Any:
    """The model of a command that answers, or several of them."""
    from kerasbert.tasks.load import load
    from kerasbert.tasks.predict import together

    if options.task is None:
        return together([options.model, *options.ensemble] if options.ensemble else options.model, options.base)
    if options.ensemble or options.base:
        raise InputError("--task is of a pretrained model alone: leave out --ensemble and --base")
    return load(options.model, task=options.task)


def _check_page(options: argparse.Namespace) -> None:
    """Refuse a page that cannot be, before the model is loaded."""
    if options.data or options.submission:
        raise InputError("--explain shows a few texts: give them as arguments, by --pair or on stdin, not by --data")
    if os.path.isdir(options.explain) or (os.path.exists(options.explain) and not options.overwrite):
        told = "is a folder" if os.path.isdir(options.explain) else "exists already"
        raise InputError(f"--explain {options.explain} {told}: expected a file to write. Choose another or --overwrite")


def _explain(options: argparse.Namespace, model: Any, texts: Sequence[Any]) -> None:
    """The page of --explain."""
    from kerasbert.cli import explanation
    from kerasbert.storage import files
    from kerasbert.tasks.base import kind_of
    from kerasbert.tasks.explain import explained

    settings = {"steps": options.explain_steps, "length": options.length, "language": options.language}
    told = zip([_heading(text) for text in texts], explained(model, texts, **settings))
    title = f"{os.path.basename(os.path.abspath(options.model))}, {model.task.name}: what the words add"
    files.write_atomic(options.explain, explanation.page(title, told, kind_of(model).answers))
    print(options.explain, file=sys.stderr)


def _heading(text: Any) -> str:
    """The parts of an input in a line, each cut where it is long."""
    parts = (text,) if isinstance(text, str) else text
    lines = (" ".join((part if isinstance(part, str) else " / ".join(part)).split()) for part in parts)
    return " \u2014 ".join(line if len(line) <= 90 else f"{line[:89]}\u2026" for line in lines)


class _Answers:
    """The answers of a model, printed as they are made; what is to be said of the texts comes at the end."""

    def __init__(self, model: Any, options: argparse.Namespace):
        self.model, self.options = model, options
        self.texts = self.truncated = self.tabs = 0
        self.explained: list[Any] = []  # the texts of --explain
        self.inserted: list[list[Any]] | None = None  # of a model that reads sentence trees, of the texts answered last

    def objects(self, texts: Sequence[Any]) -> list[Any]:
        """An answer for each text."""
        from kerasbert.tasks.predict import answered

        if self.options.explain:
            self._take(texts)
        settings, chosen = {"language": self.options.language}, answer_options_of(self.options)
        found, encoded = answered(self.model, texts, self.options.length, self.options.batch, settings, chosen)
        self.inserted = encoded.triples
        self.texts, self.truncated = self.texts + len(texts), self.truncated + len(encoded.truncated)
        self.tabs += sum(isinstance(text, str) and "\t" in text for text in texts)
        return found

    def _take(self, texts: Sequence[Any]) -> None:
        """Remember texts to explain; more than a page holds are refused."""
        from kerasbert.cli.explanation import TEXTS

        self.explained += texts
        if len(self.explained) > TEXTS:
            raise InputError(f"--explain shows {TEXTS} texts at most, received {len(self.explained)}: give fewer")

    def of(self, texts: Sequence[Any]) -> list[dict[str, Any] | None]:
        """An answer's json for each text, with the triples that were inserted; None for None."""
        found = [answer.to_json() for answer in self.objects([text for text in texts if text is not None])]
        if self.inserted is not None:
            found = [answer | {"triples": triples} for answer, triples in zip(found, self.inserted, strict=True)]
        answers = iter(found)
        return [None if text is None else next(answers) for text in texts]

    def show(self, texts: Sequence[Any]) -> None:
        """Print a line for each text; an empty one (json: null) for None."""
        from kerasbert.tasks.base import kind_of

        kind = kind_of(self.model).answers
        for value in self.of(texts):
            show(value, self.options.json, "" if value is None else kind.text(value))
        sys.stdout.flush()

    def tell(self) -> None:
        """Say what a user cannot see in the answers."""
        from kerasbert.tasks.base import kind_of
        from kerasbert.tasks.predict import longest

        if self.truncated:
            most, kind = longest(self.model, self.options.length), kind_of(self.model).answers
            print(kind.cut(self.truncated, self.texts, most, "were"), file=sys.stderr)
        if self.tabs and not self.options.data:
            print(
                f"{self.tabs} of {self.texts} texts hold a tab, which was read as part of the text: the model reads one "
                "text; a table is read by --data FILE",
                file=sys.stderr,
            )


def check_out(out: str, overwrite: bool) -> str:
    """The format of a table to write, by the end of its name; refuse another, or one that is there."""
    from kerasbert.tasks.answer_tables import BY_ID, KINDS

    ending = os.path.splitext(out)[1].lower()
    kind = BY_ID if ending == BY_ID else KINDS.get(ending)
    if kind is None:
        raise InputError(
            f"--out {out}: cannot tell the format, expected a name ending in .csv, .tsv or .jsonl, or in .json for the "
            "answers by the rows' id"
        )
    if os.path.exists(out) and not overwrite:
        raise InputError(f"{out} exists already. Choose another --out or pass --overwrite")
    return kind


def _predict_table(options: argparse.Namespace, answer: _Answers, kind: str | None, table: Any) -> None:
    """A table in, as `answer_tables.read` gives it, the same with answers out: whole, or not at all."""
    from kerasbert.storage import files
    from kerasbert.tasks import answer_tables
    from kerasbert.tasks.base import kind_of

    own, rows, texts = table
    answers = answer.of([None if answer_tables.blank(text) else text for text in texts])
    fields = kind_of(answer.model).answers.columns
    made = answer_tables.text(kind or ("jsonl" if options.json else own), rows, answers, fields)
    if options.out:
        files.write_atomic(options.out, made)
        print(options.out)
    else:
        print(made, end="")
    absent = answers.count(None)
    if absent:
        print(f"{absent} of {len(answers)} rows have no text and no answer", file=sys.stderr)


def _submit(options: argparse.Namespace, answer: _Answers) -> None:
    """A test file of GLUE in, the file for its server out: an answer for every row, whatever it holds."""
    from kerasbert.storage import files
    from kerasbert.tasks.glue_files import submission
    from kerasbert.tasks.task import find_task, read_rows

    task = answer.model.task
    submission(options.submission, task, options.data, ())  # refuses other tasks before anything is computed
    columns = {"text": options.text_column, "text_b": options.text_b_column}
    rows = read_rows(find_task(task, **columns), options.data, targets=False)
    path, content = submission(options.submission, task, options.data, answer.objects(rows.texts))
    if path.exists() and not options.overwrite:
        raise InputError(f"{path} exists already. Choose another --submission or pass --overwrite")
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, content)
    print(path)


def _input(text: str, task: Any, where: str) -> Any:
    """A text, or the parts of an input from a line."""
    kind = task.answer_kind
    if kind.since > 1 and task.pair:
        return kind.from_line(text, task.asked, where)
    parts = tuple(text.split("\t")) if task.pair else (text,)
    if task.pair and len(parts) != 2:
        raise InputError(
            f"{where} has {len(parts) - 1} tabs, expected one: the model reads pairs, text_a<tab>text_b (or --pair A B)"
        )
    return parts if task.pair else text


def arriving(stream: Any, most: int) -> Iterator[list[str]]:
    """Lines without their ends, as many at once as have come, at most `most`: a slow stream is answered line by line."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8", errors="replace")
    lines: queue.Queue = queue.Queue(maxsize=4 * max(1, most))

    def read() -> None:
        try:
            for line in stream:
                lines.put(line.rstrip("\n").removesuffix("\r"))
            lines.put(None)
        except Exception as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    line = lines.get()
    while line is not None:
        found: list[str] = []
        while line is not None:
            if isinstance(line, Exception):
                raise line
            found.append(line)
            if len(found) >= most or lines.empty():
                break
            line = lines.get()
        yield found
        line = line if line is None else lines.get()


def _encode(options: argparse.Namespace) -> None:
    from kerasbert.tasks import early

    early.check_pooling(options.pooling)  # before TensorFlow's import
    from kerasbert.tasks.predict import encode

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin]
    for vector in encode(options.model, texts, pooling=options.pooling, language=options.language):
        print(json.dumps([float(value) for value in vector]))


def add(command: Declare) -> None:
    """Declare the commands."""
    add = command(
        "predict", _predict, "answers for texts, from arguments or stdin (pairs: two columns with a tab between)"
    )
    add.add_argument("model", metavar="RUN")
    base_option(add)
    ensemble_option(add)
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument("--pair", nargs=2, action="append", metavar=("A", "B"), help="two texts, for a model of pairs")
    add.add_argument(
        "--data",
        metavar="FILE",
        help="a csv, tsv, jsonl, json or parquet table (or lines of text): all columns + the answer",
    )
    add.add_argument("--out", metavar="TABLE", help="where it goes, by its ending; the standard output without it")
    add.add_argument(
        "--submission", metavar="FOLDER", help="of a GLUE task: the file that its server takes, such as MRPC.tsv"
    )
    add.add_argument("--overwrite", action="store_true", help="replace what --out holds")
    add.add_argument(
        "--explain", metavar="PAGE", help="a page of html: what each word adds (integrated gradients), and attention"
    )
    add.add_argument("--explain-steps", type=int, default=64, metavar="N", help="points of the integral")
    add.add_argument("--text-column", metavar="NAME", help="column of the text; the task's by default")
    add.add_argument("--text-b-column", metavar="NAME", help="column of the second text of a pair")
    encoding_option(add)
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
    task_option(add)
    answer_options(add)
    add.add_argument("--batch", type=int, default=64, help="texts at once")
    add.add_argument("--json", action="store_true")

    add = command("encode", _encode, "vectors of texts, one json list a line")
    add.add_argument("model", metavar="RUN")
    add.add_argument("texts", nargs="*", metavar="TEXT")
    add.add_argument(
        "--pooling",
        help="mean, first, last or pooled; default: what the model learned to give (Skip-Thought, Quick-Thoughts), else mean",
    )
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
