"""One line that tells what of somebody else's files was not used."""

import pytest

from kerasbert.storage import unused


def test_one_line_for_all_files_of_an_import(capsys):
    with unused.told():
        unused.leave("a/config.json", ["colour", "note.by"])
        with unused.told():
            unused.leave("a/tokenizer_config.json", {"legacy": True})
        unused.leave("a/config.json", ["colour"])
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "not used: colour, note.by (config.json); legacy (tokenizer_config.json)\n"


def test_outside_of_an_import_it_is_told_at_once(capsys):
    unused.leave("config.json", ["colour"])
    unused.leave("config.json", [])
    assert capsys.readouterr().err == "not used: colour (config.json)\n"


def test_a_refused_import_tells_nothing_and_the_next_one_starts_empty(capsys):
    @unused.told()
    def refused():
        unused.leave("config.json", ["colour"])
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    with unused.told():
        unused.leave("options.json", [])
    assert capsys.readouterr().err == ""


def test_names_are_shown_as_plain_text_and_bounded():
    names = ["\x1b[31mred", "x" * 200, *(f"key_{i}" for i in range(30))]
    said = unused.line({"config.json": names})
    assert "\x1b" not in said
    assert r"\x1b[31mred" in said
    assert "x" * 81 not in said
    assert said.endswith("key_17 and 12 more (config.json)")
