"""DeBERTa's enhanced mask decoder (He et al., 2021, sections 3.2 and 4.2): the last layer again, positions in its queries."""

import dataclasses
from collections.abc import Mapping

from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import choose, pick
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.embeddings import Table
from kerasbert.spec import Spec

DECODER_LAYERS = 2  # section 4.2


@dataclasses.dataclass(frozen=True)
class Decoding(Context):
    """Of x [B, P, H], states of some queries that read others' states. Args: as Context; states: float [B, S, H]."""

    states: Tensor = None

    def rows(self, x: Tensor) -> Tensor:
        return x

    def keys(self, x: Tensor) -> Tensor:
        return self.states


def check_places(inputs: Mapping[str, Tensor], spec: Spec) -> None:
    """Refuse rows of more tokens than the decoder has positions."""
    length, rows = inputs["token_ids"].shape[1], spec.embeddings.positions
    if length and length > rows and "position_ids" not in inputs:
        raise InputError(
            f"rows have {length} tokens, expected at most {rows} (embeddings.positions): make shorter records"
        )


def decoded(
    block: Block,
    positions: Table,
    states: Tensor,
    inputs: Mapping[str, Tensor],
    context: Context,
    training: bool = False,
) -> Tensor:
    """What predicts the tokens at mlm_positions [B, P]: [B, P, H].

    Args:
        block: the last layer. positions: the table of positions.
        states: float [B, S, H] of the last layer but one. context: what the layers are told.
    """
    places = ops.cast(inputs["mlm_positions"], "int32")
    of_text = choose(inputs["position_ids"], places) if "position_ids" in inputs else places
    told = context.of(places).of_layer(block.layer)
    told = Decoding(**{field.name: getattr(told, field.name) for field in dataclasses.fields(told)}, states=states)
    x = pick(states, places) + positions(of_text)
    for _ in range(DECODER_LAYERS):
        x, _ = block(x, context=told, training=training)
    return x
