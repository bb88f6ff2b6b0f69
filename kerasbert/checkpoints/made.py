"""A model of one family made of what another of ours has learned: of a model directory, or of word vectors."""

import os
from pathlib import Path
from typing import Any

from kerasbert import registry
from kerasbert.checkpoints.directory import built, load_encoder, read_model_json, save_model
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.vectors import ABOUT, read_vectors
from kerasbert.errors import InputError

MODEL = "model.json"  # of a model directory


def is_ours(path: str | os.PathLike, model: str) -> bool:
    """Whether it is a directory of ours, or word vectors where a model of that name begins with such."""
    path, family = Path(path), registry.family(model.partition("/")[0])
    return (path / MODEL).is_file() or bool(family.of_vectors and (path.is_file() or (path / ABOUT).is_file()))


def of_ours(path: str | os.PathLike, model: str, out: str | os.PathLike | None, overwrite: bool = False) -> Any:
    """A model made of a directory of ours (`Family.made_of`, `Family.of_vectors`), written where `out` is given; without a head.

    Args:
        path: a model directory, word vectors.
        model: `family/size`, or `family` for its first size.

    Raises:
        InputError: the family is made of no such thing.
    """
    path, family = Path(path), registry.family(model.partition("/")[0])
    name = model if "/" in model else f"{model}/{next(iter(family.sizes))}"
    if (path / MODEL).is_file():
        theirs = read_model_json(path).family
        if theirs not in family.made_of:
            known = ", ".join(family.made_of) or "no other family's"
            raise InputError(f"{path} holds a model of {theirs}, and one of {family.name} is made of: {known}")
        made = family.made_of[theirs](load_encoder(path)[0], registry.find(name)[1])
        made.model_name = name
    else:
        made = _of_vectors(path, family, name)
    if out is not None:
        save_model(out, replace=overwrite, encoder=made, name=name, tokenizer=made.tokenizer)
    return made


def _of_vectors(path: Path, family: registry.Family, name: str) -> Any:
    """A model that begins with word vectors; what is none of theirs begins as new."""
    from kerasbert.layers.naming import names  # imports Keras; mistakes are told before that

    assert family.of_vectors is not None  # `is_ours` has asked
    about = read_json(path / ABOUT).get("settings") if (path / ABOUT).is_file() else None
    spec, arrays, tokenizer = family.of_vectors(read_vectors(path), about if isinstance(about, dict) else {})
    made = built(family, spec, name)
    weights = names(made)
    for weight, array in arrays.items():
        weights[weight].assign(array)
    made.tokenizer = tokenizer
    return made
