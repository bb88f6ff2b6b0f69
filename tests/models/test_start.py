"""A new model of every family tells one word from another: positions and segments do not drown the tokens' vectors.

What another token changes of a token's vector, as a share of its length, was 0.03 in Reformer, whose positions began at
deviation 1 and whose tokens at 0.02; it is 0.6 to 1.5 in most families. In Pegasus of 32 numbers, whose tokens grow with the
root of the width beside waves of deviation 0.7, it is 0.2, and 0.05 where a narrow table passes a map that starts at 0.02.
"""

import keras
import numpy as np
import pytest

from kerasbert import registry
from kerasbert.testing import battery

WHERE = 3  # the place of the changed token
# given word vectors; characters; recurrent networks of word vectors, without positions
OTHERS = ("average", "elmo", "taglm", "cove")
LEAST = {"mobilebert": 0.04, "ib-bert": 0.04}
FAMILIES = [name for name in battery.different() if name not in OTHERS]


def embedded(encoder, inputs):
    """What the first block reads."""
    if hasattr(encoder, "encoder_stack"):
        return encoder.encoder_stack.embed(encoder.embed(inputs["token_ids"]), training=False)
    return encoder.embed(inputs, training=False)


def test_those_left_out_are_families():
    assert {*OTHERS} < {*registry.families()}


@pytest.mark.parametrize(
    "name", [name if name in ("bert", "reformer") else pytest.param(name, marks=pytest.mark.full) for name in FAMILIES]
)
def test_another_token_is_seen_in_a_new_model(name, tmp_path):
    subject = battery.Subject(name, tmp_path, hidden=32)
    keras.utils.set_random_seed(1)
    encoder = subject.family.encoder(subject.spec)
    encoder.build()
    one = subject.inputs(3, 9)
    other = one | {"token_ids": one["token_ids"].copy()}
    other["token_ids"][:, WHERE] -= 1  # the last id of all is no ordinary one
    x, y = (np.asarray(keras.ops.cast(embedded(encoder, each), "float32"))[:, WHERE] for each in (one, other))
    assert (np.linalg.norm(x - y, axis=-1) / np.linalg.norm(x, axis=-1)).min() > LEAST.get(name, 0.15)
