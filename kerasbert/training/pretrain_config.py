"""The options of a pretraining."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from kerasbert.errors import InputError
from kerasbert.options import option
from kerasbert.storage.json_view import JsonMap
from kerasbert.training.config import STRATEGIES, RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """Of `kerasbert.pretrain`."""

    steps: int | None = option(None, "updates; with --on-task 100 epochs by default", least=1)
    batch: int = 256
    learning_rate: float = 1e-4
    strategy: str = option("auto", STRATEGIES.format(",", " or multiworker"))
    on_task: str | Any | None = option(
        None,
        "pretrain RUN on the texts of this task, whose files --data holds: glue/sst2, ...",
        metavar="TASK",
        python="Or a Task; `data` is then as of `finetune`. Labels are not read",
    )
    length: int | None = option(None, "tokens of a row, with --on-task (default: 128)", least=8)
    evaluate_every: int = option(0, "updates between evaluations on held-out records", least=0)
    held_out: str | os.PathLike | None = option(
        None,
        "records for it; by default the last shard, or the last rows of a single one",
        metavar="DIR",
        python="Of a single shard the last twentieth of the rows",
    )
    changes: JsonMap | None = option(
        None,
        "Spec fields at dotted paths, over the named model's",
        flag=False,
        python="A named model takes its vocabulary's size from the tokenizer unless `embeddings.vocabulary` is among them",
    )
    objective: str | JsonMap | None = option(
        None,
        "another than the model's own: kerasbert list objectives; its settings: --set objective.FIELD=VALUE",
        metavar="NAME",
        python="Or a mapping: settings at dotted paths, over the objective's own, and the name as `name` where it is another",
    )
    init: str | os.PathLike | None = option(
        None, "start from these weights", metavar="RUN", python="The same as `model`=directory"
    )
    phases: Sequence[Any] | None = option(
        None,
        "stretches of the run with their own records, batch, accumulate and settings of the objective (training.phases)",
        flag=False,
        python="Such as 90% of the steps on records of 128 tokens and the rest on 512; what a phase leaves out is the run's",
    )
    plugin: Mapping[str, str] | None = option(None, "the plug-in that brings the model", flag=False, recipe=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_task is None and self.steps is None:
            raise InputError("pretrain needs steps, which the call does not give")
        if isinstance(self.phases, str):
            raise InputError(f"phases must be a list of mappings. Received: {self.phases!r:.60}")
        if self.on_task is None and self.length is not None:
            raise InputError(
                "the records have their length: kerasbert data FILES --length N ... makes them; leave --length out"
            )
        if self.on_task is not None and (self.phases or self.held_out):
            what = "phases" if self.phases else "held_out"
            raise InputError(f"{what} is of records, received on_task with the files of a task: leave {what} out")
