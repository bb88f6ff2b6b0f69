"""Options that a command does not use are refused: the parser keeps books of what was given and what was read."""

import argparse
import ast
import inspect
import itertools
import re

import pytest

import kerasbert as kb
from kerasbert import field_names
from kerasbert import mobile as mobile_package
from kerasbert.classics.word_vectors import VectorSettings
from kerasbert.cli import main, parser
from kerasbert.cli.given import Fields, Given
from kerasbert.cli.options import flags
from kerasbert.cli.parser import Parser, command_line, commands_of, run
from kerasbert.data.config import RecordsConfig, VocabularyConfig
from kerasbert.errors import InputError
from kerasbert.export.saved_model import export
from kerasbert.mobile import cli as mobile
from kerasbert.mobile import distill, prune
from kerasbert.mobile.options import CompressConfig
from kerasbert.options import checked
from kerasbert.training.config import TrainConfig


def test_what_was_written_and_not_read_is_refused():
    """A default is nobody's wish; what is read later can be named."""
    options = Given({"data": "x", "dev": "y", "batch": 64}, {"data": "--data", "dev": "--dev"})
    assert options.data == "x"
    with pytest.raises(InputError, match="^--dev would not be used with the other options given: leave it out$"):
        options.check_read()
    options.check_read("dev")
    assert Fields(options)["dev"] == "y"
    options.check_read()


def test_looking_whether_a_name_is_there_reads_nothing():
    """`in` and loops over names leave the books as they are."""
    options = Given({"a": 1, "b": 2}, {"a": "-a", "b": "-b"})
    assert ("a" in Fields(options), "c" in Fields(options), list(Fields(options))) == (True, False, ["a", "b"])
    with pytest.raises(InputError, match="-a and -b would not be used"):
        options.check_read()


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (["x"], {}),
        (["x", "--batch", "64"], {"batch": "--batch"}),  # a default that is written is a wish too
        (
            ["--batch=64", "x", "-n", "a", "b"],
            {"batch": "--batch", "names": "--names", "texts": "TEXT"},
        ),
        (["x", "--on"], {"on": "--on"}),
    ],
)
def test_the_parser_notes_what_is_written(line, written):
    """Flags, values equal to a default, positional arguments between options; not what argparse fills in."""
    made = Parser(prog="p")
    made.add_argument("file", metavar="FILE")
    made.add_argument("texts", metavar="TEXT", nargs="*")
    made.add_argument("--batch", type=int, default=64)
    made.add_argument("-n", "--names", nargs=1)
    made.add_argument("--on", action="store_true")
    assert made.parse_args(line)._flags == written


def _commands():
    for name, whole in (("kerasbert", parser()), ("kerasbert-mobile", mobile.parser())):
        for command, made in commands_of(whole).items():
            yield pytest.param(made, id=f"{name} {command}")


def _is_config(value) -> bool:
    return isinstance(value, type) and issubclass(
        value, TrainConfig | RecordsConfig | VocabularyConfig | CompressConfig
    )


def _mentioned(module) -> set[str]:
    """Names that a module's code says: attributes, words in its strings, fields of the option classes that it imports."""
    found = {name for value in vars(module).values() if _is_config(value) for name, _, _ in flags(value)}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(node.value.split())
    return found


@pytest.mark.parametrize("command", list(_commands()))
def test_every_option_of_every_command_is_read_by_its_code(command):
    """A name that no code of the command mentions cannot be used: it would be refused always."""
    module = inspect.getmodule(command.get_default("function"))
    lent = {
        inspect.getmodule(value) for value in vars(module).values() if inspect.isfunction(value)
    }  # `opened`, `taught`
    read = set().union(*map(_mentioned, {module, *lent}))
    assert {action.dest for action in command._actions} - {"help"} <= read


REFUSED = [
    (main, "finetune {run} --task classification --data train.csv --dev dev.csv --out o", "--dev goes with --train"),
    (main, "finetune {run} --task classification --data a.csv --train b.csv --out o", "--train FILE"),
    (main, "finetune {run} --task classification --data a.csv --steps 3 --epochs 2 --out o", "epochs 2 and steps 3"),
    (main, "finetune {run} --task classification --data a.csv --seeds 3 --out o", "--seeds goes with --grid"),
    (main, "finetune {run} --task classification --data a.csv --patience 0 --out o", "patience must be"),
    (main, "data a.txt --tokenizer t --out o --smoothing 0.5", "--smoothing would not be used"),
    (main, "data a.txt --tokenizer t --out o --beam-options x", "--beam-options would not be used"),
    (main, "vectors a.vec --out o --text-field body", "--text-field would not be used"),
    (main, "vectors a.vec --out o --window 3", "without --kind"),
    (main, "import a --base {run} --out o --pair", "--pair would not be used"),
    (mobile.main, "compress {run} --out f.tflite --strategy cpu", "--strategy is of a plan"),
    (mobile.main, "prune {run} --layers 0 --data a.csv --out o", "--data would not be used"),
    (mobile.main, "prune {run} --layers 0 --rounds 2 --out o", "--rounds does not go with --layers"),
    (mobile.main, "quantize-aware {run} --data a.csv --out o --loss soft=1", "--loss needs --teacher"),
]


@pytest.mark.parametrize(("program", "line", "told"), REFUSED, ids=[line.split(" --")[-1] for _, line, _ in REFUSED])
def test_an_option_of_another_way_is_refused(program, line, told, tmp_path, monkeypatch, capsys):
    """One line that names it, status 2, nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.json").write_text("{}")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert program(line.format(run="run").split()) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_the_books_are_looked_at_when_a_command_has_ended(capsys):
    """A command that forgets to ask is caught at its end, so that no option passes in silence."""

    def quiet(options: argparse.Namespace) -> None:
        assert options.used == 1

    class Module:
        @staticmethod
        def add(declare):
            made = declare("do", quiet, "does")
            made.add_argument("--used", type=int)
            made.add_argument("--lost", type=int)

    whole = command_line("p", "d", {"do": "p do"}, [Module])
    assert run(lambda: whole, ["do", "--used", "1"]) == 0
    assert run(lambda: whole, ["do", "--used", "1", "--lost", "2"]) == 2
    assert "--lost would not be used" in capsys.readouterr().err


CALLS = {  # what a program calls -> what it is told
    'kb.export_checkpoint("run", "out", to="tf1")': "export_checkpoint has no option 'to'. In Python it is target",
    'kb.export_checkpoint("run", out="out")': "export_checkpoint has no option 'out'. In Python it is path",
    "kb.import_checkpoint('a', **{'from': 'hf'})": "import_checkpoint has no option 'from'. In Python it is source",
    'kb.export("run", "out", next=True)': "export has no option 'next'. In Python it is next_version",
    'kb.train_tokenizer("a.txt", cased=True)': "train_tokenizer has no option 'cased'. In Python it is lowercase=False",
    'kb.predict("run", data="a.csv")': "predict has no option 'data'. In Python it is texts",
    'kb.predict("run", ["a"], precision="bfloat16")': "has no option 'precision'. In Python it is model=kb.load(...)",
    'kb.finetune("run", train="a.csv")': "has no option 'train'. In Python it is data={'train': FILE, 'dev': FILE}",
    'kb.finetune("run", folds=5)': "finetune has no option 'folds'. In Python it is kb.cross_validate",
    'kb.pretrain("bert/tiny", recipe="a.yaml")': "pretrain has no option 'recipe'. In Python it is kb.read_recipe",
    'kb.mobile.load("a.tflite", no_cache=True)': "load has no option 'no_cache'. In Python it is cache=False",
    "kb.Spec(hiden=3)": "Spec has no option 'hiden'. Nearest: 'hidden'",
    'kb.Spec(pooler="no")': "pooler must be True or False. Received: 'no'",
    "kb.build()": "build needs name, which the call does not give",
    "kb.finetune('run')": "finetune needs task, data, out, which the call does not give",
    "kb.predict()": "predict needs model, texts, which the call does not give",
    "kb.export('run')": "export needs out, which the call does not give",
    "kb.Index()": "Index needs path, which the call does not give",
    "kb.Index.build('run', ['a'])": "Index.build needs out, which the call does not give",
    "kb.predict('run', ['a'], 8)": "predict takes model, texts by place: give the other arguments by name",
    "kb.predict('run', ['a'], model='b')": "predict: multiple values for argument 'model'",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_with_other_names_is_one_line(call):
    """What the command line calls otherwise, what is absent, what has no place."""
    with pytest.raises(InputError, match=re.escape(CALLS[call])):
        eval(call, {"kb": kb})


def test_a_mistake_within_a_call_stays_what_it_is():
    """A TypeError of the code itself is not one of its arguments."""

    @checked
    def double(value: object) -> object:
        return value + None

    with pytest.raises(TypeError, match="unsupported operand"):
        double(1)


def test_what_functions_call_options_is_one_of_them():
    """No entry of the table names an argument that nothing has."""
    functions = [getattr(kb, name) for name in kb.__all__ if name != "mobile"]
    functions += [*map(mobile_package.__getattr__, mobile_package.__all__), distill.distill, prune.magnitude]
    functions += [kb.Index.search, VectorSettings, export]
    known = {name for each in functions if callable(each) for name in _signature(each)}
    for ours in itertools.chain.from_iterable(field_names.PYTHON.values()):
        assert re.split("[=,]", ours)[0] in known


def _signature(function) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except ValueError:  # an exception's
        return []
