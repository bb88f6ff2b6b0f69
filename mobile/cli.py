"""`kerasbert-mobile COMMAND`; run, benchmark and inspect of a .tflite need no TensorFlow."""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kerasbert import __version__
from kerasbert.blanks import blank, nothing_to_read, one_line
from kerasbert.cli import tables
from kerasbert.cli.given import check_read
from kerasbert.cli.lines import standard_input
from kerasbert.cli.options import Keywords
from kerasbert.cli.parser import Declare, Parser, check_directories, check_names, command_line, commands_of, run
from kerasbert.cli.shared_options import answer_options, answer_options_of, encoding_option
from kerasbert.errors import InputError, TextError
from kerasbert.storage import files, steady
from kerasbert.value_types import check_whole
from . import samples
from .commands import compress, distill, prune, searching
from .commands import quantize_aware as aware
from .commands.running import load, loading, pair_option, runtime_options

if TYPE_CHECKING:
    from kerasbert.answers.generation import Generation
    from .runtime import Runner

EXAMPLES = {
    "distill": "kerasbert-mobile distill runs/reviews --student half --data reviews --out runs/small",
    "prune": "kerasbert-mobile prune runs/reviews --heads 0.33 --data reviews --out runs/fewer-heads",
    "trim": "kerasbert-mobile trim runs/reviews --texts corpus.txt --out runs/trimmed",
    "quantize-aware": "kerasbert-mobile quantize-aware runs/reviews --data reviews --out runs/aware",
    "compress": "kerasbert-mobile compress runs/reviews --data reviews --out reviews.tflite",
    "ledger": "kerasbert-mobile ledger runs/reviews reviews.tflite --data reviews",
    "run": 'kerasbert-mobile run reviews.tflite "a gripping film"',
    "nearest": 'kerasbert-mobile nearest vectors.tflite "a gripping film" --among texts.txt',
    "index": "kerasbert-mobile index vectors.tflite notes.txt --out notes.kbindex",
    "verify": "kerasbert-mobile verify reviews.tflite reviews.golden",
    "benchmark": "kerasbert-mobile benchmark reviews.tflite --texts texts.txt",
    "inspect": "kerasbert-mobile inspect reviews.tflite",
}
Parsed = TypeVar("Parsed")
DEVICE = ("run", "nearest", "index", "verify", "benchmark", "inspect")  # commands that need no TensorFlow


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status is `kerasbert.cli.parser.run`'s."""
    return run(parser, arguments, _check_names)


def _check_names(options: argparse.Namespace) -> None:
    """Refuse a mistyped name at once: what the commands import takes seconds."""
    distills = options.command == "distill"  # elsewhere options come before a --teacher
    of_training = ["schedule"] if options.command != "prune" else ()
    check_names(options, "optimizer", "precision", *of_training)
    check_directories(options, "run", *(["teacher"] if distills else ()))


def parser() -> Parser:
    """The command line."""
    modules = (distill, prune, aware, compress, sys.modules[__name__], searching)
    description = "From a fine-tuned model to a phone."
    top = command_line("kerasbert-mobile", description, EXAMPLES, modules, json_option=True)
    for name, command in commands_of(top).items():
        command.set_defaults(extra="device" if name in DEVICE else "mobile")
        if name not in ("verify", "inspect"):  # these read no texts of a user
            encoding_option(command)
        if name not in ("run", "verify", "inspect"):
            tables.dialect_options(command)
    return top


def add(declare: Declare) -> None:
    """Declare the commands of the device."""
    _add_run(declare)

    command = declare("verify", _verify, "replay what `compress --golden` wrote; status 1 where an answer differs")
    runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("golden", metavar="GOLDEN")
    command.add_argument(
        "--tolerance", type=float, metavar="X", help="by which numbers may differ; GOLDEN says its own"
    )

    command = declare("benchmark", _benchmark, "times, memory and size; of a model directory too")
    runtime_options(command)
    pair_option(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument(
        "--texts", metavar="FILE", help="a text a line, or a table; by default texts made of the vocabulary"
    )
    command.add_argument("--rounds", type=int, default=3, metavar="N", help="times that every text is run")

    command = declare("inspect", _inspect, "show inputs, labels and tokenizer of a .tflite")
    command.add_argument("file", metavar="FILE")


def _add_run(declare: Declare) -> None:
    command = declare("run", _run, "texts -> answers")
    runtime_options(command)
    pair_option(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument(
        "texts", nargs="*", metavar="TEXT", help="without one each line of the standard input is answered as it comes"
    )
    tables.table_options(command)
    command.add_argument("--language", help="of the texts, for a model that reads it; that of its training by default")

    command.add_argument(
        "--top", type=int, metavar="N", help="labels, spans or tokens that an answer tells, best first"
    )
    command.add_argument("--threshold", type=float, metavar="P", help="probability that each of them has at least")
    answer_options(command)
    command.add_argument("--prompt-name", metavar="NAME", help="prompt before each text, of a file of vectors")
    command.add_argument("--stream", action="store_true", help="print a generated text as its tokens come")


def _verify(options: argparse.Namespace) -> int:
    from .golden import verify

    count, found = verify(load(options), options.golden, options.tolerance)
    if options.json:
        print(json.dumps({"texts": count, "difference": found}, ensure_ascii=False))
    else:
        print(found or f"{count} texts: the same ids, outputs and answers")
    return 1 if found else 0


def _run(options: argparse.Namespace) -> int:
    tables.check_table(options)
    if options.data and options.texts:
        raise InputError("texts come as arguments or from --data, expected one of them")
    if options.out:
        tables.check_out(options.out)
    check_whole("batch", options.batch)
    if options.data:
        from kerasbert.data.sources import check_files

        check_files([options.data])
    elif options.stream and options.json:
        raise InputError("--stream prints a text as it comes, --json whole answers: leave out one of them")
    settings = {name: getattr(options, name) for name in ("language", "top", "threshold", "prompt_name")}
    settings["options"] = answer_options_of(options)
    with steady.unchanged(options.file):
        digest = files.digest(options.file) if options.data else []
        model = load(options)
    said = _Said(options, model)
    model([], **settings)  # what is wrong with them is told before any text is read
    if options.data:
        said.count, said.cut = _table(options, model, said, settings, digest)
    else:
        _show(options, model, said, settings)
    kind = model.kind.configured(settings["options"] or {})
    return said.tell(model.bundle.longest, " at their beginning" if getattr(kind, "goes_on", False) else "")


class _Said:
    """What `run` says beside the answers. The n-th line of its output is the n-th text's, whatever became of it."""

    def __init__(self, options: argparse.Namespace, model: "Runner") -> None:
        from kerasbert.tasks import spelled_specials

        self.json, self.count, self.cut, self.wrong = options.json, 0, 0, 0
        self.blank: list[int] = []
        self.spelled: list[str] = []  # special tokens, one of each text that holds some
        self._find, self._tell_spelled = spelled_specials.finder(model.tokenizer, model.kind), spelled_specials.say

    def answered(self, text: object, truncated: bool) -> None:
        """Count a text that has an answer."""
        self.count, self.cut = self.count + 1, self.cut + truncated
        self.read(text)

    def read(self, text: object) -> None:
        """Note the spelling of a special token in a text."""
        if piece := self._find(text):
            self.spelled.append(piece)

    def nothing(self, number: int) -> None:
        """The line of a text that holds nothing to read."""
        self.count += 1
        self.blank.append(number)
        print("null" if self.json else "", flush=True)

    def refused(self, line: str) -> None:
        """The line of a text that the model cannot read; the mistake goes to stderr."""
        self.count, self.wrong = self.count + 1, self.wrong + 1
        print(json.dumps({"error": line}, ensure_ascii=False) if self.json else "", flush=True)
        print(f"error: {line}", file=sys.stderr, flush=True)

    def tell(self, longest: int, where: str) -> int:
        """Say it; the status. where: texts are truncated."""
        if self.cut:
            print(
                f"{self.cut} of {self.count} texts have more than {longest} tokens and are truncated{where}",
                file=sys.stderr,
            )
        if self.blank:
            print(nothing_to_read(self.blank, self.count), file=sys.stderr)
        self._tell_spelled(self.spelled, self.count)
        return 2 if self.wrong else 0


def _inputs(options: argparse.Namespace, model: "Runner", lines: Iterable[str]) -> Iterator[Callable[[], Any]]:
    """What makes each input of the command line, or of the standard input as its lines come."""
    names, pair = model.bundle.parts, options.pair or model.bundle.pair
    if options.texts and pair and (len(names) < 2 or (options.pair and _of_two(model))):
        if len(options.texts) % 2:
            raise InputError(f"received {len(options.texts)} texts, expected pairs: an even number")
        yield from (functools.partial(tuple, each) for each in zip(options.texts[::2], options.texts[1::2]))
        return
    from kerasbert.data.texts import as_pair

    for text in lines:
        if len(names) > 1:
            yield functools.partial(_parsed, model.kind.from_line, text, names, "the input")
        elif pair:
            yield functools.partial(_parsed, as_pair, text, "the input")
        else:
            yield functools.partial(_parsed, _plain, text, "the input")


def _of_two(model: "Runner") -> bool:
    """Whether an input is two texts with names, such as a question and its context."""
    return len(model.bundle.parts) == 2 and not model.kind.lists


def _plain(text: str, where: str) -> str:
    tables.check_json(text, where)
    return text


def _parsed(parse: Callable[..., Parsed], text: str, *how: object) -> Parsed | str:
    """The parts of an input from a line; an empty line is an empty input."""
    if blank(text):
        return ""
    try:
        return parse(text, *how)
    except InputError as error:
        raise TextError(0, error) from error


def _table(
    options: argparse.Namespace, model: "Runner", said: _Said, settings: Keywords, digest: Sequence[str]
) -> tuple[int, int]:
    """Answer a table as `kerasbert predict` does: how many texts, and how many of them were truncated.

    Args:
        digest: of the file as it was loaded.
    """
    rows = samples.opened(options.data, model.bundle, model.kind, options.text_column, options.text_b_column)
    asked = tables.asked(rows, options, model.kind.columns)
    fields, names = model.kind.columns, ("windows", "delegate", "encoding", "delimiter", "columns")

    def answer(texts: list[object]) -> list[tuple[bool, list[object]]]:
        for text in texts:
            said.read(text)
        found = ((answer, answer.to_json()) for answer in model(texts, **settings))
        return [(bool(answer.truncated), [value[name] for name in fields]) for answer, value in found]

    about = {"model": digest, "plugin": files.digest(*options.plugin), "version": __version__}
    about |= settings | {name: getattr(options, name) for name in names}
    writing = {"out": options.out, "batch": options.batch, "name": "run"}
    check_read(options)
    cut = tables.write(asked, answer, fields, about=about, **writing)
    return asked.survey.count - asked.survey.absent, cut


def _show(options: argparse.Namespace, model: "Runner", said: _Said, settings: Keywords) -> None:
    """Answer the texts of the command, or the lines of the standard input as they come; one that cannot be is told."""
    check_read(options, "stream", *(["pair"] if len(model.bundle.parts) < 2 or _of_two(model) else []))
    stream = None if options.texts else standard_input(options)
    where = "text" if stream is None else "line"
    for number, given in enumerate(_inputs(options, model, stream or options.texts), 1):
        try:
            text = given()
            if blank(text):
                said.nothing(number)
                continue
            found = _streamed(model, text, settings) if options.stream else model([text], **settings)[0]
        except TextError as error:
            said.refused(f"{where} {number}: {error.reason}")
            continue
        said.answered(text, found.truncated)
        answer = found.to_json()
        if options.json and model.tokenizer.knowledge is not None:
            answer["triples"] = model.triples(text)
        flat = (each for part in ((text,) if isinstance(text, str) else text) for each in _several(part))
        shown = "\t".join(flat)
        line = json.dumps(answer, ensure_ascii=False) if options.json else one_line(model.kind.line(answer, shown))
        if options.stream:
            line = "\t" + one_line(shown)
        print(line, flush=True)  # who writes line by line waits for it
    tables.tell(stream.told() if stream else ())


def _streamed(model: "Runner", text: object, settings: Keywords) -> "Generation":
    """The answer of a text that is printed as its tokens come, in one line."""
    stream = model.stream(text, language=settings["language"], **settings["options"])
    for piece in stream:
        print(" ".join(f"{piece}.".splitlines())[:-1], end="", flush=True)  # a break at its end is a blank too
    assert stream.answer is not None  # the loop went to its end
    return stream.answer


def _several(part: str | Sequence[str]) -> Sequence[str]:
    return (part,) if isinstance(part, str) else part


def _benchmark(options: argparse.Namespace) -> None:
    texts = None
    if Path(options.file).is_dir():  # before TensorFlow's import
        from kerasbert.checkpoints import source

        source.check(options.file)
    if options.texts:
        from kerasbert.data.sources import check_texts

        check_texts([options.texts])
        texts = _timed(Path(options.file), options)
    of_directory = {"threads": options.threads, "plugin": options.plugin}
    how = of_directory if Path(options.file).is_dir() else loading(options)
    check_read(options, "rounds")
    from .pipeline.benchmark import benchmark

    result = benchmark(options.file, texts, rounds=options.rounds, **how)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        if name == "launch":
            for when, values in value.items():
                print(f"{'launch, ' + when:18} {', '.join(f'{key} {each}' for key, each in values.items())}")
        else:
            print(f"{name:18} {shown}")


def _timed(path: Path, options: argparse.Namespace) -> list[samples.Sample]:
    """The texts of --texts, as a .tflite or the model of a directory reads them."""
    if not path.is_dir():
        from kerasbert import answers
        from kerasbert.export import bundle

        found = bundle.read(path)
        return samples.opened(options.texts, found, answers.find(found.kind).configured(found.options)).texts()
    from kerasbert import checkpoints
    from kerasbert.tasks.load import task_of

    return samples.read(options.texts, task_of(checkpoints.read_model_json(path)), options.pair)


def _inspect(options: argparse.Namespace) -> None:
    from kerasbert.export import bundle as bundles

    bundle = bundles.read(options.file)
    result = {
        "file": str(options.file),
        "bytes": Path(options.file).stat().st_size,
        "model": bundle.model,
        "target": bundle.target,
        "kind": bundle.kind,
        "inputs": "pair" if bundle.pair else "text",
        "labels": list(bundle.labels),
        "lengths": list(bundle.lengths),
        "any_length": bundle.any_length,
        "quantization": bundle.quantization,
        "signatures": [each.name for each in bundle.signatures],
        "versions": bundle.versions,
        "attached": sorted(bundle.tokenizer),
    }
    try:
        from .tflite import repack

        result["operators"] = repack.operators(Path(options.file).read_bytes())
    except ImportError:  # the schema comes with ai-edge-litert
        result["operators"] = None
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, value in result.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{name:14} {', '.join(map(str, shown)) if isinstance(shown, list) else shown}")


if __name__ == "__main__":
    sys.exit(main())
