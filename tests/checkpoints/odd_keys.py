"""Small configurations of transformers' classes, and what a single key of one may be beside its usual value."""

from collections.abc import Iterator

import numpy as np

from tests.checkpoints import theirs

BERT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 67,
    "max_position_embeddings": 40,
}
TWO = {
    "d_model": 18,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
}
TWO |= {"encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "vocab_size": 67, "max_position_embeddings": 40}
T5 = {
    "d_model": 18,
    "d_kv": 4,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 3,
    "vocab_size": 67,
    "decoder_start_token_id": 0,
}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 9}
GPT = {"pad_token_id": 0, "vocab_size": 67, "n_positions": 40, "n_embd": 18, "n_layer": 2, "n_head": 3}
DISTANCES = {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}
OFFSET = {"pad_token_id": 1, "type_vocab_size": 1}
SHORT = {"vocab_size": 67, "n_layers": 2, "n_heads": 3}
SPECIAL = {f"{name}_token_id": at for at, name in enumerate(("pad", "bos", "eos", "cls", "sep", "mask"))}
BASES: dict[str, dict[str, object]] = {  # what the name of a class begins with -> its configuration
    "Albert": BERT | {"embedding_size": 10},
    "Bart": TWO | {"scale_embedding": False},
    "Bert": BERT,
    "BigBird": BERT | {"block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"},
    "Camembert": BERT | OFFSET,
    "Data2VecText": BERT | OFFSET,
    "Deberta": BERT | DISTANCES | {"pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8},
    "DebertaV2": BERT | DISTANCES | {"pos_att_type": ["p2c", "c2p"], "position_buckets": 4, "share_att_key": True},
    "DistilBert": SHORT | {"dim": 24, "hidden_dim": 20, "max_position_embeddings": 40},
    "Electra": BERT | {"embedding_size": 10},
    "Ernie": BERT,
    "EuroBert": BERT | SPECIAL,
    "Funnel": {"vocab_size": 67, "d_model": 20, "n_head": 3, "d_head": 6, "d_inner": 30, "block_sizes": [1, 2]},
    "GPT2": GPT,
    "Longformer": BERT | OFFSET | {"attention_window": [4, 8]},
    "MBart": TWO | {"scale_embedding": True},
    "MPNet": BERT | {"pad_token_id": 1},
    "MT5": T5,
    "Marian": TWO | {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    "MegatronBert": BERT,
    "MobileBert": BERT | {"intra_bottleneck_size": 12, "embedding_size": 9},
    "ModernBert": BERT | SPECIAL | {"local_attention": 4},
    "NomicBert": BERT,
    "OpenAIGPT": GPT,
    "Pegasus": TWO | {"scale_embedding": True, "pad_token_id": 0},
    "RoFormer": BERT | {"embedding_size": 10},
    "Roberta": BERT | OFFSET,
    "T5": T5,
    "UMT5": T5,
    "XLM": SHORT | {"emb_dim": 24, "max_position_embeddings": 40, "n_langs": 2},
    "XLMRoberta": BERT | OFFSET,
    "XLNet": {"vocab_size": 67, "d_model": 18, "n_layer": 2, "n_head": 3, "d_inner": 23},
}
WIDTHS = ((20, 5), (24, 3), (14, 7), (15, 3), (18, 1), (12, 6))  # and heads
ODD: dict[str, tuple[str, ...]] = {  # what is one size -> its names
    "width": ("hidden_size", "d_model", "n_embd", "emb_dim", "dim"),
    "heads": (
        "num_attention_heads",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "num_heads",
        "n_head",
        "n_heads",
    ),
    "inner": ("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner", "hidden_dim"),
    "layers": ("num_hidden_layers", "encoder_layers", "num_layers", "n_layer", "n_layers"),
    "decoder": ("decoder_layers", "num_decoder_layers"),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
}
ACTIVATIONS = ["gelu", "gelu_new", "relu", "tanh", "quick_gelu", "mish"]
VALUES: dict[str, list[object]] = {  # of keys whose other values their type does not say
    **dict.fromkeys(
        ("hidden_act", "activation_function", "ff_activation", "pooler_hidden_act", "conv_act"), ACTIVATIONS
    ),
    "attention_head_size": [4, 8],
    "attention_type": ["block_sparse", "original_full", "relative_shift", "factorized"],
    "attention_window": [4, [6, 4], [2, 10], [5, 4]],
    "attn_type": ["bi", "uni"],
    "block_repeats": [[1, 2], [3, 2]],
    "block_size": [1, 3, 64],
    "block_sizes": [[1], [2, 1, 1]],
    "clamp_len": [0, 1, 3],
    "classifier_activation": [True, False],
    "conv_groups": [1, 3],
    "conv_kernel_size": [0, 1, 3],
    "d_head": [5, 8],
    "dense_act_fn": ["gelu", "relu"],
    "embedding_size": [24, 7, 30],
    "eos_token_id": [1, 5],
    "feed_forward_proj": ["relu", "gated-gelu", "gated-relu", "gated-silu", "gelu_new", "gated-tanh"],
    "forced_eos_token_id": [2, 5],
    "inner_group_num": [1, 2],
    "intra_bottleneck_size": [12, 24, 9, 10],
    "layer_norm_eps": [1e-12, 1e-2],
    "legacy": [True, False],
    "max_position_embeddings": [17, 512],
    "max_relative_positions": [-1, 1, 5, 512],
    "n_inner": [13],
    "norm_rel_ebd": ["none", "layer_norm", "layer_norm|x"],
    "normalization_type": ["layer_norm", "no_norm", "other"],
    "num_labels": [1, 3],
    "pad_token_id": [0, 1, 5],
    "pooling_type": ["mean", "max"],
    "pos_att_type": [["c2p"], ["p2c"], [], "c2p|p2c", "p2p|c2p", None],
    "position_buckets": [-1, 2, 8],
    "position_embedding_type": ["relative_key", "relative_key_query"],
    "problem_type": ["regression", "multi_label_classification"],
    "relative_attention_max_distance": [3, 128],
    "relative_attention_num_buckets": [2, 5, 6, 32],
    "sep_token_id": [5],
    "summary_activation": [None, "tanh", "gelu"],
    "summary_type": ["last", "first", "mean", "cls_index", "attn"],
    "type_vocab_size": [0, 1, 3],
}
UNTOLD = ("num_labels", "problem_type")  # keys that a configuration has not until they are given
OFF = ("id2label", "label2id", "architectures", "model_type", "transformers_version", "dtype", "return_dict")
TRAINED = ("output_", "gradient", "chunk_size", "initializer", "use_cache")


def base(kind: str) -> dict[str, object]:
    """The configuration of a class."""
    return BASES[beginning(kind)]


def beginning(kind: str) -> str:
    """What the name of a class begins with, of `BASES`."""
    return max((name for name in BASES if kind.startswith(name)), key=len)


def alternatives(kind: str) -> Iterator[tuple[str, object]]:
    """(key, value) of every other value of a single key of a class."""
    usual = getattr(theirs.transformers(), kind).config_class(**base(kind)).to_dict()
    keys = [key for key in usual if key not in OFF and not key.startswith(TRAINED) and not key.endswith("dropout")]
    for key in (*keys, *(key for key in UNTOLD if key not in keys)):
        now = usual.get(key)
        if key in VALUES:
            values = VALUES[key]
        elif isinstance(now, bool):
            values = [not now]
        else:
            values = [now + 1] if isinstance(now, int) else [2 * now + 0.1] if isinstance(now, float) else []
        yield from ((key, value) for value in values if value != now or type(value) is not type(now))


def drawn(kind: str, rng: np.random.Generator) -> dict[str, object]:
    """Odd sizes of a class and two or three of its keys, each with another value than its usual one."""
    usual = base(kind)
    width, heads = WIDTHS[rng.integers(len(WIDTHS))]
    inner, layers, decoder = (int(rng.choice(some)) for some in ((7, 20, 33), (1, 3), (1, 2)))
    sizes = {"width": width, "heads": heads, "inner": inner, "layers": layers, "decoder": decoder}
    sizes |= {"vocabulary": int(rng.choice([61, 97])), "positions": int(rng.choice([23, 41]))}
    found = {name: size for what, size in sizes.items() for name in ODD[what] if name in usual}
    found |= {"attention_window": 4} if "attention_window" in usual else {}  # of every layer
    found |= {"intra_bottleneck_size": 2 * heads} if "intra_bottleneck_size" in usual else {}
    others: dict[str, list[object]] = {}
    for key, value in alternatives(kind):
        others.setdefault(key, []).append(value)
    keys = [key for key in others if not any(key in names for names in ODD.values())]
    some = rng.choice(keys, rng.integers(2, 4), replace=False).tolist()
    return found | {key: others[key][rng.integers(len(others[key]))] for key in some}


def inputs_of(kind: str, config, length: int) -> dict[str, np.ndarray]:
    """Three rows, padded but where their class reads the last place or the padding: Funnel, and heads of XLNet."""
    rng, begins = np.random.default_rng(length), beginning(kind)
    rows, vocabulary, pad = 3, config.vocab_size, getattr(config, "pad_token_id", 0) or 0
    full = begins == "Funnel" or (begins == "XLNet" and not kind.endswith(("Model", "LMHeadModel", "Simple")))
    mask = (np.arange(length) < length - 2 * (not full) * np.arange(rows)[:, None]).astype("int32")
    two = getattr(config, "is_encoder_decoder", False)
    special = {pad, *(getattr(config, f"{name}_token_id", None) for name in ("eos", "sep"))}
    ids = rng.choice([token for token in range(6, vocabulary) if token not in special], (rows, length))
    if two:  # whose head of a text reads the last </s>
        ids[np.arange(rows), mask.sum(1) - 1] = config.eos_token_id
    if begins == "Longformer" and kind.endswith(("Answering", "Choice")):  # a question's end and an answer's
        ids[:, 1:4] = config.sep_token_id
    found = {"token_ids": np.where(mask, ids, pad).astype("int32"), "padding_mask": mask}
    if two:  # a head reads its text in the decoder, a place to the right
        said, last = config.decoder_start_token_id, ids[np.arange(rows), mask.sum(1) - 1]
        start = last[:, None] if said is None else np.full((rows, 1), said)
        shifted = np.concatenate([start, found["token_ids"][:, :-1]], 1)
        written = shifted if kind.endswith(("Classification", "Answering")) else rng.integers(6, vocabulary, (rows, 7))
        written = written.astype("int32")
        found |= {"decoder_token_ids": written, "decoder_padding_mask": np.ones_like(written)}
    segments = 2 if begins in ("Funnel", "XLNet") else getattr(config, "type_vocab_size", 0) or 0
    if segments > 1:
        found["segment_ids"] = np.sort(rng.integers(0, segments, (rows, length)), axis=1).astype("int32")
    if begins == "Longformer":
        choice = kind.endswith("Choice")  # theirs: what stands behind two of a choice's separators, else <s>
        found["global_mask"] = mask * (np.arange(length) > 2 if choice else np.eye(1, length, dtype="int32"))
    return found
