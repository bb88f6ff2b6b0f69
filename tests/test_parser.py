"""The parser of both commands: mistakes name the nearest, `--help` says defaults and an example, errors have a status."""

import argparse
import shlex

import pytest

from kerasbert import cli
from kerasbert.cli import help
from kerasbert.cli.parser import Parser, commands_of, failure
from kerasbert.errors import InputError, NonFinite
from kerasbert.mobile import cli as mobile
from kerasbert.storage import files
from tests.support import python

COMMANDS = next(action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)).choices


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("finetunee RUN", "no command 'finetunee'. Nearest: 'finetune'. See kerasbert --help"),
        ("finetune RUN --lr 3", "no option '--lr'. Nearest: '--learning-rate'. See kerasbert finetune --help"),
        ("finetune RUN --epoch=3", "no option '--epoch'. Nearest: '--epochs'. See kerasbert finetune --help"),
        ("pretrain RUN --k 3", "no option '--k'. See kerasbert pretrain --help"),  # not --keep-every
        ("finetune RUN --save 3", "no option '--save', expected --save-every. See kerasbert finetune --help"),
        ("finetune RUN --keep 3", "no option '--keep', expected --keep-head or --keep-every. See kerasbert"),
        ("data FILE --text body", "no option '--text', expected --text-field. See kerasbert data --help"),
        ("finetune --model RUN", "no option '--model': RUN stands without an option. See kerasbert finetune --help"),
        ("encode RUN --text a", "no option '--text': TEXT stands without an option. See kerasbert encode --help"),
        ("finetune RUN --gpu", "no option '--gpu'. Here it is --strategy gpu. See kerasbert finetune --help"),
        ("finetune RUN -o x", "no option '-o'. Nearest: '--out'. See kerasbert finetune --help"),
        ("pretrain RUN --resume", "no option '--resume': the same command with the same --out goes on where"),
        ("show bert/base --jsn", "no option '--jsn'. Nearest: '--json'. See kerasbert show --help"),
        (
            "list modelz",
            "WHAT must be one of models, objectives, tasks, tokenizers. Received: 'modelz'. Nearest: 'models'",
        ),
        ("show bert/base more", "unexpected 'more'. See kerasbert show --help"),
        ("predict", "the following arguments are required: RUN. See kerasbert predict --help"),
        ("", "the following arguments are required: COMMAND. See kerasbert --help"),
    ],
)
def test_a_mistyped_command_or_option_names_the_nearest(capsys, line, said):
    """One line on stderr, status 2, and the help of the command that was meant."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(shlex.split(line))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {said}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("line", ["RUN --json a b", "RUN a --json b", "--json RUN a b", "RUN a b --json"])
def test_options_may_stand_between_texts(line):
    """`run FILE --threads 2 TEXT` was "unrecognized arguments: TEXT"."""
    options = cli.parser().parse_args(["predict", *line.split()])
    assert (options.model, options.texts, options.json) == ("RUN", ["a", "b"], True)


def test_a_text_may_begin_with_a_dash():
    """After `--`, or where it is no single word."""
    assert cli.parser().parse_args(["predict", "RUN", "--", "--json"]).texts == ["--json"]
    assert cli.parser().parse_args(["predict", "RUN", "-- no, he said"]).texts == ["-- no, he said"]


PARSERS = [("kerasbert", cli.parser()), ("kerasbert-mobile", mobile.parser())]
EVERY = [command for _, parser in PARSERS for command in commands_of(parser).values()]


@pytest.mark.parametrize("command", EVERY, ids=[command.prog for command in EVERY])
def test_every_option_has_a_word_and_many_have_groups(command):
    """63 options of 537 had none, 55 of finetune stood in one list."""
    text = command.format_help()
    assert text == command.format_help()  # laid out once
    for action in command._actions:
        assert action.help, (command.prog, action.option_strings or action.dest)
    shown = [action for action in command._actions if action.option_strings and action.help is not argparse.SUPPRESS]
    groups = [[action for action in group._group_actions if action in shown] for group in command._action_groups]
    assert sum(map(len, groups)) == len(shown)
    if len(shown) > help.MANY:
        assert max(map(len, groups)) <= help.MANY
        assert text.startswith(f"usage: {command.prog} ")
        assert "[options]" in text.partition("\n\n")[0]


@pytest.mark.parametrize("command", EVERY, ids=[command.prog for command in EVERY])
def test_titles_say_what_stands_under_them(command):
    """Nothing but what every command has is "other", and what trains nothing has no title of training."""
    command.format_help()  # lays the titles out
    titles = {str(group.title): [action.dest for action in group._group_actions] for group in command._action_groups}
    assert not set(titles.get("other", ())) - {"plugin", "debug", "help"}
    learns = any(action.dest == "learning_rate" for action in command._actions)
    learning = {"how long and how fast it learns", "optimizer", "what is trained", "what it learns from"}
    assert learns or not learning & {title for title, options in titles.items() if options}


@pytest.mark.parametrize("command", EVERY, ids=[command.prog for command in EVERY])
def test_three_examples_of_each_command_parse(command):
    examples = [line.strip() for line in command.epilog.splitlines()[1:]]
    assert len(set(examples)) == 3
    for example in examples:
        words = shlex.split(example.partition(" < ")[0])
        assert words[:2] == command.prog.split()
        assert command.parse_args(words[2:])


@pytest.mark.parametrize(("program", "parser"), PARSERS, ids=[program for program, _ in PARSERS])
def test_a_program_s_help_is_in_the_order_of_the_journey(program, parser, capsys):
    text = parser.format_help()
    for command in commands_of(parser):
        assert text.count(f"\n  {command} ") == 1, command
    assert {"kerasbert": "kerasbert-mobile --help", "kerasbert-mobile": "kerasbert --help"}[program] in text
    assert "kerasbert docs" in text
    if program == "kerasbert":
        assert text.index(" import ") < text.index(" finetune ") < text.index(" predict ") < text.index(" pretrain ")
    with pytest.raises(SystemExit, match="0"):
        (cli if program == "kerasbert" else mobile).main(["help"])
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_every_default(name):
    """Nobody has to look a default up in the code."""
    parser = COMMANDS[name]
    text = " ".join(parser.format_help().split())
    for action in parser._actions:
        if action.option_strings and action.default not in (None, False, argparse.SUPPRESS, "", []):
            assert f"(default: {action.default})" in action.help, action.option_strings
    if name == "finetune":  # options without a default of their own show the function's
        assert "rows in a global batch (default: 32)" in text
        assert "kerasbert list tasks" in text


def test_every_error_has_a_line_and_a_status():
    """What both commands print, and what scripts see."""
    assert failure(InputError("no\nfile")) == ("no file", 2)
    assert failure(NonFinite("inf")) == ("inf", 3)
    assert failure(KeyboardInterrupt()) == ("interrupted", 130)
    gone = FileNotFoundError(2, "No such file or directory")  # os.getcwd() in a folder that was deleted
    assert failure(gone) == ("the current folder, change to another: No such file or directory", 2)
    assert failure(KeyboardInterrupt("saved at step 4")) == ("saved at step 4", 130)
    assert failure(OSError(28, "No space left on device", "out/best.part")) == (
        "out/best.part: No space left on device",
        2,
    )
    line, status = failure(ModuleNotFoundError("No module named 'jax'", name="jax"))
    assert (status, line) == (
        2,
        "this command needs jax, which is not installed. Do, in a checkout of kerasbert: pip install '.[tpu-check]'",
    )
    assert "pip install '.[device]'" in failure(ModuleNotFoundError("", name="numpy"), extra="device")[0]
    assert failure(ZeroDivisionError("x")) == (
        "unexpected ZeroDivisionError: x. Run it again with --debug and report what it shows",
        1,
    )


def test_check_tpu_asks_for_its_extra_at_once():
    """It asked for tensorflow, and then for jax."""
    extra = cli.parser().parse_args(["check-tpu", "bert/base"]).extra
    line, status = failure(ModuleNotFoundError("", name="tensorflow"), extra)
    assert (status, line.endswith("pip install '.[tpu-check]'")) == (2, True)


def test_python_says_which_extra_is_missing():
    """The base install has numpy alone: `kb.finetune` was a bare "No module named 'keras'"."""
    program = """
import sys
sys.modules.update(tensorflow=None, keras=None)
import kerasbert as kb
for name in ("finetune", "load"):
    try:
        getattr(kb, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    end = "which is not installed. Do, in a checkout of kerasbert: pip install '.[tensorflow]'"
    lines = python("-c", program).stdout.splitlines()
    assert [line.partition(" needs ")[0] for line in lines] == ["kerasbert.finetune", "kerasbert.load"]
    assert all(line.endswith(end) for line in lines), lines


def test_a_full_disk_names_the_file_and_leaves_no_part(tmp_path):
    """`finetune` said `[Errno 28] No space left on device` and left best.part."""

    def write() -> None:
        with files.new_file(tmp_path / "best.safetensors") as part:
            part.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*best\.safetensors: No space left on device"):
        write()
    assert not list(tmp_path.iterdir())


def test_options_of_the_parser_reach_the_parsers_below():
    """A command's own parser is of the same class, so its errors are one line too."""
    top = Parser(prog="x")
    assert isinstance(top.add_subparsers().add_parser("y"), Parser)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", "line 1: SyntaxError: invalid syntax"),
        ("x = 1\n\n  y = 2\n", "line 3: IndentationError: unexpected indent"),
        ("import no_such_module_of_mine\n", "needs no_such_module_of_mine, which is not installed"),
        ("from kerasbert import no_such_name\n", "line 1: ImportError: cannot import name 'no_such_name'"),
        ("def f():\n    return {}['a\\nb']\n\nf()\n", r"line 2: KeyError: 'a\nb'"),
        ("x = 1\nNAME\n", "line 2: NameError: name 'NAME' is not defined"),
        ("import json\njson.loads('{')\n", "line 2: JSONDecodeError: Expecting property name"),
        ("raise SystemError('a\\n\\x1b[2Jb')\n", "line 1: SystemError: a \\u001b[2Jb"),
        ("\x00", "source code string cannot contain null bytes"),
    ],
)
def test_a_mistake_in_a_plugin_is_one_line(text, said, tmp_path, capsys):
    """Its file, its line, what it is; status 2, for it is the user's."""
    from kerasbert.cli import main

    path = tmp_path / "mine.py"
    path.write_text(text)
    assert main(["list", "models", "--plugin", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: the plug-in {path}")
    assert said in err
    assert err.count("\n") == 1
