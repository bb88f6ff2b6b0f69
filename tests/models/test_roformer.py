"""RoFormer: rotation by the paper's equation, counts, names, configurations. Parity: tests.checkpoints.test_family_parity."""

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, models, registry
from kerasbert.checkpoints import buffers, save_model
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.layers.rotary import rotate
from kerasbert.models.roformer import HF, ROFORMER, RoFormerAttention
from kerasbert.text import load_tokenizer

TINY = {
    "hidden": 12,
    "attention.heads": 2,
    "feedforward.width": 14,
    "blocks.layers": 2,
    "embeddings.vocabulary": 60,
    "embeddings.positions": 16,
}
SIZES = {
    "model_type": "roformer",
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}


def built(**changes):
    keras.utils.set_random_seed(3)
    made = ROFORMER.encoder(ROFORMER.spec.derive(TINY | changes))
    made.build()
    return made


def matrix(place, size):
    """R of equation 15: blocks [[cos, -sin], [sin, cos]] of place * 10000^(-2(i - 1)/d) on the diagonal."""
    found = np.zeros((size, size))
    for i in range(size // 2):
        angle = place * 10000 ** (-2 * i / size)
        found[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [np.cos(angle), -np.sin(angle)],
            [np.sin(angle), np.cos(angle)],
        ]
    return found


def test_vectors_are_multiplied_by_the_papers_matrix():
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 8))
    places = np.array([[0, 1, 2, 7, 100], [3, 0, 1, 2, 511]])
    expected = [
        [[matrix(place, 8) @ row for place, row in zip(at, head)] for head in one] for at, one in zip(places, x)
    ]
    np.testing.assert_allclose(rotate(x.astype("float32"), places, 10000.0, interleaved=True), expected, atol=2e-5)


@pytest.mark.parametrize("values", [False, True])
def test_attention_is_the_papers(values):
    """Equation 16: q_m^T k_n = x_m W_q R_(n-m) x_n W_k; with values, v_n is R_n x_n W_v."""
    layer = RoFormerAttention(2, 6, initializer=0.5, values=values)
    layer.build((None, None, 12))
    layer.output_projection.kernel.assign(np.eye(12))
    x = np.random.default_rng(1).normal(size=(1, 7, 12)).astype("float32")
    q, k, v = (
        (x[0].astype("float64") @ np.asarray(part.kernel)).reshape(7, 2, 6)
        for part in (layer.query, layer.key, layer.value)
    )
    expected = np.zeros((7, 2, 6))
    for head in range(2):
        for m in range(7):
            scores = np.array([q[m, head] @ matrix(n - m, 6) @ k[n, head] for n in range(7)]) / np.sqrt(6)
            weights = np.exp(scores) / np.exp(scores).sum()
            seen = [matrix(n, 6) @ v[n, head] if values else v[n, head] for n in range(7)]
            expected[m, head] = weights @ np.array(seen)
    places = np.arange(7, dtype="int32")[None]
    found = np.asarray(layer(x, scoring=places)[0])
    np.testing.assert_allclose(found[0], expected.reshape(7, 12), atol=1e-5)
    first = layer(x[:, :1], source=x, scoring=places, queries="first")[0]
    np.testing.assert_allclose(first[0], expected[:1].reshape(1, 12), atol=1e-5)


def test_the_released_size():
    # transformers' RoFormerModel without its table of sinusoids, 1536 x 64: no weight is trained there
    assert models.parameters(ROFORMER.encoder, registry.find("roformer/base")[1]) == 123_457_536


def test_weight_names_are_public():
    block = {name.partition("/")[2] for name in names(built()) if name.startswith("block_1")}
    of_bert = {f"{part}/{leaf}" for part in ("attention_norm", "feedforward_norm") for leaf in ("gamma", "beta")}
    maps = [
        *(f"attention/{each}" for each in ("query", "key", "value", "output")),
        "feedforward/inner",
        "feedforward/outer",
    ]
    assert block == of_bert | {f"{each}/{leaf}" for each in maps for leaf in ("kernel", "bias")}
    own = {name for name in names(built(**{"embeddings.width": 5})) if name.startswith("embeddings/")}
    tables = {f"embeddings/{each}/table" for each in ("tokens", "segments")}
    assert own == tables | {
        f"embeddings/{each}" for each in ("norm/gamma", "norm/beta", "projection/kernel", "projection/bias")
    }


def test_configurations_are_read():
    spec = configs.to_spec(SIZES, HF, ROFORMER.spec, "theirs")
    assert (spec.embeddings.width, spec.rotary.values) == (None, False)
    spec = configs.to_spec(SIZES | {"embedding_size": 8, "rotary_value": True}, HF, ROFORMER.spec, "theirs")
    assert (spec.embeddings.width, spec.rotary.values) == (8, True)
    for key in ("is_decoder", "add_cross_attention"):
        with pytest.raises(InputError, match=key):
            configs.to_spec(SIZES | {key: True}, HF, ROFORMER.spec, "theirs")
    with pytest.raises(InputError, match="RoFormerForMultipleChoice answers by the vector of the last place"):
        HF.of("RoFormerForMultipleChoice")


@pytest.mark.parametrize(
    ("change", "message"), [({"attention.head_size": 7}, "even width"), ({"embeddings.kind": "learned"}, "kind none")]
)
def test_settings_that_are_none_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        ROFORMER.spec.derive(change)


def test_their_table_of_sinusoids_is_written_and_compared(tmp_path):
    save_model(tmp_path / "run", encoder=built(), name="roformer/base")
    kb.export_checkpoint(tmp_path / "run", tmp_path / "theirs")
    file, name = tmp_path / "theirs" / "model.safetensors", "roformer.encoder.embed_positions.weight"
    theirs = Safetensors(file)
    tensors = {key: theirs.read(key) for key in theirs.names()}
    np.testing.assert_allclose(tensors[name], buffers.sines((16, 6)), atol=1e-6)
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "again")
    one, other = (checkpoints.read_tensors(tmp_path / folder) for folder in ("run", "again"))
    assert one.names() == other.names()
    tensors[name] = tensors[name] + np.float32(0.01)
    write_safetensors(
        file, {key: tensor.shape for key, tensor in tensors.items()}, tensors.__getitem__, {"format": "pt"}
    )
    with pytest.raises(InputError, match=r"embed_positions.weight in .* is not what .* \(sines\)"):
        kb.import_checkpoint(tmp_path / "theirs")


def test_their_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizer"}')
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with pytest.raises(InputError, match="'RoFormerTokenizer', which reads vocab.txt in a way of its own"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
    with pytest.raises(InputError, match="'RoFormerTokenizer', whose own code splits texts"):
        load_tokenizer(tmp_path)
