"""A Keras model as what `answers.beam_search` steps: the part that a phone's runtime plays."""

import numpy as np
import tensorflow as tf

from kerasbert.layers.cache import COVERAGE, FIXED


class Steps:
    """States of the texts that are being written, as numpy arrays.

    Args:
        model: with `start`, `step` and `prompt`.
        start_id: int, what a decoder without a prompt begins with.
    """

    def __init__(self, model, start_id: int = 0):
        self.model, self.start_id = model, start_id
        self.step = tf.function(model.step, reduce_retracing=True, autograph=False)

    def start(self, inputs: dict, decoding) -> list[int]:
        """Read one text [1, S]; the tokens that it goes on from."""
        prompt = [self.start_id]
        if f"{self.model.prompt}token_ids" in inputs:
            mask = inputs[f"{self.model.prompt}padding_mask"]
            prompt = inputs[f"{self.model.prompt}token_ids"][mask == 1].tolist()
        state = self.model.start(inputs, len(prompt) + decoding.max_new_tokens + 3)
        if decoding.coverage_penalty:
            state[COVERAGE] = 1.0 - state[f"{FIXED}mask"]
        self.states = {name: np.asarray(value) for name, value in state.items()}
        return prompt

    def __call__(self, token_ids, column, origin):
        rows = {n: np.repeat(v, len(origin), 0) if n.startswith(FIXED) else v for n, v in self.states.items()}
        rows = {n: v[: len(origin)] if n.startswith(FIXED) else v[origin] for n, v in rows.items()}
        logits, state = self.step(tf.constant(token_ids), tf.fill([len(origin)], column), rows)
        fixed = {n: v for n, v in self.states.items() if n.startswith(FIXED)}
        self.states = {n: v.numpy() for n, v in state.items()} | {n: v[:1] for n, v in fixed.items()}
        return logits.numpy(), state[COVERAGE].numpy() if COVERAGE in state else None
