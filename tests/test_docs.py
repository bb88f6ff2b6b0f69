"""What the README and the docstrings say is true: commands parse, names exist, examples give what stands under them."""

import ast
import doctest
import importlib
import inspect
import re
import shlex
import tomllib

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.mobile import cli as mobile_cli
from tests.support import ROOT, python

README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_two_blocks_never_write_the_same_place():
    """A reader who follows the README from top to bottom is never told that something exists already."""
    written = [match for block in blocks("sh") for match in re.findall(r"--out (\S+)", block)]
    assert len(written) > 15
    assert sorted(set(written)) == sorted(written)


@pytest.mark.full  # by hand before a README lands: a quarter of an hour on 2 cores; .ci/run makes the quickstart
def test_readme_runs_block_after_block(tmp_path):
    """All of them in one folder; what is replaced or only parsed is printed."""
    done = python("tests/readme.py", tmp_path / "readme", timeout=1800)
    print(done.stdout)
    assert done.stdout.count(" s  ") > 30


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("kerasbert")]


def documented_modules() -> list[str]:
    """Modules with examples in their docstrings."""
    found = []
    for folder, package in (("kerasbert", "kerasbert"), ("mobile", "kerasbert.mobile")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text():
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found.append(".".join([package, *(part for part in parts if part != "__init__")]))
    return found


def test_readme_opens_with_two_commands():
    """One installs and runs the quickstart, one the tests; both make their own environment."""
    first, second = (block.strip() for block in blocks("sh")[:2])
    make = "python3 -m venv .venv && .venv/bin/pip install "
    assert first == f"{make}'.[mobile]' && .venv/bin/kerasbert quickstart"
    assert second == f"{make}'.[test]' && .venv/bin/python -m pytest"
    assert second in (ROOT / "README.md").read_text().splitlines()  # as .ci/run finds it


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_commands_parse(command):
    """Every command of the README has the options that it shows."""
    program, *arguments = shlex.split(command)
    parser = {"kerasbert": cli.parser, "kerasbert-mobile": mobile_cli.parser}[program]()
    if arguments == ["--help"]:
        assert parser.format_help()
    else:
        parser.parse_args(arguments)


def test_readme_shows_every_command():
    """A command that the README leaves out would not be found."""
    shown = {tuple(shlex.split(command)[:2]) for command in COMMANDS}
    commands = next(action for action in cli.parser()._actions if action.choices).choices
    missing = [name for name in commands if ("kerasbert", name) not in shown and f"kerasbert {name}" not in README]
    assert not missing


@pytest.mark.parametrize("block", blocks("python"))
def test_readme_python_names_and_arguments_exist(block):
    """Every `kb.name(...)` of the README exists and takes the keywords it is given."""
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kb":
            assert hasattr(kb, node.attr)
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(importlib.import_module(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("kb."):
            function = getattr(kb, node.func.attr)
            if inspect.isfunction(function):
                keywords = {keyword.arg: None for keyword in node.keywords}
                inspect.signature(function).bind(*node.args, **keywords)


def test_public_names_exist():
    """`dir(kerasbert)` promises nothing that is not there."""
    for name in kb.__all__:
        assert getattr(kb, name) is not None


def test_readme_error_is_what_is_printed():
    """The example of an error is the error, and its exit status is 2."""
    shown = next(line.strip() for line in README.splitlines() if line.strip().startswith("error: "))
    done = python("-m", "kerasbert.cli", "show", "bert/bas", check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", shown)


def test_readme_extras_are_those_of_the_package():
    """The table of extras is complete."""
    config = (ROOT / "setup.cfg").read_text()
    extras = re.findall(r"^([a-z-]+) =$", config[config.index("[options.extras_require]") :], re.MULTILINE)
    rows = re.findall(r"^\| (`.*?) \|", README[README.index("## Extras") :], re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z-]+)`", row)) == sorted(extras)


def test_ruff_and_pytest_settings_are_read():
    """A broken pyproject.toml would silently switch both off."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["pytest"]["ini_options"]["filterwarnings"][0] == "error"
    assert tools["ruff"]["line-length"] == 120


@pytest.mark.parametrize("name", documented_modules())
def test_docstring_examples(name):
    """Every `>>>` gives what stands under it."""
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, extraglobs={"np": np, "kb": kb}, optionflags=flags)
    assert result.attempted
    assert not result.failed
