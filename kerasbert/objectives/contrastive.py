"""What is told by choosing among candidates: a softmax over products of vectors."""

from typing import Any

from keras import ops

NEVER = -1e9  # the score of what is no candidate


def candidate_logs(scores: Any, there: Any) -> Any:
    """Log-probabilities of candidates, in float32: [..., C] scores, bool [..., C] what is a candidate -> [..., C]."""
    return ops.log_softmax(ops.where(there, ops.cast(scores, "float32"), NEVER), axis=-1)
