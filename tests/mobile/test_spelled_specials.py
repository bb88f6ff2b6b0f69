"""kerasbert-mobile: special tokens that are spelled in texts."""

import io
import sys

from kerasbert.mobile.cli import main


def test_run_tells_once_that_a_special_token_is_read_as_text(float_file, tmp_path, monkeypatch, capsys):
    """As `predict` does, which it did not: the texts of a pair in one look like two."""
    told = "of 3 texts hold [SEP], which is read as other text, not as the special token: a pair goes in as two texts"
    texts = ["a good [SEP] film", "bad", "[CLS] a film"]
    assert main(["run", str(float_file[0]), *texts]) == 0
    assert capsys.readouterr().err.count(f"2 {told}") == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    assert main(["run", str(float_file[0]), "--json"]) == 0
    assert capsys.readouterr().err.count(f"2 {told}") == 1
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    assert main(["run", str(float_file[0]), "--data", str(tmp_path / "rows.txt")]) == 0
    shortest = told.replace("SEP", "CLS")  # is answered first
    assert capsys.readouterr().err.count(f"2 {shortest}") == 1
    assert main(["run", str(float_file[0]), "a good film", "a | b"]) == 0
    assert capsys.readouterr().err == ""
