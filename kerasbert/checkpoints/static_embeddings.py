"""Static embeddings of others <-> averaged vectors: sentence-transformers' StaticEmbedding and model2vec's StaticModel.

Both are a table of a row a piece and a tokenizer.json, of which no special token is added to a text; the vector of a text is
the mean. They differ in one thing: model2vec leaves unknown pieces out of the mean, the other does not (model2vec 0.10,
model.py; sentence-transformers 6.2, sentence_transformer/modules/static_embedding.py).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import answers, progress, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import readers, sentence_transformers
from kerasbert.checkpoints.coverage import Coverage, Pair, check_patterns
from kerasbert.checkpoints.directory import ModelInfo, read_model_json, read_tensors
from kerasbert.checkpoints.formats import ImportOptions
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.names import matches
from kerasbert.checkpoints.plans import Plan
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError
from kerasbert.storage import files, unused
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text import hf
from kerasbert.text.base import Tokenizer
from kerasbert.text.hf_beside import Beside
from kerasbert.text.hf_save import save_hf

if TYPE_CHECKING:
    from kerasbert.checkpoints.readers import Reader


FAMILY, TABLE = "average", "embeddings/table"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
TYPE = "model2vec"  # its model_type
LENGTH = 512  # tokens of a text of model2vec's, where its file says none
PLAIN = {
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": i, "type_id": 0}} for i in "AB"],
}
"""What stands around a text, as a TemplateProcessing says it: nothing."""
READS = ("ignore", "allow_pickle", "revision", "model")
_WITHOUT_EFFECT = (
    *("architectures", "tokenizer_name", "apply_pca", "apply_zipf", "sif_coefficient", "pooling", "seq_length"),
    *("embedding_dtype", "vocabulary_quantization", "hidden_dim", "base_model_name", "language"),
)  # how the table was made; its size, which it has itself


def is_model2vec(folder: Path) -> bool:
    """Whether a folder is of model2vec, by its configuration; one that is damaged says nothing."""
    try:
        return (folder / CONFIG).is_file() and read_json(folder / CONFIG).get("model_type") == TYPE
    except InputError:
        return False


def is_static(run: Path) -> bool:
    """Whether a model directory is written as a table and a mean."""
    return read_model_json(run).family == FAMILY


# In


def plan(
    folder: Path, theirs: sentence_transformers.Theirs | None, asked: ImportOptions, origin: dict[str, str] | None
) -> Plan:
    """What an import would do.

    Args:
        theirs: the folder as sentence-transformers has it; None for what model2vec reads of it.
        origin: as of `formats.Opened`.

    Raises:
        InputError: of one line.
    """
    _check_asked(folder, asked)
    place = folder if theirs is None else theirs.transformer
    tensors, _ = readers.open_hf(place, asked.allow_pickle)
    tokenizer, length = _read_tokenizer(place / TOKENIZER)
    coverage, table, folded = _covered(tensors, tokenizer, place, asked)
    if not coverage.fits:
        return Plan(coverage, coverage.problems(place))
    family = registry.family(FAMILY)
    left_out = tuple(sorted({tokenizer.pad_id} | ({tokenizer.unk_id} if theirs is None else set())))
    changes = {"hidden": table[1], "embeddings.vocabulary": table[0], "embeddings.left_out": left_out}
    spec = specs.derive(family.spec, changes)
    if theirs is None:
        task, told, length = _of_model2vec(folder)
        heads: dict[str, dict[str, np.ndarray]] = {}
    else:
        task, told = theirs.vector(spec), theirs.told
        heads = theirs.heads(task["options"], spec.hidden, asked.allow_pickle)
        theirs.leave()
    if length is None:
        told = [*told, f"theirs reads texts of any length, this model {LENGTH} tokens of them; --length N changes that"]
    progress.say(*told)
    task |= {"length": length or LENGTH}
    described = {"tokenizer": tokenizer, "task": task, "source": origin}
    about = {"family": family, "name": FAMILY, "spec": spec, "described": described, "heads": heads}
    return Plan(coverage, tensors=tensors, tensor=lambda _, rows: folded(rows), **about)


def _check_asked(folder: Path, asked: ImportOptions) -> None:
    """Refuse options of an import that say nothing of a table."""
    if extra := [name for name in asked.given() if name not in READS]:
        raise InputError(
            f"{folder} is a static embedding, of which no {' and no '.join(extra)} is read: leave that out"
        )
    if (asked.model or FAMILY).partition("/")[0] != FAMILY:
        raise InputError(f"{folder} is a static embedding, received the model {asked.model}: leave --model out")


def _of_model2vec(folder: Path) -> tuple[Json, list[str], int | None]:
    """The task, lines to tell, and tokens of a text, of model2vec's configuration."""
    view = JsonView(read_json(folder / CONFIG))
    view.get("model_type")
    normalize, length = view.get("normalize", False), view.get("max_length", LENGTH)
    if type(normalize) is not bool or (length is not None and (type(length) is not int or length < 3)):
        raise InputError(
            f"{folder / CONFIG} has normalize {normalize!r} and max_length {length!r}, expected a bool and a number of tokens"
        )
    unused.leave(folder / CONFIG, view.unread(_WITHOUT_EFFECT))
    if (folder / sentence_transformers.MODEL).is_file():
        unused.leave(folder / sentence_transformers.MODEL, read_json(folder / sentence_transformers.MODEL))
    options = {"pooling": "mean", "normalize": normalize}
    return {"kind": "vector", "inputs": "text", "options": options}, [], length


def _read_tokenizer(path: Path) -> tuple[Tokenizer, int | None]:
    """The tokenizer, which adds nothing to a text, and the tokens that it keeps of one; None for all."""
    if not path.is_file():
        raise InputError(f"{path} is missing: copy the folder again")
    content = read_json(path)
    cut, padding, content["padding"] = content.pop("truncation", None) or {}, content.get("padding") or {}, None
    if not isinstance(cut, dict) or not isinstance(padding, dict) or cut.get("direction", "Right") != "Right":
        raise InputError(f"{path} truncates a text at its begin, or is damaged: no such model here")
    said = content.get("model")
    model = said if isinstance(said, dict) else {}
    vocab = model.get("vocab")
    rows, added = (each if isinstance(each, list) else [] for each in (vocab, content.get("added_tokens")))
    pieces = [*vocab] if isinstance(vocab, dict) else [each[0] for each in rows if isinstance(each, list) and each]
    pieces += [each.get("content") for each in added if isinstance(each, dict)]
    known = {piece for piece in pieces if isinstance(piece, str)}  # what is something else `hf.from_hf` refuses
    names = {f"{part}_token": [f"[{part.upper()}]", f"<{part}>"] for part in ("pad", "unk", "cls", "sep", "mask")}
    names["cls_token"].append("<s>")
    names["sep_token"].append("</s>")
    found = {name: next((each for each in usual if each in known), None) for name, usual in names.items()}
    found["pad_token"] = next((each for each in known if each == padding.get("pad_token")), found["pad_token"])
    found["unk_token"] = model.get("unk_token") or found["unk_token"]
    spare = found["pad_token"]
    if spare is None or spare == found["unk_token"]:
        raise InputError(f"{path} has no piece of padding, such as [PAD] or <pad>: no such model here")
    content["post_processor"] = {"type": "TemplateProcessing", **PLAIN, "special_tokens": {}}
    try:
        tokenizer = hf.from_hf(content, None, Beside(names={name: each or spare for name, each in found.items()}))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return tokenizer, cut.get("max_length")


def _covered(
    tensors: "Reader", tokenizer: Tokenizer, place: Path, asked: ImportOptions
) -> tuple[Coverage, tuple[int, int], Callable[[np.ndarray], np.ndarray]]:
    """Which tensor is the table, the shape of this, and what makes a row a piece of it: float32 [V, H] -> [V, H]."""
    held = set(tensors.names())
    name = "embeddings" if "embeddings" in held else "embedding.weight"
    beside = {"mapping", "weights"} & held if name == "embeddings" else set()
    check_patterns(asked.ignore, held)
    ignored = {each for each in held - beside - {name} if matches(each, asked.ignore)}
    shape = tuple(tensors.shape(name)) if name in held else ()
    rows = tokenizer.size if "mapping" in held else shape[0] if shape else 0
    wrong = [] if len(shape) == 2 and rows == tokenizer.size else [f"{name} {list(shape)}, of {tokenizer.size} pieces"]
    for each in beside:
        if tuple(tensors.shape(each)) != (tokenizer.size,):
            wrong.append(f"{each} {list(tensors.shape(each))}, of {tokenizer.size} pieces")
    pairs = (Pair(TABLE, name, False, shape),)
    extra = tuple(sorted(held - beside - ignored - {name}))
    missing = () if name in held else (TABLE,)
    coverage = Coverage(pairs, (), tuple(sorted(ignored)), missing, extra, () if missing else tuple(wrong))

    def folded(values: np.ndarray) -> np.ndarray:
        """model2vec's quantized vocabulary: a row of the table and a factor for each piece."""
        if "mapping" in beside:
            of = tensors.stored("mapping").astype(np.int64)
            if of.size and not 0 <= of.min() <= of.max() < len(values):
                raise InputError(f"mapping in {place} names a row that the table has not: the file is damaged")
            values = values[of]
        return values * tensors.read("weights")[:, None] if "weights" in beside else values

    return coverage, (tokenizer.size, shape[1]) if len(shape) == 2 else (0, 0), folded


# Out


def write(run: Path, path: str | os.PathLike, overwrite: bool, model2vec: bool = False) -> None:
    """Write a folder of sentence-transformers, or of model2vec; arguments as of `Format.write`.

    Raises:
        InputError: the model has something that theirs has no place for.
    """
    info, tensors, tokenizer = read_model_json(run), read_tensors(run), text.held_tokenizer(run)
    task = info.task or {"kind": "vector", "options": {}}
    options = task.get("options") or {}
    _check(run, info, task, tokenizer)
    assert tokenizer is not None  # `_check` has asked
    table = np.array(tensors.read(TABLE))
    unknown = tokenizer.unk_id if tokenizer.kind != "bpe" and tokenizer.unk_id != tokenizer.pad_id else None
    skipped, normalize = unknown in _left_out(info), bool(options.get("normalize"))
    if unknown is not None and skipped != model2vec and not (normalize and (skipped or not table[unknown].any())):
        theirs, other = ("leaves", "sentence_transformers") if model2vec else ("counts", TYPE)
        raise InputError(
            f"{run}: {'model2vec' if model2vec else 'sentence-transformers'} {theirs} unknown pieces"
            f"{' out of' if model2vec else ' in'} the mean, this model does not: write it as {other}"
        )
    if skipped and not model2vec:
        table[unknown] = 0.0  # of which the direction of the mean is the same
    with files.new_directory(path, overwrite) as folder:
        if model2vec:
            _write_model2vec(folder, run, task, info, table)
        else:
            shapes = {"embedding.weight": table.shape}
            write_safetensors(folder / "model.safetensors", shapes, lambda _: table, metadata={"format": "pt"})
            sentence_transformers.write(folder, task, info.spec, tensors, static=True)
        save_hf(tokenizer, folder / TOKENIZER)
        content = read_json(folder / TOKENIZER) | {"post_processor": None}
        if task.get("length"):
            content["truncation"] = {
                "direction": "Right",
                "max_length": task["length"],
                "strategy": "LongestFirst",
                "stride": 0,
            }
        files.write_json(folder / TOKENIZER, content)


def _left_out(info: ModelInfo) -> tuple[int, ...]:
    """Ids without a part in the mean; `is_static` has seen that the family is one of averages."""
    return specs.get(info.spec, "embeddings.left_out")


def _check(run: Path, info: ModelInfo, task: JsonMap, tokenizer: Tokenizer | None) -> None:
    """Refuse what is no table and mean of a text's pieces."""
    pooling = (task.get("options") or {}).get("pooling", "mean")
    vectors = "normalize" in answers.find(task["kind"]).defaults
    if not vectors or pooling != "mean":
        what = f"pools by {pooling}" if vectors else f"answers with a {task['kind']}"
        raise InputError(f"{run} {what}, a static embedding is a mean: export a SavedModel or a .tflite")
    if tokenizer is None or tokenizer.template[0] != "$A":
        around = "no tokenizer" if tokenizer is None else f"special tokens around a text ({tokenizer.template[0]})"
        raise InputError(f"{run} has {around}, a static embedding the pieces of a text alone: keep the model directory")
    if odd := set(_left_out(info)) - {tokenizer.pad_id, tokenizer.unk_id}:
        raise InputError(f"{run} leaves out the tokens {', '.join(map(str, sorted(odd)))}, theirs unknown ones alone")


def _write_model2vec(folder: Path, run: Path, task: JsonMap, info: ModelInfo, table: np.ndarray) -> None:
    options = task.get("options") or {}
    given = [name for name in ("dense", "dimensions", "prompt_name") if options.get(name)]
    if given:
        raise InputError(
            f"{run} has {' and '.join(given)}, which model2vec has no place for: write it as sentence_transformers"
        )
    if options.get("prompts"):
        progress.say(f"{run}: the prompts {', '.join(options['prompts'])} have no place in model2vec and are left out")
    normalize = bool(options.get("normalize"))
    content = {"model_type": TYPE, "architectures": ["StaticModel"], "hidden_dim": info.spec.hidden}
    content |= {"normalize": normalize, "max_length": task.get("length"), "embedding_dtype": "float32"}
    files.write_json(folder / CONFIG, content)
    write_safetensors(folder / "model.safetensors", {"embeddings": table.shape}, lambda _: table)
    kinds = [("StaticEmbedding", "."), *([("Normalize", "1_Normalize")] if normalize else [])]
    rows = [
        {"idx": i, "name": str(i), "path": place, "type": sentence_transformers.TYPE + kind}
        for i, (kind, place) in enumerate(kinds)
    ]
    files.write_json(folder / sentence_transformers.MODULES, rows)
