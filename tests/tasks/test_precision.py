"""Models that answer in bfloat16: as in float32 but for its rounding; the options that ask for it."""

import json
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import cli
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks.adapted_models import in_bfloat16
from kerasbert.tasks.base import kind_of
from kerasbert.testing import battery
from kerasbert.training.precision import fast_bfloat16, precision
from tests.tasks.test_every_kind import KINDS, made


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_in_bfloat16(kind, tmp_path):
    inputs, model = KINDS[kind][2], made("bert", kind, battery.tokenizer("wordpiece"), tmp_path)
    other = in_bfloat16(model)
    assert dtypes(other) == {"bfloat16"}
    if kind == "vector":
        found, wanted = kb.encode(other, inputs), kb.encode(model, inputs)
        assert found.dtype == np.float32
        norms = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        assert ((found * wanted).sum(1) > 0.999 * norms).all()
        return
    assert len(kb.predict(other, inputs)) == len(inputs)  # decoded in Python
    (mine, wide), probabilities = (
        (kb_outputs(each, inputs) for each in (other, model)),
        kind_of(model).answers.probabilities,
    )
    for one, two in zip(mine, wide, strict=True):
        one, two = np.asarray(probabilities(one), "float32"), np.asarray(probabilities(two))
        # without AVX512-BF16 TensorFlow cuts its products off where it should round them: twice the error
        off = 0.05 if fast_bfloat16() else 0.1
        np.testing.assert_allclose(one, two, atol=off * max(1.0, np.abs(two).max()))
    assert any((np.asarray(one, "float32") != two).any() for one, two in zip(mine, wide))


def dtypes(model) -> set[str]:
    """Of the encoder's matrices."""
    weights = names(getattr(model, "encoder", model)).values()
    return {weight.dtype for weight in weights if len(weight.shape) == 2}


def kb_outputs(model, inputs) -> list[np.ndarray]:
    from kerasbert.tasks import predict

    return [np.asarray(each) for each in predict.outputs(model, inputs)]


def test_load_and_the_commands_take_a_precision(tmp_path, capsys):
    model = made("bert", "classification", battery.tokenizer("wordpiece"), tmp_path / "made")
    kb.save(model, tmp_path / "model")
    folder, text = str(tmp_path / "model"), "the happy cat"
    loaded = kb.load(folder, precision="bfloat16")
    assert dtypes(loaded) == {"bfloat16"}
    wanted = kb.predict(loaded, [text])[0].to_json()
    assert wanted != kb.predict(folder, [text])[0].to_json()
    assert cli.main(["predict", folder, text, "--precision", "bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == wanted
    for more in ([text], ["--data", str(_texts(tmp_path, text)), "--out", str(tmp_path / "vectors.npy")]):
        assert cli.main(["encode", folder, *more, "--precision", "bfloat16"]) == 0
    np.testing.assert_array_equal(json.loads(capsys.readouterr().out.splitlines()[0]), kb.encode(loaded, [text])[0])
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), kb.encode(loaded, [text]))
    rows = tmp_path / "rows.csv"
    rows.write_text(f"text,label\n{text},no\n{text} sees,yes\n")
    assert cli.main(["evaluate", folder, "--data", str(rows), "--precision", "bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == kb.evaluate(loaded, str(rows))["metrics"]


def test_an_index_and_its_queries_are_in_one_precision(tmp_path, capsys):
    encoder = made("bert", "vector", battery.tokenizer("wordpiece"), tmp_path / "made")
    kb.save(encoder, tmp_path / "model")
    index, texts = tmp_path / "index", tmp_path / "texts.txt"
    texts.write_text("the happy cat\nan old stone\nthe river house\n")
    assert cli.main(["index", str(tmp_path / "model"), str(texts), "--out", str(index), "--precision", "bfloat16"]) == 0
    assert cli.main(["search", str(index), "an old stone", "--top", "1", "--json"]) == 0
    hit = json.loads(capsys.readouterr().out.splitlines()[-1])["hits"][0]
    assert (hit["text"], round(hit["score"], 5)) == ("an old stone", 1.0)
    assert dtypes(kb.Index(index).model) == {"bfloat16"}
    assert kb.Index(index, kb.load(tmp_path / "model", precision="bfloat16")).search("the happy cat")[0].id == "1"
    with pytest.raises(InputError, match="was built by another model"):
        kb.Index(index, encoder)
    with pytest.raises(InputError, match=r"precision is for a directory; .*: kb\.load\(precision=\)"):
        kb.Index.build(encoder, ["a", "b"], tmp_path / "other", precision="bfloat16")
    about = json.loads((index / "index.json").read_text())
    about["model"]["precision"] = "int4"
    (index / "index.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"index\.json"):
        kb.Index(index)


def _texts(folder: Path, text: str) -> Path:
    path = folder / "texts.txt"
    path.write_text(f"{text}\n")
    return path


def test_what_has_no_such_precision_is_refused(tmp_path):
    with pytest.raises(InputError, match="precision is one of float32, bfloat16. Received: 'float16'"):
        kb.load(tmp_path, precision="float16")
    (tmp_path / "own.keras").write_bytes(b"")
    with pytest.raises(InputError, match=r"precision bfloat16 is for models of kerasbert: .*own\.keras computes as"):
        kb.load(tmp_path / "own.keras", precision="bfloat16")


def test_a_model_of_a_training_in_bfloat16_becomes_one(tmp_path):
    """Its weights are float32 there, its products bfloat16."""
    with precision("mixed_bfloat16"):
        model = made("bert", "classification", battery.tokenizer("wordpiece"), tmp_path)
    other = in_bfloat16(model)
    assert dtypes(other) == {"bfloat16"}
    assert kb.predict(other, ["a cat"])[0].label == kb.predict(model, ["a cat"])[0].label
