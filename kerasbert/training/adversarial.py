"""Ways of fine-tuning that ask for the same answer nearby: the settings of each, with its paper's values.

No TensorFlow: `training.perturbed` computes them.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from kerasbert import spec as specs
from kerasbert.errors import InputError, near, unknown
from kerasbert.storage.json_view import Json

PREFIX = "adversarial."  # before the names of settings, among the changes


class Way:
    """A way of training. Its subclasses are frozen dataclasses of numbers.

    Attributes:
        least: setting -> the smallest value allowed, where that is not any number above 0.
        perturbs: bool, whether it adds something to the word embeddings.
    """

    least: ClassVar[Mapping[str, int]] = {"steps": 1}
    perturbs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value in specs.to_dict(self).items():
            least = self.least.get(name)
            if value <= 0 if least is None else value < least:
                bound = "more than 0" if least is None else f"at least {least}"
                raise InputError(f"{PREFIX}{name} must be {bound}. Received: {value}")


@dataclasses.dataclass(frozen=True)
class Smart(Way):
    """SMART (Jiang et al., 2020, algorithm 1 and section 5.1, "Implementation Details").

    Args:
        weight: lambda_s of the smoothness-inducing regularizer (equation 1); the paper tries 1, 3 and 5.
        proximal: mu of the Bregman proximal point with momentum (equation 6); 0 for none.
        steps: projected gradient ascents. step_size: eta of each.
        radius: epsilon, largest change of a number of a word embedding.
        noise: sigma, standard deviation of the change that the ascent begins with.
    """

    least: ClassVar[Mapping[str, int]] = {"steps": 1, "proximal": 0}
    weight: float = 1.0
    proximal: float = 1.0
    steps: int = 1
    step_size: float = 1e-3
    radius: float = 1e-5
    noise: float = 1e-5


@dataclasses.dataclass(frozen=True)
class FreeLB(Way):
    """FreeLB (Zhu et al., 2020, algorithm 1); the values of its authors' script for SST-2.

    Args:
        steps: K, ascents of an update, each of which gives a K-th of its gradient. step_size: alpha of each.
        radius: epsilon, largest norm of what is added to a row's word embeddings.
    """

    least: ClassVar[Mapping[str, int]] = {"steps": 2}  # the first pass is at a random place: there would be no ascent
    steps: int = 3
    step_size: float = 0.1
    radius: float = 0.6


@dataclasses.dataclass(frozen=True)
class Vat(Way):
    """Virtual adversarial training on word embeddings (Miyato et al., 2017, section 3; 2018, algorithm 1).

    Args:
        weight: of the loss beside the task's.
        steps: power iterations. noise: xi, length of the step of which they take the difference.
        radius: epsilon, norm of what is added to a row's normalised word embeddings.
    """

    weight: float = 1.0
    steps: int = 1
    noise: float = 0.1
    radius: float = 5.0


@dataclasses.dataclass(frozen=True)
class RDrop(Way):
    """R-Drop (Liang et al., 2021, section 2.1).

    Args:
        weight: alpha of the divergence between the two passes; for GLUE the paper tries 0.1, 0.5 and 1.
    """

    perturbs: ClassVar[bool] = False
    weight: float = 1.0


WAYS: Mapping[str, type[Way]] = {"smart": Smart, "freelb": FreeLB, "vat": Vat, "r_drop": RDrop}


def parted(changes: Mapping[str, object] | None) -> tuple[Json, Json]:
    """Settings at dotted paths -> the others, and by their names those of the way of training.

    >>> parted({"dropout": 0.2, "adversarial.steps": 2})
    ({'dropout': 0.2}, {'steps': 2})
    """
    others = {path: value for path, value in (changes or {}).items() if not path.startswith(PREFIX)}
    own = {path.removeprefix(PREFIX): value for path, value in (changes or {}).items() if path not in others}
    return others, own


def way(name: str | None, changes: Mapping[str, object] | None, precision: str = "float32") -> Way | None:
    """The way of that name with the settings among the changes; None where none is asked for.

    Raises:
        InputError: no such way or setting, settings of none, a value out of range, a precision in which the changes are lost.
    """
    settings = parted(changes)[1]
    if name is None:
        if settings:
            raise InputError(f"{PREFIX}{next(iter(settings))} is a setting of --adversarial, which is not given")
        return None
    if name not in WAYS:
        raise unknown("adversarial", name, WAYS, ", ".join(WAYS))
    known = specs.paths(WAYS[name])
    for setting in settings:
        if setting not in known:
            raise InputError(f"adversarial {name!r} has no setting {setting!r}. {near(setting, known)}")
    made = WAYS[name](**{key: specs.check(PREFIX + key, value, known[key]) for key, value in settings.items()})
    if made.perturbs and precision.startswith("mixed"):
        raise InputError(
            f"adversarial {name!r} changes word embeddings by less than {precision} resolves, expected --precision float32"
        )
    return made
