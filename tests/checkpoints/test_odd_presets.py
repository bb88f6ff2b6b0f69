"""Backbones of KerasHub with options drawn at random, alone or within a task, in and out: what is computed, and every key.

`python -m tests.checkpoints.test_odd_presets [T5Backbone BartBackbone ...] [--random N --seeds 0 1 2]` counts: equal (hidden
within 1e-5 of the largest output, and every key of their configuration comes back or is told), refused in one line, unrun by
KerasHub itself and off, with the draw: every one that is off, and one of each kind of the others.
Texts go through the tokenizer of each draw that has one.
"""

import argparse
import collections
import contextlib
import io
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from tests.checkpoints import presets
from tests.checkpoints.test_keras_hub import BACKBONES, UNBOUNDED, theirs_of

pytestmark = [
    pytest.mark.peers,
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")),
]
TOLERANCE, MOST, VOCABULARY = 1e-5, 4, 290  # the last holds the pieces of every tokenizer of `presets`
TASKS = ("TextClassifier", "MaskedLM", "CausalLM", "Seq2SeqLM")
ACTIVATIONS = ("relu", "gelu", "silu", "swish", "tanh", "gelu_approximate")
ACTIVATIONS = (*ACTIVATIONS, *ACTIVATIONS, "sigmoid", "leaky_relu")
OWN = {
    "T5Backbone": {
        "key_value_dim": (None, 1, 3, 8),
        "activation": ACTIVATIONS,
        "use_gated_activation": (True, False),
        "tie_embedding_weights": (True, False),
        "layer_norm_epsilon": (1e-6, 1e-3),
    },
    "XLNetBackbone": {
        "activation": ACTIVATIONS,
        "kernel_initializer_range": (0.02, 0.3),
        "bias_initializer": ("zeros", "ones"),
    },
    "DebertaV3Backbone": {"bucket_size": (4, 7, 8, 12, 256)},
    "AlbertBackbone": {"num_groups": (1, 1, 1, 2), "num_inner_repetitions": (1, 1, 1, 2), "num_segments": (1, 2, 5)},
    "BertBackbone": {"num_segments": (1, 2, 5)},
    "ElectraBackbone": {"num_segments": (1, 2, 5)},
}
SPECIAL = ("the [MASK] cat [SEP]", "the <mask>cat</s>", "<|endoftext|>the", "<pad> the")
FINDING = ("RobertaBackbone", "BartBackbone", "GPT2Backbone")  # whose tokenizers find special tokens within texts
DTYPES = (None, None, None, "float32", "bfloat16", "mixed_bfloat16", "float16", "mixed_float16", "float64")
# what is about the layer, and not what it computes
ABOUT = ("name", "trainable", "dtype")


class Unrun(Exception):
    """KerasHub itself does not run it."""


def drawn(name: str, rng: np.random.Generator) -> dict:
    """Options of a backbone, and under "how" what is done with it before it is written."""

    def one(values):
        return values[rng.integers(len(values))]

    heads, size = int(rng.integers(1, 6)), int(rng.integers(1, 9))
    size += heads * size == 1  # a norm of one number says nothing
    size *= 2 if name == "XLNetBackbone" and heads * size % 2 else 1
    options = {"num_layers": one((1, 1, 2, 3)), "num_heads": heads, "hidden_dim": heads * size}
    options |= {"intermediate_dim": int(rng.integers(1, 70)), "dropout": one((0.0, 0.1, 0.35))}
    options |= {} if name in UNBOUNDED else {"max_sequence_length": int(rng.integers(9, 50))}
    if name in ("AlbertBackbone", "ElectraBackbone"):
        options["embedding_dim"] = one((heads * size, int(rng.integers(2, 20))))
    options |= {key: one(values) for key, values in OWN.get(name, {}).items()}
    how = {"dtype": one(DTYPES), "trainable": one((True, True, False)), "name": one((None, "mine"))}
    how["quantize"] = one((None,) * 9 + ("int8", "int4", "float8"))
    how["rank"] = one((None,) * 7 + (2,))
    how["shards"] = one((False, False, False, True))
    how["tokenizer"], how["task"] = one((True, False)), one((None, None, *TASKS))
    how["length"], how["out"] = one((None, 11)), one((True, False))
    return options | {"how": how}


def backbone(keras_hub, name: str, options: dict):
    """Theirs, with random weights large enough that a swapped matrix shows."""
    given, how = {key: value for key, value in options.items() if key != "how"}, options["how"]
    if given.get("activation") == "gelu_approximate":
        given["activation"] = keras_hub.src.utils.keras_utils.gelu_approximate
    given["vocab_size" if name == "ElectraBackbone" else "vocabulary_size"] = VOCABULARY
    given |= {key: how[key] for key in ("dtype", "name") if how[key]}
    model = getattr(keras_hub.models, name)(**given)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.2, weight.shape).astype("float32") for weight in model.weights])
    model.trainable = how["trainable"]
    if how["rank"]:
        model.enable_lora(how["rank"])
        for weight in (each for each in model.weights if "lora" in each.path):
            weight.assign(rng.normal(0, 0.2, weight.shape))
    if how["quantize"]:
        model.quantize(how["quantize"])
    return model


def case_of(name: str) -> str:
    """The case of `presets` of a backbone's family."""
    from kerasbert import registry

    known = {
        family.names["keras_hub"].fixed["class_name"]: family.name
        for family in reversed([*registry.families().values()])
        if "keras_hub" in family.names
    }
    return next(case for case, (family, _) in presets.MODELS.items() if family == known[name])


def written(keras_hub, name: str, options: dict, folder: Path) -> None:
    """A preset of the draw: of a backbone, or of a task with it, its preprocessor and its tokenizer."""
    model, how, shard = backbone(keras_hub, name, options), options["how"], {}
    if how["shards"]:
        shard = {"max_shard_size": sum(weight.value.numpy().nbytes for weight in model.weights) / 1.3 / 1024**3}
    tokenizer = tokenizer_of(keras_hub, name, folder.parent) if how["tokenizer"] else None
    about = {} if how["length"] is None or how["task"] == "Seq2SeqLM" else {"sequence_length": how["length"]}
    kind = getattr(keras_hub.models, name.replace("Backbone", how["task"] or ""), None)
    if how["task"] is None or kind is None:
        model.save_to_preset(str(folder), **shard)
        if tokenizer is not None:
            tokenizer.save_to_preset(str(folder))
        return
    pack = getattr(keras_hub.models, f"{kind.__name__}Preprocessor")(tokenizer, **about) if tokenizer else None
    more = {"num_classes": 3} if how["task"] == "TextClassifier" else {}
    kind(model, preprocessor=pack, **more).save_to_preset(str(folder), **shard)


def tokenizer_of(keras_hub, name: str, folder: Path):
    """One of theirs, by way of our file of the same."""
    case = case_of(name)
    if case not in presets.TOKENIZERS:
        return None
    presets.directory(folder / "pieces", case, tokenizer=presets.TOKENIZERS[case])
    with contextlib.redirect_stderr(io.StringIO()):
        kb.export_checkpoint(folder / "pieces", folder / "pieces-theirs", "keras_hub")
    return keras_hub.tokenizers.Tokenizer.from_preset(str(folder / "pieces-theirs"))


def tried(keras_hub, name: str, options: dict, folder: Path) -> tuple[str, str]:
    """(equal, refused, unrun or off, why) of one draw."""
    try:
        written(keras_hub, name, options, folder / "theirs")
        model = keras_hub.models.Backbone.from_preset(str(folder / "theirs"), dtype="float32")
        inputs = {key: value % VOCABULARY for key, value in presets.inputs_of(case_of(name)).items()}
        if "segment_ids" in inputs:
            inputs["segment_ids"] %= options.get("num_segments", 2)
        wanted = outputs(model, theirs_of(inputs, model))
        if not all(np.isfinite(value).all() for value in wanted.values()):
            raise Unrun("numbers that are not finite")
    except Exception as error:
        return "unrun", f"{type(error).__name__} {error}"
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            about = {"out": folder / "ours", "special_tokens_in_texts": name in FINDING}
            encoder = kb.import_checkpoint(folder / "theirs", "keras_hub", **about)
    except InputError as error:
        return "refused", str(error)
    if wrong := off(encoder, inputs, wanted):
        return "off", wrong
    if encoder.tokenizer is not None and (wrong := other_ids(keras_hub, folder, encoder.tokenizer)):
        return "off", wrong
    return (
        went_out(keras_hub, encoder, folder, model, inputs, told.getvalue()) if options["how"]["out"] else ("equal", "")
    )


def went_out(keras_hub, encoder, folder: Path, model, inputs: dict, told: str) -> tuple[str, str]:
    """(equal, refused or off, why) of our model, written: what it computes, and its configuration beside theirs.

    `told`: what the import said, whose keys need not come back.
    """
    try:
        kb.export_checkpoint(folder / "ours", folder / "back", "keras_hub")
    except InputError as error:
        return "refused", f"out: {error}"
    back = keras_hub.models.Backbone.from_preset(str(folder / "back"))
    if wrong := off(encoder, inputs, outputs(back, theirs_of(inputs, back))):
        return "off", f"out: {wrong}"
    kept = [{key: value for key, value in each.get_config().items() if key not in ABOUT} for each in (model, back)]
    if "key_value_dim" in kept[0]:  # None is this
        kept[0]["key_value_dim"] = kept[0]["key_value_dim"] or kept[0]["hidden_dim"] // kept[0]["num_heads"]
    kept[0] |= {"activation": "silu"} if kept[0].get("activation") == "swish" else {}  # another name of it
    lost = [key for key in kept[0] if kept[0][key] != kept[1][key] and f" {key}" not in told]
    return ("off", f"out: {[(key, kept[0][key], kept[1][key]) for key in lost]}") if lost else ("equal", "")


def outputs(model, inputs: dict) -> dict[str, np.ndarray]:
    """Of theirs, by our names."""
    found = model(inputs)
    found = found if isinstance(found, dict) else {"sequence_output": found}
    names = {"sequence_output": "sequence", "decoder_sequence_output": "sequence", "pooled_output": "pooled"}
    return {ours: np.asarray(found[theirs]) for theirs, ours in names.items() if theirs in found}


def off(encoder, inputs: dict, wanted: dict) -> str:
    """What differs by more than the tolerance, of all tokens that are no padding; "" where nothing does."""
    got = encoder(inputs)
    real = inputs.get("decoder_padding_mask", inputs["padding_mask"]).astype(bool)
    for name in sorted(got.keys() & wanted.keys()):
        at = real if name == "sequence" else slice(None)
        one, other = np.asarray(got[name])[at], wanted[name][at]
        if not (far := np.abs(one - other).max() / max(1.0, np.abs(other).max())) <= TOLERANCE:
            return f"{name} {far:.2e}"
    return ""


def other_ids(keras_hub, folder: Path, ours) -> str:
    """A text that theirs and ours give other ids; "" where there is none."""
    theirs = keras_hub.tokenizers.Tokenizer.from_preset(str(folder / "theirs"))
    for text in (*presets.TEXTS, *SPECIAL):
        if (ids := np.asarray(theirs(text)).tolist()) != ours.encode(text):
            return f"{text!r}: {ids} and {ours.encode(text)}"
    return ""


def attempts(keras_hub, name: str, count: int, seeds: list[int]) -> Iterator[tuple[dict, str, str]]:
    """(draw, state, why) of `count` draws of each seed that KerasHub itself runs, and those it does not."""
    for seed in seeds:
        rng, ran = np.random.default_rng([seed, *name.encode()]), 0
        for options in (drawn(name, rng) for _ in range(MOST * count)):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
                try:
                    state, why = tried(keras_hub, name, options, Path(folder))
                except Exception as error:  # what a user would see as a traceback
                    state, why = "failed", f"{type(error).__name__} {error}"
            ran += state != "unrun"
            yield options, state, why.replace(folder, "")
            if ran == count:
                break


@pytest.mark.parametrize("name", ["XLNetBackbone", "BertBackbone"])
def test_drawn_presets(name):
    keras_hub = pytest.importorskip("keras_hub")
    found = [(options, state, why) for options, state, why in attempts(keras_hub, name, 3, [7])]
    assert not [each for each in found if each[1] in ("off", "failed")]


def main() -> None:
    """Print the counts of each backbone."""
    import keras_hub

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*BACKBONES])
    parser.add_argument("--random", type=int, metavar="N", default=20, help="draws a seed that KerasHub runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--whole", action="store_true", help="print each that is not equal, not one of a kind")
    asked = parser.parse_args()
    for name in asked.names:
        count, said = collections.Counter(), collections.Counter()
        for options, state, why in attempts(keras_hub, name, asked.random, asked.seeds):
            count[state] += 1
            kind = re.sub(r"[\d.e-]+", "#", why)[:90]
            said[kind] += state != "equal"
            if state != "equal" and (asked.whole or said[kind] == 1 or state in ("off", "failed")):
                print(name, state, json.dumps(options), why[:600], flush=True)
        print(name, dict(count), f"{time.process_time():.0f} s", flush=True)


if __name__ == "__main__":
    main()
