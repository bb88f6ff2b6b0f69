"""What is told by choosing among candidates: a softmax over products of vectors."""

from keras import ops

from kerasbert.inputs import Tensor

NEVER = -1e9  # the score of what is no candidate


def candidate_logs(scores: Tensor, there: Tensor) -> Tensor:
    """Log-probabilities of candidates, in float32: [..., C] scores, bool [..., C] what is a candidate -> [..., C]."""
    return ops.log_softmax(ops.where(there, ops.cast(scores, "float32"), NEVER), axis=-1)
