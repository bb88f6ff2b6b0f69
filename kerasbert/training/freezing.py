"""Weights that a training leaves as they are, chosen by name."""

import math
import re
from collections.abc import Mapping, Sequence

import keras

from kerasbert.checkpoints.adapters import adapting
from kerasbert.errors import InputError, near
from kerasbert.layers.naming import names
from kerasbert.spec import Spec
from kerasbert.storage.json_view import JsonMap
from kerasbert.training.weight_rules import compiled

SHORT = {"encoder": r"^(?!heads/|pooler/)"}  # a pooler may be new, as heads are


def freeze(model: keras.Model, patterns: Sequence[str]) -> list[keras.Variable]:
    """Stop training the weights in whose names one of the patterns is found; call it before the optimizer is built.

    A frozen weight has no gradient and no slots of the optimizer: neither decay nor an average moves it.

    Args:
        model: a built encoder or model with heads.
        patterns: regular expressions searched in the weights' names, such as `^block_[0-5]/` or `^embeddings/`; "encoder"
            is everything but heads and pooler.

    Returns:
        the variables that were trained before.

    Raises:
        InputError: a pattern that finds nothing; nothing is left to train.
    """
    weights, chosen = names(model), {}
    for pattern in patterns:
        expression = compiled("freeze", SHORT.get(pattern, pattern))
        matched = {name: variable for name, variable in weights.items() if expression.search(name)}
        if not matched:
            raise InputError(f"freeze: {pattern!r} is in no weight's name. {_near(pattern, weights)}")
        chosen |= matched
    frozen = [variable for variable in chosen.values() if variable.trainable]
    if frozen and len(frozen) == len(model.trainable_variables):
        raise InputError(f"freeze: {', '.join(patterns)} leaves no weight to train, expected one: freeze fewer")
    for variable in frozen:
        variable.trainable = False
    return frozen


def patterns_of(spec: Spec, settings: JsonMap) -> list[str]:
    """What a run leaves as it is: what was asked for, and of an adapted model all that does not adapt it.

    Args:
        spec: of the encoder.
        settings: of run.json: freeze, pooler ("new" where it starts at random), constraint (it is about the base's
            weights: then all of them are trained).
    """
    asked: list[str] = [*(settings.get("freeze") or ())]
    adapted = hasattr(spec, "base") and spec != spec.base
    if adapted and not settings.get("constraint"):
        asked.append(f"^(?!{adapting(spec, settings.get('pooler') == 'new')})")
    return asked


def told(model: keras.Model) -> list[str]:
    """How many of a model's weights are trained, in a line; none where all of them are.

    >>> model = kb.build("bert/tiny", **{"embeddings.vocabulary": 100})
    >>> frozen = freeze(model, ["encoder"])
    >>> told(model)
    ['trained: 16,512 of 491,904 weights (3.357%)']
    """
    sizes = [(math.prod(variable.shape), variable.trainable) for variable in names(model).values()]
    trained, every = sum(size for size, yes in sizes if yes), sum(size for size, _ in sizes)
    return [] if trained == every else [f"trained: {trained:,} of {every:,} weights ({trained / every:.3%})"]


def _near(pattern: str, weights: Sequence[str] | Mapping[str, object]) -> str:
    """The name of a weight, or of a layer, that a pattern may have meant, else some that there are."""
    folders = {"/".join(parts[:i]) for parts in (name.split("/") for name in weights) for i in range(1, len(parts) + 1)}
    plain = re.sub(r"[\^$\\()]", "", pattern).strip("/").removeprefix("encoder/")
    return near(plain, sorted(folders))
