"""Rules by weight path: which weights decay, and with what share of the learning rate each is trained, and from when."""

import math
import re
from collections.abc import Sequence

from kerasbert.errors import InputError

CRF = r"(^|/)heads/crf/"  # scores of labels: in kind biases, which start at 0
# weights whose learning rate is a multiple: at the rate of an encoder a table would not get anywhere, and over a frozen one a
# hundred times its rate is best too (guides/entities.md has the figures)
FASTER = ((CRF, 100.0),)
# biases and layer norms (Devlin et al.'s code, AdamWeightDecayOptimizer)
NOT_DECAYED = (r"(^|/)(bias|gamma|beta)$", CRF)


def faster(paths: Sequence[str]) -> list[float]:
    """What the learning rate of each weight is multiplied by.

    >>> faster(["heads/crf/transitions", "block_0/query/kernel"])
    [100.0, 1.0]
    """
    return [math.prod((by for pattern, by in FASTER if re.search(pattern, path)), start=1.0) for path in paths]


def decayed(paths: Sequence[str], patterns: Sequence[str] | None = None) -> list[bool]:
    """Which weights have decay: those in whose path no pattern is found.

    >>> decayed(["block_0/query/kernel", "block_0/query/bias"])
    [True, False]

    Raises:
        InputError: a pattern that is no regular expression, or is in no path.
    """
    found = [compiled("not_decayed", pattern) for pattern in (NOT_DECAYED if patterns is None else patterns)]
    for pattern in found if patterns is not None else ():
        if not any(pattern.search(path) for path in paths):
            raise InputError(f"not_decayed: {pattern.pattern!r} is in no weight's path, such as {paths[0]!r}")
    return [not any(pattern.search(path) for pattern in found) for path in paths]


def compiled(option: str, pattern: str) -> re.Pattern:
    """A pattern over weights' paths, as the option of that name has it.

    Raises:
        InputError: it is no regular expression.
    """
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InputError(f"{option}: {pattern!r} is not a regular expression: {error}") from error


def check_patterns(option: str, patterns: object) -> None:
    """Refuse what is no list of regular expressions."""
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        raise InputError(f"{option} must be a list of regular expressions. Received: {patterns!r}")
    for pattern in patterns:
        compiled(option, pattern)


def layer_factors(paths: Sequence[str], decay: float) -> list[float]:
    """Factors of the learning rate: decay^(layers below the top), 1 for heads and pooler.

    The block nearest to the heads has decay, each below it one factor more, the embeddings the last (Howard and Ruder, 2018,
    section 3.2, "discriminative fine-tuning"; Clark et al., 2020, appendix B, 0.8 or 0.9. Differs: Clark et al.'s code
    counts the pooler as a layer, one factor more below it).

    >>> layer_factors(["embeddings/table", "block_0/kernel", "block_1/kernel", "heads/bias"], 0.5)
    [0.125, 0.25, 0.5, 1.0]
    """
    return [1.0] * len(paths) if decay == 1.0 else [float(decay) ** depth for depth in _depths(paths, "layer_decay")]


def starts(paths: Sequence[str], every: int) -> list[int]:
    """Updates before a weight is trained, where every `every` of them one layer more is: heads and pooler first.

    Then the block nearest to them and so on, the embeddings last (Howard and Ruder, 2018, section 3.3, "gradual
    unfreezing", an epoch a layer). Blocks that share weights are one layer.

    >>> starts(["embeddings/table", "block_0/kernel", "block_1/kernel", "heads/bias"], 100)
    [300, 200, 100, 0]
    """
    return [0] * len(paths) if not every else [every * depth for depth in _depths(paths, "unfreeze")]


def _depths(paths: Sequence[str], option: str) -> list[int]:
    """Layers from the top: 0 for heads and pooler, the last for the embeddings.

    Raises:
        InputError: there are no blocks, which the option needs.
    """
    blocks = [int(found[1]) if (found := re.search(r"(?:^|/)block_(\d+)/", path)) else None for path in paths]
    layers = 1 + max((block for block in blocks if block is not None), default=-1)
    if not layers:
        raise InputError(f"{option} needs a model of blocks: none of its weights is in a block_0")

    def depth(path: str, block: int | None) -> int:
        if block is not None:
            return layers - block
        return layers + 1 if re.search(r"(^|/)embeddings[^/]*/", path) else 0

    return [depth(path, block) for path, block in zip(paths, blocks)]
