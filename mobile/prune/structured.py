"""Heads, feed-forward neurons and layers that really go: a smaller model directory, faster wherever it runs.

The result computes what the model computed with the same parts masked. Fine-tune it further to win back what was lost:
`kerasbert.finetune(out, task, data, keep_head=True, ...)`.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kerasbert import checkpoints
from kerasbert.errors import InputError
from kerasbert.layers import mix
from kerasbert.layers.naming import names
from kerasbert.options import check_ranges, checked, configured, option
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.load import task_of
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.rows import Rows
from kerasbert.tasks.tables import Data
from kerasbert.tasks.task import Task
from kerasbert.text.base import Tokenizer
from kerasbert.training.splits import split
from kerasbert.value_types import check_type
from . import rewrite
from .importance import OUTPUT, importance, least, normalised
from .slices import Cut

ROWS = 512  # labelled texts that the importance is measured on
Chosen = TypeVar("Chosen", dict[int, list[int]], list[int])  # layer -> its heads that go, or the layers that stay


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutConfig:
    """What `heads` and `width` are asked for."""

    out: str | os.PathLike = option(help="the model directory to write")
    share: float | None = option(
        None, "in (0, 1), of all heads; each layer keeps one at least, and layers that share weights lose equally many"
    )
    rounds: int = option(1, "the share goes in so many parts, the importance measured anew after each", least=1)
    rows: int = option(ROWS, "texts that the importance is measured on", least=1)
    length: int | None = option(None, "longest text in tokens; by default that of the task, or 128")
    overwrite: bool = option(False, "replace out")

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsConfig(CutConfig):
    """Those of `heads`."""

    remove: Mapping[int, Sequence[int]] | None = option(None, "layer -> heads, in the place of data and share")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WidthConfig(CutConfig):
    """Those of `width`."""

    share: float = option(help="in (0, 1), of the neurons", python="Every network loses equally many")


@configured(HeadsConfig)
def heads(run: str | os.PathLike, data: Data | None = None, *, config: HeadsConfig) -> Json:
    """Take attention heads out of a model: those without which its loss changes least, or those that are named.

    Args:
        run: directory of a fine-tuned model (with `remove` of any).
        data: labelled rows as for `finetune`; of a folder the train file's first `rows`.
        {options}

    Returns:
        {"out", "removed": {layer: heads of the given model}, "heads": per layer, "parameters": (before, after)}.

    Raises:
        InputError: a share, layer or head out of range, all heads of a layer, a model without a task.
    """
    if config.remove is not None:
        if config.share is not None:
            raise InputError("remove and share are both given, expected one: what goes is named or measured")
        gone = {int(layer): list(heads) for layer, heads in config.remove.items()}
        return _write(run, config.out, config.overwrite, gone, Cut.without_heads)

    def groups(cut: Cut) -> dict[str, int]:
        spec, kernel = cut.spec, "block_{}/attention/output/kernel"
        return {kernel.format(i): spec.per_layer(spec.attention.heads, i) for i in cut.attention_layers()}

    def take(cut: Cut, chosen: Mapping[str, list[int]]) -> Cut:
        return cut.without_heads({_layer(name): gone for name, gone in chosen.items()})

    report, removed = _measured(run, data, config, groups, take)
    return report | {"removed": {_layer(name): gone for name, gone in removed.items()}}


@configured(WidthConfig)
def width(run: str | os.PathLike, data: Data, *, config: WidthConfig) -> Json:
    """Take neurons out of the feed-forward networks, equally many out of each, by the same importance; as `heads`.

    Args:
        {options}
    """

    def groups(cut: Cut) -> dict[str, int]:
        return {f"{network}/outer/kernel": len(cut.tensors[f"{network}/outer/kernel"]) for network in cut.networks()}

    def take(cut: Cut, chosen: Mapping[str, list[int]]) -> Cut:
        return cut.without_neurons({name.removesuffix("/outer/kernel"): gone for name, gone in chosen.items()})

    report, removed = _measured(run, data, config, groups, take, evenly=True)
    return report | {"removed": {name.removesuffix("/outer/kernel"): gone for name, gone in removed.items()}}


@checked
def layers(run: str | os.PathLike, *, out: str | os.PathLike, keep: Sequence[int], overwrite: bool = False) -> Json:
    """Drop layers (Fan et al., 2020, section 3.2; Sanh et al., 2019, start their student from every second layer).

    Args:
        run: a model directory.
        out: the model directory to write.
        keep: the layers that stay, 0 to L-1.

    Returns:
        {"out", "kept", "heads", "parameters": (before, after)}.
    """
    check_type("keep", Sequence[int], keep)
    return _write(run, out, overwrite, list(keep), Cut.with_layers)


def _write(
    run: str | os.PathLike, out: str | os.PathLike, overwrite: bool, chosen: Chosen, take: Callable[[Cut, Chosen], Cut]
) -> Json:
    files.check_free(out, overwrite, [run])
    info, tensors = rewrite.read_blocks(run)
    cut = Cut(info.spec, tensors)
    done = take(cut, chosen)
    mix.check((info.task or {}).get("layers", "last"), done.spec.blocks.layers)
    rewrite.write(run, out, info, done.spec, done.tensors, rewrite.tokenizer(run), overwrite)
    return _report(out, cut, done) | {"kept" if isinstance(chosen, list) else "removed": chosen}


def _report(out: str | os.PathLike, before: Cut, after: Cut) -> Json:
    spec = after.spec
    return {
        "out": str(out),
        "heads": [spec.per_layer(spec.attention.heads, i) for i in range(spec.blocks.layers)],
        "width": [spec.per_layer(spec.feedforward.width, i) for i in range(spec.blocks.layers)],
        "parameters": tuple(sum(value.size for value in cut.tensors.values()) for cut in (before, after)),
    }


def _model(info: checkpoints.ModelInfo, cut: Cut, task: Task, tokenizer: Tokenizer | None) -> TaskModel:
    encoder = rewrite.encoder(info, cut.spec, cut.tensors)
    encoder.tokenizer = tokenizer
    model = TaskModel(encoder, task, name="label_model")
    model.build()
    for name, variable in names(model).items():
        if name.startswith("heads/"):
            variable.assign(cut.tensors[name])
    return model


def _layer(kernel: str) -> int:
    """The layer of a kernel that reads the heads."""
    found = OUTPUT.match(kernel)
    assert found is not None
    return int(found[1])


def _labelled(run: str | os.PathLike, data: Data | None, task: Task, rows: int) -> Rows:
    """The first rows of a task's data, to measure the importance on.

    Raises:
        InputError: there are none.
    """
    if data is None:
        raise InputError("no data, expected labelled rows of the task to measure the importance on")
    known = split(task, data, start=run)
    labelled = known.train or known.dev
    if labelled is None:
        raise InputError(f"{data} has neither train nor dev rows, expected some to measure the importance on")
    return labelled.take(range(min(rows, len(labelled.texts))))


def _measured(
    run: str | os.PathLike,
    data: Data | None,
    config: CutConfig,
    groups: Callable[[Cut], dict[str, int]],
    take: Callable[[Cut, Mapping[str, list[int]]], Cut],
    evenly: bool = False,
) -> tuple[Json, dict[str, list[int]]]:
    """Cut by importance, in rounds -> report, and what is gone by kernel, numbered as in the given model."""
    share, rounds = config.share, config.rounds
    if share is None or type(share) not in (int, float) or not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1, such as 0.33. Received: {share!r}")
    files.check_free(config.out, config.overwrite, [run, *([data] if isinstance(data, str | os.PathLike) else [])])
    info, tensors = rewrite.read_blocks(run)
    cut, task, tokenizer = Cut(info.spec, tensors), task_of(info), rewrite.tokenizer(run)
    if task is None:
        raise InputError(f"{run} is not fine-tuned, and importance is measured by a task's loss: name what to remove")
    labelled = _labelled(run, data, task, config.rows)
    evenly = evenly or info.spec.blocks.share != "none"
    total = groups(cut)
    removed: dict[str, list[int]] = {name: [] for name in total}
    left = {name: list(range(count)) for name, count in total.items()}
    done, before = 0, cut
    # evenly: of each kernel; else of all of them together
    whole = round(share * (min(total.values()) if evenly else sum(total.values())))
    for part in range(1, rounds + 1):
        count = round(whole * part / rounds) - done
        model = _model(info, cut, task, tokenizer)
        longest = predict.longest(
            model, config.length or min(task.length or 128, predict.positions(model) or sys.maxsize)
        )
        scores = importance(model, labelled, groups(cut), longest)
        scores = {name: normalised(scores[name]) for name in total}
        chosen = least(scores, count, evenly=evenly)
        cut, done = take(cut, chosen), done + count
        for name, gone in chosen.items():
            removed[name] += [left[name][i] for i in gone]
            left[name] = [origin for i, origin in enumerate(left[name]) if i not in set(gone)]
    rewrite.write(run, config.out, info, cut.spec, cut.tensors, tokenizer, config.overwrite)
    return _report(config.out, before, cut), {name: sorted(gone) for name, gone in removed.items()}
