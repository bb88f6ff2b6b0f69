"""`kerasbert predict`: texts -> answers."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasbert import __version__
from kerasbert.blanks import blank, nothing_to_read, one_line
from kerasbert.cli import tables
from kerasbert.cli.given import check_read
from kerasbert.cli.lines import arriving, standard_input
from kerasbert.cli.options import label_names_of, label_names_option, numbered
from kerasbert.cli.outputs import writes
from kerasbert.cli.parser import Declare, show
from kerasbert.cli.shared_options import (
    answer_options,
    answer_options_of,
    base_option,
    encoding_option,
    ensemble_option,
    precision_option,
    task_option,
)
from kerasbert.errors import InputError, TextError
from kerasbert.storage import files, steady
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    import keras

    from kerasbert.cli.tables import Asked
    from kerasbert.tasks.base import Task
    from kerasbert.tasks.predict import Ensemble


LANGUAGE = "of the texts, for a model that reads it (XLM); that of the training by default"


def _check_predict(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, before TensorFlow is imported."""
    if sum(map(bool, (options.texts, options.pair, options.data))) > 1:
        raise InputError("texts come as arguments, by --pair or from --data, expected one of them")
    if options.submission and (not options.data or options.out):
        raise InputError("--submission FOLDER goes with --data FILE, and in the place of --out")
    label_names_of(options.model, options.label_names)
    tables.check_table(options)
    if options.out:
        tables.check_out(options.out)
    if options.explain and options.ensemble:
        raise InputError("--explain is of one model: leave out --ensemble")
    if options.explain and options.rounding != "float32":
        raise InputError("--explain is computed in float32: leave out --precision")
    if options.explain:
        _check_page(options)
    if options.data:
        from kerasbert.data.sources import check_files

        check_files([options.data])


def _predict(options: argparse.Namespace) -> int:
    _check_predict(options)
    declared = early_task(options)
    asked = None if declared is None else _asked(options, declared)  # a mistake is told before TensorFlow's import
    from kerasbert.tasks.predict import check_task, longest
    from kerasbert.tasks.prompts import tell_prompt

    with steady.unchanged(options.model, options.base, *options.ensemble):
        about = _about(options) if options.out else {}
        model = opened(options)
    check_task(model)
    longest(model, options.length)
    told = model.task.answering(answer_options_of(options))  # refused before any text is read
    tell_prompt(model, task=told)
    answer = _Answers(model, options)
    task = model.task
    asked = _asked(options, task) if asked is None else asked
    check_read(options, "language", *(["explain_steps"] if options.explain else []))
    if options.submission:
        _submit(options, answer)
    elif not isinstance(asked, list):
        _write_table(options, answer, asked, about)
    elif asked:
        answer.show(asked)
    else:
        _show_standard_input(options, answer)
    if options.explain:
        _explain(options, model, answer.explained)
    return answer.tell()


def _write_table(options: argparse.Namespace, answer: "_Answers", asked: "Asked", about: Json) -> None:
    """The answers of a table, beside its columns."""
    from kerasbert.tasks.base import kind_of

    fields = kind_of(answer.model).answers.columns
    settings = {"out": options.out, "batch": options.batch, "name": "predict"}
    answer.truncated = tables.write(asked, answer.batch, fields, about=about, **settings)
    answer.texts = asked.survey.count - asked.survey.absent


def _show_standard_input(options: argparse.Namespace, answer: "_Answers") -> None:
    """The answers of lines, as they arrive."""
    stream, before = standard_input(options), 0
    for lines in arriving(stream, options.batch):
        numbered = enumerate(lines, before + 1)
        answer.show([_line(line, answer.model.task, f"line {i}") for i, line in numbered], "line")
        before += len(lines)
    tables.tell(stream.told())


def early_task(options: argparse.Namespace) -> "Task | None":
    """The task of the model of a command, without TensorFlow; None where only loading it tells.

    Raises:
        InputError: a mistake in what was given that the files alone show.
    """
    from kerasbert.checkpoints import source
    from kerasbert.tasks import early_checks

    early_checks.check_numbers(options.length, options.batch)
    chosen = answer_options_of(options)
    for model in options.ensemble or ():
        source.check(model)
    if options.task:
        early_checks.check_head(options.model, options.task)
    if options.base or options.task:
        return None
    early_checks.check_length(options.model, options.length)
    found = early_checks.task_of(options.model, chosen)
    early_checks.check_ensemble([options.model, *(options.ensemble or ())])
    return found


def _asked(options: argparse.Namespace, task: "Task") -> "Asked | list[object]":
    """What is to be answered: inputs, or of --data what `answer_tables.read` gives; empty where stdin is read."""
    if options.submission:
        from kerasbert.tasks.glue_files import check_submission

        check_submission(task)
        return []
    if options.data:
        from kerasbert.tasks import answer_tables

        named = options.text_column, options.text_b_column
        from kerasbert.data.texts import check_second
        from kerasbert.tasks.task import by_number

        check_second(options.text_b_column, task.asked)

        if numbered := by_number(task, {"text": options.text_column}):
            task, named = numbered, (None, None)
        columns = [chosen or part for chosen, part in zip(named, task.asked)]
        rows = answer_tables.read(options.data, columns, task)
        return tables.asked(rows, options, task.answer_kind.columns)
    if options.pair and not task.pair:
        raise InputError("--pair gives two texts, the model reads one: give TEXT")
    return [
        *map(tuple, options.pair or ()),
        *(_input(text, task, f"text {i}") for i, text in enumerate(options.texts, 1)),
    ]


def opened(options: argparse.Namespace) -> "keras.Model | Ensemble":
    """The model of a command that answers, or several of them."""
    from kerasbert.tasks.load import load
    from kerasbert.tasks.predict import together

    if names := label_names_of(options.model, vars(options).get("label_names")):
        return together(load(options.model, labels=names))
    if options.task is None:
        models = [options.model, *options.ensemble] if options.ensemble else options.model
        return together(models, options.base, options.rounding)
    if options.ensemble or options.base:
        raise InputError("--task is of a pretrained model alone: leave out --ensemble and --base")
    return load(options.model, task=options.task, precision=options.rounding)


def _check_page(options: argparse.Namespace) -> None:
    """Refuse a page that cannot be, before the model is loaded."""
    if options.data or options.submission:
        raise InputError("--explain shows a few texts: give them as arguments, by --pair or on stdin, not by --data")


def _explain(options: argparse.Namespace, model: "keras.Model", texts: Sequence[object]) -> None:
    """The page of --explain."""
    from kerasbert.cli import explanation
    from kerasbert.tasks.base import kind_of
    from kerasbert.tasks.explain import explained

    settings = {"steps": options.explain_steps, "length": options.length, "language": options.language}
    told = zip([_heading(text) for text in texts], explained(model, texts, **settings))
    title = f"{os.path.basename(os.path.abspath(options.model))}, {model.task.name}: what the words add"
    files.write_atomic(options.explain, explanation.page(title, told, kind_of(model).answers))
    print(options.explain, file=sys.stderr)


def _heading(text: object) -> str:
    """The parts of an input in a line, each cut where it is long."""
    parts = text if isinstance(text, tuple) else (str(text),)
    lines = (" ".join((part if isinstance(part, str) else " / ".join(part)).split()) for part in parts)
    return " \u2014 ".join(line if len(line) <= 90 else f"{line[:89]}\u2026" for line in lines)


class _Answers:
    """The answers of a model, printed as they are made; what is to be said of the texts comes at the end."""

    def __init__(self, model: "keras.Model", options: argparse.Namespace) -> None:
        self.model, self.options = model, options
        self.texts = self.truncated = self.tabs = self.lines = 0
        self.blank: list[int] = []  # numbers of the texts shown that hold nothing to read
        self.wrong = 0  # texts shown that cannot be read
        self.explained: list[object] = []  # the texts of --explain
        self.cut: set[int] = set()  # of the texts answered last, the numbers of those that were truncated
        self.inserted: list[list[tuple[str, str, str]]] | None = (
            None  # of a model that reads sentence trees, of the texts answered last
        )

    def objects(self, texts: Sequence[object]) -> list[Any]:
        """An answer for each text."""
        from kerasbert.tasks.predict import answered

        settings, chosen = {"language": self.options.language}, answer_options_of(self.options)
        found, encoded = answered(self.model, texts, self.options.length, self.options.batch, settings, chosen)
        if self.options.explain:
            self._take(texts)
        self.inserted, self.cut = encoded.triples, set(encoded.truncated)
        self.texts, self.truncated = self.texts + len(texts), self.truncated + len(encoded.truncated)
        self.tabs += sum(isinstance(text, str) and "\t" in text for text in texts)
        return found

    def _take(self, texts: Sequence[object]) -> None:
        """Remember texts to explain; more than a page holds are refused."""
        from kerasbert.cli.explanation import TEXTS

        self.explained += texts
        if len(self.explained) > TEXTS:
            raise InputError(f"--explain shows {TEXTS} texts at most, received {len(self.explained)}: give fewer")

    def of(self, texts: Sequence[object]) -> list[Json | None]:
        """An answer's json for each text, with the triples that were inserted; None for None.

        Raises:
            TextError: a text that the model cannot read, with its number among `texts`.
        """
        try:
            return self._of(texts)
        except TextError as error:
            numbers = [number for number, text in enumerate(texts) if text is not None]
            raise TextError(numbers[error.number], error.reason) from error

    def _of(self, texts: Sequence[object]) -> list[Json | None]:
        found = [answer.to_json() for answer in self.objects([text for text in texts if text is not None])]
        if self.inserted is not None:
            found = [answer | {"triples": triples} for answer, triples in zip(found, self.inserted, strict=True)]
        answers = iter(found)
        return [None if text is None else next(answers) for text in texts]

    def batch(self, texts: list[object]) -> list[tuple[bool, list[object]]]:
        """Of the rows of a table whether each was truncated, and the fields of its answer."""
        from kerasbert.tasks.base import kind_of

        fields, found = kind_of(self.model).answers.columns, []
        for number, answer in enumerate(self.objects(texts)):
            value = answer.to_json()
            found.append((number in self.cut, [value[name] for name in fields]))
        return found

    def show(self, texts: Sequence[object], what: str = "text") -> None:
        """Print a line for each text, an empty one for one that holds nothing to read (json: null), or cannot be read.

        Of a kind with lines of its own (`Kind.lines`) a text has several, and a blank line stands between two texts.

        Args:
            texts: an InputError where a line is no input. what: they are called in errors.
        """
        from kerasbert.tasks.base import kind_of

        kind = kind_of(self.model).answers
        left = [None if text is None or isinstance(text, InputError) or blank(text) else text for text in texts]
        wrong = {at: str(text) for at, text in enumerate(texts) if isinstance(text, InputError)}
        self.blank += [self.lines + at + 1 for at, text in enumerate(left) if text is None and at not in wrong]
        while True:
            try:
                values = self.of(left)
                break
            except TextError as error:  # the others are answered
                wrong[error.number], left[error.number] = (
                    f"{what} {self.lines + error.number + 1}: {error.reason}",
                    None,
                )
        for at, value in enumerate(values):
            found = {"error": wrong[at]} if at in wrong else value
            if self.lines + at and kind.blocks and not self.options.json:
                print()
            show(found, self.options.json, "" if value is None else "\n".join(map(one_line, kind.lines(value))))
        sys.stdout.flush()
        for at in sorted(wrong):
            print(f"error: {wrong[at]}", file=sys.stderr, flush=True)
        self.lines, self.wrong = self.lines + len(texts), self.wrong + len(wrong)

    def tell(self) -> int:
        """Say what a user cannot see in the answers; the status."""
        from kerasbert.tasks.base import kind_of
        from kerasbert.tasks.predict import longest

        for line in getattr(self.model, "remarks", ()):
            print(line, file=sys.stderr)
        if self.truncated:
            most, kind = longest(self.model, self.options.length), kind_of(self.model).answers
            print(kind.cut(self.truncated, self.texts, most, "were"), file=sys.stderr)
        if self.tabs and not self.options.data:
            print(
                f"{self.tabs} of {self.texts} texts hold a tab, which was read as part of the text: the model reads one "
                "text; a table is read by --data FILE",
                file=sys.stderr,
            )
        if self.blank:
            print(nothing_to_read(self.blank, self.lines), file=sys.stderr)
        return 2 if self.wrong else 0


def _about(options: argparse.Namespace) -> Json:
    """What the answers of a table depend on, beside the table."""
    names = ("length", "language", "task", "set", "prefix", "encoding", "delimiter", "columns")
    models = files.digest(options.model, options.base, *options.ensemble)
    about = {"model": models, "plugin": files.digest(*options.plugin), "version": __version__}
    return about | {"precision": options.rounding} | {name: getattr(options, name) for name in names}


def _submit(options: argparse.Namespace, answer: "_Answers") -> None:
    """A test file of GLUE in, the file for its server out: an answer for every row, whatever it holds."""
    from kerasbert.storage import places
    from kerasbert.tasks.glue_files import submission
    from kerasbert.tasks.task import find_task, read_rows

    task = answer.model.task
    path, _ = submission(options.submission, task, options.data, ())  # refuses other tasks before anything is computed
    places.check_file(path, options.overwrite, "submission", [options.data])
    columns = {"text": options.text_column, "text_b": options.text_b_column}
    rows = read_rows(find_task(task, **columns), options.data, targets=False)
    path, content = submission(options.submission, task, options.data, answer.objects(rows.texts))
    files.write_atomic(path, content)
    print(path)


def _input(text: str, task: "Task", where: str) -> object:
    """A text, or the parts of an input from a line."""
    if blank(text):
        return text
    kind = task.answer_kind
    if kind.named and task.pair:
        return kind.from_line(text, task.asked, where)
    if not task.pair:
        tables.check_json(text, where)
    parts = tuple(text.split("\t")) if task.pair else (text,)
    if task.pair and len(parts) != 2:
        raise InputError(
            f"{where} has {len(parts) - 1} tabs, expected one: the model reads pairs, text_a<tab>text_b (or --pair A B)"
        )
    return parts if task.pair else text


def _line(text: str, task: "Task", where: str) -> object:
    """What is asked of a line of the standard input; an InputError, not raised, where it is no input."""
    if blank(text):
        return ""
    try:
        return _input(text, task, where)
    except InputError as error:
        return error


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
    tables.table_options(add)
    text = "of a GLUE or SuperGLUE task: the file that its server takes, such as MRPC.tsv"
    writes(add.add_argument("--submission", metavar="FOLDER", help=text), "within")
    text = "a page of html: what each word adds (integrated gradients), and attention"
    writes(add.add_argument("--explain", metavar="PAGE", help=text), "explanation")
    numbered(add, "--explain-steps", 1, default=64, metavar="N", help="points of the integral")
    encoding_option(add)
    add.add_argument("--length", type=int, help="longest text in tokens; that of the training by default")
    add.add_argument("--language", metavar="NAME", help=LANGUAGE)
    label_names_option(add)
    precision_option(add)
    task_option(add)
    answer_options(add)
    add.add_argument("--json", action="store_true")
