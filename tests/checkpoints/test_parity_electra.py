"""ELECTRA against transformers, live: the detector's logits, and what the general test of all families does not see."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints
from kerasbert.layers.heads import LabelHead
from tests.checkpoints.reference import batch
from tests.checkpoints.theirs import transformers as peer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

# layers, heads, hidden, E, vocabulary, feed-forward, positions
SIZES = [(3, 5, 40, 24, 101, 67, 32), (1, 1, 7, 7, 61, 3, 9), (2, 3, 48, 50, 101, 50, 16)]


transformers = pytest.fixture(scope="module")(peer)


def make(transformers, kind, size, **more):
    import torch

    layers, heads, hidden, width, vocabulary, inner, positions = size
    config = transformers.ElectraConfig(
        vocab_size=vocabulary,
        embedding_size=width,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        **more,
    )
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():  # at 0.02 every layer is nearly the identity and biases are zero: a swapped matrix would pass
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    return model


def run(model, inputs):
    import torch

    names = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
    with torch.no_grad():
        return model(**{names[k]: torch.tensor(v).long() for k, v in inputs.items()}, output_hidden_states=True)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"L{size[0]}N{size[1]}H{size[2]}E{size[3]}")
def test_hidden_states_and_detector_logits(transformers, tmp_path, size):
    theirs = make(transformers, "ElectraForPreTraining", size)
    theirs.save_pretrained(tmp_path / "theirs")
    inputs = batch(size[4])
    expected = run(theirs, inputs)
    encoder = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "run")
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    for ours, other in zip(got["hidden"], expected.hidden_states, strict=True):
        assert np.abs(np.asarray(ours)[real] - other.numpy()[real]).max() <= 1e-5
    head = LabelHead(1, activation=encoder.spec.feedforward.activation, name="rtd")
    head.build((None, None, encoder.spec.hidden))
    checkpoints.load_weights(tmp_path / "run", head, "heads/rtd/")
    logits = np.asarray(head(got["sequence"]))[..., 0]
    assert np.abs(logits[real] - expected.logits.numpy()[real]).max() <= 1e-5
    for target in ("hf", "tf1"):
        kb.export_checkpoint(tmp_path / "run", tmp_path / target, target)
        kb.import_checkpoint(tmp_path / target, target, model="electra", out=tmp_path / f"again-{target}")
        one, other = (checkpoints.read_tensors(tmp_path / folder) for folder in ("run", f"again-{target}"))
        assert one.names() == other.names()
        assert all((one.read(name) == other.read(name)).all() for name in one.names())
    back, loading = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    np.testing.assert_allclose(run(back.eval(), inputs).logits, expected.logits, atol=1e-6)


def test_a_generator_is_an_encoder_with_a_token_head(transformers, tmp_path):
    theirs = make(transformers, "ElectraForMaskedLM", SIZES[0])
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs")
    assert set(encoder.heads) == {"mlm"}
    assert encoder.heads["mlm"]["transform/kernel"].shape == (40, 24)


def test_released_configurations_are_read(transformers, tmp_path):
    """Older ones hold keys of a sequence summary, which no class of ours has."""
    theirs = make(transformers, "ElectraForPreTraining", SIZES[0])
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
    config.pop("generator_hidden_size", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert kb.import_checkpoint(tmp_path).spec.generator.share is None


def test_a_released_tf1_checkpoint_is_read_without_its_generator(tmp_path):
    """The scopes of google-research/electra: electra, generator and both kinds of predictions."""
    import tensorflow as tf

    made = kb.build(
        "electra/small", **{"hidden": 8, "embeddings.vocabulary": 20, "embeddings.width": 6, "blocks.layers": 1}
    )
    kb.checkpoints.save_model(tmp_path / "run", encoder=made, name="electra")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "tf1", "tf1")
    reader = tf.train.load_checkpoint(str(tmp_path / "tf1" / "bert_model.ckpt"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    assert {name.split("/")[0] for name in tensors} == {"electra"}
    tensors |= {
        "generator/encoder/layer_0/intermediate/dense/kernel": np.zeros((2, 8), np.float32),
        "generator/embeddings_project/kernel": np.zeros((6, 2), np.float32),
        "generator_predictions/output_bias": np.zeros(20, np.float32),
        "discriminator_predictions/dense/kernel": np.zeros((8, 8), np.float32),
        "discriminator_predictions/dense/bias": np.zeros(8, np.float32),
        "discriminator_predictions/dense_1/kernel": np.zeros((8, 1), np.float32),
        "discriminator_predictions/dense_1/bias": np.zeros(1, np.float32),
        "global_step": np.zeros((), np.int64),
    }
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "tf1" / "bert_model.ckpt"),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(tensors[name]) for name in names],
    )
    table = kb.import_checkpoint(tmp_path / "tf1", "tf1", model="electra", dry_run=True)
    assert table.fits
    assert sorted(table.ignored) == sorted(n for n in names if n.startswith("generator") or n == "global_step")
    assert set(kb.import_checkpoint(tmp_path / "tf1", "tf1", model="electra").heads) == {"rtd"}
