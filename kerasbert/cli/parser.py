"""What both command lines are made of: one-line errors, exit statuses, plug-ins. Standard library only."""

import argparse
import contextlib
import itertools
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kerasbert import __version__, light_imports, progress, provenance, registry, signals
from kerasbert.cli import help, meanings, outputs, stopping, terminal
from kerasbert.cli.given import Given
from kerasbert.cli.options import check_values
from kerasbert.errors import InputError, missing, nearest
from kerasbert.options import offering
from kerasbert.storage import aside, files, places

COUNTED = (
    *("predict", "encode", "static", "index", "search", "mine", "similarity", "evaluate", "fill-mask", "zero-shot"),
    *("compress", "ledger"),
)
"""Commands that show how far they are; training shows its own."""
NOTHING = (None, False, argparse.SUPPRESS, "", [])  # defaults that say nothing
# (name of a command, the function that runs it, one line of help) -> its parser
Declare = Callable[[str, Callable[[argparse.Namespace], int | None], str], "Parser"]


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line that names the nearest command or option and this command's own help.

    Options may stand between positional arguments (`run FILE --threads 2 TEXT`), and `--help` shows every default.

    >>> parser = Parser(prog="bake")
    >>> _ = parser.add_argument("--temperature", type=int, default=180, help="of the oven")
    >>> parser.parse_args(["--temprature", "200"])  # leaves with status 2
    Traceback (most recent call last):
    SystemExit: 2
    >>> print(parser.format_help().splitlines()[-1].strip())
    of the oven (default: 180)
    """

    def __init__(self, **keywords: Any) -> None:
        # an option is written whole: a beginning that names one today (--k for --keep-every) is taken for another tomorrow
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **keywords})
        self.mixing = False
        self.written: dict[str, str] = {}  # what the user wrote: name -> option
        self.siblings: Mapping[str, argparse.ArgumentParser] = {}  # commands of the same program
        self.defaults: dict[str, object] = {}  # shown for options that are absent where they are not given

    def error(self, message: str) -> None:
        """Print one line and leave with status 2."""
        self.exit(2, f"error: {' '.join(message.split())}. See {self.prog} --help\n")

    def format_help(self) -> str:
        """The help; where an option has a default, its text says so, and many options stand in groups."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return help.of_program(self, action._choices_actions)
        help.described(self)
        for action in self._actions:
            default = self.defaults.get(action.dest, action.default)
            if action.option_strings and "(default" not in str(action.help) and default not in NOTHING:
                action.help = f"{action.help or ''} (default: {default})".strip()
        return super().format_help()

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; what is not known is an error of this command, not of the one above it."""
        if self.mixing or any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            return super().parse_known_args(args, namespace)  # older Pythons mix by calling this method twice
        args = list(sys.argv[1:] if args is None else args)
        self._check_options(args)
        self.written = {}
        several = [action for action in self._actions if not action.option_strings and action.nargs in ("*", "+")]
        for action in several:
            action.required = action.nargs == "+"
        self.mixing = bool(several)
        try:
            parse = self.parse_known_intermixed_args if several else super().parse_known_args
            found, rest = parse(args, namespace)
        finally:
            self.mixing = False
        if rest:
            self.error(f"unexpected {' '.join(map(repr, rest))}")
        found._flags = self.written
        return found, rest

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> object:
        """The value of an action; what the user may leave out and wrote is noted, a default is not."""
        if action.option_strings or (arg_strings and action.nargs in ("?", "*")):
            long = [flag for flag in action.option_strings if flag.startswith("--")]
            self.written[action.dest] = (long or [str(action.metavar or action.dest)])[0]
        return super()._get_values(action, arg_strings)

    def _check_options(self, args: Sequence[str]) -> None:
        """Refuse an unknown option before anything else is missed."""
        for name in (arg.partition("=")[0] for arg in itertools.takewhile(lambda arg: arg != "--", args)):
            if re.fullmatch(r"--\S+|-[A-Za-z]", name) and name not in self._option_string_actions:
                places = [str(action.metavar) for action in self._actions if not action.option_strings]
                meant = meanings.of_option(name, list(self._option_string_actions), places, self.siblings)
                self.error(f"no option {name!r}{meant}")

    def _get_value(self, action: argparse.Action, text: str) -> object:
        """The value of an option; what a function of ours cannot read is told by what is expected, not by its name."""
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            wanted = {int: "a whole number", float: "a number such as 0.001"}.get(action.type)
            if action.type is str or not (wanted or isinstance(action.metavar, str)):
                raise
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self.error(f"{name} must be {wanted or f'such as {action.metavar}'}. Received: {text!r}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a value that is not among the choices and name the nearest."""
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"no command {value!r}{meanings.of_command(self.prog, str(value), action.choices)}")
        name = "/".join(action.option_strings) or str(action.metavar or action.dest).upper()
        self.error(
            f"{name} must be one of {', '.join(map(str, action.choices))}. Received: {value!r}"
            + (f". Nearest: {close!r}" if (close := nearest(str(value), action.choices)) else "")
        )


def command_line(
    program: str,
    description: str,
    examples: Mapping[str, str],
    modules: Iterable[types.ModuleType],
    json_option: bool = False,
) -> Parser:
    """The parser of a program with commands.

    Args:
        program: str, its name.
        description: str, what it is for, in a line.
        examples: command -> a whole line that calls it.
        modules: each has `add(declare)`, which declares commands.
        json_option: bool, whether every command takes --json.
    """
    top = Parser(prog=program, description=description)
    top.add_argument("--version", action="version", version=__version__)
    shared = Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show a traceback on errors")
    shared.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with your own models or tasks; repeatable",
    )
    if json_option:
        shared.add_argument("--json", action="store_true", help="print json")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def declare(name: str, function: Callable[[argparse.Namespace], int | None], text: str) -> Parser:
        command = commands.add_parser(
            name, help=text, description=text, parents=[shared], epilog=help.examples(program, name, examples[name])
        )
        command.set_defaults(function=function, command=name, extra=None)
        command.siblings = commands.choices
        return command

    for module in modules:
        module.add(declare)
    return top


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The parsers of a program's commands by name."""
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices


def run(
    made: Callable[[], Parser],
    arguments: Sequence[str] | None = None,
    check: Callable[[argparse.Namespace], None] | None = None,
) -> int:
    """Run a command of a program; returns its exit status.

    Args:
        made: makes the parser, by `command_line`.
        arguments: by default the process' own.
        check: refuses options after the plug-ins are loaded and before the command imports anything heavy.

    Returns:
        0; 2 for a mistake in what was given or a file system that refuses; 3 where the numbers of a run exploded; 1 for a
        fault of ours; 75 after a SIGTERM: the same command goes on; 130 after Ctrl-C, 143 after another SIGTERM.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if arguments is None:
        stopping.listen()
        light_imports.of_a_command()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:2], "--help"]
        parser = made()
        with terminal.streams(), provenance.command(parser.prog, arguments):
            return _run(parser, parser.parse_args(arguments), check)
    except KeyboardInterrupt as error:  # before the command began
        if "--debug" in arguments:
            raise
        return _told(error)


def _run(parser: Parser, options: argparse.Namespace, check: Callable[[argparse.Namespace], None] | None) -> int:
    """The command of parsed options; its exit status."""
    try:
        command = commands_of(parser)[options.command]
        with decoding(options), offering(command._option_string_actions):
            loaded = [registry.load_plugin(path) for path in options.plugin]
            options.plugins = loaded[0] if loaded else None
            if check:
                check(options)
            chosen = Given(vars(options), getattr(options, "_flags", {}))
            check_values(command, options)
            shown = options.command if options.command in COUNTED else None
            with outputs.checked(command, options) as read, places.reading(read), progress.named(shown):
                named = [name for name in outputs.outputs(command) if getattr(options, name, None) is not None]
                chosen.read(*named, *(["overwrite"] if named else []))  # places were looked at
                status = options.function(chosen) or 0
            chosen.check_read()
        sys.stdout.flush()
        return status
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError) and terminal.reader_left():
            return 0
        if options.debug:
            raise
        return _told(signals.cause(error), options.extra)


def _told(error: BaseException, extra: str | None = None) -> int:
    """Print the line of an error that ended a command; -> its exit status."""
    line, status = failure(error, extra)
    with contextlib.suppress(OSError):  # it may be a full disk, which is no other status
        print(f"error: {line}", file=sys.stderr, flush=True)
    return status


def failure(error: BaseException, extra: str | None = None) -> tuple[str, int]:
    """What a command prints of an error that ended it, and its exit status.

    Args:
        error: what was raised; a KeyboardInterrupt may say in its text what was saved.
        extra: str, the extra that brings all that the command needs; by default the missing library's own.

    Returns:
        One line, and 2 for a mistake in what was given or a file system that refuses, an InputError's own status,
        130 for Ctrl-C and 143 for a SIGTERM, or 1 for a fault of ours.

    >>> failure(InputError("no file x"))
    ('no file x', 2)
    """
    line = aside.shown(" ".join(str(error).split()))
    if isinstance(error, KeyboardInterrupt):
        return line or "interrupted", getattr(error, "status", 130)
    if isinstance(error, ModuleNotFoundError) and (absent := missing(error.name, extra)):
        return f"this command needs {absent}", 2
    if isinstance(error, MemoryError):
        return "not enough memory for what was given: give less at once, or a larger machine", 2
    if isinstance(error, InputError):
        return line, error.status
    if (told := files.temporary(error)) or type(error).__module__ == "tensorflow.python.framework.errors_impl":
        return told or file_system(line), 2
    if isinstance(error, OSError):
        here = "the current folder, change to another" if isinstance(error, FileNotFoundError) else ""
        if error.strerror and (name := error.filename or here):
            return aside.shown(f"{name}: {error.strerror}"), 2
        where = "of what is printed, or of temporary files, for which TMPDIR names a place"
        return f"{error.strerror}: the disk {where}" if error.strerror in files.REFUSALS else line, 2
    return f"unexpected {type(error).__name__}: {line}. Run it again with --debug and report what it shows", 1


def file_system(line: str) -> str:
    """An error of TensorFlow's file systems without the names of its operations.

    >>> file_system("{{function_node __wrapped__SaveV2_dtypes_3_device_/CPU:0}} out/a.tmp; No space left on device [Op:SaveV2]")
    'out/a.tmp; No space left on device'
    """
    return re.sub(r"\s*(\[Op:\w+\]|name: .*$)", "", re.sub(r"\{\{.*?\}\}\s*", "", line)).strip()


def check_names(options: argparse.Namespace, *kinds: str) -> None:
    """Refuse a name among the options that nothing has; an option is called as its kind of name (`registry.check_name`)."""
    for kind in kinds:
        value = getattr(options, kind, None)
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str):
                registry.check_name(kind, name)


def check_directories(options: argparse.Namespace, *names: str) -> None:
    """Refuse a model directory, checkpoint or folder of others among the options that is not there."""
    for name in names:
        if (model := getattr(options, name, None)) is not None:
            from kerasbert.checkpoints import source

            if source.check(model) == "keras" and options.command not in ("predict", "export", "compress"):
                raise source.of_keras(model)


def show(value: object, as_json: bool, text: str) -> None:
    print(json.dumps(value, ensure_ascii=False) if as_json else text)


def decoding(options: argparse.Namespace) -> contextlib.AbstractContextManager:
    """How files are read while a command runs: its `--encoding`, `--delimiter` and the like, if it has them."""
    names = ("encoding", "delimiter", "columns", "skip_unlabelled")
    given = {name: getattr(options, name, None) for name in names}
    if not any(given.values()):
        return contextlib.nullcontext()
    from kerasbert.data.dialects import default_reading

    return default_reading(given)
