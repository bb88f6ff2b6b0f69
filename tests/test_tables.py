"""Tables of names: what they refuse, and a plug-in's row of each, used by its name from Python and the command line."""

import json
from pathlib import Path

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from tests import tiny
from tests.support import forgotten, python

PLUGIN = str(Path(__file__).parent / "plugin_tables.py")


@pytest.fixture(scope="module")
def plugin():
    """The file is loaded; what it registered is forgotten afterwards."""
    with forgotten():
        yield registry.load_plugin(PLUGIN)


def test_a_name_has_one_value():
    table = registry.Table("bread")
    table.add("rye", 1, "roggen")
    assert table.add("rye", 1) == 1  # the same again
    assert (table["roggen"], table.name("roggen"), list(table), "roggen" in table) == (1, "rye", ["rye"], True)
    for name in ("rye", "roggen"):
        with pytest.raises(InputError, match=f"'{name}' is registered already: choose another name"):
            table.add(name, 2)
    with pytest.raises(InputError, match="'rye' is registered already"):
        table.add("wheat", 2, "rye")
    with pytest.raises(InputError, match="^no bread 'royggen'. Nearest: 'roggen'. All: rye$"):
        table.find("royggen")
    del table["rye"]
    assert "roggen" not in table


def test_homes_are_imported_when_a_name_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "bakery").mkdir()
    (tmp_path / "bakery" / "__init__.py").touch()
    (tmp_path / "bakery" / "loaf.py").write_text("from tests.test_tables import BREADS\nBREADS.add('rye', 1)\n")
    assert BREADS.added() == []
    assert (BREADS.find("rye"), BREADS.added()) == (1, ["rye"])


BREADS: registry.Table[int] = registry.Table("bread", "bakery")


def test_old_names_and_new_ones():
    names = {
        "sentence_pairs": "pairs",
        "sentence_order_pairs": "order",
        "structbert_pairs": "place",
        "best_fit": "packed",
    }
    assert {name: registry.PACKINGS.name(name) for name in names} == names
    assert all(registry.PACKINGS[new] is registry.PACKINGS[old] for new, old in names.items())


def test_a_plug_in_is_a_python_file(tmp_path):
    (tmp_path / "plugin.txt").touch()
    with pytest.raises(InputError, match=r"plugin\.txt is no plug-in, expected a Python file \(\.py\)"):
        registry.load_plugin(tmp_path / "plugin.txt")


def test_a_plug_ins_rows_work_by_name(plugin, tmp_path, capsys):
    """vocab, data and pretrain with a third party's tokenizer, segmenter, packing, selection, optimizer and schedule."""
    from kerasbert import cli

    def run(*words):
        assert cli.main([*map(str, words), "--plugin", PLUGIN]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    vocabulary, records, out = (tmp_path / name for name in ("vocabulary", "records", "run"))
    corpus = tiny.corpus(tmp_path / "corpus.txt")
    assert "characters" in [row["name"] for row in json.loads(run("list", "tokenizers", "--json"))]
    run("vocab", corpus, "--kind", "characters", "--size", 40, "--out", vocabulary)
    made = ("--tokenizer", vocabulary, "--length", 24, "--packing", "own_documents", "--words", "between_blanks")
    run("data", corpus, *made, "--out", records)
    settings = json.loads((records / "manifest.json").read_text())["settings"]
    assert (settings["packing"], settings["words"]["source"]) == ("own_doc", "between_blanks")
    training = ("--optimizer", "sign", "--schedule", "steps", "--select", "leading", "--steps", 2, "--batch", 4)
    small = [word for field, value in tiny.SPEC.items() for word in ("--set", f"{field}={value}")]
    run("pretrain", "roberta/base", "--data", records, *training, *small, "--out", out, "--quiet")
    told = json.loads((out / "run.json").read_text())
    assert {"sign", "steps", "leading"} <= set(_texts(told))


def test_options_of_a_plug_ins_optimizer_and_schedule(plugin):
    from kerasbert.training.optimizers import check_optimizer
    from kerasbert.training.schedules import make_schedule

    assert [float(make_schedule("steps", 1.0, 4, options={"low": 0.5})(n)) for n in range(4)] == [1, 1, 0.5, 0.5]
    check_optimizer("sign", {"scale": 2.0})
    with pytest.raises(InputError, match="optimizer 'sign' has no option 'scales'. Nearest: 'scale'"):
        check_optimizer("sign", {"scales": 2.0})
    with pytest.raises(InputError, match="schedule 'steps' has no option 'lows'. Nearest: 'low'"):
        make_schedule("steps", 1.0, 4, options={"lows": 0.5})


def test_a_mistyped_name_beside_a_plug_in_is_refused_at_once(plugin):
    """Before, any name passed until everything was imported."""
    for kind, name, near in (
        ("optimizer", "sing", "sign"),
        ("select", "leadin", "leading"),
        ("schedule", "stepz", "steps"),
    ):
        registry.check_name(kind, near)
        with pytest.raises(InputError, match=f"no .*'{name}'. Nearest: '{near}'"):
            registry.check_name(kind, name)


def test_what_a_plug_ins_tokenizer_lacks_is_said(plugin):
    from kerasbert.text import save_hf
    from kerasbert.text.graph import graph_tokenizer
    from kerasbert.text.train import train

    tokenizer = train("characters", ["a b c"], 10)
    with pytest.raises(InputError, match="no graph tokenizer 'characters'"):
        graph_tokenizer(tokenizer)
    with pytest.raises(InputError, match="kind 'characters' has no form in Hugging Face's"):
        save_hf(tokenizer, "x.json")


def _texts(value):
    """Every string within json."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for part in parts for text in _texts(part)]


def test_entries_come_in_the_order_in_which_they_were_added():
    names = [f"{letter}{number}" for number in range(9) for letter in "zay"]
    table = registry.Table("bread")
    for name in names:
        table.add(name, object())
    assert list(table) == names


@pytest.mark.slow
def test_a_family_that_is_asked_for_by_its_name_is_imported_alone():
    """All of them come in the order of the index, whichever was first, and a plug-in cannot take the name of one of ours."""
    code = """
import sys
from kerasbert import registry
from kerasbert.errors import InputError
found = registry.family("xlm-roberta")
loaded = [name for name in sys.modules if name.startswith("kerasbert.models.")]
try:
    registry.FAMILIES.add("spanbert", object())
except InputError as error:
    print(error)
print(found.name, "kerasbert.models.t5" in loaded, [*registry.families()] == [*registry.shipped()["families"]])
"""
    done = python("-c", code)
    assert done.stdout.splitlines() == [
        "'spanbert' is registered already: choose another name",
        "xlm-roberta False True",
    ]
