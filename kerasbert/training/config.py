"""The options of training, each once: a field with its line of help. No TensorFlow.

`pretrain`, `finetune`, `distill` and what trains through them take the fields as keyword arguments (`configured`), recipes and
plans as keys, both command lines as options (`cli.options`). A new option is one line here, read as `config.NAME` where it acts.
What a class below another says is only its difference: `batch: int = 32`.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from kerasbert.errors import InputError, nearest
from kerasbert.training.constraints import Constraint

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = "auto (the GPUs, else the CPU), cpu, cpu:N, gpu, gpu:N, tpu:local{} tpu:NAME[@ZONE]{}"
OLD_NAMES = {"projection": "constraint"}


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    least: float | None = None,
    flag: str | bool = True,
    recipe: bool = True,
    metavar: str | None = None,
    read: Callable[[str], Any] | None = None,
    unit: float | None = None,
    python: str = "",
) -> Any:
    """A field of a class of options.

    Args:
        default: its default; without one it is required.
        help: one line, for `--help` and the docstring.
        least: the smallest value allowed.
        flag: `--name`, where it is not the field's own; False for none.
        recipe: whether recipes and plans may say it.
        metavar: what stands for the value in `--help`.
        read: makes the value of the command line's text; a ValueError for a text that means nothing.
        unit: what 1 is on the command line, where its unit is not the field's.
        python: what the docstring says besides.
    """
    about = {"help": help, "least": least, "flag": flag, "recipe": recipe, "metavar": metavar}
    return dataclasses.field(default=default, metadata=about | {"read": read, "unit": unit, "python": python})


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
    warmup: int | None = option(None, "updates; a tenth of all by default")
    weight_decay: float = option(0.01, "share of a weight that decays, times the learning rate", least=0)
    clip: float = option(1.0, "largest global norm of the gradient", least=0)
    precision: str = option("float32", "float32, mixed_bfloat16 or mixed_float16")
    seed: int = option(0, "of initialisation, shuffling, masking and dropout", least=0)
    optimizer: str = option("adamw", "adamw, lamb or adafactor", python="See `training.optimizers`")
    optimizer_options: Mapping[str, Any] | None = option(
        None,
        "of the optimizer",
        flag=False,
        python='With {"ema": 0.999} the run leaves the moving average of the weights',
    )
    schedule: str = option("linear", "linear, polynomial, cosine, inverse_square_root or slanted_triangular")
    schedule_options: Mapping[str, Any] | None = option(None, "see `training.schedules`", flag=False)
    freeze: Sequence[str] | None = option(
        None,
        "leave the weights as they are in whose names this is found, such as '^block_[0-5]/' or encoder; repeatable",
        metavar="PATTERN",
        python="Regular expressions; see `training.freezing`",
    )

    def __post_init__(self):
        _check(self)
        for name in ("optimizer_options", "schedule_options"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        if self.precision not in PRECISIONS:
            raise InputError(f"no precision {self.precision!r}. Expected one of: {', '.join(PRECISIONS)}")
        if self.steps is not None and not 0 <= self.warmup_steps <= self.steps:
            raise InputError(f"warmup must be between 0 and steps ({self.steps}). Received: {self.warmup}")
        # here: both import Keras
        from kerasbert.training.optimizers import check_optimizer, check_patterns
        from kerasbert.training.schedules import make_schedule

        check_optimizer(self.optimizer, self.optimizer_options or {})
        check_patterns("freeze", self.freeze or ())
        if self.steps is not None:
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

    def to_json(self) -> dict[str, Any]:
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
        flag="--peak-tflops",
        metavar="PEAK_TFLOPS",
        unit=1e12,
        python="FLOP/s",
    )
    save_every: int = option(1000, "updates between checkpoints", least=0)
    keep_every: int = option(0, "updates whose checkpoints are kept for good, beside the newest two", least=0)
    log_every: int = option(10, "updates between lines of the log, which are means over them", least=1)
    quiet: bool = option(False, "print no progress", recipe=False)

    def __post_init__(self):
        super().__post_init__()
        if self.profile is not None and (len(self.profile) != 2 or self.profile[0] < 0 or self.profile[1] < 1):
            raise InputError(f"profile must be a first update and a number of updates. Received: {self.profile}")
        if self.peak is not None and not self.peak > 0:
            raise InputError(f"peak must be more than 0 FLOP/s. Received: {self.peak}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """Of `kerasbert.pretrain`."""

    steps: int  # pyright: ignore[reportGeneralTypeIssues]  # `option` gives it no default
    batch: int = 256
    learning_rate: float = 1e-4
    strategy: str = option("auto", STRATEGIES.format(",", " or multiworker"))
    evaluate_every: int = option(0, "updates between evaluations on held-out records", least=0)
    held_out: str | os.PathLike | None = option(
        None,
        "records for it; by default the last shard, or the last rows of a single one",
        metavar="DIR",
        python="Of a single shard the last twentieth of the rows",
    )
    changes: Mapping[str, Any] | None = option(
        None,
        "Spec fields at dotted paths, over the named model's",
        flag=False,
        python="A named model takes its vocabulary's size from the tokenizer unless `embeddings.vocabulary` is among them",
    )
    objective: str | Mapping[str, Any] | None = option(
        None,
        "another than the model's own: kerasbert list objectives; its settings: --set objective.FIELD=VALUE",
        metavar="NAME",
        python="Or a mapping: settings at dotted paths, over the objective's own, and the name as `name` where it is another",
    )
    masking: Mapping[str, Any] | None = option(
        None, "old name of the objective's settings", flag=False, python="A dict, or the settings themselves"
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledConfig(RunConfig):
    """What fine-tuning and distillation share: epochs, and an evaluation that chooses the best weights."""

    epochs: int = option(3, "times that every row is read, without `steps`")
    steps: int | None = option(None, "instead of --epochs")
    batch: int = 32
    length: int | None = option(
        None, "longest text in tokens, here and in every answer (default: 128)", python="At most the model's positions"
    )
    metric: str | Callable[[Any, Any], float] | None = option(
        None,
        "what the best weights are chosen by",
        metavar="NAME",
        python="Or a function of one's own, (outputs, targets) -> float, larger is better; see `registry.register_metric`",
    )
    save_every: int | None = None
    evaluate_every: int | None = option(None, "updates between evaluations; once an epoch by default", least=0)
    changes: Mapping[str, Any] | None = option(
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
    constraint: Constraint | None = option(
        None,
        "what the weights must satisfy (training.constraints), such as pruning",
        flag=False,
        recipe=False,
        python="The best weights are then among those that do. `projection` is its old name",
    )

    def settled(self, epoch: int) -> Self:
        """The same with the steps that its epochs make, of so many updates each; evaluated once an epoch."""
        steps = self.steps or self.epochs * epoch
        evaluate = min(epoch, steps) if self.evaluate_every is None else self.evaluate_every
        save = self.save_every or min(1000, epoch)
        return dataclasses.replace(self, steps=steps, evaluate_every=evaluate, save_every=save)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(LabelledConfig):
    """Of `kerasbert.finetune`."""

    learning_rate: float = 5e-5
    patience: int | None = option(None, "evaluations without improvement before it stops")
    keep_head: bool = option(False, "go on with the head of a fine-tuned RUN (after pruning or trimming it)")
    text_column: str | None = option(None, "column of the text in your files", metavar="NAME")
    text_b_column: str | None = option(None, "column of the text b in your files", metavar="NAME")
    label_column: str | None = option(None, "column of the label in your files", metavar="NAME")
    language: str | None = option(None, "of the texts, for a model that reads it (XLM)", metavar="NAME")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksConfig(FinetuneConfig):
    """Of `kerasbert.finetune_tasks`."""

    sampling: str = option(
        "proportional",
        "which task an update is of: proportional, square_root, annealed or uniform",
        python="See `training.sampling`",
    )


def options(config: Any) -> dict[str, dataclasses.Field]:
    """Every option of a class, in order; what a class leaves unsaid about a field, the one above it says.

    Of a training function those of its class; nothing of what has none.
    """
    found = getattr(config, "options", {}) if not dataclasses.is_dataclass(config) else {}
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        about = {}
        for base in reversed(config.__mro__):  # pyright: ignore[reportAttributeAccessIssue]  # it is a class
            said = vars(base).get("__dataclass_fields__", {}).get(field.name)
            about |= said.metadata if said is not None else {}
        whole: Any = dataclasses.field(default=field.default, metadata=about)  # typeshed: the default's type
        whole.name, whole.type = field.name, field.type
        found[field.name] = whole
    return found


def defaults(config: type) -> dict[str, Any]:
    """What a run of that class has where its run.json says nothing: it was begun before there was such an option."""
    settings = {field.name for field in dataclasses.fields(TrainConfig)}
    fields = {name: field for name, field in options(config).items() if name in settings}
    return {name: field.default for name, field in fields.items() if field.default not in (dataclasses.MISSING, None)}


def types_of(field: dataclasses.Field) -> tuple[Any, ...]:
    """The types that a field takes, without None.

    >>> types_of(options(FinetuneConfig)["steps"])
    (<class 'int'>,)
    """
    among = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    return tuple(kind for kind in among if kind is not type(None))


def _check(config: Any) -> None:
    """Refuse a number that is out of its field's range."""
    for name, field in options(type(config)).items():
        value, least = getattr(config, name), field.metadata.get("least")
        if least is None or (value is None and types.NoneType in typing.get_args(field.type)):
            continue
        whole = int in types_of(field)
        fits = isinstance(value, int if whole else numbers.Real) and not isinstance(value, bool)
        number: Any = value if fits else math.nan
        if not (math.isfinite(number) and number >= least):
            kind = "whole number" if whole else "number"
            raise InputError(f"{name} must be a {kind} of at least {least}. Received: {value!r}")


def described(fields: Mapping[str, dataclasses.Field]) -> str:
    """The lines of a docstring's `Args:` about some fields."""
    lines = []
    for name, field in fields.items():
        kind = re.sub(r"\b(\w+\.)+", "", inspect.formatannotation(field.type))  # Mapping, not collections.abc.Mapping
        more = f". {field.metadata['python']}" if field.metadata["python"] else ""
        line = f"{name}: {kind}, {field.metadata['help']}{more}."
        lines.append(textwrap.fill(line, 116, subsequent_indent="    ", break_long_words=False))
    return textwrap.indent("\n".join(lines), " " * 8).strip()


def configured(config: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorator of a training function `f(model, ..., config)`: users give the fields of `config` as keyword arguments.

    `inspect.signature`, `help` and notebooks show every field; `{options}` in the docstring becomes their lines.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = [name for name in inspect.signature(function).parameters if name != "config"]

        def call(**arguments: Any) -> Any:
            given = {name: arguments.pop(name) for name in own}
            return function(**given, config=config(**arguments))

        return _taking(function, call, config)

    return decorate


def passing(*sources: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorator of a function `f(run, ..., **options)` that hands its options on.

    Args:
        sources: classes of options, or functions, whose arguments they are; of two of a name the first counts.
    """
    return lambda function: _taking(function, function, *sources)


def _taking(function: Callable[..., Any], call: Callable[..., Any], *sources: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, named and documented as `function`, with the arguments of `sources` as its own."""
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind != p.VAR_KEYWORD and p.name != "config"]
    named = {p.name: p for source in reversed(sources) for p in inspect.signature(source).parameters.values()}
    more = [p.replace(kind=p.KEYWORD_ONLY) for p in named.values() if p.name not in plain.parameters]
    signature = plain.replace(parameters=own + more)

    def checked(*positional: Any, **given: Any) -> Any:
        given = {OLD_NAMES.get(name, name): value for name, value in given.items()}
        for name in given:
            if name not in signature.parameters:
                close = nearest(name, signature.parameters)
                raise InputError(f"{function.__name__} has no option {name!r}. Nearest: {close!r}")
        bound = signature.bind(*positional, **given)
        for parameter in own:
            if parameter.default is not parameter.empty:
                bound.arguments.setdefault(parameter.name, parameter.default)
        return call(**bound.arguments)

    whole: Any = functools.wraps(function)(checked)
    whole.__signature__ = signature
    whole.options = {name: field for source in reversed(sources) for name, field in options(source).items()}
    if function.__doc__:  # not under -OO
        whole.__doc__ = function.__doc__.replace("{options}", described(whole.options))
    return whole
