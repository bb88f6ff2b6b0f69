"""ALBERT against transformers, live; and the families that have BERT's names."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.directory import named_weights
from tests.checkpoints.reference import batch, norm
from tests.checkpoints.test_parity import ODD, SIZES, close, make, run, transformers
from tests.support import by_hand

__all__ = ["transformers"]  # the fixture
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def albert(transformers, kind, size, width=6, seed=0, **more):
    import torch

    torch.manual_seed(seed)
    config = transformers.AlbertConfig(
        vocab_size=size["vocabulary"],
        embedding_size=width,
        hidden_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        intermediate_size=size["inner"],
        max_position_embeddings=size["positions"],
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        **more,
    )
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"L{size['layers']}N{size['heads']}H{size['hidden']}")
@pytest.mark.parametrize("activation", ["gelu_new", *by_hand(["gelu"])])
def test_every_hidden_state_equals_transformers(transformers, tmp_path, size, activation):
    theirs = albert(transformers, "AlbertModel", size, hidden_act=activation)
    theirs.save_pretrained(tmp_path)
    inputs = batch(size["vocabulary"])
    expected = run(theirs, inputs, output_hidden_states=True)
    got = kb.import_checkpoint(tmp_path)(inputs)
    real = inputs["padding_mask"].astype(bool)
    assert len(got["hidden"]) == size["layers"] + 1
    for ours, other in zip(got["hidden"], expected.hidden_states, strict=True):
        close(np.asarray(ours)[real], other[real])
    close(got["pooled"], expected.pooler_output)


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def test_heads_compute_their_logits(transformers, tmp_path):
    theirs = albert(transformers, "AlbertForPreTraining", ODD)
    theirs.save_pretrained(tmp_path)
    inputs = batch(101)
    expected, encoder = run(theirs, inputs), kb.import_checkpoint(tmp_path)
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    head, table = encoder.heads["mlm"], named_weights(encoder)["embeddings/tokens/table"].value.numpy()
    x = gelu_new(np.asarray(got["sequence"]) @ head["transform/kernel"] + head["transform/bias"])
    logits = norm(x, head["norm/gamma"], head["norm/beta"]) @ table.T + head["bias"]
    close(logits[real], expected.prediction_logits[real])
    sop = encoder.heads["sop"]
    close(np.asarray(got["pooled"]) @ sop["kernel"] + sop["bias"], expected.sop_logits)


@pytest.mark.parametrize(
    "kind", ["AlbertModel", "AlbertForMaskedLM", "AlbertForPreTraining", "AlbertForSequenceClassification"]
)
def test_import_and_export_are_inverses_and_transformers_loads_it(transformers, tmp_path, kind):
    labels = {"num_labels": 3} if kind == "AlbertForSequenceClassification" else {}
    theirs = albert(transformers, kind, ODD, **labels)
    theirs.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = getattr(transformers, kind).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path / "back"), transformers.AlbertModel)
    inputs = batch(101)
    for name, value in run(theirs, inputs).items():
        assert (value == run(back.eval(), inputs)[name]).all(), name
    kb.import_checkpoint(tmp_path / "back", out=tmp_path / "again")
    ours, again = read_tensors(tmp_path / "ours"), read_tensors(tmp_path / "again")
    assert ours.names() == again.names()
    assert all((ours.read(name) == again.read(name)).all() for name in ours.names())


def test_several_groups_are_refused(transformers, tmp_path):
    albert(transformers, "AlbertModel", ODD, num_hidden_groups=3).save_pretrained(tmp_path)
    with pytest.raises(kb.InputError, match="has num_hidden_groups 3, expected 1"):
        kb.import_checkpoint(tmp_path)


@pytest.mark.full  # BERT's names and network: its own tests are CI's
@pytest.mark.parametrize("family", ["spanbert", "structbert", "bert-wwm"])
@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForSequenceClassification"])
def test_families_with_berts_names(transformers, tmp_path, family, kind):
    theirs = make(transformers, kind, ODD)
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs", model=family, out=tmp_path / "ours")
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = getattr(transformers, kind).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert back.config.model_type == "bert"
    inputs = batch(101)
    real = inputs["padding_mask"].astype(bool)
    hidden = run(theirs, inputs, output_hidden_states=True).hidden_states[-1]
    close(np.asarray(encoder(inputs)["sequence"])[real], hidden[real])
    close(run(back.eval(), inputs)[0].numpy(), run(theirs, inputs)[0])
