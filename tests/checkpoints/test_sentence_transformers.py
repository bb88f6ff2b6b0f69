"""Directories of sentence-transformers: what is read of them, and what is refused."""

import json

import pytest

from kerasbert.checkpoints import sentence_transformers
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from tests import tiny

SPEC = Spec().derive(tiny.SPEC)


def folder(path, types=("Transformer", "Pooling"), paths=("", "1_Pooling"), pooling=None, settings=None):
    for place in paths:
        (path / place).mkdir(parents=True, exist_ok=True)
    rows = [
        {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{t}"}
        for i, (t, p) in enumerate(zip(types, paths))
    ]
    (path / "modules.json").write_text(json.dumps(rows))
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    if settings:
        (path / paths[0] / "sentence_bert_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("pooling", ["mean", "first", "max", "mean_sqrt_len", "last"])
@pytest.mark.parametrize("normalize", [False, True])
def test_what_is_written_is_read(tmp_path, pooling, normalize):
    task = {"options": {"pooling": pooling, "normalize": normalize, "loss": "cosine"}, "length": 24}
    sentence_transformers.write(tmp_path, task, SPEC)
    wanted = {"pooling": pooling} | ({"normalize": True} if normalize else {})
    assert sentence_transformers.task_of(tmp_path, SPEC, None) == {
        "kind": "vector",
        "inputs": "text",
        "options": wanted,
        "length": 24,
    }
    assert (tmp_path / "2_Normalize").is_dir() == normalize


def test_other_layouts_of_theirs(tmp_path):
    assert sentence_transformers.task_of(tmp_path, SPEC, None) is None
    old = folder(tmp_path / "old", paths=("0_Transformer", "1_Pooling"), settings={"max_seq_length": 128})
    assert sentence_transformers.transformer(old) == old / "0_Transformer"
    assert sentence_transformers.task_of(old, SPEC, None)["length"] == 32  # all the positions there are
    new = folder(tmp_path / "new", pooling={"pooling_mode": "cls", "word_embedding_dimension": 16})
    assert sentence_transformers.task_of(new, SPEC, None)["options"] == {"pooling": "first"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"types": ("Transformer", "Dense"), "paths": ("", "1_Pooling")},
            "modules Transformer, Dense, expected Transformer",
        ),
        (
            {"pooling": {"pooling_mode_weightedmean_tokens": True}},
            "pools by weightedmean_tokens, expected one of cls_token",
        ),
        (
            {"pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}},
            "pools by cls_token and max_tokens, expected one of",
        ),
        (
            {"pooling": {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 8}},
            "is for vectors of 8, the model's have 16",
        ),
        ({"paths": ("../outside", "1_Pooling")}, "names a folder outside of"),
        ({"settings": {"do_lower_case": True}}, "lower-cases texts before the tokenizer, which keeps case"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, settings, message):
    class Cased:
        lowercase = False

    with pytest.raises(InputError, match=message):
        sentence_transformers.task_of(folder(tmp_path / "theirs", **settings), SPEC, Cased)
    (tmp_path / "theirs" / "modules.json").write_text("[3]")
    with pytest.raises(InputError, match="modules.json is damaged"):
        sentence_transformers.modules(tmp_path / "theirs")
