"""What `registry.register_objective` asks of an objective, so that its author's mistake is seen where it is registered."""

import dataclasses
import inspect
from collections.abc import Mapping

from kerasbert.errors import InputError, check_known, of_entry
from kerasbert.objectives.base import Objective, changed
from kerasbert.registry import PACKINGS

NEEDED = ("heads", "prepare", "counts", "losses")


def check(name: str, objective: object) -> None:
    """Refuse a class that pretraining cannot use.

    Raises:
        InputError: no subclass of Objective; a method that is missing or takes other arguments; an unknown packing, setting of
            records or path of `defaults`; scales that are no numbers.
    """
    if not (isinstance(objective, type) and issubclass(objective, Objective)):
        raise InputError(f"the objective {name!r} is {objective!r:.80}, expected a subclass of Objective")
    missing = [method for method in NEEDED if getattr(objective, method) is getattr(Objective, method)]
    if missing:
        raise InputError(f"the objective {name!r} has no {', '.join(missing)}: define it in {objective.__name__}")
    for method in (*NEEDED, "lengths", "predictions", "losses_from"):
        _check_arguments(name, objective, method)
    _check_data(name, objective)
    settings = objective.settings_class
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings)):
        raise InputError(f"the objective {name!r} has settings_class {settings!r:.80}, expected a frozen dataclass")
    try:
        changed(settings(), objective.defaults, "settings_class")
    except (InputError, TypeError) as error:
        raise of_entry("objective", name, InputError(f"defaults: {error}")) from error


def _check_arguments(name: str, objective: type[Objective], method: str) -> None:
    """Refuse a method that cannot be called as its callers call it: with the arguments that Objective's own has."""
    theirs = inspect.signature(getattr(objective, method))
    ours = inspect.signature(getattr(Objective, method))
    needed = [name for name, argument in ours.parameters.items() if argument.default is inspect.Parameter.empty]
    try:
        theirs.bind(*needed)
        theirs.bind(*needed, **dict.fromkeys(ours.parameters.keys() - needed))
    except TypeError as error:
        raise InputError(f"the objective {name!r}: {method}{theirs} is called as {method}{ours}: {error}") from error


def _check_data(name: str, objective: type[Objective]) -> None:
    """Refuse attributes that no record and no loss can be made by."""
    from kerasbert.data import write_records

    check_known("objective", name, "packing", objective.packing, PACKINGS)
    for setting in objective.records:
        check_known("objective", name, "setting of write_records", setting, inspect.signature(write_records).parameters)
    scales = getattr(objective, "scales", None)  # some are settled by the encoder, in __init__
    if scales is None or isinstance(scales, property):
        return
    if not (isinstance(scales, Mapping) and all(isinstance(value, int | float) for value in scales.values())):
        raise InputError(
            f"the objective {name!r} has scales {scales!r:.80}, expected a factor by the name of each loss"
        )
    for loss in objective.token_losses:
        check_known("objective", name, "loss in token_losses", loss, scales)
