"""The head of a task in a KerasHub preset, written: which class of theirs has it, task.json and preprocessor.json."""

from collections.abc import Collection, Mapping
from pathlib import Path

from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.directory import ModelInfo
from kerasbert.checkpoints.keras_hub_tasks import (
    CLASSIFIER,
    FILE,
    FIRST,
    MASKED_LM,
    PREPROCESSOR,
    SECOND,
    task_class,
)
from kerasbert.checkpoints.names import Dialect
from kerasbert.checkpoints.write import Named
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap

POLICY = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None}
_LABELLED, _SPAN = "classifier", "span"


def class_of(run: Path, info: ModelInfo, dialect: Dialect, heads: Collection[str]) -> str:
    """Their class for a model with these heads: of a classifier, a masked LM or the backbone.

    Raises:
        InputError: the head of a task that they have no class for, or options that it has no place for.
    """
    backbone = str(dialect.fixed["class_name"])
    kind = (info.task or {}).get("kind")
    if answering := [head for head in heads if head in (_LABELLED, _SPAN)]:
        name = task_class(backbone, CLASSIFIER)
        if name not in dialect.classes:
            raise InputError(
                f"KerasHub has no classifier on a {backbone}, so no place for the head {' '.join(answering)} of {run}: "
                "write it --to hf, or the run that was fine-tuned"
            )
        if [*heads] != [_LABELLED] or not configs.for_texts(kind):
            raise InputError(
                f"KerasHub's {name} gives labels or a number for a text, and no place for the heads {' '.join(heads)} of {run}, "
                f"a {kind}: write it --to hf"
            )
        if thresholds := _options(info).get("thresholds"):
            raise InputError(
                f"KerasHub's {name} has no place for the thresholds of the labels of {run}, {thresholds}: write it --to hf"
            )
        return name
    name = task_class(backbone, MASKED_LM)
    # an enhanced mask decoder stands in front of the head that it was trained with
    return name if "mlm" in heads and "emd" not in heads and name in dialect.classes else backbone


def _options(info: ModelInfo) -> JsonMap:
    """Of the task."""
    return (info.task or {}).get("options") or {}


def metadata(info: ModelInfo) -> Json:
    """What metadata.json says of a classifier that KerasHub has no place for: labels, whether it reads pairs, options."""
    options = {key: value for key, value in _options(info).items() if key != "activation"}
    found: Json = {"id2label": {str(i): label for i, label in enumerate(info.labels)}} if info.labels else {}
    found |= {configs.PAIR: True} if (info.task or {}).get("inputs") == "pair" else {}
    return found | ({configs.OPTIONS: options} if options else {})


def described(name: str, config: Mapping[str, object]) -> Json:
    """An object of theirs as their files have it."""
    return {"module": "keras_hub.models", "class_name": name, "config": config, "registered_name": f"keras_hub>{name}"}


def write(folder: Path, name: str, found: Named, backbone: Json, tokenizer: Json | None) -> None:
    """Write task.json and, with a tokenizer, preprocessor.json.

    Args:
        name: of the class. found: the model. backbone, tokenizer: as they are described; None for no tokenizer.
    """
    info = found.info
    config: Json = {"backbone": backbone, "preprocessor": None, "name": "task"}
    if tokenizer is not None:
        length = (info.task or {}).get("length") or info.spec.longest
        about = {"name": "preprocessor", "trainable": True, "dtype": POLICY, "tokenizer": tokenizer}
        about |= {"config_file": PREPROCESSOR, "sequence_length": length, "truncate": "round_robin"}
        config["preprocessor"] = described(f"{name}Preprocessor", about)
        files.write_json(folder / PREPROCESSOR, config["preprocessor"])
    if name.endswith(CLASSIFIER):
        several = configs.problem_of((info.task or {}).get("kind")) == "multi_label_classification"
        sigmoid = several or _options(info).get("activation") == "sigmoid"
        config["num_classes"] = found.tensors.shape("heads/classifier/bias")[0]
        config |= {"activation": "sigmoid" if sigmoid else "linear", "dropout": info.spec.dropout}
        config |= {"hidden_dim": found.shapes[f"{FIRST}/vars/1"][0]} if f"{SECOND}/vars/1" in found.shapes else {}
    files.write_json(folder / FILE, described(name, config))
