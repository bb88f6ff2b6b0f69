"""Targets of the span boundary objective: what stands next to a masked span (Joshi et al., 2020, section 3.2)."""

from collections.abc import Mapping

import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.objectives import render
from kerasbert.objectives.masked_lm import masked_columns
from kerasbert.objectives.select import runs


def boundaries(batch: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
    """The tokens next to the run of masked positions that each masked position is in, and its place in the run.

    Every run has a neighbour on both sides that is not masked, for special tokens begin and end each text.

    Args:
        batch: of masked LM.
        places: number of places that are predicted; what lies farther inside of a run is not.

    Returns:
        sbo_left, sbo_right: columns; sbo_places, 0 = the first of the run: int32 [B, P]. sbo_weights: float32 [B, P].
        Zeros where nothing is predicted.
    """
    positions, inside = batch["mlm_positions"], masked_columns(batch)
    before = tf.pad(inside[:, :-1], [[0, 0], [1, 0]])
    begin, end = (render.take(x, positions) for x in runs(inside != before))
    place = positions - begin
    chosen = (batch["mlm_weights"] > 0) & (place < places)
    found = {"sbo_left": begin - 1, "sbo_right": end, "sbo_places": place}
    return {name: tf.where(chosen, x, 0) for name, x in found.items()} | {"sbo_weights": tf.cast(chosen, tf.float32)}
