"""transformers' models at random, run on our inputs: what the parity tests of the families share."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import load_encoder
from kerasbert.checkpoints.directory import named_weights


def parity(tests):
    """Mark tests that need torch: slow, and its own and transformers' warnings are no errors."""
    for mark in ("ignore::DeprecationWarning", "ignore::FutureWarning"):
        tests = pytest.mark.filterwarnings(mark)(tests)
    return pytest.mark.slow(tests)


def transformers():
    """The module, quiet; the test is skipped where it or torch is not installed."""
    pytest.importorskip("torch")
    module = pytest.importorskip("transformers")
    module.logging.set_verbosity_error()
    module.logging.disable_progress_bar()
    return module


def make(kind: str, config: dict, seed: int = 0):
    """A model of their class `kind` with this configuration, every weight N(0, 0.2)."""
    import torch

    torch.manual_seed(seed)
    theirs = getattr(transformers(), kind)
    usual, rows = theirs.config_class(), config.get("vocab_size")
    if rows and (getattr(usual, "pad_token_id", 0) or 0) >= rows:  # no row of so small a table
        config = {"pad_token_id": 0} | config
    model = theirs(theirs.config_class(**config)).eval()
    with torch.no_grad():  # at 0.02 every layer is nearly the identity and biases are zero: a swapped matrix would pass
        for parameter in model.parameters():
            # their tables of sinusoids are compared with what they must be
            if parameter.requires_grad or not kind.startswith(("RoFormer", "Pegasus", "Marian")):
                parameter.normal_(0, 0.2)
    return model


def run(model, inputs: dict, **more):
    """Their outputs on our inputs; rows are the choices of one input where a class reads choices."""
    import torch

    names = {
        "token_ids": "input_ids",
        "padding_mask": "attention_mask",
        "segment_ids": "token_type_ids",
        "language_ids": "langs",
        "decoder_token_ids": "decoder_input_ids",
        "decoder_padding_mask": "decoder_attention_mask",
        "global_mask": "global_attention_mask",
    }
    given = {names[name]: torch.tensor(value).long() for name, value in inputs.items()}
    if type(model).__name__.endswith("ForMultipleChoice"):
        given = {name: value[None] for name, value in given.items()}
    with torch.no_grad():
        return model(**given, **more)


def close(ours, theirs, tolerance: float = 1e-5) -> None:
    """The same shape, the largest difference within the tolerance."""
    assert tuple(ours.shape) == tuple(theirs.shape)
    difference = np.abs(np.asarray(ours) - theirs.detach().numpy()).max()
    assert difference <= tolerance, difference


def same_hidden_states(their, inputs: dict, folder, **imports) -> None:
    """Import their model; every hidden state at the real positions is ours."""
    their.save_pretrained(folder)
    expected = run(their, inputs, output_hidden_states=True)
    got = kb.import_checkpoint(folder, **imports)(inputs)
    real = inputs["padding_mask"].astype(bool)
    assert len(got["hidden"]) == len(expected.hidden_states) > 1
    for ours, other in zip(got["hidden"], expected.hidden_states, strict=True):
        close(np.asarray(ours)[real], other[real])
    close(np.asarray(got["sequence"])[real], expected.last_hidden_state[real])
    if getattr(expected, "pooler_output", None) is not None:
        close(got["pooled"], expected.pooler_output)


def same_after_export(their, inputs: dict, folder, *, tolerance: float = 1e-6, **imports):
    """Import -> export -> their loader: no key missing or left over, the same weights and outputs; again: the same weights.

    Args:
        tolerance: of their outputs, whose last digits depend on where in memory their weights lie: two runs of one model differ.

    Returns:
        our encoder, with its heads.
    """
    their.save_pretrained(folder / "theirs")
    encoder = kb.import_checkpoint(folder / "theirs", out=folder / "ours", **imports)
    kb.export_checkpoint(folder / "ours", folder / "back")
    back, loading = type(their).from_pretrained(folder / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    for name, tensor in back.state_dict().items():
        assert (tensor == their.state_dict()[name]).all(), name
    expected, got = run(their, inputs), run(back.eval(), inputs)
    for name, value in expected.items():
        if hasattr(value, "shape"):  # no cache of keys and values
            assert (value - got[name]).abs().max() <= tolerance, name
    again = kb.import_checkpoint(folder / "back", **imports)
    same_weights(encoder, again)
    same_weights(encoder, load_encoder(folder / "ours")[0])
    return encoder


def same_weights(one, other) -> None:
    """Equal to the bit, heads included where both have them."""
    mine, others = named_weights(one), named_weights(other)
    assert mine.keys() == others.keys()
    assert all((mine[name].value.numpy() == others[name].value.numpy()).all() for name in mine)
    for head, weights in getattr(one, "heads", {}).items():
        for name, value in weights.items() if hasattr(other, "heads") else ():
            assert (value == other.heads[head][name]).all(), f"{head}/{name}"


def head(encoder, name: str, layer, *inputs):
    """What an imported head computes: `layer` is built and filled with its weights."""
    from kerasbert.layers.naming import _after

    layer.build((None, None, encoder.spec.hidden))
    for variable in layer.weights:
        variable.assign(encoder.heads[name][_after(variable.path, layer.name)])
    return np.asarray(layer(*inputs))
