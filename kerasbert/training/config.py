"""The options of training, each once: a field with its line of help. No TensorFlow.

`pretrain`, `finetune`, `distill` and what trains through them take the fields as keyword arguments (`configured`), recipes and
plans as keys, both command lines as options (`cli.options`). A new option is one line here, read as `config.NAME` where it acts.
What a class below another says is only its difference: `batch: int = 32`.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from kerasbert.errors import InputError
from kerasbert.family import check_layers
from kerasbert.inputs import Tensor, listed
from kerasbert.options import check_ranges, option, options
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.table import shipped
from kerasbert.text.knowledge import KnowledgeGraph
from kerasbert.training.adversarial import Way, way
from kerasbert.training.constraints import Constraint
from kerasbert.training.weight_rules import check_patterns

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "auto")
# options that a training by few_shot does not take
NOT_FEW = (
    "keep_head",
    "lora",
    "adapters",
    "layers",
    "auxiliary_lm",
    "patience",
    "unfreeze",
    "graph",
    "language",
    "adversarial",
    "reinit",
)
EPOCHS = 3  # of a fine-tuning without epochs or steps
STRATEGIES = "auto (the GPUs, else the CPU), cpu, cpu:N, gpu, gpu:N, tpu:local{} tpu:NAME[@ZONE]{}"


def _numbers(text: str) -> list[int]:
    """`4,2` -> [4, 2]."""
    return [int(each) for each in text.split(",")]


def _profile(text: str) -> tuple[int, int]:
    """`START:COUNT` -> (first update from 0, number of updates)."""
    start, count = text.split(":")
    if not (start.isdecimal() and count.isdecimal()):
        raise ValueError(text)
    return int(start), int(count)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """What the result of a training depends on; all of it is in run.json.

    `steps` and `warmup` are None where they follow from something else: `settled` gives the steps.
    """

    steps: int | None = option(help="updates", least=1)
    batch: int = option(help="rows in a global batch", least=1)
    learning_rate: float = option(help="peak of the schedule", least=0)
    accumulate: int = option(1, "micro-batches per update", least=1)
    warmup: int | None = option(None, "updates; a tenth of all by default", least=0)
    weight_decay: float = option(0.01, "share of a weight that decays, times the learning rate", least=0)
    clip: float = option(1.0, "largest global norm of the gradient", least=0)
    precision: str = option(
        "float32", "float32, mixed_bfloat16, mixed_float16 or auto: bfloat16 on a TPU and on a CPU that multiplies it"
    )
    seed: int = option(0, "of initialisation, shuffling, masking and dropout", least=(0, 2**32 - 1))
    optimizer: str = option("adamw", "adamw, lamb or adafactor", python="See `training.optimizers`")
    optimizer_options: JsonMap | None = option(
        None,
        "of the optimizer",
        flag=False,
        python='With {"ema": 0.999} the run leaves the moving average of the weights',
    )
    schedule: str = option(
        "linear", "linear, polynomial, cosine, inverse_square_root, slanted_triangular or warmup_stable_decay"
    )
    schedule_options: JsonMap | None = option(None, "see `training.schedules`", flag=False)
    freeze: Sequence[str] | None = option(
        None,
        "leave the weights as they are in whose names this is found, such as '^block_[0-5]/' or encoder; repeatable",
        metavar="PATTERN",
        python="Regular expressions; see `training.freezing`",
    )
    unfreeze: int | None = option(
        None,
        "train heads and pooler first, every N updates one layer more from the top",
        least=1,
        metavar="N",
        python="See `training.weight_rules.starts`",
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("optimizer_options", "schedule_options"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        if self.precision not in PRECISIONS:
            raise InputError(f"no precision {self.precision!r}. Expected one of: {', '.join(PRECISIONS)}")
        if self.steps is not None and not 0 <= self.warmup_steps <= self.steps:
            raise InputError(f"warmup must be between 0 and steps ({self.steps}). Received: {self.warmup}")
        object.__setattr__(self, "freeze", listed(self.freeze))
        check_patterns("freeze", self.freeze or ())
        if self.optimizer_options or self.optimizer not in shipped()["optimizers"]:  # Keras is imported for these alone
            from kerasbert.training.optimizers import check_optimizer

            check_optimizer(self.optimizer, self.optimizer_options or {})
        if self.steps is not None and (self.schedule_options or self.schedule not in shipped()["schedules"]):
            from kerasbert.training.schedules import make_schedule

            make_schedule(self.schedule, self.learning_rate, self.steps, self.warmup_steps, self.schedule_options)

    @property
    def updates(self) -> int:
        """The steps, once they are settled."""
        assert self.steps is not None
        return self.steps

    @property
    def warmup_steps(self) -> int:
        """Updates of the warm-up: those asked for, or a tenth of the steps, which grows with them."""
        return self.updates // 10 if self.warmup is None else self.warmup

    def to_json(self) -> Json:
        """What run.json holds of it: the fields of this class as they were asked for."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(TrainConfig)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(TrainConfig):
    """Beside that: where a run lies and is computed, how it is watched and kept; none of it changes the result."""

    out: str | os.PathLike = option(help="the run directory", metavar="DIR")
    overwrite: bool = option(False, "replace what --out holds", recipe=False)
    strategy: str = option("auto", STRATEGIES.format(" or", ""))
    evaluate_every: int = option(0, "updates between evaluations; the last one is evaluated too", least=0)
    skip_bad_steps: int = option(0, "leave out N updates that are not finite", least=0, metavar="N")
    profile: tuple[int, int] | None = option(
        None, "trace these updates for TensorBoard", metavar="START:COUNT", read=_profile
    )
    peak: float | None = option(
        None,
        "of all devices, to tell the utilisation",
        least=0,
        flag=("--peak-tflops", 1e12),
        metavar="PEAK_TFLOPS",
        python="FLOP/s",
    )
    save_every: int = option(1000, "updates between checkpoints", least=0)
    keep_every: int = option(0, "updates whose checkpoints are kept for good, beside the newest two", least=0)
    log_every: int = option(10, "updates between lines of the log, which are means over them", least=1)
    quiet: bool = option(False, "print no progress", recipe=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile is not None and (len(self.profile) != 2 or self.profile[0] < 0 or self.profile[1] < 1):
            raise InputError(f"profile must be a first update and a number of updates. Received: {self.profile}")
        if self.peak is not None and not self.peak > 0:
            raise InputError(f"peak must be more than 0 FLOP/s. Received: {self.peak}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledConfig(RunConfig):
    """What fine-tuning and distillation share: epochs, and an evaluation that chooses the best weights."""

    epochs: int | None = option(None, "times that every row is read (default: 3)", least=1)
    steps: int | None = option(None, "updates, instead of --epochs", least=1)
    batch: int = 32
    length: int | None = option(
        None,
        "longest text in tokens, here and in every answer (default: 128)",
        least=3,
        python="At most the model's positions",
    )
    metric: str | Callable[[Tensor, Tensor], float] | None = option(
        None,
        "metric that selects the best weights: accuracy, f1, ... (default: the task's own)",
        metavar="NAME",
        python="Or a function of one's own, (outputs, targets) -> float, larger is better; see `registry.register_metric`",
    )
    save_every: int | None = None
    evaluate_every: int | None = option(None, "updates between evaluations; once an epoch by default", least=0)
    changes: JsonMap | None = option(
        None, "dropout rates at dotted paths, and options of the task's kind as task.NAME", flag=False
    )
    cache: str | os.PathLike | None = option(
        None,
        "folder for tokens and a teacher's answers, that several runs may share",
        metavar="DIR",
        python="`out`/cache by default, which may be deleted at any time. Tokens are kept there where tokenizing takes more "
        "than 5 s, here always; answers (float32, worked out before the first update where no layers are compared) up to "
        "2^28 bytes",
    )
    callbacks: Sequence[Any] = option(
        (),
        "Keras callbacks, called at the same moments as in fit",
        flag=False,
        recipe=False,
        python="Their logs are the losses of an epoch and, after an evaluation, `val_NAME` of each metric; `model.stop_training` "
        "ends the run. A run that goes on counts its epochs on. Those that change the learning rate, or save what is resumed "
        "from, are refused: the run does both (`schedule`)",
    )
    constraint: Constraint | None = option(
        None,
        "what the weights must satisfy (training.constraints), such as pruning",
        flag=False,
        recipe=False,
        python="The best weights are then among those that do",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps is not None:
            raise InputError(f"epochs {self.epochs} and steps {self.steps} are both given, expected one of them")

    def settled(self, epoch: int) -> Self:
        """The same with the steps that its epochs make, of so many updates each; evaluated once an epoch."""
        steps = self.steps or (self.epochs or EPOCHS) * epoch
        evaluate = min(epoch, steps) if self.evaluate_every is None else self.evaluate_every
        save = self.save_every or min(1000, epoch)
        return dataclasses.replace(self, epochs=None, steps=steps, evaluate_every=evaluate, save_every=save)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(LabelledConfig):
    """Of `kerasbert.finetune`."""

    learning_rate: float = 5e-5
    patience: int | None = option(
        None, "evaluations without a better metric, or an equal one with a lower loss, before it stops", least=1
    )
    lora: int | None = option(
        None, "train low-rank updates of frozen matrices; further: --set lora.alpha=16", least=1, metavar="RANK"
    )
    adapters: int | None = option(
        None, "train bottlenecks behind frozen sublayers, and the norms", least=1, metavar="WIDTH"
    )
    keep_head: bool = option(False, "go on with the head of a fine-tuned RUN (after pruning or trimming it)")
    few_shot: bool = option(
        False,
        "from few rows of each label: train vectors on pairs of them first, then a head on the vectors (SetFit)",
        python="See `training.few_shot`; learning rate, batch, epochs (1) and steps are of the vectors",
    )
    text_column: str | None = option(None, "column of the text in your files", metavar="NAME")
    text_b_column: str | None = option(None, "column of the text b in your files", metavar="NAME")
    label_column: str | Sequence[str] | None = option(
        None, "column of the label in your files; of multi_label several columns of 0 and 1", metavar="NAME", read=str
    )
    label_names: Sequence[str] | None = option(
        None,
        "names of labels that are numbers in your files, from 0: O,B-PER,I-PER",
        metavar="NAME,NAME",
        read=lambda text: text.split(","),
    )
    encoding: str | None = option(
        None, "of the files, where they are not UTF-8 and have no byte order mark: cp1250, koi8-r", metavar="NAME"
    )
    delimiter: str | None = option(
        None,
        "between the columns of a csv: ';', '|', tab; found in the file where it is not given",
        metavar="CHARACTER",
    )
    columns: Sequence[str] | None = option(
        None,
        "names of all columns, of a csv or tsv without a header: text,label",
        metavar="NAME,NAME",
        read=lambda text: text.split(","),
    )
    skip_unlabelled: bool = option(False, "leave out rows without a label, and count them")
    language: str | None = option(None, "of the texts, for a model that reads it (XLM)", metavar="NAME")
    graph: str | os.PathLike | KnowledgeGraph | None = option(
        None,
        "triples for K-BERT, subject, predicate, object with tabs between: of a BERT or K-BERT as RUN; it travels with the model",
        metavar="FILE",
        python="`.spo`; or a `text.knowledge.KnowledgeGraph`. Without it a K-BERT keeps the graph that its directory holds",
    )
    prefix: str | None = option(
        None,
        "in front of every source, of a task that writes: 'translate English to German: '",
        python="The option `prefix` of the task's kind",
    )
    loss: str | None = option(
        None,
        "of vectors: cosine, cosent, angle or contrastive (task sts), ranking, triplet, margin_mse or kl (task pairs)",
        metavar="NAME",
        python="The option `loss` of a task of vectors; see `tasks.vector_losses`",
    )
    dims: Sequence[int] | None = option(
        None,
        "of vectors: their first numbers are to be vectors too, 384,256,128,64 (Matryoshka)",
        metavar="N,N",
        read=_numbers,
        python="The option `dims` of a task of vectors; its model answers with the first 64 by `task.dimensions`=64",
    )
    depths: Sequence[int] | None = option(
        None,
        "of vectors: what these layers give is to be a vector too, as the last one's is: 4,2 (2D Matryoshka)",
        metavar="N,N",
        read=_numbers,
        python="The option `depths` of a task of vectors; `kerasbert-mobile prune --layers` leaves the layers above out",
    )
    layers: str | None = option(
        None,
        "what the head reads: the last layer, embeddings, sum4 or concat4 of the last four, or a learnt mix of all",
        metavar="NAME",
        python="One of `family.LAYERS`; with freeze=['encoder'] the model lends features alone",
    )
    auxiliary_lm: float | None = option(
        None, "learn the next token of the texts too, with this weight: GPT's 0.5", least=0, metavar="WEIGHT"
    )
    reinit: int | None = option(
        None, "start the pooler and the N last layers as new ones, not as they were pretrained", least=1, metavar="N"
    )
    adversarial: str | None = option(
        None,
        "answer alike nearby: smart, freelb or vat change the word embeddings, r_drop the dropout; further: "
        "--set adversarial.weight=3",
        metavar="NAME",
        python="Their settings, with the papers' values, stand in `training.adversarial`",
    )

    @property
    def way(self) -> Way | None:
        """How it asks for the same answer nearby, with the settings among the changes."""
        return way(self.adversarial, self.changes, self.precision)

    @property
    def reading(self) -> Json:
        """What is said of tables (`data.dialects.Reading`)."""
        return {name: getattr(self, name) for name in ("encoding", "delimiter", "columns", "skip_unlabelled")}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.layers or "last", layers=math.inf)
        self.way  # noqa: B018 (it checks them)
        for name in ("keep_head", "lora", "adapters"):
            if self.reinit and getattr(self, name):
                what = "goes on with what was trained" if name == "keep_head" else "freezes the layers as they are"
                raise InputError(f"reinit starts layers as new ones, and {name} {what}: leave one out")
        if self.few_shot and (given := [name for name in NOT_FEW if getattr(self, name) not in (None, False)]):
            raise InputError(f"few_shot trains vectors, then a head of its own: leave {', '.join(given)} out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksConfig(FinetuneConfig):
    """Of `kerasbert.finetune_tasks`."""

    sampling: str = option(
        "proportional",
        "which task an update is of: proportional, square_root, annealed, uniform or temperature",
        python="See `training.sampling`",
    )
    sampling_limit: int | None = option(
        None, "most rows that a task counts as, with --sampling temperature", least=1, metavar="K"
    )
    sampling_temperature: float | None = option(
        None, "of --sampling temperature; 1, by default, is proportional to the rows", least=1, metavar="T"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sampling_limit", "sampling_temperature"):
            if getattr(self, name) is not None and self.sampling != "temperature":
                raise InputError(f"{name} goes with sampling 'temperature'. Received: {self.sampling!r}")

    @property
    def mixture(self) -> Json:
        """How tasks are drawn, where that is not said by the name of the sampling."""
        if self.sampling != "temperature":
            return {}
        return {"limit": self.sampling_limit, "temperature": self.sampling_temperature or 1.0}


def check_rows(config: RunConfig, rows: int, batch: int | None = None) -> None:
    """Refuse a batch that the rows do not fill; one that was not chosen is filled up with rows of no weight instead.

    Args:
        rows: int, examples of an epoch. batch: int, of a phase; by default the run's, which is chosen if it is not 32.
    """
    if (batch or config.batch) > rows and not (
        batch is None and config.batch == options(type(config))["batch"].default
    ):
        raise InputError(f"batch is {batch or config.batch}, the training rows are {rows}: lower --batch")
