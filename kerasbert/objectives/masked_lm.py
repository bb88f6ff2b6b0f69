"""Masked language modelling (Devlin et al., 2019, 3.1 and A.1): features of the records -> a batch for the model.

Vectorised over the batch and stateless: a row's masks depend on (seed, step, row in the global batch), so they are the
same however a batch is split over replicas and micro-batches, and a resumed run draws what it would have drawn.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.objectives import render, units
from kerasbert.objectives.select import select
from kerasbert.text.base import Tokenizer

RENDER = ("token", "span")


@dataclasses.dataclass(frozen=True)
class MaskedLM:
    """Settings of masked language modelling.

    Args:
        rate: share of a sequence's tokens, special ones counted as in BERT's code, that is predicted.
        mask: share of the predictions that the model sees as [MASK].
        random: share that it sees as a random token; the rest it sees as it is.
        static: None draws new masks at every step (dynamic); a number d gives each example d sets of masks, one per
            epoch in turn: BERT's dupe_factor, with nothing stored.
        predictions: P, the most predictions in a sequence, by default ceil(rate * S).
        select: what is selected: "tokens", "words" (whole words, or the phrases of the records' lexicon), "entities" (of
            the records' lexicon, and words beside them), "ngrams" (of up to 3 words), "fourgrams" (of up to 4), "spans" (of
            words) or "token_ngrams" (of up to 3 tokens).
        render: "token" draws for each token what the model sees of it, "span" once for all tokens of a unit (Joshi et
            al., 2020, section 3.1); random tokens are drawn one by one either way.
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    static: int | None = None
    predictions: int | None = None
    select: str = "tokens"
    render: str = "token"

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InputError(f"masking rate {self.rate}, expected a share between 0 and 1, such as 0.15")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1 + 1e-9:
            raise InputError(f"mask {self.mask} and random {self.random}, expected shares whose sum is at most 1")
        if self.static is not None and self.static < 1:
            raise InputError(f"static {self.static}, expected None or a number of mask sets of at least 1")
        if self.predictions is not None and self.predictions < 1:
            raise InputError(f"predictions {self.predictions}, expected at least 1")
        select(self.select)
        if self.render not in RENDER:
            raise unknown("way to render", self.render, RENDER, ", ".join(RENDER))

    def prediction_counts(self, length: int) -> np.ndarray:
        """n for a sequence of 0 .. S tokens: round(rate * tokens), at least 1, at most P: int32 [S + 1]."""
        most = self.width(length)
        # Python's round, as in BERT's create_pretraining_data.py; in float32 some halves would fall elsewhere.
        return np.array([min(most, max(1, round(self.rate * tokens))) for tokens in range(length + 1)], np.int32)

    def width(self, length: int) -> int:
        """P for sequences of S tokens."""
        # The small number keeps 0.15 * 20 = 3.0000000000000004 from becoming 4.
        return min(length, self.predictions or int(np.ceil(self.rate * length - 1e-9)))


def mask_tokens(
    features: Mapping[str, Tensor], settings: MaskedLM, *, tokenizer: Tokenizer, seed: int
) -> dict[str, Tensor]:
    """A batch of the records -> the batch that the model and its losses take.

    Args:
        features: what `Records.dataset` gives: token_ids [B, S], segment_lengths [B, 2], step, row, example, epoch [B],
            and next_label (or another `*_label`) or pieces [B] where the records have it.
        settings: MaskedLM.
        tokenizer: for its size, mask_id and special_ids, and `continues` where words are selected.
        seed: int >= 0.

    Returns:
        dict of token_ids, padding_mask, segment_ids int32 [B, S]; mlm_positions, mlm_labels int32 [B, P] and
        mlm_weights float32 [B, P] (1 = predict; unused places have position 0, label 0, weight 0); row int32 [B];
        every `*_label` int32 [B] that is given; packed_ids, position_ids int32 [B, S] for packed rows. No
        special token is ever selected or drawn as a random token.
    """
    token_ids, lengths = features["token_ids"], features["segment_lengths"]
    length = token_ids.shape[1]
    total = lengths[:, 0] + lengths[:, 1]
    column = tf.range(length)[None, :]
    inside = column < total[:, None]
    if tokenizer.mask_id is None:
        raise InputError("the tokenizer has no mask token, expected one: T5's and GPT-2's have none")

    key = row_keys(features, settings, seed, "masked_lm")
    drawn = random.key(key[:, 0], key[:, 1], "select")
    counts = tf.gather(settings.prediction_counts(length), total)
    positions, chosen, first = _selected(features, settings, tokenizer, drawn, inside, counts)
    masked, labels = render.in_place(
        random.key(key[:, 0], key[:, 1], "render"),
        token_ids,
        positions,
        chosen,
        mask_id=tokenizer.mask_id,
        ordinary_ids=np.setdiff1d(np.arange(tokenizer.size, dtype=np.int32), tokenizer.special_ids),
        shares=(settings.mask, settings.random),
        first=first if settings.render == "span" else None,
    )
    batch = {
        "token_ids": masked,
        "padding_mask": tf.cast(inside, tf.int32),
        "segment_ids": tf.cast(inside & (column >= lengths[:, :1]), tf.int32),
        "mlm_positions": tf.where(chosen, positions, 0),
        "mlm_labels": tf.where(chosen, labels, 0),
        "mlm_weights": tf.cast(chosen, tf.float32),
        "row": features["row"],
    }
    batch |= {name: labels for name, labels in features.items() if name.endswith("_label")}
    if "pieces" in features:
        batch["packed_ids"], batch["position_ids"] = _pieces(token_ids, inside, tokenizer.cls_id)
    return batch


def _selected(
    features: Mapping[str, Tensor],
    settings: MaskedLM,
    tokenizer: Tokenizer,
    key: Tensor,
    inside: Tensor,
    counts: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What is predicted: positions [B, P], whether each counts, and which begin a unit, as the function of `select` gives them.

    Args:
        key: of the draw. inside: bool [B, S], the tokens of the row. counts: int [B], how many are predicted.
    """
    kind = settings.select if settings.select in units.UNITS else "words"
    return select(settings.select)(
        key,
        inside & ordinary(features["token_ids"], tokenizer),
        counts,
        settings.width(inside.shape[1]),
        functools.partial(units.begins, kind, features, tokenizer),
    )


def _pieces(token_ids: Tensor, inside: Tensor, cls_id: int | None) -> tuple[Tensor, Tensor]:
    """Rows [B, S] of pieces that each begin with [CLS] -> number of a token's piece (0 = padding), its place in it."""
    size, length = tf.size(token_ids), token_ids.shape[1]
    # Every row begins with a piece, so the pieces of all rows are counted through. Without cumsum: it takes ten times as long.
    first = tf.cast(tf.where(tf.reshape(inside & (token_ids == cls_id), [-1]))[:, 0], tf.int32)
    places = tf.ragged.range(tf.concat([first[1:], [size]], 0) - first).flat_values
    count = tf.range(tf.size(first))
    opening = tf.cast(tf.where(first % length == 0)[:, 0], tf.int32)  # of the pieces, those that begin a row
    number = tf.math.unsorted_segment_sum(1 + count - tf.gather(opening, first // length), first, size)
    numbers = tf.gather(number, tf.range(size) - places)
    return tuple(tf.where(inside, tf.reshape(found, tf.shape(token_ids)), 0) for found in (numbers, places))


def ordinary(token_ids: Tensor, tokenizer: Tokenizer) -> Tensor:
    """Which tokens are not special. A few comparisons cost a tenth of a look-up in a table of the vocabulary."""
    return functools.reduce(tf.logical_and, [token_ids != token for token in sorted(set(tokenizer.special_ids))])


def masked_columns(batch: Mapping[str, Tensor]) -> Tensor:
    """Which tokens of a batch are predicted: bool [B, S]."""
    weights = tf.cast(batch["mlm_weights"], tf.int32)
    return render.add(tf.zeros_like(batch["token_ids"]), batch["mlm_positions"], weights) > 0


def row_keys(features: Mapping[str, Tensor], settings: MaskedLM, seed: int, name: str) -> Tensor:
    """The rows' keys [B, 2]: new ones at every step, or `settings.static` fixed ones for each example."""
    if settings.static is None:
        return random.key(seed, name, features["step"], features["row"])
    return random.key(seed, name, features["example"], features["epoch"] % settings.static)


def masker(
    settings: MaskedLM, *, tokenizer: Tokenizer, seed: int
) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """`mask_tokens` with its settings bound, for `Records.dataset(...).map(...)`."""
    return tf.autograph.experimental.do_not_convert(
        lambda features: mask_tokens(features, settings, tokenizer=tokenizer, seed=seed)
    )
