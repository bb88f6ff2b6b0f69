"""How a model writes: greedily, by beams, or by drawing tokens. Settings alone; the search itself is `answers.beam_search`
(numpy, for one text) and `layers.beam_search` (a graph, for a batch), which give the same tokens.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.value_types import check_whole

_NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("length_penalty", lambda x: True, "a number"),
    ("coverage_penalty", lambda x: x >= 0, "a number of at least 0"),
    ("repetition_penalty", lambda x: x > 0, "a number above 0"),
    ("temperature", lambda x: x > 0, "a number above 0, or None for none: greedy decoding has no temperature"),
    ("top_p", lambda x: 0 < x <= 1, "a number above 0 and at most 1"),
)
_WHOLE = {"max_new_tokens": 1, "min_new_tokens": 0, "beams": 1, "top_k": 1, "seed": 0}
_WHOLE |= {"no_repeat_ngram_size": 0, "num_return_sequences": 1}
_WHOLE |= {"forced_bos_token_id": 0, "forced_eos_token_id": 0}
_TOKENS = ("suppress_tokens", "begin_suppress_tokens")
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
        early_stopping: of beams, when a text is done. None or False: when its best unfinished text would score less than its
            worst finished one if it ended here. True: also when there are as many finished texts as beams. "never": when no
            longer text could score more (as transformers).
        no_repeat_ngram_size: int n, no n tokens in a row occur twice (Paulus et al., 2017, section 2.5); 0 for any. The prompt
            and the start token count.
        suppress_tokens: ids that are never written. begin_suppress_tokens: that are not written first (not after a forced one).
        bad_words_ids: lists of ids, none of which is written as a whole; one of the end alone does not count.
        num_return_sequences: int, texts that an answer has, best first: as many as `beams` at most, or that many are drawn.

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
    early_stopping: bool | str | None = None
    no_repeat_ngram_size: int = 0
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()
    bad_words_ids: Sequence[Sequence[int]] = ()
    num_return_sequences: int = 1

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if value is not None or name not in _NOT_NEEDED:
                check_whole(name, value, least)
        for name, fits, expected in _NUMBERS:
            value = getattr(self, name)
            known = (
                isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and fits(value)
            )
            if not known and not (name in ("temperature", "top_p") and value is None):
                raise InputError(f"{name} must be {expected}. Received: {value!r}")
        self._check_tokens()
        if self.early_stopping not in (None, False, True, "never"):
            raise InputError(f"early_stopping must be true, false or never. Received: {self.early_stopping!r}")
        if self.num_return_sequences > (1 if self.beams == 1 else self.beams) and not self.draws:
            raise InputError(
                f"num_return_sequences is {self.num_return_sequences}, expected at most beams, {self.beams}, or tokens that are "
                "drawn (temperature, top_k or top_p)"
            )
        if self.min_new_tokens >= self.max_new_tokens:
            raise InputError(
                f"min_new_tokens is {self.min_new_tokens}, expected less than max_new_tokens, {self.max_new_tokens}"
            )
        if self.beams > 1 and self.draws:
            raise InputError(
                f"beams is {self.beams} and temperature, top_k or top_p is given: tokens are drawn for one text at a time, "
                "leave out the one or the other"
            )

    def _check_tokens(self) -> None:
        """Refuse lists that are none of ids."""
        lists = [(name, getattr(self, name)) for name in _TOKENS]
        for name, value in [*lists, *(("bad_words_ids", each) for each in _lists(self.bad_words_ids))]:
            if (
                not isinstance(value, list | tuple)
                or any(type(token) is not int or token < 0 for token in value)
                or (name == "bad_words_ids" and not value)
            ):
                raise InputError(f"{name} must be of whole numbers of at least 0. Received: {value!r:.60}")

    def banned(self, end_id: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Tokens that are never written, and longer sequences of which the last token is not."""
        words = [tuple(word) for word in self.bad_words_ids]
        alone = {word[0] for word in words if len(word) == 1 and word[0] != end_id} | set(self.suppress_tokens)
        return tuple(sorted(alone)), tuple(word for word in words if len(word) > 1)

    @property
    def begin(self) -> int:
        """The step before which nothing is chosen freely."""
        return int(self.forced_bos_token_id is not None)

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
        listed = [
            *self.suppress_tokens,
            *self.begin_suppress_tokens,
            *(each for word in self.bad_words_ids for each in word),
        ]
        if listed and max(listed) >= vocabulary:
            raise InputError(f"the suppressed token {max(listed)} is none of the vocabulary's {vocabulary} tokens")
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


def _lists(value: object) -> Sequence[Sequence[int]]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, list | tuple) for each in value):
        raise InputError(f"bad_words_ids must be a list of lists of ids. Received: {value!r:.60}")
    return value


def grown(state: dict[str, Tensor], places: int) -> dict[str, Tensor]:
    """A state (`layers.cache`) with more places: numpy arrays `key_0`, `value_0`, ... [B, N, T, D] -> [B, N, `places`, D]."""
    import numpy as np

    def wider(name: str, value: Tensor) -> np.ndarray:
        if not name.startswith(("key_", "value_")):
            return value
        more = np.zeros((*value.shape[:2], places, value.shape[3]), value.dtype)
        more[:, :, : value.shape[2]] = value
        return more

    return {name: wider(name, value) for name, value in state.items()}
