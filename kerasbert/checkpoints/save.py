"""Write a model directory as others' checkpoint: Hugging Face (safetensors) and Google's TF1 release format."""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import answers, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import allennlp, sentence_transformers, source, views
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.checkpoints.directory import ModelInfo, head_names, read_model_json, read_tensors
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.errors import InputError, unknown
from kerasbert.storage import files
from kerasbert.text.base import Tokenizer
from kerasbert.text.hf_save import added_tokens
from kerasbert.text.languages import read_languages

ROWS = ("embeddings/tokens/table", "heads/mlm/bias")  # of one row a piece, in families whose padding id is fixed
PAD = {
    "xlm": 2,
    "bart": 1,
}  # the padding id of their configuration class where a model has no tokenizer; 0 of the others

POOLED = {"nsp", "sop", "classifier"}  # heads that read the pooled vector


def export_checkpoint(
    run: str | os.PathLike, path: str | os.PathLike, target: str = "hf", *, overwrite: bool = False
) -> None:
    """Write a model directory as a checkpoint that others read; the inverse of `import_checkpoint`.

    "hf" writes config.json, model.safetensors, vocab.txt, tokenizer.json and tokenizer_config.json, "tf1" writes
    bert_config.json, bert_model.ckpt and vocab.txt; both have LoRA merged into the matrices. "peft" writes it alone,
    adapter_config.json and adapter_model.safetensors, with the head.

    Args:
        run: a model or run directory, or what else `checkpoints.source` knows.
        path: the folder to write; it appears whole or not at all.
        target: "hf", "tf1", "peft" or, for ELMo, "allennlp".
        overwrite: bool, whether an existing folder is replaced.

    Raises:
        InputError: the model has something that the format cannot say.
    """
    if target == "peft":
        from kerasbert.checkpoints import peft

        run = source.directory(run)
        info, tensors = _read(run)
        kind = _class(peft.dialect_of(info.family), info, tensors)
        read = functools.partial(_in_units, tensors, info.task or {})
        peft.write(run, info, kind, tensors, read, path, overwrite)
    elif target == "allennlp":
        run = source.directory(run)
        allennlp.write(path, read_model_json(run), read_tensors(run), text.held_tokenizer(run), overwrite)
    else:
        _export(merged_directory(run), path, target, overwrite)  # theirs have no LoRA


def _export(run: Path, path: str | os.PathLike, target: str, overwrite: bool) -> None:
    """Write all of a model directory."""
    info, tensors = _read(run)
    family = registry.family(info.family)
    writers = {"hf": _write_hf, "tf1": _write_tf1}
    if target not in writers or target not in family.names:
        raise unknown("checkpoint format", target, family.names or writers, ", ".join(family.names) or "none")
    dialect: Dialect = family.names[target]
    kind = _class(dialect, info, tensors) if target == "hf" else None
    dialect = dialect.of(kind)
    _check_heads(dialect, info, family, tensors, kind or "the released code")
    left_out = tuple(f"heads/{head}/" for head in dialect.own_heads)
    unpooled = bool(info.task) and kind in dialect.without_pooler
    if unpooled:
        left_out += ("pooler/",)  # their head reads every token: the pooler that the training left alone has no place
    sources, shapes = _tensors(dialect, tensors, left_out)

    config = configs.to_config(info.spec, dialect, family.spec)
    tokenizer = text.held_tokenizer(run)
    if tokenizer is not None and tokenizer.knowledge is not None:
        source.say(f"{run}: the knowledge graph has no place in a {target} checkpoint, which is a BERT without it")
    order = None
    if kind and tokenizer is not None and dialect.fixed.get("pad_token_id", tokenizer.pad_id) != tokenizer.pad_id:
        # they count positions from this id on: the two pieces change places, in the table and in the tokenizer
        order = np.arange(info.spec.embeddings.vocabulary)
        swapped = [config["pad_token_id"], tokenizer.pad_id]
        order[swapped] = order[swapped[::-1]]
        tokenizer = tokenizer.renumbered(order[: tokenizer.size].tolist())

    def read(theirs: str) -> np.ndarray:
        name, transpose = sources[theirs]
        values = _in_units(tensors, info.task or {}, name)
        if order is not None and name in ROWS:
            values = values[order]
        return np.ascontiguousarray(values.T) if transpose else values

    if family.spec.pooler and (unpooled or not info.spec.pooler):
        config["add_pooling_layer"] = False  # read by us; theirs is BertModel(config, add_pooling_layer=False)
    if info.task and info.task.get("inputs") == "pair":
        config[configs.PAIR] = True
    if options := (info.task or {}).get("options"):
        config[configs.OPTIONS] = options
    with files.new_directory(path, overwrite) as folder:
        if kind:
            config = _described(config, kind, info, tensors)
        if kind and "n_langs" in config and (languages := read_languages(Path(run) / "tokenizer")):
            config |= {"lang2id": languages, "id2lang": {str(number): name for name, number in languages.items()}}
        if kind and tokenizer is not None:
            config |= _special_ids(tokenizer, {"pad_token_id": "pad", **dialect.special})
        writers[target](folder, config, *views.whole(dialect, shapes, read, info.spec.head_size))
        if target == "hf" and info.task and "pooling" in answers.find(info.task["kind"]).defaults:
            sentence_transformers.write(folder, info.task, info.spec)
        if tokenizer is not None:
            _write_vocabulary(folder, tokenizer)
            if target == "hf":
                _write_hf_tokenizer(folder, tokenizer, info.spec.longest)


def _read(run: Path) -> tuple[ModelInfo, Safetensors]:
    """What a model directory holds.

    Raises:
        InputError: its head reads other layers than the last.
    """
    info = read_model_json(run)
    if layers := (info.task or {}).get("layers"):
        raise InputError(
            f"their classes read the last layer, the head of {run} reads layers {layers!r}: export a SavedModel or a .tflite"
        )
    return info, read_tensors(run)


def _tensors(
    dialect: Dialect, tensors: Safetensors, left_out: tuple[str, ...]
) -> tuple[dict[str, tuple[str, bool]], dict[str, tuple[int, ...]]]:
    """Their name -> (ours, whether it is transposed), and their name -> shape, of all tensors but those with such beginnings."""
    sources, shapes = {}, {}
    for name in tensors.names():
        if name.startswith(left_out):
            continue
        theirs, transpose = dialect.theirs(name)
        sources[theirs] = name, transpose
        shapes[theirs] = tuple(reversed(tensors.shape(name))) if transpose else tensors.shape(name)
    for copy, changes in dialect.untied.items():
        original = dialect.originals(copy)[0]
        if not changes and original in sources:  # they store it, and compute nothing with it
            sources[copy], shapes[copy] = sources[original], shapes[original]
    return sources, shapes


def _special_ids(tokenizer: Tokenizer, keys: Mapping[str, str]) -> dict[str, int]:
    """Keys of a configuration -> ids of the tokenizer's parts that they name, where it has them."""
    pieces = tokenizer.specials
    return {key: tokenizer._ids[pieces[part]] for key, part in keys.items() if part in pieces}


def _in_units(tensors: Safetensors, task: dict[str, Any], name: str) -> np.ndarray:
    """A tensor, that of a regression's head so that it answers in the unit of the targets: others know no mean and std."""
    values, mean, std = tensors.read(name), task.get("mean", 0.0), task.get("std", 1.0)
    if name not in ("heads/classifier/kernel", "heads/classifier/bias") or (mean, std) == (0.0, 1.0):
        return values
    return (values.astype("float64") * std + (mean if name.endswith("bias") else 0.0)).astype("float32")


def _class(dialect: Dialect, info: ModelInfo, tensors: Safetensors) -> str:
    """Their class with exactly the heads that the model has, for its kind of task."""
    heads, answered = set(head_names(tensors)) - set(dialect.own_heads), (info.task or {}).get("kind")
    classes = [name for name, has in dialect.architectures.items() if set(has) == heads]
    fitting = [name for name in classes if configs.serves(name, answered)]
    said = {key: specs.get(info.spec, path) for path, key, *factor in dialect.config if not factor}
    fitting = [name for name in fitting if not dialect.fixed_of.get(name, {}).items() - said.items()] or fitting
    if not fitting:
        of = f" for {answered}" if classes else ""
        raise InputError(
            f"no class of theirs{of} has exactly the heads {', '.join(sorted(heads))}: export a model without one of them"
        )
    return fitting[0]


def _check_heads(dialect: Dialect, info: ModelInfo, family: registry.Family, tensors: Safetensors, theirs: str) -> None:
    """Refuse adapters, and heads that their class would not compute as we do."""
    if width := specs.maybe(info.spec, "adapters.width"):
        raise InputError(
            f"{info.name} has adapters (adapters.width={width}), which {theirs} has no place for: keep the model directory"
        )
    heads = set(head_names(tensors)) - set(dialect.own_heads)
    strange = sorted(heads - set(dialect.heads))
    if strange:
        raise InputError(f"{theirs} has no place for the heads {', '.join(strange)}: export a model without them")
    mean = (info.task or {}).get("mean", 0.0)
    if mean and "classifier" in heads and "bias" not in dialect.heads["classifier"]:
        raise InputError(f"{theirs} has no bias in its head, which the mean of the targets, {mean:g}, would go into")
    for head in sorted(heads):
        lacking = [name for name in dialect.heads[head] if f"heads/{head}/{name}" not in tensors.names()]
        if lacking:
            raise InputError(
                f"{theirs} has {', '.join(lacking)} in the head {head!r}, this model has not: "
                "export it in the format that it came from"
            )
    if family.spec.pooler and not info.spec.pooler and heads & POOLED and theirs not in dialect.without_pooler:
        raise InputError(
            f"{theirs} reads a pooled vector and this model was fine-tuned without a pooler (a masked LM has none): "
            "fine-tune once more from it, finetune makes one"
        )


def _described(config: dict, kind: str, info: ModelInfo, tensors: Safetensors) -> dict:
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


def _write_hf(folder: Path, config: dict, shapes: dict, read: Any) -> None:
    files.write_json(folder / "config.json", dict(sorted(config.items())))
    # transformers refuses a file that does not say which framework's layout it has
    write_safetensors(folder / "model.safetensors", shapes, read, metadata={"format": "pt"})


def _write_vocabulary(folder: Path, tokenizer: Tokenizer) -> None:
    """vocab.txt, vocab.json and merges.txt, or spiece.model: the files of the tokenizer's kind, by their usual names."""
    tokenizer.save(folder)
    (folder / "tokenizer.json").unlink()  # ours; Hugging Face has another under this name


def _write_hf_tokenizer(folder: Path, tokenizer: Tokenizer, positions: int) -> None:
    text.save_hf(tokenizer, folder / "tokenizer.json")
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": positions}
    own = tokenizer.settings()
    if tokenizer.cls_id is not None and tokenizer.single[-1].id == tokenizer.cls_id:
        settings["padding_side"] = "left"  # their classes read the last place, XLNet's <cls>
    if tokenizer.kind == "wordpiece":
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": own["lowercase"],
            "strip_accents": own["strip_accents"],
            "tokenize_chinese_chars": own["split_cjk"],
        }
    if tokenizer.added:
        settings["added_tokens_decoder"] = {str(i): token for i, token in added_tokens(tokenizer).items()}
    names = {f"{part}_token": piece for part, piece in tokenizer.specials.items()}
    files.write_json(folder / "tokenizer_config.json", settings | names)


def _write_tf1(folder: Path, config: dict, shapes: dict, read: Any) -> None:
    import tensorflow as tf

    files.write_json(folder / "bert_config.json", dict(sorted(config.items())))
    names = sorted(shapes)
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=str(folder / "bert_model.ckpt"),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.constant(read(name)) for name in names],
            )
    except tf.errors.OpError as error:
        reason = str(error.message).partition(" [Op:")[0].replace(str(folder), "")
        raise InputError(f"cannot write the TensorFlow checkpoint: {reason}. Nothing was left there") from error
