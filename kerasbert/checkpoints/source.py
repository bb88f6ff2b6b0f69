"""Where a model comes from: a model or run directory, RUN@STEP, a Hugging Face folder or its name -> a model directory.

The one place that all commands ask. TensorFlow is not loaded to refuse a name.
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kerasbert import registry, text
from kerasbert.checkpoints import closed, hub, temporary_models
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.run_checkpoints import steps
from kerasbert.checkpoints.temporary_models import WEIGHTS
from kerasbert.data.reading import plain_name
from kerasbert.errors import InputError, near, nearest
from kerasbert.options import checked, offered
from kerasbert.storage.json_view import Json
from kerasbert.text.base import Tokenizer
from kerasbert.text.files import tokenizer_file

ADAPTER, PEFT = (
    "adapter.json",
    "adapter_config.json",
)  # of a directory of an adapter alone, ours and Hugging Face PEFT's
VECTORS = "vectors.json"  # of a directory of word vectors
VECTOR_FILES = (".vec", ".bin", ".txt")  # how the names of their files end, packed or not


def directory(model: str | os.PathLike) -> Path:
    """The model directory of what a user named.

    Args:
        model: a model or run directory, `RUN@STEP` or `RUN@last` for a checkpoint of a run that need not have ended, or a
            Hugging Face folder with config.json and safetensors, or the name of one on the hub, which is
            converted, or word vectors (a directory that `kerasbert vectors` wrote, or a file), of which a model is made; that is
            said on stderr.

    Returns:
        a directory with model.json and weights; a temporary one, gone when the process ends, of what had to be made.

    Raises:
        InputError: none of these, an unfinished run, a folder that `import` refuses, a damaged checkpoint.
    """
    kind, path = check(model), Path(model)
    if kind == "model":
        return path
    if kind == "hf":
        return temporary_models.of_folder(path)
    if kind == "keras":
        raise of_keras(model)
    if kind == "hub":
        return temporary_models.of_hub(*hub.plain(model))
    if kind == "vectors":
        return temporary_models.of_vectors(path)
    run, _, step = os.fspath(model).rpartition("@")
    return temporary_models.of_checkpoint(Path(run), step)


def _path(model: str | os.PathLike) -> Path:
    if not os.fspath(model):
        raise InputError("the name of the model is empty, expected a model directory")
    return Path(model)


def check(model: str | os.PathLike) -> str:
    """What kind of source a name is: "model", "hf", "hub", "keras", "vectors" or "checkpoint"; reads no weights.

    What is a name on the Hugging Face hub is fetched for that, or found in its cache.

    Raises:
        InputError: it is none of them; the line says what there is and what to do.
    """
    path = _path(model)
    if path.is_dir():
        if (path / "run.json").is_file() and not (path / WEIGHTS).is_file():
            raise InputError(
                f"{path} holds an unfinished run: run its command again, it resumes{_or_checkpoint(path, steps(path))}"
            )
        if (path / "model.json").is_file():
            return "model"
        if (path / "config.json").is_file():
            _check_theirs(path)
            return "hf"
        if (path / VECTORS).is_file():
            return "vectors"
        if any((path / name).is_file() for name in (ADAPTER, PEFT)):
            first = "give its base (base=DIR, --base DIR), or " if offered("--base") else ""
            raise InputError(
                f"{path} holds an adapter alone{_of_base(path)}: {first}join it with its base: kerasbert import "
                f"{path} --base DIR --out RUN"
            )
        if (path / "saved_model.pb").is_file():
            raise InputError(f"{path} is a SavedModel, for TF Serving: give the model directory that it was made of")
        closed.refuse_format(path)
        held = (f"{what.format(name=path)}, expected a model" for name, what in HELD.items() if (path / name).is_file())
        told = next(held, "no model directory (no model.json), expected a folder that kerasbert wrote")
        raise InputError(f"{path} is {told}, or one of Hugging Face with config.json and model.safetensors")
    if path.is_file() and plain_name(path).suffix.lower() in VECTOR_FILES:
        return _check_vectors(path)
    if path.is_file() and path.suffix == ".keras":
        return _check_keras(path)
    run, at, step = os.fspath(model).rpartition("@")
    if at and os.path.isdir(run):
        found = steps(Path(run))
        if step != "last" and not step.isdecimal():
            raise InputError(f"{model}: {step!r} is no step, expected RUN@STEP or RUN@last{_known(found)}")
        if not found or (step != "last" and int(step) not in found):
            raise InputError(f"{run} has no checkpoint of step {step}{_known(found)}")
        return "checkpoint"
    return _named(os.fspath(model))


def check_tokenizer(model: str | os.PathLike) -> None:
    """Refuse a Hugging Face folder without a tokenizer where texts go in."""
    if check(model) == "hf" and not (Path(model) / "modules.json").is_file() and tokenizer_file(Path(model)) is None:
        raise InputError(
            f"{model} has no tokenizer, and texts go in: download tokenizer.json (or vocab.txt, or the .model) too, or write it "
            f"by tokenizer.save_pretrained({os.fspath(model)!r})"
        )


def check_adapter(path: str | os.PathLike) -> None:
    """Refuse what is no directory of an adapter."""
    if not any((Path(path) / name).is_file() for name in (ADAPTER, PEFT)):
        raise InputError(
            f"{path} holds no {ADAPTER} and no {PEFT}, expected a directory of an adapter. Leave its base out"
        )


def of_keras(model: str | os.PathLike) -> InputError:
    """The error for a `.keras` file where a model directory is wanted."""
    return InputError(
        f"{model} {FOREIGN['.keras'].format(name=os.fspath(model))}. Expected a model directory (kb.save)"
    )


def _check_vectors(path: Path) -> str:
    """Refuse a file that holds nothing."""
    if not path.stat().st_size:
        raise InputError(f"{path} is empty, expected a model directory or word vectors")
    return "vectors"


def _check_keras(path: Path) -> str:
    """Refuse a file that is none of Keras'."""
    if not zipfile.is_zipfile(path) or "config.json" not in zipfile.ZipFile(path).namelist():
        raise InputError(f"{path} is no file that Keras' model.save wrote, or is damaged: save it again")
    return "keras"


def _check_theirs(path: Path) -> None:
    """Refuse a Hugging Face folder without weights that are read, or of a model that no family here is."""
    held = {file.name for file in path.iterdir()}
    if not any(name.endswith(".safetensors") for name in held) and "modules.json" not in held:
        if any(name.endswith((".bin", ".pt")) for name in held):
            raise InputError(
                f"{path} has its weights as a pickle alone: kerasbert import {path} --allow-pickle --out RUN"
            )
        closed.refuse_format(path)
        raise InputError(f"{path} holds no model.safetensors beside its config.json: download it too")
    said = read_json(path / "config.json").get("model_type")
    known = [*registry.shipped()["families"], *registry.shipped()["model_types"]]
    if "modules.json" not in held and isinstance(said, str) and said not in known and not registry.plugged():
        closed.refuse_decoder(path, said, known)
        raise InputError(f"{path} is of model_type {said!r}, which no family here reads. {near(said, known)}")


def _of_base(path: Path) -> str:
    """For which base it says that it is."""
    found = read_json(path / ADAPTER).get("name") if (path / ADAPTER).is_file() else None
    return f" of {found}" if found else ""


HELD = {  # file of a folder that is no model directory -> what the folder is
    "index.json": "an index (kerasbert search {name} QUERY)",
    "manifest.json": "a folder of records (kerasbert pretrain MODEL/SIZE --data {name})",
    "plan.json": "the folder of a plan, which holds its models as 1-STAGE, 2-STAGE",
    "quickstart.json": "the folder of the quickstart, which holds its models",
    "lab.json": "a folder of kerasbert lab",
    "dump.json": "the dump of an update (kerasbert replay {name})",
    "tokenizer.json": "a tokenizer (kerasbert data FILES --tokenizer {name})",
    "vocab.txt": "a tokenizer (kerasbert data FILES --tokenizer {name})",
}
FOREIGN = {  # ending of a file that is no model directory -> what to do with it
    ".tflite": "is made for a phone: kerasbert-mobile run {name} TEXT (nearest, to search)",
    ".keras": "is a Keras model: predict, export and kerasbert-mobile compress take it, and kb.load({name!r}) in Python",
    ".kbindex": "is an index of a device: kerasbert-mobile nearest FILE.tflite TEXT --among {name}",
    ".onnx": "is of another runtime: take the checkpoint that it was made of",
    ".gguf": "is of another runtime: take the checkpoint that it was made of",
    ".pt": "is a pickle: kerasbert import its folder, with config.json",
    ".pth": "is a pickle: kerasbert import its folder, with config.json",
    ".h5": "holds weights alone: kerasbert import its folder",
    ".safetensors": "holds weights alone: give its folder",
    ".ckpt": "is a checkpoint of TensorFlow: kerasbert import",
}


def _named(said: str) -> str:
    """What kind of source a name is that is no folder: "hub", which is fetched.

    Raises:
        InputError: what else it may be, and what to do.
    """
    if "@" in said:
        raise InputError(f"no run {said.rpartition('@')[0]}, expected the directory of one before the @")
    name, revision = hub.plain(said)
    there, ending = os.path.isfile(name), os.path.splitext(name)[1].lower()
    if ending in FOREIGN or there:
        told = FOREIGN.get(ending, "is a file")
        lacks = "" if there else f"no file {name}. One that ends in {ending} "
        raise InputError(f"{lacks or name + ' '}{told.format(name=name)}, expected a model directory")
    models = [*(row["name"] for row in registry.shipped()["models"]), *registry.shipped()["aliases"]]
    if name in models:
        raise InputError(
            f"{name} is a model without weights: kerasbert pretrain {name} --data RECORDS --out RUN trains it. For trained "
            "weights give a folder of Hugging Face or a name on its hub, such as bert-base-uncased"
        )
    if "://" in name:
        raise InputError(f"{name} is an address: download it, unpack it where it is packed, and give the folder")
    if not hub.looks_like_name(name):
        raise InputError(f"no model directory {name}: pretrain or import one first{_near(name, models)}")
    try:
        hub.fetch(name, revision)
    except InputError as error:
        told = str(error).removeprefix(f"no checkpoint at {name}, and ").removeprefix(f"{name} is no folder, and ")
        raise InputError(f"no model directory {name}{_near(name, models)}; and {told}") from error
    return "hub"


def _near(name: str, models: list[str]) -> str:
    """What a mistyped name may have meant: a folder beside it, or a model of ours."""
    place, _, last = name.rstrip("/").rpartition("/")
    beside = (
        [each for each in os.listdir(place or ".") if os.path.isdir(os.path.join(place, each))]
        if os.path.isdir(place or ".")
        else []
    )
    if best := nearest(last, beside):
        return f". Nearest: {os.path.join(place, best)!r}"
    best = nearest(name.replace("-", "/", 1), models, similar=0.8)  # theirs are bert-base, ours bert/base
    return f". Nearest model that pretrain knows: {best!r}" if best else ""


@checked
def load_tokenizer(path: str | os.PathLike | Mapping[str, bytes], lowercase: bool | None = None) -> Tokenizer:
    """Read a tokenizer: `text.load_tokenizer`, also of what holds one for a model.

    Args:
        path: a tokenizer's directory or file, a Hugging Face folder, or the files in memory, name -> bytes, all as of
            `text.load_tokenizer`; or a model or run directory, or a name on the Hugging Face hub.
        lowercase: bool, overrides what the files say. None: what they say.

    Returns:
        a Tokenizer: `encode` gives the ids of a text, a call the arrays of some.

    Raises:
        InputError: nothing there, not on the hub, unreadable, or a special token is missing.
    """
    if isinstance(path, Mapping) and not all(isinstance(content, bytes) for content in path.values()):
        raise InputError("the mapping of files holds other than bytes, expected name -> bytes: Path(FILE).read_bytes()")
    return text.load_tokenizer(path if isinstance(path, Mapping) else tokenizer_of(path), lowercase)


def tokenizer_of(path: str | os.PathLike) -> Path:
    """Where the files of a tokenizer lie: at a path, in a model directory's tokenizer/, or in the hub's cache, once fetched."""
    name, revision = hub.plain(path)
    if (Path(name) / "model.json").is_file():
        return Path(name) / "tokenizer"
    if os.path.exists(name) or not hub.looks_like_name(name):
        return Path(name)
    try:
        return hub.fetch(name, revision, weights=False)[0]
    except InputError as error:
        told = str(error).removeprefix(f"no checkpoint at {name}, and ").removeprefix(f"{name} is no folder, and ")
        raise InputError(f"no tokenizer at {name}; and {told}") from error


def _known(found: list[int]) -> str:
    return f". It has {', '.join(map(str, found))}" if found else ". It has none yet: wait for the first save"


def _or_checkpoint(run: Path, found: list[int]) -> str:
    return f", or take a checkpoint of it: {run}@{found[-1]} (there are {', '.join(map(str, found))})" if found else ""


def settings_of(run: Path) -> Json:
    """The settings that a run was begun with; none of a directory that is no run."""
    settings = read_json(run / "run.json").get("settings") if (run / "run.json").is_file() else {}
    return settings if isinstance(settings, dict) else {}
