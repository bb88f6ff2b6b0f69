"""How a model writes: greedily, by beams, or by drawing tokens. Settings alone; the search itself is `answers.search` (numpy, for
one text) and `layers.search` (a graph, for a batch), which give the same tokens.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from kerasbert.errors import InputError

_NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("length_penalty", lambda x: True, "a number"),
    ("coverage_penalty", lambda x: x >= 0, "a number of at least 0"),
    ("repetition_penalty", lambda x: x > 0, "a number above 0"),
    ("temperature", lambda x: x > 0, "a number above 0, or None for none: greedy decoding has no temperature"),
    ("top_p", lambda x: 0 < x <= 1, "a number above 0 and at most 1"),
)
_WHOLE = {"max_new_tokens": 1, "min_new_tokens": 0, "beams": 1, "top_k": 1, "seed": 0}
_WHOLE |= {"forced_bos_token_id": 0, "forced_eos_token_id": 0}
_NOT_NEEDED = ("top_k", "forced_bos_token_id", "forced_eos_token_id")


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Which of the texts that a model could write is taken.

    With none of `beams`, `temperature`, `top_k` and `top_p` it is the most probable token at each step (greedy). Where one of
    the last three is given, tokens are drawn.

    Args:
        max_new_tokens: int, tokens that are written at most, the end among them, whatever stands before.
        min_new_tokens: int, tokens before the end.
        beams: int, texts that are kept at each step.
        length_penalty: float, of beams: log-probabilities are divided by (tokens written) ** length_penalty, so that more than
            0 favours longer texts (as transformers; Wu et al., 2016, equation 14, has (5 + tokens) / 6).
        coverage_penalty: float, of beams in models with a source: Wu et al. (2016, equation 14)'s beta, for tokens of the
            source that were attended to by less than 1 in all.
        temperature: float, logits are divided by it; 1 where tokens are drawn and nothing is said.
        top_k: int, only the k most probable tokens are drawn (Fan et al., 2018, section 5.4).
        top_p: float, only the most probable tokens that together reach this probability (Holtzman et al., 2020, section 3.1),
            of those that `top_k` leaves.
        repetition_penalty: float, what logits of tokens that occur already are divided by, those below 0 multiplied (Keskar et
            al., 2019, section 4.1); the prompt and the start token count.
        seed: int, of the numbers that tokens are drawn by. They depend on it, on the text's number and on the step alone.
        forced_bos_token_id: int, what the first new token must be, as a checkpoint's config.json has it (0 of
            facebook/bart-large-cnn; the language of mBART).
        forced_eos_token_id: int, what token number `max_new_tokens` must be, where a text comes so far.

    Forced tokens count nothing in the score of beams, as in transformers.

    Raises:
        InputError: a number that makes no sense.
    """

    max_new_tokens: int = 64
    min_new_tokens: int = 0
    beams: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None

    def __post_init__(self):
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if (type(value) is not int or value < least) and not (name in _NOT_NEEDED and value is None):
                raise InputError(f"{name} must be a whole number of at least {least}. Received: {value!r}")
        for name, fits, expected in _NUMBERS:
            value = getattr(self, name)
            known = (
                isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and fits(value)
            )
            if not known and not (name in ("temperature", "top_p") and value is None):
                raise InputError(f"{name} must be {expected}. Received: {value!r}")
        if self.min_new_tokens >= self.max_new_tokens:
            raise InputError(
                f"min_new_tokens is {self.min_new_tokens}, expected less than max_new_tokens, {self.max_new_tokens}"
            )
        if self.beams > 1 and self.draws:
            raise InputError(
                f"beams is {self.beams} and temperature, top_k or top_p is given: tokens are drawn for one text at a time, "
                "leave out the one or the other"
            )

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn."""
        return not self.temperature == self.top_k == self.top_p == None  # noqa: E711

    @property
    def forced(self) -> dict[int, int]:
        """Step -> the token that must be taken there."""
        ends = {self.max_new_tokens - 1: self.forced_eos_token_id, 0: self.forced_bos_token_id}
        return {step: token for step, token in ends.items() if token is not None}

    def check(self, vocabulary: int, longest: int | None = None, prompt: int = 1) -> None:
        """Refuse what a model cannot do.

        Args:
            vocabulary: int V.
            longest: int, tokens that the writing stack has positions for, or None for any number.
            prompt: int, tokens that stand before the first new one: the longest prompt's, 1 for a start token.

        Raises:
            InputError: more beams than tokens, an empty prompt, or one that leaves no room.
        """
        if self.beams > vocabulary:
            raise InputError(f"beams is {self.beams}, expected at most the vocabulary's {vocabulary} tokens")
        for token in self.forced.values():
            if token >= vocabulary:
                raise InputError(f"the forced token {token} is none of the vocabulary's {vocabulary} tokens")
        if prompt < 1:
            raise InputError("the prompt has no tokens, expected at least one: give a text to go on from")
        if longest is not None and prompt >= longest:
            raise InputError(
                f"the prompt has {prompt} tokens, expected less than the model's {longest} positions: shorten it"
            )
        if longest is not None and prompt + self.max_new_tokens > longest + 1:
            raise InputError(
                f"the prompt has {prompt} tokens and max_new_tokens is {self.max_new_tokens}, expected at most the model's "
                f"{longest} positions and one more together: shorten the prompt, or set max_new_tokens to "
                f"{longest + 1 - prompt}"
            )


def grown(state: dict[str, Any], places: int) -> dict[str, Any]:
    """A state (`layers.cache`) with more places: numpy arrays `key_0`, `value_0`, ... [B, N, T, D] -> [B, N, `places`, D]."""
    import numpy as np

    def wider(name, value):
        if not name.startswith(("key_", "value_")):
            return value
        more = np.zeros((*value.shape[:2], places, value.shape[3]), value.dtype)
        more[:, :, : value.shape[2]] = value
        return more

    return {name: wider(name, value) for name, value in state.items()}
