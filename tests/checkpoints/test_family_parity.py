"""Every family with Hugging Face names against transformers, live: hidden states, heads, and back again.

At the family's own settings and three sizes, by hand: CI tries every class once, in and out, in test_parity_random.
"""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.checkpoints import config as configs
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import token_head as token_head_of
from kerasbert.objectives.bert import SENTENCES
from tests.checkpoints.theirs import close, run
from tests.checkpoints.theirs import transformers as peer

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

# layers, heads, hidden, vocabulary, feed-forward, positions
SIZES = [(3, 5, 40, 101, 160, 32), (1, 2, 14, 61, 56, 21), (4, 3, 36, 257, 144, 64)]
OWN = (
    "funnel",
    "longformer",
    "reformer",
    "t5-encoder",
    "mt5-encoder",
    "umt5-encoder",
    "xlnet",
)  # test_parity_funnel, test_parity_longformer and so on
FAMILIES = [  # of those that write: test_parity_generate
    name
    for name, family in registry.families().items()
    if "hf" in family.names and family.kind == "encoder" and name not in OWN
]


transformers = pytest.fixture(scope="module")(peer)


def spec_of(family, size):
    """The family's own Spec at a tiny, odd size."""
    layers, heads, hidden, vocabulary, width, positions = size
    changes = {
        "blocks.layers": layers,
        "attention.heads": heads,
        "hidden": hidden,
        "embeddings.vocabulary": vocabulary,
        "embeddings.positions": positions,
        "feedforward.width": width,
        "dropout": 0.0,
        "attention.dropout": None,
    }
    if family.spec.embeddings.width:
        changes["embeddings.width"] = 11
    changes.setdefault(family.spec.attended, 4 * heads)  # MobileBERT's heads divide its bottleneck
    if hasattr(
        family.spec, "local"
    ):  # ModernBERT: windows that are less than a row, and heads of which halves are rotated
        changes |= {"local.window": 4, "local.every": 2, "hidden": hidden + hidden // heads % 2 * heads}
    if hasattr(family.spec, "rotary"):  # of the numbers of a head pairs are rotated
        changes |= {"hidden": hidden + hidden // heads % 2 * heads}
        changes |= {"rotary.values": layers == 4} if family.name == "roformer" else {}
    if hasattr(family.spec, "key_heads"):  # EuroBERT: groups of heads, the same halves; a configuration names how many
        changes |= {"hidden": hidden + hidden // heads % 2 * heads, "key_heads": heads if layers == 4 else 1}
    return family.spec.derive(changes)


def make(transformers, family, spec, kind, seed=0, **more):
    """A class of theirs with random weights large enough that a swapped matrix shows."""
    import torch

    dialect = family.names["hf"]
    config = configs.to_config(spec, dialect, family.spec) | more
    kind_of_config = getattr(transformers, kind).config_class
    if (getattr(kind_of_config(), "pad_token_id", 0) or 0) >= spec.embeddings.vocabulary:
        config["pad_token_id"] = 0  # their usual one is no row of so small a table
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(kind_of_config(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # RoFormer's table of sinusoids is none that is trained
                parameter.normal_(0, 0.2)
        for part in model.modules():
            if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                part.weight[part.padding_idx] = 0  # as they initialise it; MobileBERT joins padding to its neighbours
    return model


def batch(spec, pad, length=9, rows=3, seed=0):
    """Random ids without the first five, where the special ones are; row i has i padded places."""
    rng = np.random.default_rng(seed)
    mask = np.ones((rows, length), np.int32)
    for row in range(rows):
        mask[row, length - row :] = 0
    ids = np.where(mask, rng.integers(6, spec.embeddings.vocabulary, (rows, length)), pad)
    found = {"token_ids": ids.astype(np.int32), "padding_mask": mask}
    if spec.embeddings.segments > 1:
        found["segment_ids"] = np.sort(rng.integers(0, 2, (rows, length)), axis=1).astype(np.int32)
    if getattr(spec.embeddings, "languages", 1) > 1:
        found["language_ids"] = rng.integers(0, spec.embeddings.languages, (rows, length)).astype(np.int32)
    return found


def base_class(family):
    return next(name for name, heads in family.names["hf"].architectures.items() if not heads)


def pad_of(model):
    return getattr(model.config, "pad_token_id", 0) or 0


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"L{size[0]}N{size[1]}H{size[2]}")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_hidden_state(transformers, tmp_path, name, size):
    family = registry.family(name)
    spec = spec_of(family, size)
    if hasattr(spec.embeddings, "languages"):
        spec = spec.derive({"embeddings.languages": 3})
    theirs = make(transformers, family, spec, base_class(family))
    theirs.save_pretrained(tmp_path)
    inputs = batch(spec, pad_of(theirs))
    expected = run(theirs, inputs, output_hidden_states=True)
    encoder = kb.import_checkpoint(tmp_path, model=name)
    assert encoder.spec == spec
    got, real = encoder(inputs), inputs["padding_mask"].astype(bool)
    for ours, other in zip(got["hidden"], expected.hidden_states, strict=True):
        close(np.asarray(ours)[real], other[real])
    close(np.asarray(got["sequence"])[real], expected.last_hidden_state[real])
    if spec.pooler:
        close(got["pooled"], expected.pooler_output)


def classes():
    for name in FAMILIES:
        for kind, heads in registry.family(name).names["hf"].architectures.items():
            if configs.kind_of(kind, ()):
                continue  # tests.checkpoints.test_classes
            yield pytest.param(name, kind, heads, id=f"{name}-{kind}")


@pytest.mark.parametrize(("name", "kind", "heads"), list(classes()))
def test_heads_and_back_again(transformers, tmp_path, name, kind, heads):
    family = registry.family(name)
    spec = spec_of(family, SIZES[0])
    more = {"num_labels": 3} if "classifier" in heads else {}
    theirs = make(transformers, family, spec, kind, **more)
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs", model=name, out=tmp_path / "ours")
    assert set(encoder.heads) == set(heads)
    inputs = batch(spec, pad_of(theirs))
    expected, got, real = run(theirs, inputs), encoder(inputs), inputs["padding_mask"].astype(bool)
    outputs = [value for value in expected.values() if hasattr(value, "shape")]
    if "classifier" in heads:
        close(kb.load(tmp_path / "ours")(inputs)["logits"], expected.logits)
    if "mlm" in heads:
        part = token_head(encoder, tmp_path / "ours")
        logits = part(got["sequence"], encoder.embeddings.tokens.table)
        # sums of 40 products of size 10
        close(np.asarray(logits)[real], outputs[0][real], 1e-4)
    for head, count in SENTENCES.values():
        if head in heads:
            layer = Linear(count, name=head)
            layer.build((None, encoder.spec.hidden))
            checkpoints.load_weights(tmp_path / "ours", layer, f"heads/{head}/")
            close(layer(got["pooled"]), outputs[-1])
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = getattr(transformers, kind).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert type(transformers.AutoModel.from_pretrained(tmp_path / "back")).__name__ == base_class(family)
    for one, other in zip(outputs, (v for v in run(back.eval(), inputs).values() if hasattr(v, "shape")), strict=True):
        # the same weights; torch sums a map to one number in another order where its memory is aligned otherwise
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    kb.import_checkpoint(tmp_path / "back", model=name, out=tmp_path / "again")
    one, other = (checkpoints.read_tensors(tmp_path / folder) for folder in ("ours", "again"))
    assert one.names() == other.names()
    for tensor in one.names():
        np.testing.assert_array_equal(one.read(tensor), other.read(tensor), tensor)


def token_head(encoder, folder):
    part = token_head_of(encoder.token_head, encoder.spec)
    part.build((None, None, encoder.spec.hidden))
    checkpoints.load_weights(folder, part, "heads/mlm/")
    return part
