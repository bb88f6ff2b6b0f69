"""Phases of one run: which records, batch and micro-batches hold at an update. The learning rate knows nothing of them.

BERT learns from 128 tokens for 90% of the steps and from 512 for the rest (Devlin et al., 2019, appendix A.2); a batch-size
warm-up is a list of phases on the same records.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerasbert.errors import InputError, near
from kerasbert.inputs import Tensor
from kerasbert.objectives.base import Objective, changed
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.value_types import check_whole


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a run.

    Args:
        steps: int, updates; None (the last phase only) for all that are left, so that `--steps` may grow.
        data: directory of records; their length is the phase's.
        batch: int, sequences of the global batch.
        accumulate: int, micro-batches per update.
        objective: settings of the objective that differ from the run's, by dotted path (ERNIE: tokens, then phrases, then
            entities); of them `prepare` reads the phase's, the losses the run's.
    """

    steps: int | None
    data: str
    batch: int
    accumulate: int = 1
    objective: JsonMap | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate"):
            value = getattr(self, name)
            if value is not None or name != "steps":
                check_whole(f"{name} of a phase", value)
        if self.batch % self.accumulate:
            raise InputError(f"batch {self.batch} of a phase is not a multiple of its accumulate {self.accumulate}")

    def to_json(self) -> Json:
        """A plain dict; without `objective` where its settings are the run's."""
        plain = {field: getattr(self, field) for field in ("steps", "data", "batch", "accumulate")}
        return plain | ({"objective": dict(self.objective)} if self.objective else {})

    def settings(self, settings: Any) -> Any:
        """The run's settings of the objective with the phase's difference.

        Raises:
            InputError: a setting that the objective has not, or a value that cannot be.
        """
        return changed(settings, self.objective or {}, "the objective of a phase")

    def prepare(self, objective: Objective) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
        """The objective's `prepare`, with the phase's settings."""
        return (
            objective.with_settings(self.settings(objective.settings)).prepare if self.objective else objective.prepare
        )


def make_phases(rows: Sequence[JsonMap], **defaults: Any) -> tuple[Phase, ...]:
    """Phases from plain dicts; a field that a dict leaves out is the run's.

    >>> make_phases([{"steps": 9, "batch": 8}, {"data": "long"}], data="short", batch=2)[1]
    Phase(steps=None, data='long', batch=2, accumulate=1, objective=None)

    Raises:
        InputError: an unknown field, one that is missing, a value out of range.
    """
    known = [field.name for field in dataclasses.fields(Phase)]
    made = []
    for number, row in enumerate(rows, 1):
        for name in row:
            if name not in known:
                raise InputError(f"phase {number} has no field {name!r}. {near(name, known)}")
        values = {"steps": None, "accumulate": 1, "objective": None} | defaults | dict(row)
        missing = [name for name in known if name not in values]
        if missing:
            raise InputError(f"phase {number} has no {missing[0]}, and the run has none either")
        made.append(Phase(**values))
    return tuple(made)


def check_phases(phases: Sequence[Phase], steps: int) -> None:
    """Refuse phases that do not make up a run of `steps` updates."""
    if not phases:
        raise InputError("a run needs at least one phase")
    for number, phase in enumerate(phases[:-1], 1):
        if phase.steps is None:
            raise InputError(f"phase {number} of {len(phases)} has no steps: only the last may leave them out")
    given = sum(phase.steps or 0 for phase in phases)
    if phases[-1].steps is None and given >= steps:
        raise InputError(f"the phases before the last make {given} steps and leave none of the run's {steps} to it")
    if phases[-1].steps is not None and given != steps:
        raise InputError(f"the phases make {given} steps, the run {steps}: change one, or leave the last phase's out")


def phase_at(phases: Sequence[Phase], step: int) -> tuple[int, int]:
    """Index of the phase of update `step` (from 0), and the first update of that phase.

    What comes after the end belongs to the last phase: a run can be made longer.

    >>> phases = [Phase(90, "short", 1024), Phase(10, "long", 256)]
    >>> [phase_at(phases, step) for step in (0, 89, 90, 200)]
    [(0, 0), (0, 0), (1, 90), (1, 90)]
    """
    if step < 0:
        raise InputError(f"step must be at least 0. Received: {step}")
    first = 0
    for index, phase in enumerate(phases[:-1]):
        assert phase.steps is not None  # only the last leaves them out, see `check_phases`
        if step < first + phase.steps:
            return index, first
        first += phase.steps
    return len(phases) - 1, first


def stream_step(phases: Sequence[Phase], step: int) -> int:
    """The step of `Records.dataset(phase.batch, start_step=...)` that update `step` reads.

    A phase goes on where earlier phases on the same records stopped, rounded up to a whole batch of its own: growing
    batches do not read the first examples again.

    >>> phases = [Phase(10, "a", 6), Phase(10, "a", 8)]
    >>> stream_step(phases, 10), stream_step(phases, 11)
    (8, 9)
    """
    index, first = phase_at(phases, step)
    phase = phases[index]
    read = sum((earlier.steps or 0) * earlier.batch for earlier in phases[:index] if earlier.data == phase.data)
    return -(-read // phase.batch) + step - first
