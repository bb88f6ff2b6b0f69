"""Old names of `objectives.base`, for plug-ins that import them."""

from kerasbert.objectives.base import Objective as Program
from kerasbert.objectives.base import correct, cross_entropy, label_sums

__all__ = ["Program", "correct", "cross_entropy", "label_sums"]
