"""What the options of mining may be, told before TensorFlow is imported."""

from typing import Any

from kerasbert.errors import InputError
from kerasbert.value_types import check_whole

MOST = 1000  # negatives of a row


def check(negatives: Any, range_min: Any, range_max: Any, margin: Any, max_score: Any) -> None:
    """Refuse options by which nothing is mined.

    Raises:
        InputError: of one line.
    """
    for name, value, least in (("negatives", negatives, 1), ("range_min", range_min, 0), ("range_max", range_max, 1)):
        if value is not None or name != "range_max":
            check_whole(name, value, least)
    if negatives > MOST:
        raise InputError(f"negatives must be at most {MOST:,}, of one row. Received: {negatives}")
    if range_max is not None and range_max - range_min < negatives:
        raise InputError(
            f"from range_min {range_min} to range_max {range_max} are {max(0, range_max - range_min)} texts, expected at least "
            f"{negatives} (negatives)"
        )
    for name, value in (("margin", margin), ("max_score", max_score)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not -2 <= value <= 2
        ):
            raise InputError(f"{name} must be a difference of cosines or a cosine, such as 0.1. Received: {value!r}")
