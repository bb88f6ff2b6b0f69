"""A table, or the model that answers it, that changes meanwhile: no answer stands beside another row's text."""

import os

import pytest

from kerasbert.cli import answers, main, tables
from tests import tiny


@pytest.fixture
def rows(tmp_path):
    return tiny.labelled(tmp_path / "rows.tsv", 20)


def changed(rows):
    """As many rows in another order."""
    header, *lines = rows.read_text().splitlines()
    rows.write_text("\n".join([header, *reversed(lines)]) + "\n")


@pytest.mark.parametrize("reading", [1, 2], ids=["while it is answered", "while it is written"])
def test_a_table_that_changes(classifier, rows, tmp_path, monkeypatch, capsys, reading):
    """The answers of the old rows were written beside the new ones, with status 0."""
    real, readings = tables._windows, []

    def windows(*arguments):
        readings.append(1)
        if len(readings) == reading:
            changed(rows)
        return real(*arguments)

    monkeypatch.setattr(tables, "_windows", windows)
    out = tmp_path / "o.csv"
    assert main(["predict", str(classifier), "--data", str(rows), "--out", str(out), "--batch", "4"]) == 2
    told = capsys.readouterr().err
    assert "rows.tsv changed while it was read: give the same command again" in told
    assert ("partial: with what was read as it was the same command goes on" in told) is (reading == 2)
    assert not out.exists()
    changed(rows)
    assert main(["predict", str(classifier), "--data", str(rows), "--out", str(out), "--batch", "4"]) == 0
    assert len(out.read_text().splitlines()) == 21
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "rows.tsv"]


def test_a_table_that_changes_while_it_is_printed(classifier, rows, monkeypatch, capsys):
    real = tables._windows
    monkeypatch.setattr(tables, "_windows", lambda *given: changed(rows) or real(*given))
    assert main(["predict", str(classifier), "--data", str(rows)]) == 2
    assert "rows.tsv changed while it was read" in capsys.readouterr().err


def test_a_model_that_is_replaced_while_it_is_loaded(classifier, rows, tmp_path, monkeypatch, capsys):
    """What was kept of its answers was told to be the new model's, and the same command went on with it."""
    import shutil

    model, real = tmp_path / "model", answers.opened
    shutil.copytree(classifier, model)

    def opened(options):
        found = real(options)
        shutil.copytree(classifier, tmp_path / "other")
        os.rename(model, tmp_path / "old")
        os.rename(tmp_path / "other", model)
        return found

    monkeypatch.setattr(answers, "opened", opened)
    assert main(["predict", str(model), "--data", str(rows), "--out", str(tmp_path / "o.csv")]) == 2
    assert "model changed while it was read: give the same command again" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "old", "rows.tsv"]
