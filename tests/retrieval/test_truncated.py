"""What gives vectors, cosines or hits alone tells which texts lost tokens."""

import pytest

import kerasbert as kb
from kerasbert.cli import main
from tests.retrieval.test_index import encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Directory of an encoder."""
    folder = tmp_path_factory.mktemp("model") / "run"
    kb.save(encoder(), folder)
    return folder


@pytest.mark.parametrize("long", ["text", "query"])
def test_texts_and_queries_that_lose_tokens_are_told(model, long, tmp_path, capsys):
    short, words = "the cat", " ".join(["the cat runs"] * 200)
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{words if long == 'text' else short}\na dog\n")
    query, most = words if long == "query" else short, kb.load(model).spec.embeddings.positions
    said = f"more than {most} tokens: truncated\n"
    assert main(["search", str(model), str(texts), query]) == 0
    assert capsys.readouterr().err.endswith(f"1 of 3 texts have {said}")
    assert main(["encode", str(model), short, words]) == 0
    assert capsys.readouterr().err.endswith(f"1 of 2 texts have {said}")
    assert main(["encode", str(model), words, "--length", "8"]) == 0
    assert capsys.readouterr().err.endswith("1 text has more than 8 tokens: truncated\n")
    assert main(["similarity", str(model), words, short, "--json"]) == 0
    assert capsys.readouterr().err.endswith(f"1 of 2 texts have {said}")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"text_a,text_b\n{words},{short}\na dog,{short}\n")
    assert main(["similarity", str(model), "--data", str(pairs)]) == 0
    assert f"1 of 3 texts have {said}" in capsys.readouterr().err
    index = tmp_path / "index"
    assert main(["index", str(model), str(texts), "--out", str(index)]) == 0
    capsys.readouterr()
    assert main(["search", str(index), query]) == 0
    assert capsys.readouterr().err == (f"1 text has {said}" if long == "query" else "")
