"""Recipes of the lab: arms, each a sequence of commands that exist, and what is compared. No TensorFlow.

title: Shared layers
claim: one line
source: paper, table
minutes: 6                      # about, on two cores with SEEDS seeds
figure: {of: test, name: accuracy, higher: true, told: "..."}
base: {data: {...}, pretrain: {...}, finetune: {...}, distill: {...}, test: {...}}  # of test: data, and name over the figure's
                                # twin of data: half of the text in a second language (`twin.KINDS`); of test: the rows in it
arms: {NAME: {pretrain: {...}}} # what an arm changes of the base; null takes a step out; no steps of pretraining are new weights
compare: [{better: NAME, worse: NAME}]
needs: what size or data the claim needs
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from importlib import resources

from kerasbert.errors import InputError, unknown
from kerasbert.storage.json_view import Json, JsonMap

STEPS = ("data", "pretrain", "finetune", "distill", "test")
SEEDS = 5  # by default, and those of `minutes`


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A recipe, read.

    Args:
        name: its file's.
        title: of the page.
        claim: what the paper says. source: where.
        minutes: float, about so many on two cores with SEEDS seeds.
        figure: {"of": "pretrain" or "test", "name": metric, "higher": whether more is better, "told": what it is, "axis": of
            the picture, if arms have several metrics}.
        arms: name -> {step: settings}, with all of the base.
        compare: {"better", "worse"}: names of arms; or {"slope": arms, "sign": -1}: a power law in the parameters.
        needs: what the claim needs to be seen as in the paper.
        note: how the recipe differs from the paper.
    """

    name: str
    title: str
    claim: str
    source: str
    minutes: float
    figure: JsonMap
    arms: Mapping[str, JsonMap]
    compare: Sequence[JsonMap]
    needs: str
    note: str = ""

    def scaled(self, factor: float) -> dict[str, Json]:
        """The arms with their updates times a factor, one at least; a single update (no training) stays."""
        arms = copy.deepcopy({name: dict(arm) for name, arm in self.arms.items()})
        for arm in arms.values():
            for step in ("pretrain", "finetune", "distill"):
                if arm.get(step) and arm[step]["steps"] > 1:
                    arm[step]["steps"] = max(2, round(arm[step]["steps"] * factor))
        return arms


def names() -> list[str]:
    """The experiments, sorted."""
    folder = resources.files("kerasbert.lab") / "recipes"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def find(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        InputError: there is none; with the nearest.
    """
    if name not in names():
        raise unknown("experiment", name, names(), "kerasbert lab")
    text = (resources.files("kerasbert.lab") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
    return read(name, text)


def read(name: str, text: str) -> Experiment:
    """An experiment of a recipe's text.

    Raises:
        InputError: a key, a step or an arm that is none.
    """
    import yaml

    fields = yaml.safe_load(text)
    base = fields.pop("base", {})
    fields["arms"] = {arm: merged(base, changes or {}) for arm, changes in fields["arms"].items()}
    known = {field.name for field in dataclasses.fields(Experiment)}
    if wrong := sorted(fields.keys() - known):
        raise unknown("key of a recipe", wrong[0], known, "kerasbert/lab/recipes.py")
    found = Experiment(name=name, **fields)
    for arm, steps in found.arms.items():
        if wrong := sorted(steps.keys() - set(STEPS)):
            raise InputError(f"recipe {name}, arm {arm!r}: no step {wrong[0]!r}, expected {', '.join(STEPS)}")
    for each in found.compare:
        for arm in each.get("slope") or (each["better"], each["worse"]):
            if arm not in found.arms:
                raise unknown("arm", arm, found.arms, f"recipe {name}")
    return found


def merged(base: object, changes: object) -> object:
    """Settings with changes over them; what is null in the changes is left out.

    >>> merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": None})
    {'a': {'b': 4, 'c': 2}}
    """
    if not (isinstance(base, Mapping) and isinstance(changes, Mapping)):
        return copy.deepcopy(changes)
    found = {name: copy.deepcopy(value) for name, value in base.items() if name not in changes}
    for name, value in changes.items():
        if value is not None:
            found[name] = merged(base.get(name, {}), value)
    return {name: found[name] for name in dict.fromkeys((*base, *changes)) if name in found}
