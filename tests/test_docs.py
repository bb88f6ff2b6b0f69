"""What the README, guides and docstrings say is true: commands parse, names exist, examples give what stands under them."""

import ast
import doctest
import functools
import importlib
import inspect
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli, registry
from kerasbert.cli.parser import commands_of
from kerasbert.errors import InputError
from kerasbert.mobile import cli as mobile_cli
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from kerasbert.testing import battery
from tests import make_index, readme
from tests.support import ROOT, often, python

PAGES = readme.pages()
README = PAGES["README"].read_text()
DEVELOPERS = [
    *("kerasbert/README.md", "kerasbert/models/README.md", "kerasbert/tasks/README.md", "mobile/README.md"),
    *("mobile/native/README.md", "tests/README.md", "tpu_scripts/README.md"),
]
COMMANDS = [
    (name, line)
    for name, page in PAGES.items()
    for block in readme.blocks(page)
    if block.language == "sh"
    for line in readme.lines(block)
    if line.startswith("kerasbert")
]
PYTHON = [
    (name, block.text)
    for name, page in (PAGES | readme.notebooks()).items()
    for block in readme.blocks(page)
    if block.language == "python"
]


def test_two_blocks_never_write_the_same_place():
    """A reader who follows a page from top to bottom is never told that something exists already."""
    for name, page in PAGES.items():
        shell = "\n".join(block.text for block in readme.blocks(page) if block.language == "sh" and not block.why)
        written = re.findall(r"--out (\S+)", shell)
        assert sorted(set(written)) == sorted(written), name


@pytest.mark.full  # by hand before a page lands: the better part of an hour on 2 cores; .ci/run makes the quickstart
@pytest.mark.parametrize("pages", [["README"], []], ids=["README", "all"])
def test_pages_run_block_after_block(pages, tmp_path):
    """Each page in a fresh folder, as it is printed; what is not run is told."""
    done = python("tests/readme.py", tmp_path / "pages", *pages, timeout=7200)
    print(done.stdout)
    assert done.stdout.count("page done") == (len(pages) or len(PAGES | readme.notebooks()))


def test_a_page_that_shows_what_its_block_does_not_print_is_refused(tmp_path):
    """Numbers aside; what is not run, and the output behind a block, are found."""
    (tmp_path / "page.md").write_text(
        "```sh\nls\n```\n\n```text\na 0.5 b\n...\n```\n<!-- not run: why -->\n```sh\nrm\n```\n"
    )
    shown, skipped = (block for block in readme.blocks(tmp_path / "page.md") if block.language == "sh")
    assert (shown.why, skipped.why, skipped.shown) == (None, "why", "")
    readme.check_shown(shown, "before\na 0.75  b\n")
    with pytest.raises(SystemExit, match=r"does not print: a 0\.5 b"):
        readme.check_shown(shown, "a 0.5 c\n")


@pytest.mark.parametrize("name", often(readme.notebooks(), "classify.ipynb", "search.ipynb"))
def test_notebooks_run_with_any_encoder(name, tmp_path, monkeypatch):
    """Cell by cell; what a genuine encoder prints is compared by the test of all pages."""
    monkeypatch.chdir(tmp_path)
    tokenizer = battery.tokenizer("wordpiece")
    changes = {"embeddings.vocabulary": tokenizer.size, "embeddings.positions": 64, "hidden": 32, "blocks.layers": 1}
    encoder = kb.build("bert/tiny", **changes | {"feedforward.width": 64, "initializer": 0.2})
    encoder.tokenizer = tokenizer
    kb.save(encoder, tmp_path / "encoder")
    runner = readme.Runner(tmp_path, shell=False, encoder=str(tmp_path / "encoder"), compare=False)
    runner.page(name, readme.notebooks()[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of TensorFlow, in Keras' fit
def test_the_page_about_keras_runs_with_any_model_of_sentences(tmp_path, monkeypatch):
    """Block by block: a folder of sentence-transformers is a model with a task, whose encoder goes into a model of one's own."""
    monkeypatch.chdir(tmp_path)
    tokenizer = battery.tokenizer("wordpiece")
    changes = {"embeddings.vocabulary": tokenizer.size, "embeddings.positions": 64, "hidden": 32, "blocks.layers": 1}
    encoder = kb.build("bert/tiny", **changes | {"feedforward.width": 64, "initializer": 0.2})
    encoder.tokenizer = tokenizer
    model = TaskModel(encoder, Task("sentences", "vector", metric="spearman"))
    model.build()
    kb.save(model, tmp_path / "encoder")
    runner = readme.Runner(tmp_path, shell=False, encoder=str(tmp_path / "encoder"), compare=False)
    imported = f"kerasbert import {readme.ENCODER} --out models/minilm"
    runner.made[imported] = tmp_path / "encoder", ""
    runner.page("keras", PAGES["keras"])
    with pytest.raises(
        InputError, match=r"a TaskModel of a task stands where its encoder is wanted: build on model\.encoder"
    ):
        registry.family_of(model)


@pytest.mark.parametrize("page", readme.notebooks().values(), ids=lambda page: page.name)
def test_notebooks_are_read_by_jupyter_and_show_results(page):
    """nbformat 4.5: an id in each cell; no place of the machine that ran it."""
    text = page.read_text(encoding="utf-8")
    book = json.loads(text)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    assert book["cells"][0]["source"][0].startswith("# ")
    assert sum(bool(block.shown) for block in readme.blocks(page)) >= 4
    assert not re.search("/(tmp|home|root|work)/", text)


def test_the_readme_is_short():
    """A first page is read; what is longer is a guide."""
    assert len(README.splitlines()) <= 200


def test_the_readme_leads_to_every_guide_and_every_guide_is_a_page():
    """A guide that nothing leads to is not found."""
    for name, page in PAGES.items():
        assert page.read_text().startswith("# ")
        assert name == "README" or f"({page.relative_to(ROOT)})" in README, name


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*(str(path.relative_to(ROOT)) for path in PAGES.values()), *DEVELOPERS])
def test_links_lead_somewhere(page):
    """A link is to a file of the tree, to a heading there, or to the web."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    for link in re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_table_of_models_is_that_of_the_registry():
    """python -m tests.make_index writes it."""
    assert make_index.with_table(README) == README


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
    first, second = (block.text.strip() for block in readme.blocks(PAGES["README"])[:2])
    make = "python3 -m venv .venv && .venv/bin/pip install "
    assert first == f"{make}'.[mobile]' && .venv/bin/kerasbert quickstart"
    assert second == f"{make}'.[test]' && .venv/bin/python -m pytest"
    assert second in (ROOT / "README.md").read_text().splitlines()  # as .ci/run finds it


PARSERS = {"kerasbert": cli.parser(), "kerasbert-mobile": mobile_cli.parser()}


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_pages_parse(page, command):
    """Every command of a page has the options that it shows."""
    program, *arguments = readme.words(command)
    if arguments[-1:] == ["--help"]:
        assert arguments[:-1] == [] or arguments[0] in commands_of(PARSERS[program])
    else:
        PARSERS[program].parse_args(arguments)


def test_pages_show_every_command():
    """A command that no page shows would not be found."""
    text = "\n".join(page.read_text() for page in PAGES.values())
    for program, parser in PARSERS.items():
        missing = [name for name in commands_of(parser) if not re.search(rf"(`|{program} ){re.escape(name)}\b", text)]
        assert not missing


@pytest.mark.parametrize(("page", "block"), PYTHON)
def test_python_names_and_arguments_of_pages_exist(page, block):
    """Every `kb.name(...)` of a page exists and takes the keywords it is given."""
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kb":
            assert hasattr(kb, node.attr)
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(importlib.import_module(node.module), alias.name) for alias in node.names)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("kb."):
            function = functools.reduce(getattr, ast.unparse(node.func).split(".")[1:], kb)  # kb.Index.build too
            if inspect.isfunction(function):
                keywords = {keyword.arg: None for keyword in node.keywords}
                inspect.signature(function).bind(*node.args, **keywords)


def test_public_names_exist():
    """`dir(kerasbert)` promises nothing that is not there."""
    for name in kb.__all__:
        assert getattr(kb, name) is not None


def test_the_error_of_the_guide_is_what_is_printed():
    """The example of an error is the error, and its exit status is 2."""
    guide = PAGES["errors"].read_text()
    shown = next(line.strip() for line in guide.splitlines() if line.strip().startswith("error: "))
    done = python("-m", "kerasbert.cli", "show", "bert/bas", check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", shown)


def test_readme_extras_are_those_of_the_package():
    """The table of extras is complete."""
    config = (ROOT / "setup.cfg").read_text()
    extras = re.findall(r"^([a-z-]+) =$", config[config.index("[options.extras_require]") :], re.MULTILINE)
    table = README[README.index("| extra |") : README.index("## A first result")]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
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
