"""What a student learns from its teacher: losses with their weights, a temperature, a map of layers. No TensorFlow."""

import dataclasses
import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from kerasbert.errors import InputError, unknown
from kerasbert.options import checked_fields, option
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.training.config import LabelledConfig
from kerasbert.value_types import check_type

# loss -> what it compares
LOSSES = {
    "labels": "the right answers, where a row has one (masked tokens: the tokens themselves)",
    "soft": "softmax of the logits at a temperature",
    "logits": "logits, or the number of a regression",
    "cosine": "direction of the last layer's vectors",
    "embeddings": "what the first layer reads",
    "hidden": "every layer's vectors",
    "scores": "every layer's attention before the softmax",
    "features": "every layer's vectors, normalised",
    "means": "means of every layer's vectors",
    "variances": "variances of every layer's vectors",
    "attention": "every layer's attention",
}
ANSWERS = ("labels", "soft", "logits")  # read from a head; all others from the encoder
HEADED = ("scores", "attention")  # compared head by head


@checked_fields
@dataclasses.dataclass(frozen=True)
class Distillation:
    """The losses of a distillation.

    Args:
        losses: name in LOSSES -> weight.
        temperature: float, of the loss "soft".
        layers: the teacher's layer (from 1) for each of the student's layers; None for evenly spaced ones, the last for
            the last (TinyBERT's g(m) = m * N / M: Jiao et al., 2020, section 4.2).
    """

    losses: Mapping[str, float]
    temperature: float = 1.0
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, weight in self.losses.items():
            if name not in LOSSES:
                raise unknown("loss", name, LOSSES, ", ".join(LOSSES))
            if not (_is_number(weight) and weight >= 0):
                raise InputError(f"the weight of loss {name!r} must be a number of at least 0. Received: {weight!r}")
        object.__setattr__(self, "losses", MappingProxyType({k: float(v) for k, v in self.losses.items() if v}))
        if not self.losses:
            raise InputError(f"no losses, expected at least one with a weight above 0: {', '.join(LOSSES)}")
        if not (_is_number(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature must be a number above 0. Received: {self.temperature!r}")
        check_type("layers", tuple[int, ...] | None, self.layers)
        object.__setattr__(self, "layers", None if self.layers is None else tuple(self.layers))

    @property
    def answers(self) -> bool:
        """Whether a head is trained."""
        return any(name in ANSWERS for name in self.losses)

    @property
    def compared(self) -> bool:
        """Whether answers are compared with the teacher's."""
        return "soft" in self.losses or "logits" in self.losses

    @property
    def inner(self) -> bool:
        """Whether the encoders are compared, so that the teacher runs beside the student."""
        return any(name not in ANSWERS for name in self.losses)

    def to_json(self) -> Json:
        """A plain dict."""
        layers = None if self.layers is None else list(self.layers)
        return {"losses": dict(self.losses), "temperature": self.temperature, "layers": layers}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


RECIPES = {
    # the teacher labels text; Turc et al., 2019, section 3 (soft labels), Tang et al., 2019, section 3.2 (logits)
    "soft": Distillation({"soft": 1.0}),
    "logits": Distillation({"logits": 1.0}),
    # The paper (section 2) names the three losses; the weights and the temperature are of the command in the released
    # README (alpha_ce 5, alpha_mlm 2, alpha_cos 1). There soft targets are of every token, here of the masked ones.
    "distilbert": Distillation({"soft": 5.0, "labels": 2.0, "cosine": 1.0}, temperature=2.0),
    # Stage 1 (section 3.1, equations 7 to 9; the layers' losses are summed); stage 2 is "soft" at temperature 1 (equation
    # 10, section 4.2), from the directory of stage 1
    "tinybert": Distillation({"embeddings": 1.0, "hidden": 1.0, "scores": 1.0}),
    # Section 3.5; factors of the released README, where they are of the mean over the layers, as here. Its prediction
    # stage is "mobilebert-answers" (distill_ground_truth_ratio 0.5), from the directory of the first.
    "mobilebert": Distillation({"features": 100.0, "means": 5000.0, "variances": 5.0, "attention": 1.0}),
    "mobilebert-answers": Distillation({"labels": 0.5, "soft": 0.5}),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillConfig(LabelledConfig):
    """The options of `distill`."""

    learning_rate: float = 1e-4
    save_every: int = 1000
    steps: int | None = option(None, "updates, instead of --epochs; needed on records", least=1)
    length: int | None = option(None, "longest text in tokens", python="By default that of the teacher's task, or 128")
    metric: str | None = option(
        None,
        "what the best weights are chosen by",
        python='The task\'s own by default, of which the first of equal ones are kept: with "loss" a student of a perfect '
        "score goes on learning",
    )
    recipe: str | Distillation = option("soft", ", ".join(RECIPES), python="A name or a Distillation")
    losses: Mapping[str, float] | None = option(None, "name -> weight, over the recipe's", flag=False)
    temperature: float | None = option(None, "of the soft targets", python="Over the recipe's")
    layers: Sequence[int] | None = option(
        None, "the teacher's layer, from 1, for each of the student's", flag=False, python="Over the recipe's"
    )
    unlabelled: Sequence[str | os.PathLike] = option(
        (), "texts for the teacher to label", flag=False, python="Files: lines, or tables with the task's columns"
    )
    changes: JsonMap | None = option(None, "Spec fields over a named student's", flag=False)
    copy_layers: bool = option(False, "start a named student from the teacher's layers")
    masking: JsonMap | None = option(
        None,
        "on records, settings of the masked LM as json",
        metavar='{"rate":0.2}',
        read=json.loads,
        python="A dict, or the settings themselves",
    )


def find_recipe(
    recipe: str | Distillation,
    losses: Mapping[str, float] | None = None,
    temperature: float | None = None,
    layers: Sequence[int] | None = None,
) -> Distillation:
    """The recipe of that name, with other losses, temperature or layers where given."""
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            raise unknown("recipe", recipe, RECIPES, ", ".join(RECIPES))
        recipe = RECIPES[recipe]
    given = {"losses": losses, "temperature": temperature, "layers": layers}
    return dataclasses.replace(recipe, **{name: value for name, value in given.items() if value is not None})


def check_taught(kind: str, taught: Collection[str], losses: Collection[str]) -> None:
    """Refuse a kind whose answers no student can be taught, or not by these losses; `taught`: those that go with it."""
    if not taught:
        raise InputError(f"a student cannot be taught the answers of a {kind}: fine-tune the student itself")
    told = f"the loss soft compares classes, the teacher's task is a {kind}: take logits (--loss logits=1)"
    if "soft" in losses and "soft" not in taught:
        raise InputError(told)


def layer_map(student: int, teacher: int, layers: Sequence[int] | None = None) -> tuple[int, ...]:
    """The teacher's layer, from 1, for each of the student's.

    >>> layer_map(4, 12), layer_map(4, 6), layer_map(2, 1)
    ((3, 6, 9, 12), (2, 3, 5, 6), (1, 1))

    Args:
        layers: the map to check; None for the even one.

    Raises:
        InputError: not one entry per layer of the student, or one that the teacher does not have.
    """
    if layers is None:
        return tuple(-(-m * teacher // student) for m in range(1, student + 1))
    if len(layers) != student:
        raise InputError(f"layers has {len(layers)} entries, expected one for each of the student's {student} layers")
    wrong = [layer for layer in layers if type(layer) is not int or not 1 <= layer <= teacher]
    if wrong:
        raise InputError(f"layers names the teacher's layer {wrong[0]!r}, which has layers 1 to {teacher}")
    return tuple(layers)


def spread(kept: int, layers: int) -> tuple[int, ...]:
    """Which layers, from 0, a copy with fewer layers takes: evenly spaced, first and last among them.

    The released DistilBERT took these of BERT's twelve (scripts/extract_distilbert.py):

    >>> spread(6, 12)
    (0, 2, 4, 7, 9, 11)

    Raises:
        InputError: more layers than there are, or none.
    """
    if not 1 <= kept <= layers:
        raise InputError(f"a student of {kept} layers, expected 1 to {layers}, the teacher's")
    return tuple(round(i * (layers - 1) / max(1, kept - 1)) for i in range(kept))
