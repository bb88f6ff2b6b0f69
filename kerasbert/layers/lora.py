"""Low-rank adaptation of linear maps (Hu et al., 2021): which of them are given an A and a B when they are built."""

import contextlib
import contextvars
import re
from collections.abc import Iterator

from kerasbert.adaptation import Lora
from kerasbert.errors import InputError, near
from kerasbert.within import within

_asked: "contextvars.ContextVar[_Asked | None]" = contextvars.ContextVar("lora", default=None)


class _Asked:
    """What is asked for while an encoder is built, and which maps there were."""

    def __init__(self, lora: Lora, folder: str) -> None:
        self.lora, self.folder = lora, folder
        self.seen: set[str] = set()


@contextlib.contextmanager
def asked(lora: Lora, folder: str) -> Iterator[None]:
    """Within it, the maps that the Spec names are built with a low-rank update.

    Args:
        lora: of the Spec.
        folder: path of the encoder that is built.

    Raises:
        InputError: a target that no map of the encoder has; the nearest is named.
    """
    built = _Asked(lora, folder)
    with within(_asked, built):
        yield
    seen = built.seen
    for target in lora.targets if lora.rank else ():
        if not seen & {target} and target not in map(without_numbers, seen):
            raise InputError(
                f"lora.targets: no linear map {target!r}. {near(target, seen)}. All: {', '.join(sorted(seen))}"
            )


def settings_of(path: str, shape: tuple[int, int]) -> tuple[int, float] | None:
    """Rank and scale of the map at a path that is being built; None where it is not adapted.

    Raises:
        InputError: the rank is above what the matrix can have.
    """
    built = _asked.get()
    if built is None or not built.lora.rank:
        return None
    lora, target = built.lora, target_of(path.removeprefix(f"{built.folder}/"))
    built.seen.add(target)
    if target not in lora.targets and without_numbers(target) not in lora.targets:
        return None
    if lora.rank > min(shape):
        raise InputError(
            f"lora.rank is {lora.rank}, expected at most {min(shape)}: {target} is a matrix of {shape[0]} x {shape[1]}"
        )
    return lora.rank, lora.scale


def target_of(layer: str) -> str:
    """The path of a layer in its block, of either stack, or in the model where it is in none.

    >>> target_of("block_3/attention/query"), target_of("decoder/block_3/cross_attention/query")
    ('attention.query', 'cross_attention.query')
    """
    return re.sub(r"^(?:(?:encoder|decoder)/)?block_\d+/", "", layer).replace("/", ".")


def without_numbers(target: str) -> str:
    """The path of a layer of which a block has several.

    >>> without_numbers("feedforward_0.inner")
    'feedforward.inner'
    """
    return re.sub(r"_\d+(?=\.|$)", "", target)
