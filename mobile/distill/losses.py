"""What a student is compared by: each a small function of the student's and the teacher's tensors, without weights.

All give one number per row, place or token, in float32, which the program weights, sums and divides by their number.
"""

from keras import ops

from kerasbert.inputs import Tensor

TINY = 1e-30  # below every probability that float32 tells from 0; keeps logarithms and their gradients finite
EPSILON = 1e-6  # of a variance


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 * KL(softmax(teacher / T) || softmax(student / T)): logits [..., C] twice -> nats [...].

    The cross-entropy of soft targets (Hinton et al., 2015, section 2) less the teacher's own entropy, which no student can
    change: the same gradient, and 0 for a student that says what its teacher says. T^2 keeps the gradient's size.
    """
    student, teacher = (_log_softmax(ops.cast(x, "float32") / temperature) for x in (student, teacher))
    return temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference over the last axis: [..., C] twice -> [...]."""
    return ops.mean(ops.square(ops.cast(student, "float32") - ops.cast(teacher, "float32")), axis=-1)


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - cosine of the angle between vectors: [..., H] twice -> [...] (Sanh et al., 2019, section 3)."""
    student, teacher = (_unit(ops.cast(x, "float32")) for x in (student, teacher))
    return 1.0 - ops.sum(student * teacher, axis=-1)


def feature_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of vectors that were normalised to mean 0 and variance 1: [..., H] twice -> [...].

    MobileBERT's feature map transfer without the statistics (Sun et al., 2020, section 3.5, "normalized feature map
    discrepancy"); `mean_error` and `variance_error` are the statistics, as the released code has them.
    """
    return squared_error(*(_centred(x) / ops.sqrt(_variance(x) + EPSILON) for x in (student, teacher)))


def mean_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of the vectors' means: [..., H] twice -> [...]."""
    student, teacher = (ops.mean(ops.cast(x, "float32"), axis=-1) for x in (student, teacher))
    return ops.square(student - teacher)


def variance_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Absolute difference of the vectors' variances: [..., H] twice -> [...]."""
    return ops.abs(_variance(student) - _variance(teacher))[..., 0]


def score_error(student: Tensor, teacher: Tensor, visible: Tensor = None) -> Tensor:
    """Mean squared difference of the attention scores over heads and visible keys.

    TinyBERT compares the scores before the softmax (Jiao et al., 2020, section 3.1, equation 7). Our encoders give the
    probabilities; their logarithms are the scores but for one number per query, which softmax does not see. Differs: that
    number is taken out of both, by centring over the visible keys, where the paper compares it too.

    Args:
        student, teacher: probabilities [B, N, Q, K].
        visible: bool [B, Q or 1, K], or None for all.

    Returns:
        [B, Q].
    """
    seen = 1.0 if visible is None else ops.expand_dims(ops.cast(visible, "float32"), 1)
    seen = seen * ops.ones_like(student)
    count = ops.maximum(ops.sum(seen, axis=-1, keepdims=True), 1.0)
    scores = []
    for x in (student, teacher):
        x = _log(x) * seen
        scores.append((x - ops.sum(x, axis=-1, keepdims=True) / count) * seen)
    error = ops.sum(ops.square(scores[0] - scores[1]), axis=-1) / count[..., 0]
    return ops.mean(error, axis=1)


def attention_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) of the attention of a token, mean over the heads: [B, N, Q, K] twice -> nats [B, Q].

    MobileBERT's attention transfer (Sun et al., 2020, section 3.5).
    """
    teacher = ops.cast(teacher, "float32")
    return ops.mean(ops.sum(teacher * (_log(teacher) - _log(student)), axis=-1), axis=1)


def _log(probabilities: Tensor) -> Tensor:
    return ops.log(ops.maximum(ops.cast(probabilities, "float32"), TINY))


def _log_softmax(logits: Tensor) -> Tensor:
    return ops.log_softmax(logits, axis=-1)


def _unit(x: Tensor) -> Tensor:
    return x / ops.sqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), EPSILON**2))


def _centred(x: Tensor) -> Tensor:
    x = ops.cast(x, "float32")
    return x - ops.mean(x, axis=-1, keepdims=True)


def _variance(x: Tensor) -> Tensor:
    return ops.mean(ops.square(_centred(x)), axis=-1, keepdims=True)
