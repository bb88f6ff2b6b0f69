"""T5's sentinels beside its SentencePiece model."""

import json
import shutil

import pytest

from kerasbert import text
from kerasbert.errors import InputError
from tests.support import shared


@pytest.fixture
def folder(tmp_path):
    """T5's model alone."""
    source = shared("data/vocab/t5-base")
    file = next(file for file in sorted(source.iterdir()) if file.suffix == ".model")
    shutil.copyfile(file, tmp_path / "spiece.model")
    return tmp_path


def test_a_model_alone_gains_them_as_the_last_ids(folder):
    tokenizer = text.load_tokenizer(folder / "spiece.model")
    assert tokenizer.size == 32_100
    ids = {piece: tokenizer.vocabulary.index(piece) for piece in ("<extra_id_0>", "<extra_id_1>", "<extra_id_99>")}
    assert ids == {"<extra_id_0>": 32_099, "<extra_id_1>": 32_098, "<extra_id_99>": 32_000}
    assert set(ids.values()) <= set(tokenizer.special_ids)
    whole = tokenizer.tokenize("to <extra_id_0> or").ids
    assert list(whole).count(32_099) == 1
    tokenizer.save(folder / "ours")
    assert text.load_tokenizer(folder / "ours").tokenize("to <extra_id_0> or").ids == whole


def test_names_beside_the_model_keep_their_order_and_extra_ids_counts_them(folder):
    names = [f"<extra_id_{i}>" for i in range(100)]
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": names}))
    assert text.load_tokenizer(folder / "spiece.model").vocabulary[32_099] == "<extra_id_0>"
    (folder / "special_tokens_map.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 0}))
    assert text.load_tokenizer(folder / "spiece.model").size == 32_000
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": -1}))
    with pytest.raises(InputError, match="extra_ids is -1, expected 0 to 10000: the sentinels of a T5"):
        text.load_tokenizer(folder / "spiece.model")
