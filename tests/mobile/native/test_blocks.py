"""A file of BigBird, whose attention is over blocks, in C and in Python."""

import pytest

from tests.mobile.native.networks import network
from tests.mobile.native.test_runner import beside_python


@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths", [{}, pytest.param({"lengths": "any"}, marks=pytest.mark.full)], ids=["buckets", "any"]
)
def test_blocks_of_tokens_are_answered_too(lengths, tmp_path):
    """BigBird: all scores in rows of 8 tokens, blocks in those of 16 and 32."""
    path = network("classification", tmp_path, "bigbird", **lengths)
    assert beside_python(path, "classification", 30) == 30
