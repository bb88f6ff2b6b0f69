"""How a checkpoint of others writes: generation_config.json, or the older keys of config.json <-> options of `generation`.

transformers' generate takes its defaults from there. The beginning and the end of a text are the tokenizer's here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from kerasbert import answers, registry
from kerasbert.answers.generation import GenerationKind
from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text.base import PARTS, Tokenizer

FILE = "generation_config.json"
_SAME = (
    "length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "early_stopping",
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "num_return_sequences",
)
_LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
_DRAWN = ("do_sample", "temperature", "top_k", "top_p")
_TOKENS = ("eos_token_id", "decoder_start_token_id", "bos_token_id")
IDS = ("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids")
_NEUTRAL = {  # not computed here, and nothing with this value
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "renormalize_logits": False,
    "token_healing": False,
    "guidance_scale": 1.0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "stop_strings": None,
    "penalty_alpha": None,
    "watermarking_config": None,
    "constraints": None,
    "force_words_ids": None,
}
_NEUTRAL_DRAWN = {"min_p": None, "top_h": None, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}
WITHOUT_EFFECT = {
    **dict.fromkeys(("_from_model_config", "transformers_version"), "who wrote it"),
    **dict.fromkeys(
        ("use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory"), "memory alone"
    ),
    **dict.fromkeys(("compile_config", "disable_compile", "max_time", "use_mtp", "speculation_type"), "speed alone"),
    **dict.fromkeys(("return_dict_in_generate", "output_*"), "what else is returned"),
    **dict.fromkeys(("pad_token_id", "bos_token_id"), "the tokenizer's; what is padded is masked"),
    **dict.fromkeys(("is_assistant", "assistant_*", "num_assistant_*", "target_lookbehind"), "of a second model"),
    **dict.fromkeys(("prompt_lookup_num_tokens", "max_matching_ngram_size"), "speed alone"),
    "remove_invalid_values": "numbers that are not finite are refused here",
}
"""Keys that change no text -> why."""
_OLDER = ("num_beams", *_SAME, *_LENGTHS, *_DRAWN, *_TOKENS, *_NEUTRAL, *_NEUTRAL_DRAWN)


def writes(task: JsonMap | None) -> bool:
    """Whether a task, as model.json records it, is of a kind that writes by settings of decoding."""
    return bool(task) and "beams" in answers.find(task["kind"]).defaults


def read(folder: Path, config: JsonMap, tokenizer: Tokenizer | None, family: registry.Family) -> tuple[Json, list[str]]:
    """How a checkpoint writes, as model.json holds it, and what is to be told of it.

    Args:
        folder: of the checkpoint. config: its configuration. tokenizer: its tokenizer, or None. family: of the model.

    Returns:
        ({"options": by name, "tasks": task -> its options, "unused": keys that are not computed here}, empty for an encoder and
        where nothing is said; lines).
    """
    if family.kind == "encoder" or tokenizer is None:
        return {}, []
    where, two = FILE, family.kind == "seq2seq"
    if (folder / FILE).is_file():
        view = JsonView(read_json(folder / FILE))
    else:
        where, view = "config.json", JsonView({key: config[key] for key in _OLDER if config.get(key) is not None})
    told = _unsaid(view, tokenizer, f"{folder / where}")
    options = _options(view, two, tokenizer, getattr(family.encoder, "first_token", ""), f"{folder / where}", told)
    left = list(view.unread([*WITHOUT_EFFECT]))
    tasks = {}
    for name, params in (config.get("task_specific_params") or {}).items():
        known = registry.task(name) if name in registry.tasks() else None
        if known is None or not writes({"kind": known.kind}) or not isinstance(params, Mapping):
            told.append(
                f"config.json: task_specific_params of {name} are not used: give what they hold by --set task.NAME=VALUE"
            )
            continue
        own = JsonView(dict(params))
        found = _options(own, two, tokenizer, "", f"{folder / 'config.json'}", told)
        tasks[name] = found | ({"prefix": str(own["prefix"])} if own.get("prefix") else {})
        left += [f"task_specific_params.{name}.{key}" for key in own.unread([*WITHOUT_EFFECT])]
    for some in ({}, *tasks.values()):
        _check({**options, **some}, f"{folder / where}")
    if left:
        told.append(f"{where}: not used, although texts may depend on it: {', '.join(left)}")
    if options:
        told.append(f"writes by {where}: {', '.join(f'{name}={value}' for name, value in options.items())}")
    kept = {"options": options, "tasks": tasks, "unused": left}
    return {name: value for name, value in kept.items() if value}, told


def _check(options: JsonMap, where: str) -> None:
    """Refuse values of another type, in a line that names the file."""
    try:
        answers.find("generation").configured({"target_length": 1 << 16, **options})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _options(view: JsonView, two: bool, tokenizer: Tokenizer, first: str, where: str, told: list[str]) -> Json:
    """Options of `generation` of a configuration of theirs.

    Args:
        two: bool, whether an encoder-decoder writes. first: the part that the family's decoder starts with.
    """
    options: Json = {} if view.get("num_beams") is None else {"beams": view["num_beams"]}
    for key in _SAME:
        value = view.get(key)
        value = value[0] if key == "forced_eos_token_id" and isinstance(value, list) and len(value) == 1 else value
        if value is not None:
            options[key] = value
    if not two and options.pop("forced_bos_token_id", None) is not None:
        told.append(f"{where}: forced_bos_token_id is not used: it is of a text without a prompt")
    options |= _lengths(view, two, where, told) | _sampling(view, options.get("beams", 1), where, told)
    ends = view.get("eos_token_id")
    ends = ends if isinstance(ends, list) or ends is None else [ends]
    if ends not in (None, [tokenizer.sep_id]):
        told.append(
            f"{where}: eos_token_id is {ends}, texts end at {tokenizer.sep_id} ({tokenizer.specials['sep']}) alone"
        )
    # as generate does
    said = "bos_token_id" if view.get("decoder_start_token_id") is None else "decoder_start_token_id"
    start = view.get(said)
    if two and first and start is not None and start != getattr(tokenizer, f"{first}_id"):
        options["start"] = _part_or_piece(start, tokenizer, f"{where}: {said}")
    _neutral(view, _NEUTRAL)
    return options


def _unsaid(view: JsonView, tokenizer: Tokenizer, where: str) -> list[str]:
    """What is to be told where nothing is said and transformers' generate goes by another rule."""
    told = []
    if view.get("eos_token_id") is None:
        end = f"{tokenizer.sep_id} ({tokenizer.specials['sep']})"
        told.append(f"{where}: no eos_token_id, so that transformers' generate ends no text: they end at {end} here")
    if view.get("max_length") is None and view.get("max_new_tokens") is None:
        most = answers.find("generation").defaults["target_length"]
        told.append(
            f"{where}: no length, which transformers' generate takes as 20 new tokens: at most {most} here (--set "
            "task.target_length=N)"
        )
    return told


def _part_or_piece(number: object, tokenizer: Tokenizer, where: str) -> str:
    """What a decoder starts with, by its id: a part of the tokenizer, or a piece, as mBART's languages are.

    Raises:
        InputError: the tokenizer has no such id: every text would begin otherwise.
    """
    if type(number) is not int or not 0 <= number < tokenizer.size:
        raise InputError(f"{where} is {number!r:.40}, expected an id of the tokenizer's {tokenizer.size}")
    part = next((part for part in PARTS if getattr(tokenizer, f"{part}_id") == number), None)
    return part or tokenizer.vocabulary[number]


def _neutral(view: JsonView, values: Mapping[str, object]) -> None:
    """Note as read what is not computed here where it changes nothing."""
    plain = view.plain()
    for key, neutral in values.items():
        if (plain.get(key) or neutral) == neutral:
            view.read(key)


def _lengths(view: JsonView, two: bool, where: str, told: list[str]) -> Json:
    """max_new_tokens and min_new_tokens; theirs count the start token, and of a decoder alone the prompt."""
    most, least = view.get("max_new_tokens"), view.get("min_new_tokens")
    length, shortest = view.get("max_length"), view.get("min_length")
    if not two:
        counted = {"max_length": length if most is None else None, "min_length": shortest if least is None else None}
        if counted := [f"{key} {value}" for key, value in counted.items() if value]:
            told.append(
                f"{where}: {' and '.join(counted)} count the prompt's tokens, not used: new ones are --set "
                "task.target_length=N"
            )
    elif most is None and type(length) is int:
        most = length - 1
    least = max(0, shortest - 1) if two and least is None and type(shortest) is int else least
    found = {"target_length": most, "min_new_tokens": least}
    return {name: value for name, value in found.items() if value is not None}


def _sampling(view: JsonView, beams: object, where: str, told: list[str]) -> Json:
    """Options by which tokens are drawn; without do_sample theirs takes none of them."""
    values = {key: view.get(key) for key in _DRAWN}
    if not values["do_sample"]:
        view.read(*_NEUTRAL_DRAWN)
        return {}
    _neutral(view, _NEUTRAL_DRAWN)
    if isinstance(beams, int) and beams > 1:
        told.append(
            f"{where}: do_sample with num_beams {beams} is not computed here: beams are searched, nothing is drawn"
        )
        return {}
    temperature, top_p = values["temperature"], values["top_p"]
    found: Json = {"temperature": 1.0 if temperature is None else temperature}
    top_k = 50 if values["top_k"] is None else values["top_k"]  # generate's own default
    return found | ({"top_k": top_k} if top_k else {}) | ({"top_p": top_p} if top_p not in (None, 1, 1.0) else {})


def options_for(generation: JsonMap | None, task: str) -> Json:
    """The options of a task that writes, of what model.json holds."""
    held = generation or {}
    return {**held.get("options", {}), **held.get("tasks", {}).get(task, {})}


def without_ids(generation: JsonMap | None) -> Json | None:
    """The same without numbers of tokens, for a model whose vocabulary is another."""
    if not generation:
        return None
    tasks = generation.get("tasks", {})
    kept = {"options": generation.get("options", {}), **tasks}
    kept = {name: {key: value for key, value in some.items() if key not in IDS} for name, some in kept.items()}
    return {**generation, "options": kept.pop("options"), **({"tasks": kept} if tasks else {})}


def written(options: JsonMap, config: JsonMap, tokenizer: Tokenizer | None) -> Json:
    """generation_config.json of options of `generation`.

    Args:
        config: content of config.json, whose numbers of special tokens are taken where there is no tokenizer.
    """
    content = {key: options[key] for key in _SAME if options.get(key) is not None and options.get(key) != ()}
    names = {"beams": "num_beams", "target_length": "max_new_tokens", "min_new_tokens": "min_new_tokens"}
    content |= {theirs: options[ours] for ours, theirs in names.items() if options.get(ours) is not None}
    drawn = {key: options.get(key) for key in ("temperature", "top_k", "top_p")}
    if any(value is not None for value in drawn.values()):
        content |= {"do_sample": True, "top_k": drawn["top_k"] or 0}
        content |= {key: value for key, value in drawn.items() if key != "top_k" and value is not None}
    ids = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "bos_token_id")
    content |= {key: config[key] for key in ids if config.get(key) is not None}
    if tokenizer is not None:
        content |= {"eos_token_id": tokenizer.sep_id, "pad_token_id": tokenizer.pad_id}
        if options.get("start"):
            kind = cast(GenerationKind, answers.find("generation").configured(options))
            content["decoder_start_token_id"] = kind.start_of(tokenizer)
    return content
