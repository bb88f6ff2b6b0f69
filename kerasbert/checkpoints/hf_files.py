"""The files of transformers beside the tensors: configuration, tokenizer, how it writes, and sentence-transformers' around it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import answers, progress, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import beam_span, cross_encoders, generation_config, sentence_transformers
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.directory import ModelInfo, head_names, read_tensors
from kerasbert.checkpoints.pieces import context_first, padded_left
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.checkpoints.write import Named, named, write_vocabulary
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.text.base import Tokenizer
from kerasbert.text.hf_save import added_tokens
from kerasbert.text.languages import read_languages
from kerasbert.text.wordpiece import TEMPLATE as BERT

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Tensors

PAD = {
    "xlm": 2,
    "bart": 1,
    "roberta2roberta": 1,
}  # the padding id of their configuration class where a model has no tokenizer; 0 of the others

GONE = {
    "transformer-xl": "transformers 5 has no class for Transformer-XL any more; releases before it load this folder"
}


def write(run: Path, path: str | os.PathLike, overwrite: bool) -> None:
    """Write a folder of transformers; arguments as of `Format.write`."""
    found = named("hf", run, classes=True, beside=("dense_",))
    info, tokenizer, config = found.info, found.tokenizer, _config(found)
    if info.family in GONE:
        progress.say(f"{path}: {GONE[info.family]}")
    with files.new_directory(path, overwrite) as folder:
        files.write_json(folder / "config.json", dict(sorted(config.items())))
        # transformers refuses a file that does not say which framework's layout it has
        write_safetensors(folder / "model.safetensors", *found.whole(), metadata={"format": "pt"})
        if info.task and "normalize" in answers.find(info.task["kind"]).defaults:  # vectors
            sentence_transformers.write(folder, info.task, info.spec, read_tensors(found.run))
        if (decoding := _decoding(info, found.family)) is not None:
            files.write_json(folder / generation_config.FILE, generation_config.written(decoding, config, tokenizer))
        if tokenizer is not None:
            write_vocabulary(folder, tokenizer)
            segments = specs.maybe(info.spec, "embeddings.segments", 0)
            _write_tokenizer(folder, tokenizer, info.spec.longest, segments)
            if info.task and context_first(info.task, tokenizer) is False:
                progress.say(
                    f"{path}: the question stands first in this model's rows, where transformers' scripts put it last"
                )


def _config(found: Named) -> Json:
    """The configuration."""
    info, tokenizer = found.info, found.tokenizer
    config = _described(found.config | _task_keys(info.task or {}), str(found.kind), info, found.tensors)
    if "n_langs" in config and (languages := read_languages(found.run / "tokenizer")):
        config |= {"lang2id": languages, "id2lang": {str(number): name for name, number in languages.items()}}
    special = {"pad_token_id": "pad", **found.dialect.special}
    if tokenizer is not None:
        config |= _special_ids(tokenizer, special)
    elif usual := [f"{key} {config[key]}" for key in special if config.get(key) is not None]:
        progress.say(
            f"{found.run}: no tokenizer says its ids, the usual ones are written: {', '.join(usual)} (config.json)"
        )
    return configs.nested(config, found.dialect.halves)


def _task_keys(task: JsonMap) -> Json:
    """What a configuration says of the task."""
    keys: Json = {}
    if task.get("inputs") == "pair":
        keys = {configs.PAIR: True} | cross_encoders.written_activation(task)
    options = task.get("options") or {}
    if options.get("starts"):
        keys[beam_span.STARTS] = options["starts"]
    return keys | ({configs.OPTIONS: options} if options else {})


def _decoding(info: ModelInfo, family: registry.Family) -> Json | None:
    """The options of a model that writes, by which it does; None of any other."""
    if info.task and generation_config.writes(info.task):
        options = dict(answers.find("generation").configured(info.task.get("options")).options)
        lost = [name for name, none in (("coverage_penalty", 0), ("seed", 0)) if options[name] != none]
        if lost:
            progress.say(f"{generation_config.FILE} has no place for {', '.join(lost)}: transformers writes without")
        return options
    return None if info.task or not info.generation else generation_config.options_for(info.generation, "")


def _special_ids(tokenizer: Tokenizer, keys: Mapping[str, str]) -> dict[str, int]:
    """Keys of a configuration -> ids of the tokenizer's parts that they name, where it has them."""
    pieces = tokenizer.specials
    return {key: tokenizer._ids[pieces[part]] for key, part in keys.items() if part in pieces}


def _described(config: dict, kind: str, info: ModelInfo, tensors: "Tensors") -> dict:
    """A Hugging Face configuration with its class and its labels."""
    config = {"model_type": info.family, "dtype": "float32", "pad_token_id": PAD.get(info.family, 0)} | config
    config["architectures"] = [kind]
    if "classifier" in head_names(tensors) and not configs.one_number(kind):
        count = tensors.shape("heads/classifier/kernel")[-1]
        labels = info.labels or [f"LABEL_{i}" for i in range(count)]
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
        if problem := configs.problem_of((info.task or {}).get("kind")):
            config["problem_type"] = problem
    return config


def _write_tokenizer(folder: Path, tokenizer: Tokenizer, positions: int, segments: int) -> None:
    text.save_hf(tokenizer, folder / "tokenizer.json")
    settings: Json = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": positions}
    own = tokenizer.settings()
    last = padded_left(tokenizer)
    if last:
        settings["padding_side"] = "left"  # their classes read the last place, XLNet's <cls>
    # their BertTokenizer has a template of its own, whatever tokenizer.json says
    if tokenizer.kind == "wordpiece" and tokenizer.template == BERT:
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": own["lowercase"],
            "strip_accents": own["strip_accents"],
            "tokenize_chinese_chars": own["split_cjk"],
        }
    elif (segments > 1 or last) and tokenizer.segments > 1:  # which the class gives only where it is told to
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if tokenizer.added:
        settings["added_tokens_decoder"] = {str(i): token for i, token in added_tokens(tokenizer).items()}
    names = {f"{part}_token": piece for part, piece in tokenizer.specials.items()}
    files.write_json(folder / "tokenizer_config.json", settings | names)
