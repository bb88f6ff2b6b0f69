"""Folders that sentence-transformers itself saved: its vectors, scores and limits are ours, and its loader reads ours."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import sentence_transformers as ours
from tests.checkpoints.theirs import make

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the film cat dog it was not good bad very sees query :".split()
TEXTS = ["a film", "It was not very good", "x", "the cat sees a dog " * 5]
PAIRS = [("a film", "it was good"), ("x", "a dog"), ("not very good", "bad bad bad")]


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers.models")
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def base(library, tmp_path_factory):
    import transformers

    folder = tmp_path_factory.mktemp("base")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    make("BertModel", sizes | {"intermediate_size": 24, "max_position_embeddings": 40}).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    "case", ["plain", "shorter", "default prompt", "named prompt", "first numbers", "normalized first", "old name"]
)
def test_vectors_and_limits_are_theirs_there_and_back(library, base, tmp_path, case):
    said = {
        "default prompt": {"prompts": {"query": "the query : ", "other": "a "}, "default_prompt_name": "query"},
        "named prompt": {"prompts": {"query": "the query : ", "other": "a dog : "}},
        "first numbers": {"truncate_dim": 5},
    }.get(case, {})
    if case == "normalized first":
        modules = library.models
        reads = modules.Transformer(base)
        said = {"modules": [reads, modules.Pooling(16, "cls"), modules.Normalize()]}
    model = library.SentenceTransformer(
        **({"model_name_or_path": base} if "modules" not in said else {}), device="cpu", **said
    )
    if case in ("shorter", "old name"):
        model.max_seq_length = 12
    model.save_pretrained(str(tmp_path / "theirs"))
    if case == "old name":
        (tmp_path / "theirs" / ours.SETTINGS[0]).unlink()
        (tmp_path / "theirs" / ours.SETTINGS[2]).write_text('{"max_seq_length": 9, "do_lower_case": false}')
        model = library.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    name = {"named prompt": "other"}.get(case)
    expected = model.encode(TEXTS, prompt_name=name)
    run = tmp_path / "run"
    kb.import_checkpoint(tmp_path / "theirs", out=run, build=False)
    assert json.loads((run / "model.json").read_text())["task"]["length"] == model.max_seq_length
    np.testing.assert_allclose(kb.encode(run, TEXTS, prompt_name=name), expected, atol=1e-5)
    kb.export_checkpoint(run, tmp_path / "back")
    again = library.SentenceTransformer(str(tmp_path / "back"), device="cpu")
    assert again.max_seq_length == model.max_seq_length
    np.testing.assert_allclose(again.encode(TEXTS, prompt_name=name), expected, atol=1e-5)


def there_and_back(library, model, tmp_path, tolerance, **said):
    """Vectors of a model of theirs, of its import and of the export of that."""
    model.save_pretrained(str(tmp_path / "theirs"))
    expected = model.encode(TEXTS, **said)
    run = tmp_path / "run"
    kb.import_checkpoint(tmp_path / "theirs", out=run, build=False)
    np.testing.assert_allclose(kb.encode(run, TEXTS, **said), expected, rtol=0, atol=tolerance)
    kb.export_checkpoint(run, tmp_path / "back")
    again = library.SentenceTransformer(str(tmp_path / "back"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS, **said), expected, rtol=0, atol=tolerance)
    return run


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.mark.parametrize("pooling", ["weightedmean", ("weightedmean", "lasttoken", "cls"), tuple(POOLINGS)])
def test_every_pooling_is_theirs_there_and_back(library, base, tmp_path, pooling):
    modules = library.models
    model = library.SentenceTransformer(
        modules=[modules.Transformer(base), modules.Pooling(16, pooling), modules.Normalize()], device="cpu"
    )
    run = there_and_back(library, model, tmp_path, 1e-6)
    np.testing.assert_allclose(kb.encode(run, TEXTS, dims=5), model.encode(TEXTS, truncate_dim=5), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", ("cls", "weightedmean", "max")])
def test_prompts_that_are_not_pooled_are_theirs_there_and_back(library, base, tmp_path, pooling):
    modules = library.models
    model = library.SentenceTransformer(
        modules=[modules.Transformer(base), modules.Pooling(16, pooling, include_prompt=False)],
        device="cpu",
        prompts={"query": "the query : ", "other": "a dog : "},
        default_prompt_name="query",
    )
    run = there_and_back(library, model, tmp_path, 1e-6)
    expected = model.encode(TEXTS, prompt_name="other")
    np.testing.assert_allclose(kb.encode(run, TEXTS, prompt_name="other"), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["LaBSE", "distiluse", "sentence-t5", "two layers"])
def test_dense_layers_are_theirs_there_and_back(library, base, tmp_path, kind):
    """The modules of three well-known models, at random, and more of them."""
    import torch

    modules, identity = library.models, torch.nn.Identity()
    torch.manual_seed(1)
    behind = {
        "LaBSE": [modules.Pooling(16, "cls"), modules.Dense(16, 16), modules.Normalize()],
        "distiluse": [modules.Pooling(16, "mean"), modules.Dense(16, 11)],
        "sentence-t5": [modules.Pooling(16, "mean"), modules.Dense(16, 24, False, identity), modules.Normalize()],
        "two layers": [
            modules.Pooling(16, ("cls", "mean")),
            modules.Dense(32, 8, activation_function=torch.nn.GELU()),
            modules.Dropout(0.5),
            modules.Dense(8, 6, activation_function=torch.nn.ReLU()),
        ],
    }[kind]
    model = library.SentenceTransformer(modules=[modules.Transformer(base), *behind], device="cpu")
    there_and_back(library, model, tmp_path, 1e-6)


@pytest.mark.parametrize(("labels", "activation"), [(1, None), (1, "Identity"), (3, None), (3, "Sigmoid")])
def test_scores_are_a_cross_encoders(library, base, tmp_path, labels, activation):
    import torch

    chosen = None if activation is None else getattr(torch.nn, activation)()
    model = library.CrossEncoder(base, num_labels=labels, device="cpu", activation_fn=chosen)
    expected = model.predict(PAIRS, apply_softmax=labels > 1 and activation is None)
    model.save_pretrained(str(tmp_path / "theirs"))
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "run", build=False)
    answers = kb.predict(tmp_path / "run", PAIRS)
    found = [answer.value if labels == 1 else list(answer.scores.values()) for answer in answers]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if labels == 1:
        kb.export_checkpoint(tmp_path / "run", tmp_path / "back")
        again = library.CrossEncoder(str(tmp_path / "back"), device="cpu")
        np.testing.assert_allclose(again.predict(PAIRS), expected, atol=1e-5)


def test_no_key_of_theirs_is_passed_over(library, base, tmp_path, capsys):
    """Every key that their classes save is read, or listed with its reason."""
    from sentence_transformers.base.modules.transformer import Transformer

    library.SentenceTransformer(base, device="cpu").save_pretrained(str(tmp_path))
    path = tmp_path / ours.SETTINGS[0]
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict.fromkeys(Transformer.config_keys) | content | {"unpad_inputs": True}))
    theirs = ours.opened(tmp_path)
    theirs.tokenizer(None)
    theirs.task(type("Spec", (), {"hidden": 16, "longest": 40}), None, 0)
    capsys.readouterr()
    theirs.leave()
    assert "not used" not in capsys.readouterr().err
    modules = library.models
    assert set(modules.Pooling.config_keys) == {"embedding_dimension", "pooling_mode", "include_prompt"}
    assert set(modules.Normalize.config_keys) == {"module_input_name", "module_output_name"}
