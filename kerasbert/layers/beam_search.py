"""Decoding in a graph: a batch of texts, token after token, in one loop of fixed shapes. `answers.beam_search` is it in numpy.

Rows do not touch each other: what is written for a text does not depend on the texts beside it.

keras-hub's samplers are not used: keras-hub is no dependency, their beams take neither a length penalty nor a least length, their
random numbers depend on the batch, and they compute the state of finished rows until the last place.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from keras import ops

from kerasbert.answers.decoding import Decoding
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.layers.backend import argmax, choose, gather
from kerasbert.layers.cache import COVERAGE, FIXED

if TYPE_CHECKING:
    import keras


NEVER = -1e9  # a log-probability

Step = Callable[[Tensor, Tensor, Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]


def generate(
    model: "keras.Model",
    inputs: Mapping[str, Tensor],
    decoding: Decoding,
    *,
    start_id: int,
    end_id: int,
    pad_id: int = 0,
    rows: Tensor | None = None,
    asked: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """What a model writes.

    Args:
        model: with `start`, `step` and `prompt`, the prefix of the inputs that it goes on from.
        inputs: the source as the model is called on, or of a decoder-only model its prompts; a decoder may be given a prompt
            too, decoder_token_ids and decoder_padding_mask [B, P]. Real tokens stand at the left.
        decoding: Decoding.
        start_id: int, what a decoder without a prompt begins with.
        end_id: int.
        pad_id: int, of places after the end.
        rows: int [B], the texts' numbers, which drawn tokens depend on; by default 0, 1, ...
        asked: for each text, in the place of the decoding's own: max_tokens int32 [B], at most max_new_tokens, and, where
            tokens are drawn, temperature and top_p float32 [B] and top_k int32 [B], 0 for all, all or none of these three.

    Returns:
        dict of token_ids int32 [B, max_new_tokens], the new tokens with their end, and score float32 [B]: the sum of their
        log-probabilities, of beams divided by tokens ** length_penalty. Where `num_return_sequences` N is above 1 also
        sequences int32 [B, N, max_new_tokens] and scores float32 [B, N], of which those are the first.

    Raises:
        InputError: more beams than tokens in the vocabulary. What else a model cannot do `Decoding.check` says beforehand.
    """
    decoding.check(model.spec.embeddings.vocabulary)
    ids, mask = inputs.get(f"{model.prompt}token_ids"), inputs.get(f"{model.prompt}padding_mask")
    if ids is None:
        ids = ops.full_like(inputs["token_ids"][:, :1], start_id)
    mask = ops.ones_like(ids) if mask is None else mask
    last = ops.sum(ops.cast(mask, "int32"), axis=1) - 1
    first = ops.take_along_axis(ids, ops.expand_dims(last, 1), axis=1)[:, 0]
    state = model.start(inputs, ops.shape(ids)[1] + decoding.max_new_tokens)
    kind = _Beams if decoding.beams > 1 else _Search
    at = kind(model.step, decoding, end_id, pad_id, last, rows, dict(asked or {}))
    known = at.occurring(ids, mask, model.spec.embeddings.vocabulary) | at.remembered(ids)
    return at.run(ops.cast(first, "int32"), state, known)


@dataclasses.dataclass
class _Search:
    """One search.

    Args:
        step, decoding, end_id, pad_id: as of `generate`.
        column: int32 [B], the place of the first token.
        rows: int [B] or None.
        asked: as of `generate`.
    """

    step: Step
    decoding: Decoding
    end_id: int
    pad_id: int
    column: Tensor
    rows: Tensor | None
    asked: dict[str, Tensor]

    @property
    def most(self) -> Tensor:
        """Tokens of each row at most: int, or int32 [B]."""
        return self.asked.get("max_tokens", self.decoding.max_new_tokens)

    def last(self, step: Tensor) -> Tensor:
        """Whether a step is a row's last, of the rows that a step reads: bool [B]."""
        return ops.equal(step, self.most - 1)

    def occurring(self, ids: Tensor, mask: Tensor, vocabulary: int) -> dict[str, Tensor]:
        """Which tokens stand in the prompts: `seen` bool [B, V]; nothing where nobody asks."""
        if self.decoding.repetition_penalty == 1:
            return {}
        ids, rows = ops.cast(ids, "int32"), ops.shape(ids)[0]
        row = ops.broadcast_to(ops.expand_dims(ops.arange(rows, dtype="int32"), 1), ops.shape(ids))
        return {"seen": ops.scatter(ops.stack([row, ids], axis=-1), ops.cast(mask, "int32"), (rows, vocabulary)) > 0}

    def remembered(self, ids: Tensor) -> dict[str, Tensor]:
        """The prompts with room for what is written: `history` int32 [B, P + T + n]; nothing where nobody asks."""
        size, words = self.decoding.no_repeat_ngram_size, self.decoding.banned(self.end_id)[1]
        if not size and not words:
            return {}
        return {"history": ops.pad(ops.cast(ids, "int32"), [[0, 0], [0, self.decoding.max_new_tokens + size]])}

    def with_tokens(self, history: Tensor, token: Tensor, step: Tensor) -> Tensor:
        """Histories [B, L] with the tokens [B] of a step."""
        place = ops.equal(ops.arange(ops.shape(history)[1]), ops.expand_dims(self.column + step + 1, 1))
        return ops.where(place, ops.expand_dims(token, 1), history)

    def run(self, first: Tensor, state: Mapping[str, Tensor], known: Mapping[str, object]) -> dict[str, Tensor]:
        """The texts that follow `first` [B]."""
        count = self.decoding.num_return_sequences
        if count == 1:
            return self.written(first, state, known)

        def spread(x: Tensor) -> Tensor:
            return ops.repeat(x, count, axis=0)

        numbers = ops.arange(ops.shape(first)[0], dtype="int32") if self.rows is None else ops.cast(self.rows, "int32")
        each = ops.tile(ops.arange(count, dtype="int32"), [ops.shape(first)[0]])
        self.rows, self.column = spread(numbers) * count + each, spread(self.column)
        self.asked = {name: spread(value) for name, value in self.asked.items()}
        state, known = ({name: spread(value) for name, value in some.items()} for some in (state, known))
        out = self.written(spread(first), state, known)
        ids, scores = (ops.reshape(x, (-1, count, *x.shape[1:])) for x in (out["token_ids"], out["score"]))
        return {"token_ids": ids[:, 0], "score": scores[:, 0], "sequences": ids, "scores": scores}

    def written(self, first: Tensor, state: Mapping[str, Tensor], known: Mapping[str, object]) -> dict[str, Tensor]:
        """One text a row."""
        rows, length = ops.shape(first)[0], self.decoding.max_new_tokens
        fixed = {name: value for name, value in state.items() if name.startswith(FIXED)}
        at = {"step": 0, "token": first, "open": ops.ones((rows,), "bool"), "score": ops.zeros((rows,), "float32")}
        at |= {"ids": ops.full((rows, length), self.pad_id, "int32")}
        at |= {"state": {name: value for name, value in state.items() if name not in fixed}}
        at |= known

        def going(at: dict[str, Tensor]) -> Tensor:
            return ops.logical_and(at["step"] < length, ops.any(at["open"]))

        def body(at: dict[str, Tensor]) -> dict[str, Tensor]:
            logits, state = self.step(at["token"], self.column + at["step"], fixed | at["state"])
            return self.chosen(at, logits) | {"state": {name: state[name] for name in at["state"]}}

        at = ops.while_loop(going, body, at)
        return {"token_ids": at["ids"], "score": at["score"]}

    def chosen(self, at: dict[str, Tensor], logits: Tensor) -> dict[str, Tensor]:
        """After a step without beams."""
        token = self.taken(self.adjusted(logits, at), at["step"])
        column = ops.arange(logits.shape[-1], dtype="int32")
        hit = ops.equal(column, ops.expand_dims(token, 1))
        gained = ops.sum(ops.where(hit, ops.log_softmax(logits), 0.0), axis=-1)
        place = ops.equal(ops.arange(self.decoding.max_new_tokens, dtype="int32"), at["step"])
        written = ops.logical_and(place, ops.expand_dims(at["open"], 1))
        over = ops.logical_or(ops.equal(token, self.end_id), self.last(at["step"]))
        after = {
            "step": at["step"] + 1,
            "token": token,
            "open": ops.logical_and(at["open"], ops.logical_not(over)),
            "score": at["score"] + ops.where(at["open"], gained, 0.0),
            "ids": ops.where(written, ops.expand_dims(token, 1), at["ids"]),
        }
        if "history" in at:
            after["history"] = self.with_tokens(at["history"], token, at["step"])
        return after | ({"seen": ops.logical_or(at["seen"], hit)} if "seen" in at else {})

    def adjusted(self, x: Tensor, at: Mapping[str, Tensor]) -> Tensor:
        """Logits or log-probabilities [B, V] after the penalty, with forced tokens and without those that may not come."""
        penalty, least = self.decoding.repetition_penalty, self.decoding.min_new_tokens
        if "seen" in at:
            x = ops.where(at["seen"], ops.where(x < 0, x * penalty, x / penalty), x)
        if least:
            is_end = ops.equal(ops.arange(x.shape[-1], dtype="int32"), self.end_id)
            x = ops.where(ops.logical_and(is_end, at["step"] < least), float("-inf"), x)
        alone, words = self.decoding.banned(self.end_id)
        if alone:
            x = ops.where(_listed(alone, x.shape[-1]), float("-inf"), x)
        if first := self.decoding.begin_suppress_tokens:
            begins = ops.equal(at["step"], self.decoding.begin)
            x = ops.where(ops.logical_and(_listed(first, x.shape[-1]), begins), float("-inf"), x)
        if "history" in at:
            x = ops.where(self.repeated(at["history"], at["step"], words, x.shape[-1]), float("-inf"), x)
        forced = ((self.last(at["step"]), self.decoding.forced_eos_token_id),)
        forced += ((ops.equal(at["step"], 0), self.decoding.forced_bos_token_id),)
        for now, token in forced:
            if token is not None:
                taken = ops.where(ops.equal(ops.arange(x.shape[-1], dtype="int32"), token), 0.0, float("-inf"))
                x = ops.where(ops.reshape(now, (-1, 1)), taken, x)
        return x

    def repeated(self, history: Tensor, step: Tensor, words: Sequence[Sequence[int]], vocabulary: int) -> Tensor:
        """Tokens that would write n tokens in a row once more, or one of the words to its end: bool [B, V]."""
        size, count = (
            self.decoding.no_repeat_ngram_size,
            ops.expand_dims(self.column + step + 1, 1),
        )  # [B, 1] tokens so far
        found = ops.zeros((1, vocabulary), "bool")

        def before(back: int) -> Tensor:
            """The token that stands so many places before the next one, [B, 1]."""
            return ops.take_along_axis(history, ops.maximum(count - back, 0), axis=1)

        for word in words:
            same = count >= len(word)
            for k, token in enumerate(word[:-1]):
                same = ops.logical_and(same, ops.equal(before(len(word) - 1 - k), token))
            found = ops.logical_or(found, ops.logical_and(same, _listed(word[-1:], vocabulary)))
        if not size:
            return found
        starts = ops.shape(history)[1] - size + 1
        same = ops.arange(starts) + size - 1 < count  # [B, starts]
        for k in range(size - 1):
            same = ops.logical_and(same, ops.equal(history[:, k : k + starts], before(size - 1 - k)))
        last = history[:, size - 1 : size - 1 + starts]
        row = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(last)[0], dtype="int32"), 1), ops.shape(last))
        shape = (ops.shape(last)[0], vocabulary)
        twice = ops.scatter(ops.stack([row, last], axis=-1), ops.cast(same, "int32"), shape) > 0
        return ops.logical_or(found, twice)

    def taken(self, x: Tensor, step: Tensor) -> Tensor:
        """The next tokens: logits [B, V] -> int32 [B]."""
        decoding = self.decoding
        if not decoding.draws:
            return argmax(x)
        if "temperature" in self.asked:
            x = x / ops.expand_dims(self.asked["temperature"], 1)
            least = self.least_of_each(x)
        else:
            x = x / (decoding.temperature or 1.0)
            least = self.least(x)
        x = ops.where(x >= least, x, float("-inf"))
        rows = ops.arange(ops.shape(x)[0], dtype="int32") if self.rows is None else self.rows
        return random.sample(x, random.key(decoding.seed, rows, step))

    def least(self, x: Tensor) -> Tensor:
        """The smallest logit that may be drawn: [B, V] -> [B, 1]."""
        top_k, top_p = self.decoding.top_k, self.decoding.top_p
        if top_k is None and top_p in (None, 1):
            return ops.min(x, axis=-1, keepdims=True)
        best = ops.top_k(x, min(top_k or x.shape[-1], x.shape[-1]))[0]
        if top_p in (None, 1):
            return best[:, -1:]
        # the tokens before which less than p is reached
        probabilities = ops.softmax(best)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        return ops.min(ops.where(before < top_p, best, float("inf")), axis=-1, keepdims=True)

    def least_of_each(self, x: Tensor) -> Tensor:
        """`least` by the `top_k` and `top_p` of each row; nothing is sorted where no row limits anything."""
        top_k, top_p = (ops.expand_dims(self.asked[name], 1) for name in ("top_k", "top_p"))

        def limited() -> Tensor:
            best = ops.top_k(x, x.shape[-1])[0]
            among = ops.logical_or(ops.arange(x.shape[-1], dtype="int32") < top_k, ops.equal(top_k, 0))
            probabilities = ops.softmax(ops.where(among, best, float("-inf")))
            before = ops.cumsum(probabilities, axis=-1) - probabilities
            among = ops.logical_and(among, ops.logical_or(before < top_p, top_p >= 1))
            return ops.min(ops.where(among, best, float("inf")), axis=-1, keepdims=True)

        some = ops.logical_or(ops.any(top_k > 0), ops.any(top_p < 1))
        return ops.cond(some, limited, lambda: ops.min(x, axis=-1, keepdims=True))


class _Beams(_Search):
    """The `beams` best texts of each row at each step (Sutskever et al., 2014, section 3.2), as transformers' generate has them.

    Of the 2 K best continuations of K texts, those that end join the finished ones if they are among the first K, and the K
    best of the others go on. A row is closed when its worst finished text scores more than its best unfinished one would if it
    ended here (transformers' early_stopping=False).
    """

    def last(self, step: Tensor) -> Tensor:
        now = super().last(step)
        return ops.repeat(now, self.decoding.beams, axis=0) if "max_tokens" in self.asked else now

    def run(self, first: Tensor, state: Mapping[str, Tensor], known: Mapping[str, object]) -> dict[str, Tensor]:
        rows, count, length = ops.shape(first)[0], self.decoding.beams, self.decoding.max_new_tokens

        def spread(x: Tensor) -> Tensor:
            return ops.repeat(x, count, axis=0)

        if self.decoding.coverage_penalty and f"{FIXED}mask" in state:
            state = {**state, COVERAGE: 1.0 - state[f"{FIXED}mask"]}
        state, self.column = {name: spread(value) for name, value in state.items()}, spread(self.column)
        fixed = {name: value for name, value in state.items() if name.startswith(FIXED)}
        none = ops.full((rows, count), NEVER, "float32")
        at = {
            "step": 0,
            "token": spread(first),
            "open": ops.ones((rows,), "bool"),
            # the beams are one text before the first step: all but one do not count
            "running": ops.where(ops.equal(ops.arange(count), 0), 0.0, none),
            "score": none,
            "done": ops.zeros((rows, count), "bool"),
            "ids": ops.full((rows, count, length), self.pad_id, "int32"),
            "running_ids": ops.full((rows, count, length), self.pad_id, "int32"),
            "state": {name: value for name, value in state.items() if name not in fixed},
        }
        at |= {name: spread(value) for name, value in known.items()}

        def going(at: dict[str, Tensor]) -> Tensor:
            return ops.logical_and(at["step"] < length, ops.any(at["open"]))

        def body(at: dict[str, Tensor]) -> dict[str, Tensor]:
            logits, state = self.step(at["token"], self.column + at["step"], fixed | at["state"])
            return self.continued(at, logits, {name: state[name] for name in at["state"]})

        at = ops.while_loop(going, body, at)
        best = {"token_ids": at["ids"][:, 0], "score": at["score"][:, 0]}
        several = self.decoding.num_return_sequences
        return best | ({"sequences": at["ids"][:, :several], "scores": at["score"][:, :several]} if several > 1 else {})

    def continued(self, at: dict[str, Tensor], logits: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """After a step: logits [B*K, V], the state's arrays [B*K, ...]."""
        count, length, vocabulary = self.decoding.beams, self.decoding.max_new_tokens, logits.shape[-1]
        scores = ops.reshape(self.adjusted(ops.log_softmax(logits), at), (-1, count, vocabulary))
        total = ops.reshape(scores + ops.expand_dims(at["running"], -1), (-1, count * vocabulary))
        best, index = ops.top_k(total, 2 * count)  # [B, 2K]
        origin, token = ops.floor_divide(index, vocabulary), ops.cast(index % vocabulary, "int32")
        place = ops.equal(ops.arange(length, dtype="int32"), at["step"])
        ids = ops.where(place, ops.expand_dims(token, -1), choose(at["running_ids"], origin))
        most = ops.reshape(self.most, (-1, 1))
        ended = ops.logical_or(ops.equal(token, self.end_id), ops.equal(at["step"], most - 1))
        after = self.finished(at, ended, best, ids, self.covered(state, origin)) | {"step": at["step"] + 1}
        running, kept = ops.top_k(ops.where(ended, best + NEVER, best), count)  # [B, K]
        # rows of the flat arrays that go on
        row = ops.expand_dims(ops.arange(ops.shape(kept)[0], dtype="int32") * count, 1)
        flat = ops.reshape(choose(ops.cast(origin, "int32"), kept) + row, (-1,))
        token = ops.reshape(choose(token, kept), (-1,))
        longest = self.decoding.early_stopping == "never" and self.decoding.length_penalty > 0
        possible = running[:, :1] / self.longer(most - 1 if longest else at["step"])
        worst = ops.where(after["done"], ops.min(after["score"], axis=1, keepdims=True), NEVER)
        open_ = ops.logical_and(at["open"], ops.any(possible > worst, axis=1))
        open_ = ops.logical_and(open_, at["step"] < ops.reshape(self.most, (-1,)) - 1)
        if self.decoding.early_stopping is True:
            open_ = ops.logical_and(open_, ops.logical_not(ops.all(after["done"], axis=1)))
        after |= {
            "token": token,
            "open": open_,
            "running": running,
            "running_ids": choose(ids, kept),
            "state": {name: gather(value, flat) for name, value in state.items()},
        }
        if "history" in at:
            after["history"] = self.with_tokens(gather(at["history"], flat), token, at["step"])
        if "seen" in at:
            hit = ops.equal(ops.arange(vocabulary, dtype="int32"), ops.expand_dims(token, 1))
            after["seen"] = ops.logical_or(gather(at["seen"], flat), hit)
        return after

    def longer(self, step: Tensor) -> Tensor:
        """What log-probabilities are divided by after a step."""
        return ops.power(ops.cast(step + 1, "float32"), self.decoding.length_penalty)

    def covered(self, state: Mapping[str, Tensor], origin: Tensor) -> Tensor:
        """The coverage penalty of the continuations [B, 2K] (Wu et al., 2016, equation 14), 0 where there is none."""
        if COVERAGE not in state:
            return 0.0
        each = ops.sum(ops.log(ops.clip(state[COVERAGE], 1e-9, 1.0)), axis=-1) * self.decoding.coverage_penalty
        return choose(ops.reshape(each, (-1, self.decoding.beams)), origin)

    def finished(
        self, at: Mapping[str, Tensor], ended: Tensor, best: Tensor, ids: Tensor, covered: Tensor
    ) -> dict[str, Tensor]:
        """The best of the texts that ended before and end now."""
        count = self.decoding.beams
        among = ops.logical_and(ended, ops.arange(2 * count) < count)
        among = ops.logical_and(among, ops.expand_dims(at["open"], 1))
        scores = ops.where(among, best / self.longer(at["step"]) + covered, NEVER)
        score, index = ops.top_k(ops.concatenate([at["score"], scores], axis=1), count)
        return {
            "score": score,
            "done": choose(ops.concatenate([at["done"], among], axis=1), index),
            "ids": choose(ops.concatenate([at["ids"], ids], axis=1), index),
        }


def _listed(tokens: Sequence[int], vocabulary: int) -> Tensor:
    """Which tokens are among some: bool [1, V]."""
    return np.isin(np.arange(vocabulary), list(tokens))[None]
