"""The closed world: every key of a configuration of others is read, listed with its reason, told or refused."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints import buffers, closed
from kerasbert.checkpoints import config as configs
from kerasbert.classics import allennlp
from kerasbert.errors import InputError
from kerasbert.storage import unused
from kerasbert.storage.json_view import JsonView
from tests.checkpoints import reference, theirs

# patterns of tensors that are dropped without a look -> why
UNSEEN = {
    **{f"*/{name}": "slots of an optimizer" for name in ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1")},
    "global_step": "of the training",
    "beta?_power": "of an optimizer",
    "task/optimizer/*": "slots of an optimizer",
    "generator/*": "another network, which pretraining alone has",
    "generator_predictions/*": "another network, which pretraining alone has",
    "mask_predictions.*": "of replaced token detection, which pretraining alone has",
    "fit_dense.*": "maps to the teacher's width, which distillation alone has",
    "fit_denses.*": "maps to the teacher's width, which distillation alone has",
    "encoder.pooler.dense.*": "an encoder-decoder of two BERTs reads no pooled vector",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "no code adds it",
}
SPOKEN = "not used: "


def dialects(source=None):
    for name, family in registry.families().items():
        for kind, dialect in family.names.items():
            if source in (None, kind):
                yield name, kind, dialect


def settled(content, family="bert", heads=(), capsys=None):
    """What is told of a configuration that was read."""
    found = registry.family(family)
    dialect, view = found.names["hf"], JsonView(content)
    configs.to_spec(view, dialect, found.spec.derive(dialect.spec), "config.json")
    view.get("model_type")
    with unused.told():
        closed.settle(view, dialect, "FOLDER/config.json", heads)


def test_every_list_gives_reasons_and_hides_nothing_that_is_read():
    for name, kind, dialect in dialects():
        keys = {key for _, key, *_ in dialect.config} | set(dialect.fixed)
        assert all(dialect.unread.values()), (name, kind)
        assert not keys & set(dialect.unread), (name, kind)
    assert all(closed.WITHOUT_EFFECT.values())
    assert not set(closed.ALTERING) & set(closed.USUAL)
    assert not set(closed.ALTERING) & set(closed.WITHOUT_EFFECT)


def test_every_tensor_that_is_dropped_is_compared_or_listed():
    for name, kind, dialect in dialects():
        assert {name for name, expected in dialect.ignored.items() if expected is None} <= set(UNSEEN), (name, kind)
        for expected in filter(None, dialect.ignored.values()):
            assert getattr(buffers, expected.__name__) is expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"use_cache": False, "torch_dtype": "float16", "pad_token_id": 3, "directionality": "bidi"}, None),
        ({"classifier_dropout": 0.1, "num_beams": 1, "task_specific_params": {}}, None),
        ({"classifier_dropout": 0.3}, "classifier_dropout"),
        ({"num_beams": 4, "prefix": "query: "}, "num_beams, prefix"),
        ({"trainer": {"rate": 1, "by": {"c": 2}}}, "trainer"),
        ({"my_note": "x", "another": None, "flag": False}, "my_note, flag"),
        ({"auto_map": {"AutoTokenizer": "tokenization.Ours"}}, "auto_map"),
        ({"tie_word_embeddings": False}, None),
        ({"layer_types": ["full_attention", "full_attention"]}, None),
    ],
)
def test_told_in_one_line(capsys, changes, told):
    settled(reference.CONFIG | changes)
    assert capsys.readouterr().err == ("" if told is None else f"{SPOKEN}{told} (config.json)\n")


@pytest.mark.parametrize(
    ("family", "heads", "changes"),
    [
        ("bert", (), {"position_embedding_type": "relative_key"}),
        ("bert", (), {"is_encoder_decoder": True}),
        ("bert", (), {"cross_attention_hidden_size": 8}),
        ("bert", (), {"scale_attn_by_inverse_layer_idx": True}),
        ("bert", (), {"layer_types": ["full_attention", "sliding_attention"]}),
        ("bert", (), {"layer_types": "full_attention"}),
        ("bert", (), {"attention_bias": False}),
        ("bert", (), {"quantization_config": {"bits": 4}}),
        ("bert", (), {"pruned_heads": {"0": [1]}}),
        ("bert", (), {"auto_map": {"AutoModel": "modeling.Ours"}}),
        ("bert", (), {"rope_theta": 10000.0}),
        ("bert", ("mlm",), {"tie_word_embeddings": False}),
    ],
)
def test_refused_where_it_changes_numbers(family, heads, changes):
    with pytest.raises(InputError, match=f"has {next(iter(changes))} .*no such model here"):
        settled(reference.CONFIG | changes, family, heads)


def test_label2id_that_is_another_order_is_told(capsys):
    names = {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}}
    settled(reference.CONFIG | names, heads=("classifier",))
    assert capsys.readouterr().err == "not used: label2id, which is not id2label read backwards (config.json)\n"
    settled(reference.CONFIG | names)
    settled(reference.CONFIG | names | {"label2id": {"a": 0, "b": 1}}, heads=("classifier",))
    assert capsys.readouterr().err == ""


def test_an_activation_that_t5s_file_repeats_otherwise_is_refused():
    family = registry.family("t5")
    sizes = {"vocab_size": 30, "d_model": 8, "d_kv": 4, "d_ff": 9, "num_layers": 1, "num_heads": 2}
    sizes["relative_attention_num_buckets"] = 8
    for proj, dense, gate in (("relu", "relu", False), ("gated-gelu", "gelu_new", True), ("gated-silu", "silu", True)):
        content = sizes | {"feed_forward_proj": proj, "dense_act_fn": dense, "is_gated_act": gate}
        configs.to_spec(content, family.names["hf"], family.spec, "FOLDER")
        with pytest.raises(InputError, match="has dense_act_fn 'tanh', expected"):
            configs.to_spec(content | {"dense_act_fn": "tanh"}, family.names["hf"], family.spec, "FOLDER")


def test_a_decoder_that_starts_otherwise_is_refused_and_other_ids_are_told(capsys):
    from kerasbert.text import WordPiece

    dialect = registry.family("bart").names["hf"]
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    content = {"decoder_start_token_id": 3, "eos_token_id": 3, "bos_token_id": 0, "forced_eos_token_id": None}
    closed.compare_ids(JsonView(content), dialect, "config.json", tokenizer)
    assert capsys.readouterr().err == "not used: bos_token_id 0 (the tokenizer's '[CLS]' is 2) (config.json)\n"
    with pytest.raises(InputError, match=r"decoder_start_token_id 0, expected 3, the tokenizer's '\[SEP\]'"):
        closed.compare_ids(JsonView({"decoder_start_token_id": 0}), dialect, "config.json", tokenizer)
    closed.compare_ids(JsonView({"decoder_start_token_id": 0}), dialect, "config.json", None)


OPTIONS = {
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 16},
        "filters": [[1, 32], [2, 32]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 2,
    },
    "lstm": {
        "cell_clip": 3,
        "dim": 4096,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 512,
        "use_skip_connections": True,
    },
}
TRAINING = {  # as bilm-tf wrote beside a training
    "all_clip_norm_val": 10.0,
    "batch_size": 128,
    "bidirectional": True,
    "dropout": 0.1,
    "n_epochs": 10,
    "n_negative_samples_batch": 8192,
    "n_tokens_vocab": 793471,
    "n_train_tokens": 768648884,
    "unroll_steps": 20,
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        (TRAINING, None),
        (TRAINING | {"char_cnn": OPTIONS["char_cnn"] | {"n_characters": 261}}, None),
        ({"bidirectional": True, "comment": "5.5B"}, "comment"),
        ({"lstm": OPTIONS["lstm"] | {"dropout": 0.5}}, "lstm.dropout"),
        ({"char_cnn": OPTIONS["char_cnn"] | {"embedding": {"dim": 16, "pad": 0}}}, "char_cnn.embedding.pad"),
    ],
)
def test_options_of_an_elmo(tmp_path, capsys, changes, told):
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS | changes))
    allennlp.read_options(tmp_path / "options.json")
    assert capsys.readouterr().err == ("" if told is None else f"not used: {told} (options.json)\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bidirectional": False}, "bidirectional must be True"),
        ({"char_cnn": OPTIONS["char_cnn"] | {"n_characters": 300}}, "char_cnn.n_characters must be 261 or 262"),
    ],
)
def test_options_of_another_network(tmp_path, changes, message):
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS | changes))
    with pytest.raises(InputError, match=message):
        allennlp.read_options(tmp_path / "options.json")


# the class is gone from transformers 5; its defaults in 4.57
TRANSFO_XL = {
    "model_type": "transfo-xl", "vocab_size": 267735, "cutoffs": [20000, 40000, 200000], "d_model": 1024, "d_embed": 1024,
    "n_head": 16, "d_head": 64, "d_inner": 4096, "div_val": 4, "pre_lnorm": False, "n_layer": 18, "mem_len": 1600,
    "clamp_len": 1000, "same_length": True, "proj_share_all_but_first": True, "attn_type": 0, "sample_softmax": -1,
    "adaptive": True, "dropout": 0.1, "dropatt": 0.0, "untie_r": True, "init": "normal", "init_range": 0.01,
    "proj_init_std": 0.01, "init_std": 0.02, "layer_norm_epsilon": 1e-5, "eos_token_id": 0, 
    "tie_projs": [False, True, True, True], "tie_word_embeddings": True, "use_cache": True, "transformers_version": "4.57.0",
}  # fmt: skip


def defaults(model_type):
    """The default configuration of their class."""
    if model_type == "transfo-xl":
        return TRANSFO_XL
    content = theirs.transformers().AutoConfig.for_model(model_type).to_dict()
    return content | ({"max_position_embeddings": 4098} if model_type == "longformer" else {})


def defaults_of_halves(dialect):
    """The same of a class of two models, each with its own defaults."""
    library, kind = theirs.transformers(), dialect.fixed["encoder.model_type"]({})
    one, other = (library.AutoConfig.for_model(kind) for _ in dialect.halves)
    content = library.EncoderDecoderConfig.from_encoder_decoder_configs(one, other).to_dict()
    return configs.flat(JsonView(content), dialect.halves).plain()


@theirs.parity
def test_default_configurations_of_all_classes(capsys):
    counts = {"families": set(), "types": set(), "classes": 0, "keys": 0}
    for name, _, dialect in dialects("hf"):
        counts["families"].add(name)
        for model_type in {dialect.fixed.get("model_type", name), *dialect.model_types}:
            content = defaults_of_halves(dialect) if dialect.halves else defaults(model_type)
            counts["types"].add(model_type)
            for architecture, heads in dialect.architectures.items():
                of = dialect.of(architecture)
                view = JsonView(
                    content
                    | {"architectures": [architecture]}
                    | {key: value for key, value in of.fixed.items() if key == "is_decoder"}
                )
                configs.to_spec(view, of, registry.family(name).spec.derive(of.spec), "FOLDER")
                view.read("model_type", "architectures", "add_pooling_layer")
                closed.compare_ids(view, of, "config.json", None)
                closed.settle(view, of, f"{model_type} {architecture}", heads)
                counts["classes"] += 1
                counts["keys"] += len(view)
    told = capsys.readouterr()
    sizes = {name: value if isinstance(value, int) else len(value) for name, value in counts.items()}
    print(sizes, "unread and unlisted: 0")
    assert told.err == ""
    assert counts["classes"] > 150
    assert len(counts["types"]) > 20


def test_what_we_write_is_read_whole(capsys):
    for name, kind, dialect in dialects():
        family = registry.family(name)
        base = family.spec.derive(dialect.spec)
        for architecture, heads in (dialect.architectures or {None: ()}).items():
            of = dialect.of(architecture)
            causal = (
                {"attention.causal": of.fixed["is_decoder"]}
                if getattr(dialect.classes.get(architecture), "fixed", None)
                else {}
            )
            view = JsonView(configs.to_config(base.derive(causal), of, base))
            configs.to_spec(view, of, base, "FOLDER")
            view.read("model_type")
            closed.compare_ids(view, of, "config.json", None)
            closed.settle(view, of, f"{name} {kind} {architecture}", heads)
    assert capsys.readouterr().err == ""


HUB = {
    "name": "backbone",
    "trainable": True,
    "dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None},
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 12,
    "dropout": 0.1,
}
OWN = {  # what the classes have beside these
    "BertBackbone": {"vocabulary_size": 30, "num_segments": 2},
    "RobertaBackbone": {"vocabulary_size": 30},
    "XLMRobertaBackbone": {"vocabulary_size": 30},
    "DistilBertBackbone": {"vocabulary_size": 30},
    "AlbertBackbone": {
        "vocabulary_size": 30,
        "num_segments": 2,
        "embedding_dim": 4,
        "num_groups": 1,
        "num_inner_repetitions": 1,
    },
    "ElectraBackbone": {"vocab_size": 30, "num_segments": 2, "embedding_dim": 4},
    "GPT2Backbone": {"vocabulary_size": 30},
    "BartBackbone": {"vocabulary_size": 30},
    "DebertaV3Backbone": {"vocabulary_size": 30, "bucket_size": 4},
    "XLNetBackbone": {
        "vocabulary_size": 30,
        "activation": "gelu",
        "kernel_initializer_range": 0.02,
        "bias_initializer": "zeros",
    },
    "T5Backbone": {
        "vocabulary_size": 30,
        "activation": "relu",
        "key_value_dim": None,
        "use_gated_activation": False,
        "layer_norm_epsilon": 1e-6,
        "tie_embedding_weights": True,
    },
}
UNBOUNDED = ("T5Backbone", "XLNetBackbone")


@pytest.mark.parametrize("name", OWN)
def test_presets_of_keras_hub(tmp_path, capsys, name):
    from kerasbert.checkpoints import keras_hub

    family, dialect = next((family, d) for family, _, d in dialects("keras_hub") if d.fixed["class_name"] == name)
    content = {"module": "keras_hub.models", "class_name": name, "registered_name": f"keras_hub>{name}"}

    settings = {key: value for key, value in HUB.items() if key != "max_sequence_length" or name not in UNBOUNDED}
    settings |= OWN[name]

    def told(changes):
        (tmp_path / "config.json").write_text(json.dumps(content | {"config": settings | changes}))
        view = keras_hub.read_config(tmp_path)
        configs.to_spec(view, dialect, registry.family(family).spec.derive(dialect.spec), tmp_path)
        view.get("architectures")
        closed.settle(view, dialect, tmp_path / "config.json", ())
        return capsys.readouterr().err

    assert told({}) == ""
    assert told({"stochastic_depth": 0.1}) == "not used: stochastic_depth (config.json)\n"
    content["compression"] = "4 bits"
    assert told({}) == "not used: compression of the preset (config.json)\n"


@pytest.mark.parametrize("kind", ["counted", "zeros", "causal", "sines", "frequencies", "hidden"])
def test_buffers(kind):
    expected, shape = getattr(buffers, kind), {"frequencies": (6,), "causal": (1, 1, 5, 5)}.get(kind, (7, 6))
    right = np.asarray(expected(shape))
    assert buffers.agrees(right.astype("float32"), expected)
    assert buffers.agrees(right.astype("float16"), expected)
    wrong = right.astype("float32").copy()
    wrong.flat[-1] += 2000 if kind == "hidden" else 0.02
    assert not buffers.agrees(wrong, expected)
    wrong.flat[-1] = np.nan
    assert not buffers.agrees(wrong, expected)


@theirs.parity
def test_stored_positions_of_a_marian(tmp_path):
    from safetensors.numpy import load_file, save_file

    sizes = {"vocab_size": 30, "d_model": 8, "pad_token_id": 29, "decoder_start_token_id": 29}
    sizes |= {
        f"{stack}_{key}": 2 for stack in ("encoder", "decoder") for key in ("layers", "attention_heads", "ffn_dim")
    }
    model = theirs.make("MarianMTModel", sizes | {"decoder_vocab_size": 30, "max_position_embeddings": 20})
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    stored = {f"model.{stack}.embed_positions.weight": buffers.sines((20, 8)) for stack in ("encoder", "decoder")}
    table = theirs.transformers().models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding(20, 8)
    table.weight = (
        __import__("torch").nn.Parameter(table.create_weight()) if hasattr(table, "create_weight") else table.weight
    )
    np.testing.assert_allclose(table.weight.detach().numpy(), buffers.sines((20, 8)), atol=1e-5)
    weights |= {name: value.astype("float32") for name, value in stored.items()}
    save_file(weights, file, metadata={"format": "pt"})
    kb.import_checkpoint(tmp_path, dry_run=True)
    weights["model.decoder.embed_positions.weight"] = weights["model.decoder.embed_positions.weight"] + np.float32(0.01)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"model.decoder.embed_positions.weight in .* is not what .* \(sines\)"):
        kb.import_checkpoint(tmp_path, dry_run=True)
    kb.import_checkpoint(tmp_path, dry_run=True, ignore=["model.decoder.embed_positions.weight"])
