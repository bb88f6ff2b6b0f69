"""The mutants that `tests.mutants` tries: kinds of changes, what is left alone, the nearest tests."""

import pytest

from tests.mutants import ROOT, candidates, drawn, equivalents, nearest
from tests.mutating import compiles, mutants


def changed(source):
    return {(mutant.change, mutant.applied(source)) for mutant in mutants(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {("< -> <=", "x = a <= b"), ("< -> >=", "x = a >= b")}),
        ("x = a is not None", {("is not -> is", "x = a is None")}),
        ("x = a and b", {("and -> or", "x = a or b")}),
        ("x = not a", {("not dropped", "x = a")}),
        ("x = (a) + (b)", {("+ -> -", "x = (a) - (b)")}),
        (
            "x = f(axis=-1)",
            {("- dropped", "x = f(axis=1)"), ("1 -> 2", "x = f(axis=-2)"), ("1 -> 0", "x = f(axis=-0)")},
        ),
        ("x = max(a, b)", {("max -> min", "x = min(a, b)")}),
        ("x = tf.reduce_any(a)", {("reduce_any -> reduce_all", "x = tf.reduce_all(a)")}),
        ("def f():\n    return a", {("returned value dropped", "def f():\n    return None")}),
        ("x = a if b else c", {("condition negated", "x = a if not (b) else c")}),
        ("é = a - 0  # <", {("- -> +", "é = a + 0  # <"), ("0 -> 1", "é = a - 1  # <")}),
        ("x = True", {("True -> False", "x = False")}),
    ],
)
def test_slips(source, expected):
    assert changed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "if TYPE_CHECKING:\n    import x",
        '"""1 < 2"""',
        'raise ValueError(f"{1 + 2}")',
        "@cache(1)\ndef f(a: 1) -> 2:\n    pass",
        'x = f"{1 < 2}"',
    ],
)
def test_what_is_no_behaviour_stays(source):
    assert changed(source) == set()


def test_a_mutant_is_one_other_line():
    source = (ROOT / "kerasbert/text/template.py").read_text()
    found = list(mutants(source))
    assert len(found) > 20
    for mutant in found:
        other = mutant.applied(source)
        assert compiles(other)
        pairs = zip(source.split("\n"), other.split("\n"), strict=True)
        assert [number for number, (a, b) in enumerate(pairs, 1) if a != b] == [mutant.line]


def test_the_mirror_is_nearest_and_answers_need_no_tensorflow():
    assert nearest("kerasbert/text/template.py")[0] == "tests/text/test_template.py"
    assert nearest("kerasbert/layers/attention.py")[0] == "tests/layers/test_attention.py"
    assert nearest("kerasbert/text/hf_spm.py")  # by what imports it
    assert all(test.startswith("tests/answers/") for test in nearest("kerasbert/answers/tokens.py"))
    assert nearest("mobile/runtime/stored_index.py")[0] == "tests/mobile/test_stored_index.py"
    assert nearest("mobile/runtime/opening.py")  # by a relative import


def test_a_seed_draws_the_same_and_equivalents_are_not_drawn():
    assert list(map(str, drawn("answers", 5, 1))) == list(map(str, drawn("answers", 5, 1)))
    assert {place.path.split("/")[1] for place in drawn("objectives", 5, 2)} == {"objectives"}
    known = equivalents()
    for file, line, change in known:  # a line that is no longer there excuses nothing
        assert line in [each.strip() for each in (ROOT / file).read_text().split("\n")], (file, line, change)
    assert known.isdisjoint((place.path, place.mutant.old, place.mutant.change) for place in candidates("text"))
    assert not compiles("x = ")
