"""Decoding in numpy: one text, token after token, around whatever computes a step. `layers.beam_search` is the same as a graph.

On a phone the step is a program of a .tflite file; `Step` says what it is asked.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from kerasbert.answers.decoding import Decoding

NEVER = np.float32(-1e9)  # a log-probability
FEW = 1024  # tokens, of which p is reached as a rule
_WORD, _GOLDEN, _SECOND, _FIRST = 0xFFFFFFFF, 0x9E3779B9, 0x846CA68B, 0x7FEB352D


class Step(Protocol):
    """What computes a step, and keeps the states of the texts that are being written."""

    def __call__(self, token_ids: np.ndarray, column: int, origin: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Which token follows, of each text.

        Args:
            token_ids: int32 [R], each text's token at this place.
            column: int, the place.
            origin: int32 [R], of which text of the last call each one is the continuation; a text may have several or none.
                At the first call there is one text, 0.

        Returns:
            (logits float32 [R, V], coverage float32 [R, S]: how much of each real token of the source has been attended to
            by now, or None where the program does not say).
        """
        ...


def search(
    step: Step, prompt: Sequence[int], decoding: Decoding, *, end_id: int, row: int = 0
) -> tuple[list[int], float]:
    """What a model writes after a prompt: the best of `searched`."""
    return searched(step, prompt, decoding, end_id=end_id, row=row)[0]


def searched(
    step: Step, prompt: Sequence[int], decoding: Decoding, *, end_id: int, row: int = 0
) -> list[tuple[list[int], float]]:
    """The texts that a model writes after a prompt, `num_return_sequences` of them.

    Args:
        step: as `Step`.
        prompt: the tokens that stand there, or the start token alone. It goes on from the last one, which is a step's.
        decoding: Decoding.
        end_id: int.
        row: int, the text's number, which drawn tokens depend on.

    Returns:
        of each the new tokens, with the end where it was reached; their score, as `layers.beam_search.generate` has it.
    """
    if decoding.beams > 1:
        return _beams(step, list(prompt), decoding, end_id)[: decoding.num_return_sequences]
    *_, found = growing(step, prompt, decoding, end_id=end_id, row=row)
    return found


def growing(
    step: Step, prompt: Sequence[int], decoding: Decoding, *, end_id: int, row: int = 0
) -> Iterator[list[tuple[list[int], float]]]:
    """What `searched` gives of texts that do not compete (one, or several that are drawn), after each token."""
    seen, column, count = list(prompt), len(prompt) - 1, decoding.num_return_sequences
    texts: list[list[int]] = [[] for _ in range(count)]
    going, origin, scores = list(range(count)), np.zeros(count, "int32"), np.zeros(count, "float32")
    for t in range(decoding.max_new_tokens):
        last = np.array([texts[i][-1] if t else seen[-1] for i in going], "int32")
        logits = step(last, column + t, origin)[0]
        adjusted, gained = (
            _adjusted(logits, [seen + texts[i] for i in going], t, decoding, end_id),
            _log_softmax(logits),
        )
        for i, x, each in zip(going, adjusted, gained):
            token = _drawn(x, decoding, row * count + i, t) if decoding.draws else int(x.argmax())
            scores[i] += each[token]
            texts[i].append(token)
        yield list(zip(texts, map(float, scores)))
        places = [place for place, i in enumerate(going) if texts[i][-1] != end_id]
        going, origin = [going[place] for place in places], np.array(places, "int32")
        if not going:
            return


def _beams(step: Step, seen: list[int], decoding: Decoding, end_id: int) -> list[tuple[list[int], float]]:
    """See `layers.beam_search`; a beam is a list of tokens here, and only those that there are."""
    column, count, length = len(seen) - 1, decoding.beams, decoding.max_new_tokens
    running, origin, scores, ended = [[]], np.zeros(1, "int32"), np.zeros(1, "float32"), []
    for t in range(length):
        last = np.array([ids[-1] if ids else seen[-1] for ids in running], "int32")
        logits, coverage = step(last, column + t, origin)
        x = _adjusted(_log_softmax(logits), [seen + ids for ids in running], t, decoding, end_id)
        total = (x + scores[:, None]).reshape(-1)
        best = _largest(total, min(2 * count, len(total)))
        longer = np.float32(t + 1) ** np.float32(decoding.length_penalty)
        covered = np.zeros(len(running), "float32")
        if coverage is not None and decoding.coverage_penalty:
            covered = np.log(np.clip(coverage, np.float32(1e-9), 1)).sum(axis=-1) * np.float32(
                decoding.coverage_penalty
            )
        going = []
        for rank, index in enumerate(best):
            beam, token = divmod(int(index), x.shape[1])
            ids = running[beam] + [token]
            if token != end_id and t + 1 < length:
                going.append((total[index], beam, ids))
            elif rank < count:
                ended.append((total[index] / longer + covered[beam], ids))
        # stable: of equal scores the earlier text stays in front
        ended = sorted(ended, key=lambda each: -each[0])[:count]
        going = going[:count]
        full = len(ended) == count
        if not going or (
            full and (decoding.early_stopping is True or going[0][0] / _most(decoding, t) <= ended[-1][0])
        ):
            break
        scores = np.array([score for score, _, _ in going], "float32")
        origin, running = np.array([beam for _, beam, _ in going], "int32"), [ids for _, _, ids in going]
    return [(ids, float(score)) for score, ids in ended]


def _most(decoding: Decoding, step: int) -> np.float32:
    """What the score of an unfinished text is divided by for the best that it could become."""
    longest = decoding.early_stopping == "never" and decoding.length_penalty > 0
    return np.float32(decoding.max_new_tokens if longest else step + 1) ** np.float32(decoding.length_penalty)


def _largest(x: np.ndarray, count: int) -> np.ndarray:
    """The places of the largest numbers, in order; of equal ones the first."""
    least = np.partition(x, len(x) - count)[len(x) - count]
    among = np.flatnonzero(x >= least)
    return among[np.argsort(-x[among], kind="stable")][:count]


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _adjusted(x: np.ndarray, seen: list[list[int]], step: int, decoding: Decoding, end_id: int) -> np.ndarray:
    """Logits or log-probabilities [R, V] after the penalty, without an end that comes too early and with forced tokens."""
    if step in decoding.forced:
        x = np.full_like(x, -np.inf)
        x[:, decoding.forced[step]] = 0
        return x
    penalty = np.float32(decoding.repetition_penalty)
    x = np.array(x, "float32")
    if penalty != 1:
        for each, ids in zip(x, seen):
            known = np.unique(ids)
            each[known] = np.where(each[known] < 0, each[known] * penalty, each[known] / penalty)
    if step < decoding.min_new_tokens:
        x[:, end_id] = -np.inf
    alone, longer = decoding.banned(end_id)
    x[:, list(alone)] = -np.inf
    if step == decoding.begin:
        x[:, list(decoding.begin_suppress_tokens)] = -np.inf
    for each, ids in zip(x, seen):
        size = decoding.no_repeat_ngram_size
        if size:
            last = ids[len(ids) - size + 1 :]
            starts = range(len(ids) - size + 1)
            each[[ids[i + size - 1] for i in starts if ids[i : i + size - 1] == last]] = -np.inf
        each[
            [word[-1] for word in longer if len(word) <= len(ids) and ids[1 - len(word) :] == list(word[:-1])]
        ] = -np.inf
    return x


def _drawn(x: np.ndarray, decoding: Decoding, row: int, step: int) -> int:
    """The largest of logit + Gumbel noise, among those that may be drawn: [V] -> int. See `layers.random.sample`."""
    x = x / np.float32(decoding.temperature or 1)
    ids = np.flatnonzero(x >= _least(x, decoding))
    # the number of a token depends on its id alone: those that cannot be drawn need none
    uniform = (
        (bits(key(decoding.seed, row, step), ids) >> np.uint32(1)).astype("float32") + np.float32(0.5)
    ) * np.float32(2**-31)
    with np.errstate(divide="ignore"):
        return int(ids[(x[ids] - np.log(-np.log1p(-uniform))).argmax()])


def _least(x: np.ndarray, decoding: Decoding) -> np.ndarray:
    """The smallest logit that may be drawn, of [V]."""
    count, top_p = min(decoding.top_k or len(x), len(x)), decoding.top_p
    if top_p is None or top_p == 1:
        return np.partition(x, len(x) - count)[len(x) - count]
    among = x if count == len(x) else x[_largest(x, count)]
    total = np.exp(among - among.max()).sum()
    # sorting all of a large vocabulary takes longer than a step
    for some in sorted({min(FEW, count), count}):
        best = among[_largest(among, some)]
        each = np.exp(best - best[0]) / total
        before = np.cumsum(each) - each
        if before[-1] >= top_p:
            break
    return best[before < np.float32(top_p)][-1]


def key(*words: int) -> tuple[int, int]:
    """`layers.random.key` of numbers from 0 on: a key of two words."""
    low, high = _GOLDEN, 0x243F6A88
    for word in words:
        for i in range(max(1, (int(word).bit_length() + 31) // 32)):
            part = int(word) >> 32 * i & _WORD
            low = _mix((low ^ part) + _GOLDEN & _WORD)
            high = _mix(high + part & _WORD ^ low)
    return low, high


def _mix(x: int) -> int:
    x = (x ^ x >> 16) * _FIRST & _WORD
    x = (x ^ x >> 15) * _SECOND & _WORD
    return x ^ x >> 16


def bits(key: tuple[int, int], element: np.ndarray) -> np.ndarray:
    """`layers.random.bits` at some elements: int [E] -> uint32 [E]."""
    low, high = (np.uint32(word) for word in key)
    with np.errstate(over="ignore"):
        x = element.astype("uint32") * np.uint32(_GOLDEN) + low
        x = (x ^ x >> np.uint32(16)) * np.uint32(_FIRST) + high
        x = (x ^ x >> np.uint32(15)) * np.uint32(_SECOND)
    return x ^ x >> np.uint32(16)
