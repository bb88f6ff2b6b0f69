"""Every class of transformers that we read, at random: sizes, activation and switches drawn by the seed, in and out.

`python -m tests.checkpoints.test_parity_random` prints the largest difference of every family.
"""

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.errors import InputError
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.heads import LabelHead, token_head
from kerasbert.objectives.bert import SENTENCES
from tests.checkpoints import theirs
from tests.checkpoints.theirs import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's and transformers' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TOLERANCE = 1e-5
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
RENAMED = {  # other families of theirs that are one of ours
    "roberta": [
        f"{name}{kind}"
        for name in ("Camembert", "Data2VecText")
        for kind in ("Model", "ForMaskedLM", "ForSequenceClassification")
    ]
}
OWN = (
    "funnel",
    "reformer",
    "t5-encoder",
    "mt5-encoder",
    "umt5-encoder",
    "xlnet",
)  # their configurations share few words with the others': test_parity_funnel and so on


def classes():
    """(family, class of theirs, heads), each class once."""
    seen = set()
    for name, family in registry.families().items():
        dialect = (
            family.names.get("hf") if family.kind == "encoder" and name not in OWN else None
        )  # others: test_parity_generate
        kinds = [*dialect.architectures, *RENAMED.get(name, ())] if dialect else []
        for kind in kinds:
            if kind not in seen and family.encoder.__module__.startswith("kerasbert."):
                seen.add(kind)
                yield name, kind, dialect.architectures[dialect.class_of(kind)]


def configuration(name: str, kind: str, heads: tuple, rng: np.random.Generator) -> dict:
    """A random configuration of a class, in its own words."""
    size, count = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    if name in ("eurobert", "modernbert", "roformer", "nomic-bert"):  # which rotate pairs
        size += size % 2
    hidden, activation = size * count, str(rng.choice(ACTIVATIONS))
    found = {"vocab_size": int(rng.integers(41, 130)), "max_position_embeddings": int(rng.integers(15, 40))}
    if "classifier" in heads:
        found["num_labels"] = int(rng.integers(1, 5))
    if name == "xlm":
        return found | {"emb_dim": hidden, "n_layers": 2, "n_heads": count, "n_langs": int(rng.integers(1, 4))}
    inner = int(rng.integers(5, 40))
    if name == "distilbert":
        return found | {"dim": hidden, "n_layers": 2, "n_heads": count, "hidden_dim": inner, "activation": activation}
    found |= {"hidden_size": hidden, "num_hidden_layers": int(rng.integers(1, 4)), "num_attention_heads": count}
    found |= {"intermediate_size": inner, "hidden_act": activation, "layer_norm_eps": float(rng.choice([1e-12, 1e-5]))}
    if name == "bigbird":  # rows of 9 tokens are long ones
        found |= {"block_size": 1, "num_random_blocks": 1}
    if name == "longformer":  # windows of theirs divide the widest
        found["attention_window"] = [int(rng.choice([4, 8])) for _ in range(found["num_hidden_layers"])]
    if registry.family(name).spec.embeddings.offset:
        return found | {"pad_token_id": 1, "type_vocab_size": 1}
    if name == "modernbert":
        return found | modernbert(found, rng)
    if name == "eurobert":
        groups = [None, *(each for each in range(1, count + 1) if count % each == 0)]
        special = {f"{each}_token_id": place for place, each in enumerate(("pad", "bos", "eos", "mask"))}
        return (
            found
            | special
            | {
                "num_key_value_heads": groups[rng.integers(len(groups))],
                "rms_norm_eps": found.pop("layer_norm_eps"),
                "rope_parameters": {"rope_theta": float(rng.choice([500.0, 250000.0])), "rope_type": "default"},
                "classifier_pooling": str(rng.choice(["late", "mean", "bos"])),
            }
        )
    found["type_vocab_size"] = int(rng.integers(2, 4))
    if name.startswith("deberta"):
        return found | deberta(name, found, rng)
    if name == "nomic-bert":
        found["rope_parameters"] = {"rope_theta": float(rng.choice([500.0, 10000.0])), "rope_type": "default"}
    if name == "roformer":
        found["rotary_value"] = bool(rng.integers(2))
    if name in ("albert", "electra", "roformer"):
        found["embedding_size"] = int(rng.choice([hidden, hidden + 3, 5]))  # E = H too
    if name == "mobilebert":
        who = [(True, False), (False, True), (False, False)][rng.integers(3)]
        narrow = hidden if who == (False, False) else count * int(rng.integers(2, 6))  # theirs computes no other
        found |= {
            "key_query_shared_bottleneck": who[0],
            "use_bottleneck_attention": who[1],
            "intra_bottleneck_size": narrow,
            "embedding_size": max(1, hidden - 1 - int(rng.integers(0, hidden - 1))),
            "normalization_type": str(rng.choice(["layer_norm", "no_norm"])),
            "classifier_activation": bool(rng.integers(2)),
            "num_feedforward_networks": int(rng.integers(1, 4)),
        }
    return found


def modernbert(common: dict, rng: np.random.Generator) -> dict:
    """ModernBERT's own words for some of these, and what it alone has."""
    every = int(rng.integers(1, 4))
    return {
        "hidden_activation": common["hidden_act"],
        "norm_eps": common["layer_norm_eps"],
        "local_attention": 2 * int(rng.integers(1, 6)),
        "layer_types": [
            "sliding_attention" if layer % every else "full_attention" for layer in range(common["num_hidden_layers"])
        ],
        "classifier_pooling": str(rng.choice(["cls", "mean"])),
        "decoder_bias": True,
    }


def deberta(name: str, common: dict, rng: np.random.Generator) -> dict:
    """What DeBERTa alone has: which terms are scored, and what its second version added."""
    terms = [["c2p", "p2c"], ["p2c"], ["c2p"], []][rng.integers(4)]
    found = {
        "type_vocab_size": int(rng.integers(0, 3)),
        "pos_att_type": "|".join(terms) if rng.integers(2) and terms else terms,
        "relative_attention": bool(terms),
        "max_relative_positions": int(rng.choice([-1, 5, 40])),
        "position_biased_input": bool(rng.integers(2)),
        "pooler_hidden_act": str(rng.choice([*ACTIVATIONS, "tanh"])),
        "legacy": bool(rng.integers(2)),
    }
    if name == "deberta":
        return found
    groups = int(rng.choice([1, common["num_attention_heads"]]))
    return found | {
        "position_buckets": -1 if found["max_relative_positions"] == 5 else int(rng.choice([-1, 4, 8])),
        "share_att_key": bool(rng.integers(2)),
        "norm_rel_ebd": str(rng.choice(["none", "layer_norm"])) if terms else "none",  # theirs would norm no table
        "conv_kernel_size": int(rng.choice([0, 1, 3, 5])),
        "conv_groups": groups,
        "conv_act": str(rng.choice([*ACTIVATIONS, "tanh"])),
    }


def inputs_of(spec, pad: int, rng: np.random.Generator) -> dict:
    """Random ids without the special ones; row i has i padded places."""
    mask = np.ones((3, 9), np.int32)
    for row in range(3):
        mask[row, 9 - row :] = 0
    ids = np.where(mask, rng.integers(6, spec.embeddings.vocabulary, (3, 9)), pad)
    found = {"token_ids": ids.astype(np.int32), "padding_mask": mask}
    if hasattr(spec, "window"):
        found["global_mask"] = np.eye(1, 9, dtype=np.int32).repeat(3, axis=0)
    if spec.embeddings.segments > 1:
        found["segment_ids"] = np.sort(rng.integers(0, spec.embeddings.segments, (3, 9)), axis=1).astype(np.int32)
    if getattr(spec.embeddings, "languages", 1) > 1:
        found["language_ids"] = rng.integers(0, spec.embeddings.languages, (3, 9)).astype(np.int32)
    return found


def differences(name: str, kind: str, heads: tuple, seed: int, folder: Path) -> dict[str, float]:
    """Largest difference of hidden states and heads, read (in) and written and loaded by them (out)."""
    import torch

    rng = np.random.default_rng([seed, *kind.encode()])
    model = theirs.make(kind, configuration(name, kind, heads, rng), seed)
    pad = getattr(model.config, "pad_token_id", 0) or 0
    with torch.no_grad():  # MobileBERT joins padding to its neighbours: zero, as they initialise it
        for part in model.modules():
            if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                part.weight[part.padding_idx] = 0
    model.save_pretrained(folder / "theirs")
    # without a name where theirs says which it is
    encoder = kb.import_checkpoint(folder / "theirs", out=folder / "ours")
    assert set(encoder.heads) == set(heads)
    inputs = inputs_of(encoder.spec, pad, rng)
    expected, got = run(model, inputs, output_hidden_states=True), encoder(inputs)
    real = inputs["padding_mask"].astype(bool)
    pairs = {
        f"hidden {i}": (np.asarray(h)[real], e.numpy()[real])
        for i, (h, e) in enumerate(zip(got["hidden"], expected.hidden_states, strict=True))
    }
    outputs = {key: value.numpy() for key, value in expected.items() if hasattr(value, "shape")}
    if not heads and "pooled" in got and outputs.get("pooler_output") is not None:
        pairs["pooled"] = got["pooled"], outputs["pooler_output"]
    answers = [value for key, value in outputs.items() if "logits" in key]
    if "classifier" in heads:
        got_answers = np.asarray(next(iter(kb.load(folder / "ours")(inputs).values())))
        per_token = answers[0].ndim == 3
        wanted = answers[0][real] if per_token else answers[0].reshape(len(real), -1)  # of choices [1, 3]
        pairs["classifier"] = (got_answers[real] if per_token else got_answers.reshape(wanted.shape)), wanted
    if "span" in heads:
        both = np.asarray(next(iter(kb.load(folder / "ours")(inputs).values())))
        pairs["span"] = both[real], np.stack([outputs["start_logits"], outputs["end_logits"]], -1)[real]
    if "mlm" in heads:
        head = filled(token_head(encoder.token_head, encoder.spec), "mlm", encoder, folder)
        logits = head(got["sequence"], encoder.embeddings.tokens.table)
        pairs["mlm"] = np.asarray(logits)[real], answers[0][real]
    if "rtd" in heads:
        head = LabelHead(1, activation=encoder.spec.feedforward.activation, name="rtd")
        pairs["rtd"] = np.asarray(filled(head, "rtd", encoder, folder)(got["sequence"]))[..., 0][real], answers[0][real]
    for head, count in SENTENCES.values():
        if head in heads:
            pairs[head] = filled(Linear(count, name=head), head, encoder, folder)(got["pooled"]), answers[-1]

    kb.export_checkpoint(folder / "ours", folder / "back")
    module = theirs.transformers()
    written = registry.family(name).names["hf"].class_of(kind)
    written = written.replace("Roberta", "XLMRoberta") if name == "xlm-roberta" and "XLM" not in written else written
    back, loading = getattr(module, written).from_pretrained(folder / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    for key, value in run(back.eval(), inputs).items():
        if hasattr(value, "shape"):
            pairs[f"out {key}"] = value.numpy(), outputs[key]
    base = next(kind for kind, heads in registry.family(name).names["hf"].architectures.items() if not heads)
    assert type(module.AutoModel.from_pretrained(folder / "back")).__name__ in (base, f"XLM{base}")
    again = kb.import_checkpoint(folder / "back", out=folder / "again")
    assert again.spec == encoder.spec
    one, other = (checkpoints.read_tensors(folder / of) for of in ("ours", "again"))
    assert one.names() == other.names()
    assert all(np.array_equal(one.read(tensor), other.read(tensor)) for tensor in one.names())
    return {what: float(np.abs(np.asarray(a) - np.asarray(b)).max()) for what, (a, b) in pairs.items()}


def filled(layer, head: str, encoder, folder: Path):
    """A head with the weights of the model directory."""
    layer.build((None, None, encoder.spec.hidden))
    checkpoints.load_weights(folder / "ours", layer, f"heads/{head}/")
    return layer


def every():
    """One seed is slow, the others are for `-m full`."""
    for seed in range(3):
        for name, kind, heads in classes():
            marks = pytest.mark.full if seed else pytest.mark.slow
            yield pytest.param(name, kind, heads, seed, marks=marks, id=f"{kind}-{seed}")


@pytest.mark.parametrize(("name", "kind", "heads", "seed"), list(every()))
def test_every_class_at_random(name, kind, heads, seed, tmp_path):
    theirs.transformers()
    found = differences(name, kind, heads, seed, tmp_path)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, family in registry.families().items()
        if "hf" in family.names and family.kind == "encoder"
        for kind, each in family.names["hf"].classes.items()
        if each.without
    ],
)
def test_the_encoder_of_a_refused_class_is_read_as_its_refusal_says(name, kind, tmp_path):
    theirs.transformers()
    config = {
        "vocab_size": 60,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 12,
    }
    config |= {
        "xlm": {"emb_dim": 8, "n_layers": 1, "n_heads": 2},
        "xlnet": {"d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 12},
    }.get(name, {})
    theirs.make(kind, config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no such model here. For its encoder write") as refused:
        kb.import_checkpoint(tmp_path)
    (bare,) = re.findall(r"write (\w+) as architectures", str(refused.value))
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"architectures": [bare]}))
    encoder = kb.import_checkpoint(tmp_path, ignore=re.findall(r"--ignore '([^']+)'", str(refused.value)))
    assert not encoder.heads
    inputs = inputs_of(encoder.spec, 0, np.random.default_rng(0))
    expected = run(getattr(theirs.transformers(), bare).from_pretrained(tmp_path).eval(), inputs)[0]
    real = inputs["padding_mask"].astype(bool)
    theirs.close(np.asarray(encoder(inputs)["sequence"])[real], expected[real])


def main() -> None:
    """Print the largest differences of each family over three seeds."""
    worst: dict[str, dict[str, float]] = {}
    for seed in range(3):
        for name, kind, heads in classes():
            with tempfile.TemporaryDirectory() as folder:
                for what, value in differences(name, kind, heads, seed, Path(folder)).items():
                    what = "out" if what.startswith("out") else what.partition(" ")[0]
                    row = worst.setdefault(name, {})
                    row[what] = max(row.get(what, 0.0), value)
    for name, row in worst.items():
        print(f"{name:14}" + "  ".join(f"{what} {value:.1e}" for what, value in row.items()))


if __name__ == "__main__":
    main()
