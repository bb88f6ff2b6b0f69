"""CrossEncoders of sentence-transformers: a classifier of pairs, with an activation of its scores that their files name."""

from collections.abc import Mapping
from pathlib import Path

from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonMap

ACTIVATIONS = {"Identity": "", "Sigmoid": "sigmoid", "Softmax": "softmax"}
"""The end of the name of torch's class -> ours, of a CrossEncoder's scores."""
UNBOUNDED = 10**20  # transformers' LARGE_INTEGER: a larger model_max_length is none


def tokenizer_length(folder: Path, spec: Spec) -> int | None:
    """The most tokens of a text by tokenizer_config.json, within the model's positions; None for any number."""
    where = folder / "tokenizer_config.json"
    content = read_json(where) if where.is_file() else {}
    longest = content.get("model_max_length", content.get("max_len"))
    return spec.longest if longest is None else within(longest, spec, where)


def within(longest: object, spec: Spec, where: Path) -> int | None:
    """A number of tokens that a file says, within the model's positions; None for any number.

    Raises:
        InputError: no such number.
    """
    number = longest if isinstance(longest, int | float) and not isinstance(longest, bool) else 0
    if number > UNBOUNDED:
        return spec.longest
    if number < 3 or number != int(number):
        raise InputError(f"{where} has texts of {longest!r} tokens, expected a whole number of at least 3")
    return min(int(number), spec.longest or int(number))


def cross_encoder(found: JsonMap, classes: int, activation: object, where: object) -> tuple[Json, list[str]]:
    """The task of a CrossEncoder's classifier, and what is to be told of it.

    Args:
        found: the task as the checkpoint says it. classes: int, outputs of the classifier.
        activation: the name of torch's class, such as torch.nn.modules.activation.Sigmoid; None for their default.
        where: the file that says it, for errors.

    Raises:
        InputError: another activation.
    """
    told, name = [], "Sigmoid" if classes == 1 else "Identity"
    if activation is not None and not str(activation).startswith("torch."):
        told.append(f"{where} names the activation {activation}, code of its own: as theirs does, {name} is taken")
    elif activation is not None:
        name = str(activation).rpartition(".")[2]
    if name not in ACTIVATIONS or (name == "Softmax" and classes == 1):
        raise InputError(
            f"{where} has the activation {activation}, expected {', '.join(ACTIVATIONS)}: no such model here"
        )
    options = dict(found.get("options", {}))
    if classes == 1:
        options |= {"activation": ACTIVATIONS[name]} if ACTIVATIONS[name] else {}
        kind = "regression"
    else:
        kind = "multi_label" if name == "Sigmoid" else "classification"
        if name == "Identity":
            told.append("CrossEncoder.predict gives logits, predict their softmax (as apply_softmax=True gives them)")
    return {"kind": kind, "inputs": "pair"} | ({"options": options} if options else {}), told


def activation_in(config: JsonMap) -> tuple[bool, object]:
    """Whether a configuration is of a CrossEncoder that was saved before 5.4, and the activation that it names."""
    said = config.get("sentence_transformers")
    if isinstance(said, Mapping):
        return True, said.get("activation_fn")
    key = "sbert_ce_default_activation_function"
    return key in config, config.get(key)


def from_before(
    config: JsonMap, found: Json | None, classes: int, folder: Path, spec: Spec
) -> tuple[Json | None, list[str]]:
    """The task of a checkpoint without modules.json, which may be a CrossEncoder's, and what is to be told of it.

    Args:
        config: content of config.json. found, classes: as of `cross_encoder`. folder: of the tokenizer. spec: of the encoder.
    """
    crosses, activation = activation_in(config)
    if not crosses or found is None or found["kind"] not in ("classification", "regression", "multi_label"):
        return found, []
    task, told = cross_encoder(found, classes, activation, folder / "config.json")
    longest = tokenizer_length(folder, spec)
    return task | ({} if longest is None else {"length": longest}), told


def written_activation(task: JsonMap) -> Json:
    """What a configuration says so that CrossEncoder.predict gives what a regression of pairs answers."""
    if task.get("kind") != "regression" or task.get("inputs") != "pair":
        return {}
    sigmoid = (task.get("options") or {}).get("activation") == "sigmoid"
    name = "activation.Sigmoid" if sigmoid else "linear.Identity"
    return {"sentence_transformers": {"activation_fn": f"torch.nn.modules.{name}"}}
