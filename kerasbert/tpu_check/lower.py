"""The real train step as HLO: the model, its family's pretraining objective, AdamW, clip and sum over replicas."""

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.data import joins
from kerasbert.data.packing import PACKINGS
from kerasbert.errors import InputError
from kerasbert.inputs import WORD
from kerasbert.layers import backend
from kerasbert.objectives.base import Objective
from kerasbert.spec import Spec
from kerasbert.storage.json_view import JsonMap
from kerasbert.text.base import PARTS
from kerasbert.tpu_check import hlo
from kerasbert.tpu_check.traffic import repeated_flops
from kerasbert.training.chips import GB
from kerasbert.training.optimizers import adamw
from kerasbert.training.precision import precision as in_precision
from kerasbert.training.preflight import estimate_hbm, kept_by
from kerasbert.training.step import StepCore

if TYPE_CHECKING:
    import keras


PRECISIONS = ("float32", "mixed_bfloat16")


class ReplicaStep(StepCore):
    """The step of one replica of many.

    tf.distribute.TPUStrategy cannot be made without a TPU; the sum over the replicas is put in as the operation that
    the strategy's all-reduce becomes.

    Args:
        replicas: int. The others are StepCore's.
    """

    def __init__(
        self, program: Objective, optimizer: "keras.optimizers.Optimizer", replicas: int, **settings: Any
    ) -> None:
        super().__init__(program, optimizer, tf.distribute.get_strategy(), **settings)
        self.replicas = replicas
        self.reduced = 0

    def _sum(self, tensors: Any) -> Any:
        if self.replicas == 1:
            return tensors
        self.reduced += sum(x.dtype.size * x.shape.num_elements() for x in tf.nest.flatten(tensors))
        group = [list(range(self.replicas))]
        return tf.nest.map_structure(
            lambda x: gen_xla_ops.xla_all_reduce(x, group, reduce_op="Add", mode="CrossReplica"), tensors
        )


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A train step before the compiler.

    Args:
        module: HloModuleProto, serialized.
        text: the same to read.
        state: bytes of weights, optimizer and counters.
        reduced: bytes that are summed over the replicas.
        problems: what a TPU cannot run of it.
        repeated: FLOPs that loops repeat, which XLA does not count.
    """

    module: bytes
    text: str
    state: int
    reduced: int
    problems: list[hlo.Problem]
    repeated: float = 0.0


class Step:
    """A model's train step, which is lowered for any batch.

    Args:
        family: of the model.
        spec: of the model, with the vocabulary's size.
        length: int S.
        replicas: int.
        precision: as in `training.trainer`.
        accumulate: int.
        objective: name of another objective than the family's, or its settings by dotted path with the `name` among them.
        chip: kind of TPU.
    """

    def __init__(
        self,
        family: registry.Family,
        spec: Spec,
        *,
        length: int,
        replicas: int = 1,
        precision: str = "mixed_bfloat16",
        accumulate: int = 1,
        objective: str | JsonMap | None = None,
        chip: str = "v5e",
    ) -> None:
        most = family.longest(spec)
        if most and length > most:
            raise InputError(f"length {length}, expected at most {most} (embeddings.positions): lower --length")
        if precision not in PRECISIONS:
            raise InputError(f"precision {precision!r}, expected one that a TPU has: {', '.join(PRECISIONS)}")
        vocabulary = specs.maybe(spec, "embeddings.vocabulary")
        if vocabulary is None:
            raise InputError(
                f"the family {family.name} has no embeddings.vocabulary, which the shapes of a step depend on: name its "
                "number of tokens so"
            )
        name, settings = registry.name_and_settings(objective)
        kind = registry.objective(family.objective_or(name))
        self.feature = PACKINGS[kind.packing].feature if specs.maybe(spec, "pooler") else None
        self.kept = kept_by(family)
        self.length, self.accumulate, self.precision, self.chip = length, accumulate, precision, chip
        with in_precision(precision):
            encoder = family.encoder(spec)
            encoder.build()
            features = [self.feature] if self.feature else []
            self.program = kind(encoder, _tokenizer(vocabulary), features=features, settings=settings, seed=0)
        self.records = self.program.record_length(self.program.settings, length)
        self.core = ReplicaStep(
            self.program,
            adamw(learning_rate=1e-4, steps=1000, warmup=100),
            replicas,
            accumulate=accumulate,
        )

    @property
    def state(self) -> int:
        """Bytes of weights, optimizer and counters."""
        kept = {id(v): v for v in (*self.program.model.variables, *self.core.optimizer.variables)}
        return sum(tf.as_dtype(v.dtype).size * int(tf.TensorShape(v.shape).num_elements()) for v in kept.values())

    def estimate(self, batch: int) -> float:
        """Bytes that a step on `batch` rows needs, by arithmetic (`preflight.estimate_hbm`)."""
        model, half = self.program.model, self.precision != "float32"
        rows = batch // self.accumulate * self.program.sequences(self.program.settings)
        predicted = self.program.predictions(self.program.settings, self.length) / self.length
        about = {"half": half, "predictions": predicted, "kept": self.kept}
        found = estimate_hbm(model.spec, model.count_params(), rows, self.length, **about)
        return self.state + found["temporaries"] * GB

    def signature(self, batch: int) -> dict[str, tf.TensorSpec]:
        """What the step takes: the shapes that the objective's `prepare` makes of records' features."""
        rows = {name: tf.TensorSpec([batch], tf.int32) for name in ("step", "row", "example", "epoch")}
        features = rows | {
            "token_ids": tf.TensorSpec([batch, self.records], tf.int32),
            "segment_lengths": tf.TensorSpec([batch, 2], tf.int32),
        }
        columns = joins.columns(self.records, joined=False, borders=joins.BORDERS in self.program.records)
        features |= {name: tf.TensorSpec([batch, *shape], tf.int32) for name, shape in columns.items()}
        if self.feature:
            features[self.feature] = rows["row"]
        made = tf.function(self.program.prepare, autograph=False).get_concrete_function(features).structured_outputs
        # of one row TensorFlow does not know that it stays one
        shapes = {name: [value.shape[0] or batch, *value.shape[1:]] for name, value in made.items()}
        return {name: tf.TensorSpec(shapes[name], value.dtype, name=name) for name, value in made.items()}

    def lower(self, batch: int) -> Lowered:
        """The step on a replica's `batch` rows.

        Raises:
            InputError: rows that the micro-batches cannot divide.
        """
        if batch % self.accumulate:
            raise InputError(f"batch {batch} is not a multiple of {self.accumulate} micro-batches: change one")
        self.core.reduced = 0
        with backend.as_tpu(self.chip):
            module, text, problems = lower(self.core.update_once, self.signature(batch))
        return Lowered(module, text, self.state, self.core.reduced, problems, repeated_flops(text))


def lower(function: Callable, signature: Mapping[str, tf.TensorSpec]) -> tuple[bytes, str, list[hlo.Problem]]:
    """function(dict of tensors) -> its HLO module, serialized and as text, and what a TPU cannot run of it.

    The arguments are TensorSpecs: constants would hide shapes that depend on values.
    """
    names = list(signature)  # flat: TensorFlow takes no specs inside of a dict here
    compiled = tf.function(lambda *flat: function(dict(zip(names, flat))), autograph=False, jit_compile=True)
    try:
        stages = compiled.experimental_get_compiler_ir(*signature.values())
        module, text = stages(stage="hlo_serialized"), stages(stage="hlo")
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        return b"", "", [hlo.lowering_problem(str(error))]
    return module, text, hlo.problems(text)


def _tokenizer(size: int) -> types.SimpleNamespace:
    """Stands for a tokenizer: the step's shapes depend on the vocabulary's size alone."""
    parts = {f"{part}_id": number for number, part in enumerate(PARTS)}
    return types.SimpleNamespace(
        size=size,
        vocabulary=(),  # of no piece that an objective asks for by name
        **parts,
        special_ids=tuple(parts.values()),
        sentinel_ids=tuple(range(size - 1, max(size - 101, len(parts)), -1)),
        continues=lambda token: False,
        table=np.zeros((size, WORD), "uint16"),  # of words' characters
    )
