"""What may stand in a configuration of others: each key is read, changes no number, or is told or refused.

A dialect reads keys of its family (`config`, `fixed`, `silent`); here is what all families have in common. A key of the class in
transformers that changes what is computed belongs into `fixed` or `ALTERING`, one that only training sees into `USUAL`, one that
nobody computes with into `WITHOUT_EFFECT` or the dialect's `unread`, each with its reason. Any other is somebody's own: told.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from kerasbert import registry
from kerasbert.checkpoints.names import Dialect
from kerasbert.errors import InputError
from kerasbert.storage import unused
from kerasbert.storage.json_view import JsonMap, JsonView
from kerasbert.text.base import Tokenizer

_IDS = "an id of the tokenizer, whose files say it"
_HOW = "says what is returned or kept, not what is computed"
WITHOUT_EFFECT: Mapping[str, str] = {  # patterns of keys -> why they change no number
    "_name_or_path": "where it came from",
    "name_or_path": "where it came from",
    "transformers_version": "who wrote it",
    "finetuning_task": "what it was trained on",
    "dtype": "how it is stored; everything is read as float32",
    "torch_dtype": "how it is stored; everything is read as float32",
    "use_cache": _HOW,
    "output_*": _HOW,
    "return_dict": _HOW,
    "use_return_dict": _HOW,
    "torchscript": _HOW,
    "gradient_checkpointing": "memory of training; the same gradients",
    "chunk_size_feed_forward": "computed in parts; the same sum",
    "_attn_implementation*": "which kernel computes attention",
    "attn_implementation": "which kernel computes attention",
    "tokenizer_class": "the tokenizer's files are read by themselves",
    "id2label": "read where there is a classifier",
    "label2id": "id2label read backwards; compared where there is a classifier",
    "problem_type": "read where there is a classifier",
    "architectures": "read: its first name",
    "lang2id": "read where the model has languages",
    "id2lang": "lang2id read backwards",
    **dict.fromkeys((f"{name}_token_id" for name in ("pad", "bos", "eos", "sep", "cls", "mask", "unk")), _IDS),
    **dict.fromkeys((f"{name}_index" for name in ("pad", "bos", "eos", "mask", "unk")), _IDS),
}
# What only training computes with, or only transformers' `generate` -> the values at which there is nothing to tell: ours, and
# the default of each class, which every file repeats.
_GENERATION: JsonMap = {
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "remove_invalid_values": False,
    "force_bos_token_to_be_generated": False,
    "task_specific_params": {},
    "prefix": "",
}
USUAL: Mapping[str, tuple[object, ...]] = {
    "classifier_dropout": (0.0, 0.1),
    "classifier_dropout_prob": (0.0, 0.1),
    "classif_dropout": (0.0, 0.1),
    "summary_first_dropout": (0.0, 0.1),
    "summary_last_dropout": (0.0, 0.1),
    "seq_classif_dropout": (0.1, 0.2),  # DistilBERT's default is .2
    "qa_dropout": (0.0, 0.1),
    "activation_dropout": (0.0,),
    "layerdrop": (0.0,),
    "encoder_layerdrop": (0.0,),
    "decoder_layerdrop": (0.0,),
    "tie_word_embeddings": (True, False),
    **{key: (value,) for key, value in _GENERATION.items()},
}
# What another network is computed by -> the values that say nothing of it.
ALTERING: Mapping[str, tuple[object, ...]] = {
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (),
    "tie_encoder_decoder": (False,),
    "position_embedding_type": ("absolute",),
    "pruned_heads": ({},),
    "quantization_config": (),
    "attention_bias": (True,),
    "mlp_bias": (True,),
    "sliding_window": (),
    "use_sliding_window": (False,),
    "rope_scaling": (),
    "rope_theta": (),
    "rope_parameters": (),
    "num_key_value_heads": (),
    "qk_norm": (False,),
    "parallel_attn": (False,),
    "alibi": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
}
_LM_HEADS = {"mlm", "lm"}


def compare_ids(content: JsonView, dialect: Dialect, file: Path, tokenizer: Tokenizer | None) -> None:
    """Refuse a decoder that starts with another piece than ours, and tell of other ids that are not the tokenizer's.

    Args:
        tokenizer: of the model; None where it has none, and then nothing tells.

    Raises:
        InputError: every text that the model writes would begin otherwise.
    """
    for key, part in dialect.special.items():
        said = content.get(key)
        piece = None if tokenizer is None else tokenizer.specials.get(part)
        ours = None if tokenizer is None or piece is None else tokenizer._ids.get(piece)
        if said is None or ours is None or said == ours:
            continue
        if key == "decoder_start_token_id":
            raise InputError(
                f"{file} has {key} {said!r}, expected {ours}, the tokenizer's {piece!r}: the decoder starts with that here"
            )
        unused.leave(file, [f"{key} {said!r} (the tokenizer's {piece!r} is {ours})"])


def settle(content: JsonView, dialect: Dialect, file: Path, heads: Collection[str]) -> None:
    """Refuse what is left of a configuration and changes numbers, and leave the rest to be told.

    Args:
        content: it, after everything was read.
        dialect: of its class.
        file: its path.
        heads: those that the model has.

    Raises:
        InputError: a setting that is not computed here.
    """
    own = {key: values for key, values in dialect.unread.items() if isinstance(values, tuple)}
    usual, spoken = {**USUAL, **own}, []
    without_effect = {**WITHOUT_EFFECT, **{key: why for key, why in dialect.unread.items() if key not in own}}
    patterns = [f"{half}{key}" for half in ("", *(f"{half}." for half in dialect.halves)) for key in without_effect]
    for key, value in content.unread(patterns).items():
        half, _, inner = key.partition(".")
        meant = inner if half in dialect.halves else key
        allowed = _allowed(meant, value, heads)
        if allowed is None and value not in usual.get(meant, ()):
            spoken.append(key)
        elif allowed is not None and value not in allowed:
            expected = " or ".join(map(repr, allowed)) or "none"
            raise InputError(f"{file} has {key} {repr(value)[:80]}, expected {expected}: no such model here")
    if "classifier" in heads and _contradicts(content.plain()):
        spoken.append("label2id, which is not id2label read backwards")
    unused.leave(file, spoken)


def _contradicts(content: JsonMap) -> bool:
    names, numbers = content.get("id2label"), content.get("label2id")
    if not isinstance(names, dict) or not isinstance(numbers, dict):
        return False
    return {str(number): name for name, number in numbers.items()} != {str(i): name for i, name in names.items()}


def _allowed(key: str, value: object, heads: Collection[str]) -> tuple[object, ...] | None:
    """Values of a key that changes numbers; None of any other key."""
    if key == "tie_word_embeddings":  # only a head over the vocabulary computes with the table
        return (True,) if _LM_HEADS & set(heads) else None
    if key == "layer_types":
        return (["full_attention"] * len(value),) if isinstance(value, list) else ()
    if key == "auto_map" and isinstance(
        value, Mapping
    ):  # the folder brings code of its own, for the network or its tokenizer
        return () if any(name.startswith("AutoModel") for name in value) else None
    return ALTERING.get(key)


def refuse_decoder(path: str | os.PathLike, said: str, known: Collection[str]) -> None:
    """Refuse the decoder of a family whose encoder is read: ModernBertDecoder."""
    if said.endswith("-decoder") and said.removesuffix("-decoder") in known:
        raise InputError(f"{path} is of model_type {said!r}: a decoder alone, no encoder, which is not read here")


def refuse_format(path: Path) -> None:
    """Refuse what looks like a format that has to be imported first."""
    if theirs := next((format.title for format in registry.FORMATS.values() if format.looks_like(path)), None):
        raise InputError(f"{path} is {theirs}: kerasbert import {path} --out DIR makes a model directory of it")
