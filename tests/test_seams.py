"""What only one place may know: the names of kinds. New dispatch on them elsewhere fails here."""

import ast

import pytest

from kerasbert import answers
from kerasbert.tasks import base
from tests.support import ROOT

OURS = set(base.OURS)
OBJECTS = {name for name in answers.__all__ if name.lower() in OURS}
THEIRS = "kerasbert/checkpoints/config.py"  # Hugging Face's problem types, which have names of ours
MASKS = "kerasbert/objectives/masked_lm.py"  # how a masked span is rendered (SpanBERT's word)
HOMES = {
    THEIRS,
    "kerasbert/checkpoints/cross_encoders.py",  # a format that says what kind its task is of
    MASKS,
    *(f"kerasbert/answers/{name}.py" for name in OURS),
    *(f"kerasbert/tasks/{name}.py" for name in OURS),
}


def constants(node: ast.AST | None) -> set[str]:
    """Texts in a text, or in a tuple, list or set of them."""
    items = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}


# file -> words in it that are names of kinds and mean something else there
OTHERWISE = {
    "kerasbert/checkpoints/directory.py": {"generation"},  # the settings of decoding in model.json, as in the next ones
    "kerasbert/checkpoints/fit.py": {"generation"},
    "kerasbert/tasks/load.py": {"generation"},
    "mobile/prune/rewrite.py": {"generation"},
    "kerasbert/cli/text.py": {"tokens"},
    "kerasbert/data/job.py": {"tokens"},
    "kerasbert/data/shards.py": {"tokens"},
    "kerasbert/models/albert.py": {"span"},  # the name of a head, as in the other families
    "kerasbert/models/bart.py": {"span"},
    "kerasbert/models/bigbird.py": {"span"},
    "kerasbert/models/xlnet.py": {"span"},
    "kerasbert/models/gpt2.py": {"span"},
    "kerasbert/models/bert.py": {"span"},
    "kerasbert/models/deberta.py": {"span"},
    "kerasbert/models/distilbert.py": {"span"},
    "kerasbert/models/electra.py": {"span"},
    "kerasbert/models/funnel.py": {"span"},
    "kerasbert/models/modernbert.py": {"span"},
    "kerasbert/models/reformer.py": {"span"},
    "kerasbert/models/t5.py": {"span"},
    "kerasbert/models/xlm.py": {"span"},
    "kerasbert/objectives/select.py": {"tokens"},
    "kerasbert/objectives/span_corruption.py": {"tokens"},
    "kerasbert/text/hf_save.py": {"tokens"},
    "mobile/commands/prune.py": {"tokens"},
    "mobile/distill/student_start.py": {"tokens"},
    "mobile/vocabulary/trimming.py": {"tokens"},
}


def dispatches(source: str, names: set[str] = OURS) -> list[int]:
    """Lines that ask for the name or the class of a kind: comparisons, cases, keys of dicts, isinstance."""
    found = []
    for node in ast.walk(ast.parse(source)):
        said: set[str] = set()
        if isinstance(node, ast.Compare):
            said = constants(node.left).union(*map(constants, node.comparators))
        elif isinstance(node, ast.MatchValue):
            said = constants(node.value)
        elif isinstance(node, ast.Dict):
            said = set().union(*map(constants, node.keys))
        elif isinstance(node, ast.Subscript):
            said = constants(node.slice)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in CALLS:
            inner = [part for argument in node.args for part in ast.walk(argument)]
            named = {getattr(part, "id", getattr(part, "attr", "")) for part in inner}
            said = constants(node.args[0] if node.args else None) | {name.lower() for name in named & OBJECTS}
        if said & names:
            found.append(node.lineno)
    return found


CALLS = {"isinstance", "issubclass", "get", "startswith", "endswith"}


def test_functions_are_short():
    """At most 40 lines without the docstring."""
    found = set()
    for folder in ("kerasbert", "mobile", "tpu_scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    said = ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
                    first = node.body[said].lineno
                    if node.end_lineno - first + 1 > 40:
                        found.add(f"{path.relative_to(ROOT)} {node.name}")
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "if task.kind == 'classification': pass",
        "if 'regression' != kind: pass",
        "if kind in ('vector', 'tags'): pass",
        "if kind not in {'vector'}: pass",
        "match kind:\n    case 'regression': pass\n    case _: pass",
        "heads = {'classification': 1}",
        "head = heads['regression']",
        "head = heads.get('vector')",
        "if isinstance(answer, answers.Regression): pass",
        "if isinstance(answer, (Classification, int)): pass",
    ],
)
def test_every_form_is_seen(line):
    assert dispatches(line)
    assert not dispatches("kind = find('vector'); agreement = kind.agreement; found['vectors'] = 1")


def test_only_the_files_of_a_kind_ask_for_its_name():
    wrong = []
    for folder in ("kerasbert", "mobile"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in HOMES:
                names = OURS - OTHERWISE.get(name, set())
                wrong += [f"{name}:{line}" for line in dispatches(path.read_text(), names)]
    assert not wrong


def test_the_three_inputs_are_spelled_out_in_one_file():
    """Networks read inputs one by one; who lists the three asks `inputs.TEXT`."""
    three = {"token_ids", "padding_mask", "segment_ids"}
    spelled = []
    for folder in ("kerasbert", "mobile"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (isinstance(node, ast.Tuple | ast.List | ast.Set) and constants(node) >= three) or (
                    isinstance(node, ast.Dict) and set().union(*map(constants, node.keys)) >= three
                ):
                    spelled.append(str(path.relative_to(ROOT)))
    # an objective makes a batch of its own, corrupted tokens among it; the battery makes random ones
    others = [name for name in spelled if not name.startswith(("kerasbert/objectives/", "kerasbert/testing/"))]
    assert others == ["kerasbert/inputs.py"]
