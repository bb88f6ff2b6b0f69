"""Fill-mask against transformers' pipeline, and the SavedModel against Python, with the three tokenizers."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.layers.heads import token_head
from kerasbert.text.graph import graph_tokenizer
from tests import tiny
from tests.checkpoints.theirs import parity, transformers
from tests.support import often
from tests.text import kinds

TEXTS = [
    "the [MASK] sees a dog",
    "happy[MASK] house, the  [MASK] .",
    "[MASK]",
    "the\u2003<mask> " + "very old " * 20 + "[MASK]",
]
MODELS = {
    "bert/tiny": tiny.tokenizer,
    "roberta/base": kinds.small_bpe,
    "albert/base": kinds.small_unigram,
}


def masked_lm(name, folder):
    """A directory of a masked language model at random."""
    tokenizer = MODELS[name]()
    changes = tiny.SPEC | {"embeddings.vocabulary": tokenizer.size, "attention.heads": 2}
    changes |= {"embeddings.width": 8} if name.startswith("albert") else {}
    encoder = kb.build(name, **changes)
    head = token_head(encoder.token_head, encoder.spec)
    head.build((None, None, encoder.spec.hidden))
    rng = np.random.default_rng(1)
    for variable in (*encoder.weights, *head.weights):
        variable.assign(rng.normal(0, 0.3, variable.shape))
    from kerasbert.checkpoints import save_model

    save_model(folder, encoder=encoder, name=name, heads={"mlm": head}, tokenizer=tokenizer)
    return folder


@parity
@pytest.mark.parametrize("name", MODELS)
def test_transformers_fills_masks_alike(tmp_path, name):
    run, theirs = masked_lm(name, tmp_path / "run"), transformers()
    kb.export_checkpoint(run, tmp_path / "hf")
    pipe = theirs.pipeline("fill-mask", str(tmp_path / "hf"), top_k=4)
    mask = pipe.tokenizer.mask_token
    texts = [text.replace("[MASK]", mask).replace("<mask>", mask) for text in TEXTS[:3]]
    for text, answer in zip(texts, kb.fill_mask(run, texts, top=4), strict=True):
        expected = pipe(text)
        expected = expected if isinstance(expected[0], list) else [expected]
        for ours, wanted in zip(answer.tokens, expected, strict=True):
            assert [each.id for each in ours] == [each["token"] for each in wanted], text
            np.testing.assert_allclose([each.score for each in ours], [each["score"] for each in wanted], atol=1e-5)
    kb.import_checkpoint(tmp_path / "hf", out=tmp_path / "back")
    assert kb.fill_mask(tmp_path / "back", texts, top=2) == kb.fill_mask(run, texts, top=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta/base", "albert/base"])
def test_the_graph_fills_masks_alike(tmp_path, name):
    model = kb.load(masked_lm(name, tmp_path), task="fill-mask")

    def run(packed):
        packed.pop("owners")
        return model.kind.exported(model, model(packed), packed)

    texts = {"text": tf.constant(TEXTS)}
    served = model.kind.served(run, graph_tokenizer(model.tokenizer), texts, 16, ())
    received = model.kind.unserved({key: value.numpy() for key, value in served.items()}, ())
    for ours, answer in zip(received, kb.predict(model, TEXTS, length=16), strict=True):
        wanted = answer.to_json()
        for mask in wanted["tokens"]:
            for each in mask:
                each["score"] = pytest.approx(each["score"], abs=1e-5)
        assert ours == wanted


@pytest.mark.slow
def test_the_saved_model_fills_masks_alike(tmp_path):
    model = kb.load(masked_lm("bert/tiny", tmp_path / "run"), task="fill-mask")
    out = tmp_path / "out"  # export compares the two on its probes
    assert main(["export", str(tmp_path / "run"), str(out), "--task", "fill-mask", "--length", "16"]) == 0
    serve = tf.saved_model.load(str(out)).signatures["serving_default"]
    served = {key: value.numpy() for key, value in serve(text=tf.constant(TEXTS)).items()}
    answers = kb.predict(model, TEXTS, length=16)
    assert served["text"].tolist() == [answer.text.encode() for answer in answers]
    assert served["count"].tolist() == [1, 2, 1, 2]
    assert served["truncated"].tolist() == [answer.truncated for answer in answers]
    assert answers[-1].truncated
    assert served["tokens"].shape == served["scores"].shape == (4, 2, 5)
    assert {key: value.shape[0] for key, value in served.items()} == dict.fromkeys(served, 4)
    plain = serve(text=tf.constant(["no mask at all", ""]))
    assert plain["text"].numpy().tolist() == [b"no mask at all", b""]
    assert plain["tokens"].shape == (2, 0, 5)
    assert {value.shape[0] for value in serve(text=tf.constant([], tf.string)).values()} == {0}


@pytest.mark.parametrize("name", often(MODELS, "albert/base"))
def test_the_phone_fills_masks_alike(tmp_path, name, capsys):
    from kerasbert.mobile import cli
    from kerasbert.mobile.runtime import load

    run, out = masked_lm(name, tmp_path / "run"), tmp_path / "words.tflite"
    options = ["--out", str(out), "--quantize", "none", "--lengths", "8,12,16", "--json"]
    assert cli.main(["compress", str(run), "--task", "fill-mask", *options]) == 0
    assert json.loads(capsys.readouterr().out)["agreement"] == 1.0
    for ours, answer in zip(load(out, cache=False)(TEXTS), kb.fill_mask(run, TEXTS, length=16), strict=True):
        received, wanted = ours.to_json(), answer.to_json()
        for mask in wanted["tokens"]:
            for each in mask:
                each["score"] = pytest.approx(each["score"], abs=1e-5)
        assert received == wanted
    assert cli.main(["run", str(out), "the [MASK] sees"]) == 0
    assert capsys.readouterr().out == kb.fill_mask(run, ["the [MASK] sees"], length=16)[0].text + "\n"
    assert cli.main(["run", str(out), "no mask"]) == 2
    assert "has no mask" in capsys.readouterr().err
