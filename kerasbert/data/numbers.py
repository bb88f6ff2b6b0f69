"""Numbers as tables of people write them: 4.5, and 4,5 where Excel has a decimal comma. Standard library only."""

import math
import re
from typing import SupportsFloat

from kerasbert.data.dialects import say
from kerasbert.errors import InputError

COMMA = re.compile(r"([+-]?)(\d*),(\d+)")  # a single comma between digits: decimals, or thousands


def parsed(value: object) -> float:
    """The number that a cell holds, NaN where it is none; of `4,5` with a decimal comma.

    >>> parsed("4,5"), parsed(" -0,125"), parsed(3), parsed("1,2,3")
    (4.5, -0.125, 3.0, nan)
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        return float(text) if isinstance(text, str | bytes | SupportsFloat) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def doubtful(value: object) -> bool:
    """Whether the comma of a number may be of thousands too.

    >>> doubtful("1,234"), doubtful("0,234"), doubtful("1,23"), doubtful("1234,567")
    (True, False, False, False)
    """
    found = COMMA.fullmatch(value.strip()) if isinstance(value, str) else None
    return found is not None and len(found[3]) == 3 and 1 <= len(found[2]) <= 3 and found[2][0] != "0"


def number(value: object, source: object, where: str) -> float:
    """`parsed`, and a line for the user where it has a decimal comma.

    Args:
        source: what is told of: a file, or rows in memory. where: the source and the line, of an error.

    Raises:
        InputError: a comma that is of decimals or of thousands.
    """
    if isinstance(value, str) and COMMA.fullmatch(value.strip()):
        text = value.strip()
        if doubtful(text):
            raise InputError(
                f"{where}: {text!r} is {text.replace(',', '.')} with a decimal comma, or {text.replace(',', '')} with one of "
                "thousands: write it in the whole column with a point, or without a comma"
            )
        say(f"{source}: numbers with a comma, as 4,5, are read as decimals")
    return parsed(value)
