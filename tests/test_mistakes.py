"""Mistakes of a first hour: each one line, status 2, with its remedy, before TensorFlow is imported: all in one fresh process."""

import ast
import json
import pkgutil
import re
import shlex

import pytest

from kerasbert import cli, field_names, registry, tasks
from kerasbert.cli.parser import commands_of
from kerasbert.errors import InputError
from kerasbert.mobile import cli as mobile
from kerasbert.mobile.commands import early
from tests import mistakes
from tests.support import ROOT, python

PROGRAM = """
import json, os, sys
from tests import mistakes
os.chdir(sys.argv[1])
for found in mistakes.within(json.load(open("lines.json"))):
    print(json.dumps(found))
"""
CASES = mistakes.table()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Command -> [status, stderr, what it imported that is slow to import]."""
    place = tmp_path_factory.mktemp("mistakes")
    mistakes.files(place)
    (place / "lines.json").write_text(json.dumps([command for command, _ in CASES]))
    done = python("-c", PROGRAM, place, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(place / "cache"))
    return {command: rest for command, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(("command", "remedy"), CASES, ids=[command for command, _ in CASES])
def test_a_mistake_is_one_line_that_names_the_remedy(told, command, remedy):
    status, said, imported = told[command]
    assert imported == ""
    assert status == 2, said
    assert said.count("\n") == 1
    assert mistakes.names(said, remedy), said


def test_a_remedy_is_an_option_that_the_command_has(told):
    """`data` and `compress` were told to name a column with --label-column, which they do not have."""
    programs = {"kerasbert": commands_of(cli.parser()), "kerasbert-mobile": commands_of(mobile.parser())}
    for line, _ in CASES:
        program, name, *given = [*shlex.split(line), ""][: len(line)]
        if name not in programs[program]:
            continue
        said = re.split(r"kerasbert(?:-mobile)? [a-z]|hf download", told[line][1])[0]  # what follows is another command
        named = set(re.findall(r"(?<!\S)[('\"]*(--[a-z][\w-]*)", said)) - {each.partition("=")[0] for each in given}
        assert named <= programs[program][name]._option_string_actions.keys(), (line, said)


def test_there_are_enough_of_them_and_of_every_command():
    """The review counted 179; a new command brings its own."""
    assert len(CASES) >= 200
    assert len(dict(CASES)) == len(CASES)
    for program, parser in (("kerasbert", cli.parser()), ("kerasbert-mobile", mobile.parser())):
        for command in commands_of(parser):
            if command != "docs" and command != "samples":  # they read nothing of a user
                assert any(line.startswith(f"{program} {command}") for line, _ in CASES), command


def test_a_table_of_mistakes_tells_what_is_wrong(tmp_path):
    """The figures of the program: of a process of its own."""
    mistakes.files(tmp_path)
    found = mistakes.alone("kerasbert finetunee model", tmp_path)
    assert (found["status"], found["heavy"]) == (2, False)
    assert 0 < found["seconds"] < 5
    assert not mistakes.names(found["said"], "another remedy")


def test_every_module_that_declares_a_task_or_a_reader_is_a_home():
    """A task is found without importing the others, which need TensorFlow."""
    for module in pkgutil.iter_modules(tasks.__path__):
        tree = ast.parse((ROOT / "kerasbert/tasks" / f"{module.name}.py").read_text())
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        if {"register_task", "register_reader"} & calls:
            assert f"kerasbert.tasks.{module.name}" in registry.DECLARING, module.name


def test_the_field_s_names_lead_to_ours():
    """No name of others leads to one that is gone."""
    desk, phone = commands_of(cli.parser()), commands_of(mobile.parser())
    assert set(field_names.MOBILE) == set(phone)
    assert set(field_names.DESK) <= {*desk, "docs"}
    known = {option for each in (*desk.values(), *phone.values()) for option in each._option_string_actions}
    for other, ours in field_names.OPTIONS.items():
        assert ours.split()[0] in known, other
    assert set(field_names.TASKS.values()) <= set(registry.shipped()["tasks"])
    assert not set(field_names.TASKS) & set(registry.shipped()["tasks"])
    assert registry.task("Text-Classification") is registry.task("classification")


@pytest.mark.slow
def test_the_stages_of_a_plan_are_those_that_are_told_before_tensorflow_s_import():
    from kerasbert.mobile.pipeline.plan import stages

    assert tuple(stages()) == early.STAGES


def test_a_model_without_a_task_is_refused_only_where_one_is_needed(tmp_path):
    mistakes.files(tmp_path)
    encoder, texts = tmp_path / "encoder", tmp_path / "texts.txt"
    texts.write_text("the cat\n", encoding="utf-8")
    early.check_compress(encoder, {"quantize": "none", "task": "fill-mask"})
    early.check_trim(encoder, [str(texts)], None)
    with pytest.raises(InputError, match="the model has no task"):
        early.check_compress(encoder, {"quantize": "none"})
