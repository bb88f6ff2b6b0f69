"""Optimizers with rules by weight path: decay masks, layer-wise learning rates, gradual unfreezing, an average of the weights.

The step core reduces and clips the gradients; what is here only makes the update.
"""

import contextlib
import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import keras
from keras import ops

from kerasbert.errors import InputError, near
from kerasbert.inputs import Tensor
from kerasbert.registry import OPTIMIZERS
from kerasbert.storage.json_view import JsonMap
from kerasbert.training.adam import TENSORFLOW, adam
from kerasbert.training.schedules import LinearSchedule, make_schedule
from kerasbert.training.weight_rules import check_patterns, decayed, faster, layer_factors, starts

if TYPE_CHECKING:
    from kerasbert.training.config import TrainConfig
    from kerasbert.training.read_rows import ReadRows

Rate = float | keras.optimizers.schedules.LearningRateSchedule
T = TypeVar("T")


class ByPath(keras.optimizers.Optimizer):
    """What every optimizer here has in common; mixed in before a Keras optimizer. `defaults` are its options' own.

    Differs from Keras, which looks for the anchor words anywhere in a variable's name: patterns are regular expressions
    searched in its path (`encoder/block_3/attention/query/kernel`, `pretraining/heads/mlm/bias`), and one that finds nothing
    is an error. Decay is part of the update of a weight, so that it has the weight's own rate.

    Args:
        not_decayed: patterns of the weights without decay; None for biases and layer norms.
        layer_decay: float, factor of the learning rate from a layer to the one below (see `weight_rules.layer_factors`).
        ema: float, factor of the moving average of the weights, 0 for none (see `take_average`).
        unfreeze: int, updates after which one more layer from the top is trained, 0 for all at once (see
            `weight_rules.starts`). Until then weight, moments and decay stand still; a weight's moments are corrected for the
            number of its own updates.
    """

    defaults: ClassVar[JsonMap] = MappingProxyType({})
    one_kernel: ClassVar[bool] = False  # whether TensorFlow updates a weight in one: compiling gains nothing

    def __init__(
        self,
        learning_rate: Rate,
        *,
        not_decayed: Sequence[str] | None = None,
        layer_decay: float = 1.0,
        ema: float = 0.0,
        unfreeze: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, use_ema=bool(ema), ema_momentum=ema, **options)
        self.not_decayed, self.layer_decay = None if not_decayed is None else tuple(not_decayed), layer_decay
        self.unfreeze, self._shared = unfreeze, Shared()

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Make the slots; settle which rules hold for which weight."""
        if self.built:
            return
        self.settle(variables)
        super().build(variables)

    def settle(self, variables: Sequence[keras.Variable]) -> None:
        """Settle which rules hold for which weight."""
        paths = [variable.path for variable in variables]
        self._decayed = tuple(decayed(paths, self.not_decayed))
        self._factors = tuple(map(operator.mul, layer_factors(paths, self.layer_decay), faster(paths)))
        self._starts = tuple(starts(paths, self.unfreeze))

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        """`update_step` does it."""

    def _backend_update_step(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable], learning_rate: Tensor
    ) -> None:
        """One update: what weights have in common is computed once, which is most of its graph."""
        self._shared.clear()
        super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _rules(self, variable: keras.Variable, learning_rate: Tensor) -> tuple[Tensor, float]:
        """A weight's own learning rate and decay."""
        index = self._get_variable_index(variable)
        factor, start = self._factors[index], self._starts[index]

        def rate() -> Tensor:
            own = ops.cast(learning_rate, variable.dtype)
            own = own * factor if factor != 1.0 else own
            return own * ops.cast(self.iterations >= start, own.dtype) if start else own

        decay = (self.weight_decay or 0.0) if self._decayed[index] else 0.0
        return self._shared(("rate", factor, start, variable.dtype), rate), decay

    def _own(self, gradient: Tensor, variable: keras.Variable) -> tuple[Tensor, Tensor]:
        """A weight's gradient, 0 before it is trained, and the number of its own updates, with this one."""
        start, dtype = self._starts[self._get_variable_index(variable)], variable.dtype
        gradient = ops.cast(gradient, dtype)
        step = self._shared(("step", dtype), lambda: ops.cast(self.iterations + 1, dtype))
        if start:
            gradient = gradient * self._shared(("begun", start, dtype), lambda: ops.cast(step > start, dtype))
            step = self._shared(("step", start, dtype), lambda: ops.maximum(step - start, 1.0))
        return gradient, step

    def begun(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of the weights that are trained by now, 0 of the others: what is clipped."""
        pairs = zip(gradients, self._starts)
        return [g * ops.cast(self.iterations >= start, g.dtype) if start else g for g, start in pairs]


class Shared:
    """What is computed once for several weights of an update."""

    def __init__(self) -> None:
        self._held: dict[Hashable, Any] = {}

    def clear(self) -> None:
        """Another update begins."""
        self._held.clear()

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._held:
            self._held[key] = make()
        return self._held[key]


class AdamW(ByPath, keras.optimizers.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019, algorithm 2).

    x -= rate * (m^ / (sqrt(v^) + epsilon) + decay * x), as torch.optim.AdamW. Differs: decay is multiplied by the whole rate,
    as there and in BERT's code, and not by the schedule alone.

    Args:
        epsilon_hat: bool, add epsilon to sqrt(v) before v is corrected (Kingma and Ba, 2015, end of section 2, "epsilon hat"),
            as the code of many pretrained models does: TensorFlow 1's Adam, fairseq's, Keras'. The first updates are shorter
            then: 1e-6 acts as 3e-5 in the first update, as 6.5e-6 after 24. BERT's own code corrects neither m nor v.
    Attributes:
        rows: number of a weight -> ReadRows, set before `build`: its gradients and moments are of these rows alone.
    """

    defaults = MappingProxyType({"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6, "epsilon_hat": False})
    one_kernel = TENSORFLOW

    def __init__(self, learning_rate: Rate, *, epsilon_hat: bool = False, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.epsilon_hat = epsilon_hat
        self.rows: Mapping[int, ReadRows] = MappingProxyType({})

    def add_variable_from_reference(
        self, reference_variable: keras.Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> keras.Variable:
        """A slot of a weight; a moment is of its `rows`."""
        moment = name in ("momentum", "velocity")
        rows = self.rows.get(self._get_variable_index(reference_variable)) if moment else None
        if rows is None:
            return super().add_variable_from_reference(reference_variable, name=name, initializer=initializer)
        return self.add_variable(rows.shape, initializer, reference_variable.dtype, name=f"read_{name}")

    @property
    def moments(self) -> "dict[int, ReadRows]":
        """id of a moment that is of some rows of its weight -> which."""
        return {id(each[i]): rows for i, rows in self.rows.items() for each in (self._momentums, self._velocities)}

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        rate, decay = self._rules(variable, learning_rate)
        index, shrunk = self._get_variable_index(variable), None
        if decay:
            like = ("decay", self._factors[index], self._starts[index], variable.dtype)
            shrunk = self._shared(like, lambda: 1 - rate * decay)
        if (rows := self.rows.get(index)) is None and shrunk is not None:
            self.assign(variable, variable * shrunk)  # one product, as torch has it: x - x * c takes two passes more
        (gradient, step), m, v = self._own(gradient, variable), self._momentums[index], self._velocities[index]
        powers, epsilon = self._shared(("adam", self._starts[index], variable.dtype), lambda: self._corrections(step))
        betas = self._shared(("betas", variable.dtype), lambda: self._betas(variable.dtype))
        with contextlib.nullcontext(variable) if rows is None else rows.within(variable, shrunk) as own:
            adam(own, m, v, gradient, rate=rate, powers=powers, betas=betas, epsilon=epsilon)

    def _betas(self, dtype: str) -> list[Tensor]:
        return [ops.cast(beta, dtype) for beta in (self.beta_1, self.beta_2)]

    def _corrections(self, step: Tensor) -> tuple[list[Tensor], Tensor]:
        """beta^step of both moments, and the epsilon that sqrt(v) takes before it is corrected."""
        powers = [ops.power(beta, step) for beta in self._betas(step.dtype)]
        return powers, ops.cast(self.epsilon, step.dtype) * (1.0 if self.epsilon_hat else ops.sqrt(1 - powers[1]))


class Lamb(ByPath, keras.optimizers.Lamb):
    """Layer-wise adaptive moments for large batches (You et al., 2020, algorithm 2).

    r = m^ / (sqrt(v^) + epsilon); x -= rate * |x| / |r + decay * x| * (r + decay * x). Keras' own Lamb takes the decay out of
    the trust ratio, by which it shrinks a weight whatever its ratio. As in the authors' code, weights without decay (biases,
    norms) have a trust ratio of 1, and so have those of norm 0.
    """

    defaults = MappingProxyType({"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6})

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        rate, decay = self._rules(variable, learning_rate)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        gradient, step = self._own(gradient, variable)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        m_hat, v_hat = m / (1 - ops.power(self.beta_1, step)), v / (1 - ops.power(self.beta_2, step))
        update = m_hat / (ops.sqrt(v_hat) + self.epsilon)
        if self._decayed[index]:
            update = update + decay * variable
            ours, its = ops.norm(ops.reshape(variable, [-1])), ops.norm(ops.reshape(update, [-1]))
            rate = rate * ops.where((ours > 0) & (its > 0), ours / ops.where(its > 0, its, 1.0), 1.0)
        self.assign_sub(variable, rate * update)


class Adafactor(ByPath, keras.optimizers.Optimizer):
    """Second moments of a matrix as one row and one column (Shazeer and Stern, 2018, algorithms 4 and 5).

    The learning rate is the paper's relative step size rho: the step is rho * max(epsilon_2, RMS(x)). Keras' own keeps a full
    second moment beside the factors, so that no memory is saved, and caps every schedule at 1 / sqrt(n). Differs: decoupled
    weight decay, rate * decay * x, where it is asked for; the paper has none.

    Args:
        beta_2_decay: float, beta_2 is 1 - n^beta_2_decay.
        epsilon_1, epsilon_2: float, of the squared gradient and of the weights' scale.
        clip_threshold: float d, largest RMS of an update.
    """

    defaults = MappingProxyType({"beta_2_decay": -0.8, "epsilon_1": 1e-30, "epsilon_2": 1e-3, "clip_threshold": 1.0})

    def __init__(
        self,
        learning_rate: Rate,
        *,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta_2_decay, self.clip_threshold = beta_2_decay, clip_threshold
        self.epsilon_1, self.epsilon_2 = epsilon_1, epsilon_2

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Rows and columns for matrices (the last two axes), whole second moments for vectors."""
        if self.built:
            return
        super().build(variables)
        self._moments = []
        for variable in variables:
            shape = tuple(variable.shape)
            if len(shape) < 2:
                self._moments.append((self.add_variable_from_reference(variable, name="velocity"),))
                continue
            name = variable.path.replace("/", "_")
            row = self.add_variable(shape[:-1], dtype=variable.dtype, name=f"{name}_row")
            column = self.add_variable(shape[:-2] + shape[-1:], dtype=variable.dtype, name=f"{name}_column")
            self._moments.append((row, column))

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        rate, decay = self._rules(variable, learning_rate)
        gradient, step = self._own(gradient, variable)
        squared = ops.square(gradient) + self.epsilon_1
        moments = self._moments[self._get_variable_index(variable)]
        # sums over rows and columns in the paper; means have the same quotient and do not overflow
        news = (squared,) if len(moments) == 1 else (ops.mean(squared, axis=-1), ops.mean(squared, axis=-2))
        for moment, new in zip(moments, news):
            self.assign_add(moment, (new - moment) * ops.power(step, self.beta_2_decay))
        if len(moments) == 1:
            update = gradient / ops.sqrt(ops.convert_to_tensor(moments[0]))
        else:
            row, column = map(ops.convert_to_tensor, moments)
            scale = row / ops.mean(row, axis=-1, keepdims=True)
            update = gradient / ops.sqrt(ops.expand_dims(scale, -1)) / ops.sqrt(ops.expand_dims(column, -2))
        update = update / ops.maximum(1.0, _rms(update) / self.clip_threshold)
        update = ops.maximum(self.epsilon_2, _rms(variable)) * update
        self.assign_sub(variable, rate * (update + decay * variable if decay else update))


def _rms(x: Tensor) -> Tensor:
    return ops.sqrt(ops.mean(ops.square(x)))


def take_average(optimizer: keras.optimizers.Optimizer) -> None:
    """Give the model the moving average of its weights, if the optimizer keeps one; in the cross-replica context.

    Keras averages before it applies a weight's constraint: it is applied to the average here.
    """
    if optimizer.use_ema:
        for variable, average in zip(optimizer._trainable_variables, optimizer._model_variables_moving_average):
            average = ops.convert_to_tensor(average)
            variable.assign(average if variable.constraint is None else variable.constraint(average))


@contextlib.contextmanager
def averaged(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Within the block the model has the moving average of its weights, for an evaluation; training goes on without it."""
    variables = optimizer._trainable_variables if optimizer.use_ema else []
    old = [ops.convert_to_tensor(variable) + 0 for variable in variables]
    take_average(optimizer)
    try:
        yield
    finally:
        for variable, value in zip(variables, old):
            variable.assign(value)


def check_class(name: str, optimizer: object) -> None:
    """The rules of OPTIMIZERS.

    Raises:
        InputError: no class of a Keras optimizer.
    """
    if not (isinstance(optimizer, type) and issubclass(optimizer, keras.optimizers.Optimizer)):
        raise InputError(f"the optimizer {name!r} is {optimizer!r:.80}, expected the class of a Keras optimizer")


for _name, _optimizer in {"adamw": AdamW, "lamb": Lamb, "adafactor": Adafactor}.items():
    OPTIMIZERS.add(_name, _optimizer)
RULES = {"not_decayed": None, "layer_decay": 1.0, "ema": 0.0}
RANGES = {  # low, high; the high end is excluded
    "beta_1": (0.0, 1.0),
    "beta_2": (0.0, 1.0),
    "epsilon": (0.0, 1.0),
    "beta_2_decay": (-10.0, 0.0),
    "epsilon_1": (0.0, 1.0),
    "epsilon_2": (0.0, 1.0),
    "clip_threshold": (1e-9, float("inf")),
    "layer_decay": (1e-9, 1.0 + 1e-9),
    "ema": (0.0, 1.0),
}


def check_optimizer(name: str, options: JsonMap) -> None:
    """Refuse an optimizer that does not exist, options that it does not have and values out of range."""
    known = [*getattr(OPTIMIZERS.find(name), "defaults", ()), *RULES]
    for option, value in options.items():
        if option not in known:
            raise InputError(f"optimizer {name!r} has no option {option!r}. {near(option, known)}")
        if option == "not_decayed":
            check_patterns(option, value)
            continue
        if option == "epsilon_hat":
            if type(value) is not bool:
                raise InputError(f"epsilon_hat of optimizer {name!r} must be true or false. Received: {value!r}")
            continue
        low, high = RANGES.get(option, (-math.inf, math.inf))
        if type(value) not in (int, float) or not low <= value < high:
            raise InputError(f"{option} of optimizer {name!r} must be from {low:g} to {high:g}. Received: {value!r}")


def check_rules(settings: "TrainConfig", variables: Sequence[keras.Variable]) -> None:
    """Refuse rules by weight path that do not fit these weights, before a run is begun.

    Args:
        settings: TrainConfig, with the steps settled. variables: those that are trained.
    """
    paths, options = [variable.path for variable in variables], settings.optimizer_options or {}
    every, steps = settings.unfreeze, settings.steps
    assert steps is not None
    decayed(paths, options.get("not_decayed"))
    layer_factors(paths, options.get("layer_decay", 1.0))
    if every and (last := max(starts(paths, every))) >= steps:
        raise InputError(
            f"unfreeze: {last} updates pass before all layers are trained, the run has {steps}: take at most "
            f"{(steps - 1) * every // last} updates a layer, or more steps"
        )


def make_optimizer(settings: "TrainConfig") -> keras.optimizers.Optimizer:
    """The optimizer and schedule of a TrainConfig.

    Raises:
        InputError: names, options or values that do not exist; the nearest is given.
    """
    asked, steps = settings.optimizer_options or {}, settings.steps
    assert steps is not None
    check_optimizer(settings.optimizer, asked)
    schedule = make_schedule(
        settings.schedule, settings.learning_rate, steps, settings.warmup_steps, settings.schedule_options
    )
    optimizer = OPTIMIZERS.find(settings.optimizer)
    options = {**getattr(optimizer, "defaults", {}), **asked}
    options |= {"unfreeze": settings.unfreeze} if settings.unfreeze else {}
    return optimizer(schedule, weight_decay=settings.weight_decay, **options)


def adamw(
    *, learning_rate: float, steps: int, warmup: int = 0, weight_decay: float = 0.01
) -> keras.optimizers.Optimizer:
    """AdamW with a linear warm-up and decay, no decay on biases and norms, epsilon 1e-6."""
    for name, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if not value >= 0:
            raise InputError(f"{name} must be at least 0. Received: {value}")
    return AdamW(LinearSchedule(learning_rate, steps, warmup), weight_decay=weight_decay, **AdamW.defaults)
