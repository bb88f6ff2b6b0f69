"""How many of the texts that became vectors lost tokens: counted where vectors alone are given, told by whoever asks."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator

from kerasbert.within import within


@dataclasses.dataclass
class Truncated:
    """How many of the texts that became vectors lost tokens.

    Args:
        count: int, of them, among `texts`. longest: int, tokens that a text may have.
    """

    count: int = 0
    texts: int = 0
    longest: int = 0

    def told(self) -> list[str]:
        """What a user cannot see in the vectors, in no line or one."""
        few = "1 text has" if self.texts == 1 else f"{self.count} of {self.texts} texts have"
        return [f"{few} more than {self.longest} tokens: truncated"] if self.count else []


_counting: contextvars.ContextVar[tuple[Truncated, ...]] = contextvars.ContextVar("truncated", default=())


@contextlib.contextmanager
def truncated() -> Iterator[Truncated]:
    """Within it the texts of all that gives vectors alone (`kb.encode`, `Runner.outputs`) are counted."""
    found = Truncated()
    with within(_counting, (*_counting.get(), found)):
        yield found


def count_truncated(count: int, texts: int, longest: int) -> None:
    """Add to what is counted."""
    for each in _counting.get():
        each.count, each.texts, each.longest = each.count + count, each.texts + texts, longest
