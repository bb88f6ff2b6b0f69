"""Directories of sentence-transformers: modules.json, 1_Pooling, 2_Normalize, sentence_bert_config.json <-> a vector's task.

They stand around a Hugging Face checkpoint; a model of theirs is a list of modules, of which Transformer, one Pooling and
Normalize are known here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.storage import files

MODULES = "modules.json"
POOLINGS = {
    "cls_token": "first",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "lasttoken": "last",
    "weightedmean_tokens": None,
}
"""Their `pooling_mode_...` -> the option `pooling` of vectors; None for what is not computed here."""
TYPE = "sentence_transformers.models."


def modules(folder: Path) -> list[tuple[str, Path]] | None:
    """(name of the class, folder) of each module in their order; None where the folder is none of theirs.

    Raises:
        InputError: a damaged list, or another class.
    """
    if not (folder / MODULES).is_file():
        return None
    content = read_json(folder / MODULES, list)
    try:
        found = [(str(each["type"]).rpartition(".")[2], folder / str(each["path"])) for each in content]
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / MODULES} is damaged, expected a list of objects with type and path") from error
    names = [name for name, _ in found]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InputError(
            f"{folder / MODULES} has the modules {', '.join(names) or 'none'}, expected Transformer, Pooling and perhaps "
            "Normalize: no other is computed here. Import its Transformer's folder without modules.json for the encoder alone"
        )
    if any(folder.resolve() not in (path.resolve(), *path.resolve().parents) for _, path in found):
        raise InputError(f"{folder / MODULES} names a folder outside of {folder}")
    return found


def transformer(folder: Path) -> Path:
    """The folder with the weights: older models of theirs keep them in 0_Transformer."""
    found = modules(folder)
    return folder if found is None else found[0][1]


def task_of(folder: Path, spec: Any, tokenizer: Any) -> dict[str, Any] | None:
    """The task of a folder of theirs, as model.json records it; None for another checkpoint.

    Args:
        spec: of the encoder. tokenizer: of the folder, or None.

    Raises:
        InputError: a pooling that is not computed here.
    """
    found = modules(folder)
    if found is None:
        return None
    where = found[1][1] / "config.json"
    pooling = read_json(where)
    chosen = [mode for mode in POOLINGS if pooling.get(f"pooling_mode_{mode}")] or [str(pooling.get("pooling_mode"))]
    short = {mode.removesuffix("_tokens").removesuffix("_token"): mode for mode in POOLINGS}
    ours = POOLINGS.get(short.get(chosen[0], chosen[0])) if len(chosen) == 1 else None
    if ours is None:
        known = ", ".join(mode for mode, name in POOLINGS.items() if name)
        raise InputError(f"{where} pools by {' and '.join(chosen)}, expected one of {known}")
    if pooling.get("word_embedding_dimension", spec.hidden) != spec.hidden:
        raise InputError(
            f"{where} is for vectors of {pooling['word_embedding_dimension']}, the model's have {spec.hidden}"
        )
    options = {"pooling": ours} | ({"normalize": True} if len(found) > 2 else {})
    task: dict[str, Any] = {"kind": "vector", "inputs": "text", "options": options}
    settings = found[0][1] / "sentence_bert_config.json"
    content = read_json(settings) if settings.is_file() else {}
    if content.get("do_lower_case") and tokenizer is not None and not getattr(tokenizer, "lowercase", False):
        raise InputError(f"{settings} lower-cases texts before the tokenizer, which keeps case: no such model here")
    longest = content.get("max_seq_length")
    if type(longest) is int and longest > 2:
        task["length"] = min(longest, spec.longest or longest)
    return task


def write(folder: Path, task: Mapping[str, Any], spec: Any) -> None:
    """Their files around a checkpoint of Hugging Face.

    Args:
        task: json of a vector's task. spec: of its encoder.
    """
    options = {"pooling": "mean", "normalize": False} | dict(task.get("options", {}))
    pooling = {"cls": "first"}.get(options["pooling"], options["pooling"])
    names = ["Transformer", "Pooling", *(["Normalize"] if options["normalize"] else [])]
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(names[1:], 1))]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": TYPE + name}
        for i, (name, path) in enumerate(zip(names, paths))
    ]
    files.write_json(folder / MODULES, rows)
    longest = task.get("length") or spec.longest
    files.write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    files.write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    for path in paths[1:]:
        (folder / path).mkdir()
    modes = {f"pooling_mode_{mode}": name == pooling for mode, name in POOLINGS.items()}
    files.write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": spec.hidden} | modes)
