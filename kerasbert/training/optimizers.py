"""Optimizers and learning-rate schedules."""

import keras
from keras import ops

from kerasbert.errors import InputError

NOT_DECAYED = ["bias", "gamma", "beta"]


class LinearSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, then linear decay to 0 at `steps` (Devlin et al., 2019, appendix A.2).

    Update n (from 1) has peak * n / warmup while n <= warmup, then peak * (steps - n + 1) / (steps - warmup + 1):
    no update has a rate of 0.
    """

    def __init__(self, peak: float, steps: int, warmup: int = 0):
        if not 0 <= warmup <= steps:
            raise InputError(f"warmup {warmup} is not between 0 and steps {steps}: lower --warmup or raise --steps")
        self.peak, self.steps, self.warmup = peak, steps, warmup

    def __call__(self, step):
        update = ops.cast(step, "float32") + 1.0
        rising = update / max(1, self.warmup)
        falling = (self.steps - update + 1.0) / (self.steps - self.warmup + 1.0)
        return self.peak * ops.maximum(0.0, ops.minimum(falling, rising) if self.warmup else falling)

    def get_config(self):
        return {"peak": self.peak, "steps": self.steps, "warmup": self.warmup}


def adamw(
    *, learning_rate: float, steps: int, warmup: int = 0, weight_decay: float = 0.01
) -> keras.optimizers.Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) with BERT's settings: no decay on biases and norms, epsilon 1e-6."""
    for name, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if not value >= 0:
            raise InputError(f"{name} must be at least 0. Received: {value}")
    schedule = LinearSchedule(learning_rate, steps, warmup)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=weight_decay, beta_2=0.999, epsilon=1e-6)
    optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED)
    return optimizer
