"""A stack that writes: the decoder-only models."""

import dataclasses
from collections.abc import Mapping

from keras import ops

from kerasbert.inputs import Tensor
from kerasbert.layers import visibility
from kerasbert.layers.cache import Cache, columns, places_of
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.heads import tied_logits


class CausalLM(Encoder):
    """An encoder whose tokens see themselves and those before them (`attention.causal`), and which says what comes next.

    Args and call: as Encoder. A family with numbers that a step needs too adds them in `context`.
    """

    prompt = ""  # how the inputs that it goes on from begin

    def logits(self, x: Tensor) -> Tensor:
        """Which token comes next, by the table of tokens: `sequence` [B, P, H] -> float32 [B, P, V]."""
        return tied_logits(self.scaled(x), self.output_rows)

    def scaled(self, x: Tensor) -> Tensor:
        """What the output's table is compared with, made of `sequence`."""
        return x

    @property
    def output_rows(self) -> Tensor:
        """The table [V, H] that the output is compared with: that of the tokens."""
        return self.embeddings.tokens.table

    def start(self, inputs: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
        """The state before the first step, in which the prompts have been read.

        Args:
            inputs: as in `call`: token_ids [B, P], and padding_mask [B, P] where rows are shorter, each row's real tokens at
                its left. The last real one of each is the first step's token, and is computed again.
            places: int T >= P, tokens of a row at most, the prompt among them.

        Returns:
            state, see `layers.cache`.
        """
        self.check(inputs)
        cache = Cache({}, len(self.blocks), places)
        context = dataclasses.replace(self.context(inputs), cache=cache)
        self.run(inputs, context, queries="first")  # of the last layer nothing but keys and values is read
        return cache.state

    def step(self, token_ids: Tensor, column: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Which token follows, of the tokens at one place of each row.

        Args:
            token_ids: int [B].
            column: int32 [B] or one for all, the tokens' places.
            state: of `start` or of the step before.

        Returns:
            (logits float32 [B, V], the state with this column).
        """
        column = columns(column, token_ids)
        cache = Cache(state, len(self.blocks), places_of(state), column)
        inputs = {"token_ids": ops.expand_dims(token_ids, 1), "position_ids": ops.expand_dims(column, 1)}
        context = dataclasses.replace(self.context(inputs), bias=visibility.bias(cache.visible), cache=cache)
        outputs = self.run(inputs, context)
        return ops.squeeze(self.logits(outputs["sequence"]), 1), cache.state
