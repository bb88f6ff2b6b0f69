"""What every pretraining objective must hold, ours and a third party's.

registry.load_plugin("mine.py")
check_objective("mine", tmp_path)  # seconds
"""

import copy
import functools
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from kerasbert import children, registry
from kerasbert.layers import random
from kerasbert.layers.backend import fusion
from kerasbert.layers.naming import values
from kerasbert.objectives.base import Objective
from kerasbert.testing.battery import BATCH, Subject, eagerly, relative
from kerasbert.testing.reads import Reads, Role, Split
from kerasbert.training.step import StepCore

Features = dict[str, np.ndarray]
PLACES = 12  # targets whose own prediction is looked at
TRIES = 4  # tokens that are put in the place of one
CLOSE = 1e-5
SMALL = 2e-4  # nats; float32 rounds the sum of a row to a tenth of it


def check_objective(
    name: str,
    folder: Path,
    *,
    model: str = "",
    shown: float = 0.1,
    settings: Mapping[str, object] | None = None,
    replicas: int = 2,
) -> None:
    """Everything that training asks of an objective, on a tiny model.

    `prepare` depends on (seed, step, row) and on the row alone; counts and losses are sums over rows; padding is in neither;
    a loss counts what its count counts; no prediction reads its own target; two micro-batches and two replicas make the
    update of one.

    Args:
        name: str, of a registered objective.
        folder: where records are made.
        model: str, name of the family that is trained; empty: the first whose objective it is, else BERT.
        shown: float, share of the targets that the inputs may show: BERT leaves a tenth of the chosen tokens as they are. 1
            where the target is the text itself (autoencoders, shuffled tokens).
        settings: of the objective, over its own.
        replicas: int, 1 leaves the process with two replicas out.

    Raises:
        AssertionError: what does not hold, in a sentence.
    """
    trial = Trial(name, folder, model, settings or {})
    with eagerly(), fusion(False):
        check_prepared(trial)
        check_draws(trial)
        check_sums(trial)
        check_padding(trial)
        check_counted(trial)
        check_targets(trial, shown)
        check_micro_batches(trial.made)
    if replicas > 1:
        check_replicas(trial, folder, replicas)


class Trial:
    """An objective on a tiny model, and rows to try it on.

    Args:
        name, folder, model, settings: as of `check_objective`.
    """

    def __init__(self, name: str, folder: Path, model: str, settings: Mapping[str, object]) -> None:
        of_its_own = (family.name for family in registry.families().values() if family.objective == name)
        self.name, self.model, self.settings = name, model or next(of_its_own, "bert"), settings
        self.subject = Subject(self.model, folder, objective=name)
        self.program, _ = self.made()
        self.features = varied(self.subject.records().dataset(BATCH, seed=0))

    def made(self) -> tuple[Objective, Subject]:
        """The objective on a new model of the same weights, and the subject."""
        return self.subject.program(self.subject.encoder(), self.settings), self.subject

    def prepared(self, features: Features, seed: int | None = None) -> dict[str, np.ndarray]:
        """The batch that `prepare` makes."""
        program = self.program
        if seed is not None:
            program = copy.copy(program)
            program.seed = seed
        made = program.prepare({name: tf.convert_to_tensor(value) for name, value in features.items()})
        return {name: np.asarray(value) for name, value in made.items()}

    @functools.cached_property
    def whole(self) -> Features:
        """The batch of all rows, with the objective's own seed."""
        return self.prepared(self.features)

    def sums(self, batch: Mapping[str, object]) -> dict[str, float]:
        """The losses of a batch, with dropout as in training."""
        row = batch.batch["row"] if isinstance(batch, Reads) else batch["row"]
        if not isinstance(batch, Reads):
            batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
        with random.scope(tf.constant([0, 0], tf.uint32), tf.convert_to_tensor(row)):
            return {name: float(value) for name, value in self.program.losses(batch, training=True).items()}

    def counts(self, batch: Mapping[str, object]) -> dict[str, float]:
        """The counts of a batch."""
        made = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
        return {name: float(value) for name, value in self.program.counts(made).items()}

    @property
    def losses(self) -> list[str]:
        """Names of the losses, without metrics."""
        return [*self.program.scales]


def varied(dataset: tf.data.Dataset) -> Features:
    """A batch of records of which half the rows have padding, where any has: numbered as a batch is."""
    batches = [{name: np.asarray(value) for name, value in batch.items()} for batch in dataset.take(8)]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    lengths = joined["segment_lengths"].sum(1) if "segment_lengths" in joined else np.zeros(len(joined["row"]))
    order = np.argsort(lengths, kind="stable")
    picked = np.concatenate([order[: BATCH // 2], order[-(BATCH // 2) :]])
    rows = {name: value[picked] for name, value in joined.items()}
    return rows | {"row": np.arange(BATCH, dtype=np.int32), "step": np.full(BATCH, 3, np.int32)}


def take(rows: Mapping[str, np.ndarray], picked: Sequence[int] | slice | np.ndarray) -> dict[str, np.ndarray]:
    """Some rows of features or of a batch."""
    return {name: value[picked] for name, value in rows.items()}


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    """Names of what differs."""
    return [name for name in one if not np.array_equal(one[name], other[name])]


def check_prepared(trial: Trial) -> None:
    """`prepare` gives the same for the same (seed, step, row), whatever rows stand beside it."""
    whole = trial.whole
    for name, value in whole.items():
        assert value.shape[:1] == (BATCH,), (
            f"prepare gives {name} of shape {value.shape} for {BATCH} rows: each row of the records is one row of the batch"
        )
    assert {"row", "token_ids"} <= {*whole}, f"prepare gives {', '.join(whole)}: expected row and token_ids among them"
    again = same(whole, trial.prepared(trial.features))
    assert not again, (
        f"prepare gives other {', '.join(again)} at a second call: draw by random.key(seed, ..., step, row)"
    )
    for picked in (slice(None, None, -1), slice(0, BATCH // 2), [5, 2], [BATCH - 1]):
        other = same(take(whole, picked), trial.prepared(take(trial.features, picked)))
        assert not other, (
            f"prepare gives a row other {', '.join(other)} where other rows stand beside it: a row may depend on itself, the "
            "seed, its step and its number alone"
        )


def check_draws(trial: Trial) -> None:
    """What is drawn is drawn anew for each row and each step."""
    whole = trial.whole
    if not same(whole, trial.prepared(trial.features, seed=1)):
        return  # nothing is drawn
    later = trial.features | {"step": trial.features["step"] + 1}
    assert same(whole, trial.prepared(later)), (
        "prepare draws by the seed and not by the step: every epoch gets the same draw"
    )
    fullest = int(np.argmax(real(trial.features).sum(1)))
    alike = take(trial.features, [fullest] * BATCH) | {"row": np.arange(BATCH, dtype=np.int32)}
    made = trial.prepared(alike)
    drawn = [name for name, value in made.items() if name != "row" and (value != value[:1]).any()]
    assert drawn, "prepare draws by the seed and not by the row: all rows of a batch get the same draw"


def check_sums(trial: Trial) -> None:
    """Counts and losses of two halves add up to those of the whole."""
    whole = trial.whole
    halves = [take(whole, picked) for picked in ([0, 3, 4], [1, 2, 5, 6, 7])]
    for kind, of in (("counts", trial.counts), ("losses", trial.sums)):
        found, parts = of(whole), [of(half) for half in halves]
        for name, value in found.items():
            total = sum(part[name] for part in parts)
            assert relative(total, value) < CLOSE, (
                f"{kind}: {name} of two parts of a batch is {total:.6g}, of the whole {value:.6g}: give the sum over the rows, "
                "no mean, and let no row read another"
            )
    counts, losses = trial.counts(whole), trial.sums(whole)
    missing = [name for name in trial.losses if name not in counts or name not in losses]
    assert not missing, f"scales name {', '.join(missing)}, which counts and losses do not both give"
    strange = [name for name in losses if name.partition("/")[0] not in counts]
    assert not strange, f"losses give {', '.join(strange)} without a count: name metrics LOSS/METRIC"


def check_padding(trial: Trial) -> None:
    """What changes in a padded place changes no loss and no count."""
    features, whole = trial.features, trial.whole
    other = int(np.setdiff1d(np.arange(trial.subject.tokenizer.size), trial.subject.tokenizer.special_ids)[5])
    changed = trial.prepared(features | {"token_ids": np.where(real(features), features["token_ids"], other)})
    for kind, of in (("counts", trial.counts), ("losses", trial.sums)):
        before, after = of(whole), of(changed)
        moved = [name for name in before if relative(after[name], before[name]) > CLOSE]
        assert not moved, f"{kind}: another token in a padded place changes {', '.join(moved)}: count real tokens alone"


def check_counted(trial: Trial) -> None:
    """A loss counts the targets that its count counts: where the network says nothing, each target costs the same."""
    kept = [(weight, weight.numpy()) for weight in trial.program.model.weights]
    for weight, value in kept:
        weight.assign(np.zeros_like(value))
    try:
        rows = [take(trial.whole, [row]) for row in range(BATCH)]
        losses, counts = [trial.sums(row) for row in rows], [trial.counts(row) for row in rows]
    finally:
        for weight, value in kept:
            weight.assign(value)
    for name in trial.losses:
        costs = [loss[name] / count[name] for loss, count in zip(losses, counts, strict=True) if count[name] > 0]
        none = [loss[name] for loss, count in zip(losses, counts, strict=True) if not count[name] > 0]
        assert not np.any(none), f"{name}: a row without targets has a loss of {max(none):.4g}"
        assert not costs or np.ptp(costs) < 1e-3 * max(1.0, max(costs)), (
            f"{name}: with all weights 0 a target costs {min(costs):.4f} in one row and {max(costs):.4f} in another: losses and "
            "counts count other targets, such as padding"
        )


def check_targets(trial: Trial, shown: float) -> None:
    """No prediction reads its own target, but for the share that may be shown."""
    whole = trial.whole
    roles = Reads.roles(trial.program, whole)
    inputs, targets = ({name for name, role in roles if role is wanted} for wanted in (True, False))
    check_drawn_inputs(trial, inputs, targets - inputs - Reads.counted(trial.program, whole))
    asked, visible = 0, []
    told = [token for token in changed_tokens(trial) if targets & {*same(take(whole, [token[0]]), token[2])}]
    # a token that is drawn otherwise, because a word begins elsewhere, changes the inputs in several places
    told = [token for token in told if alone(take(whole, [token[0]]), token[2], inputs)] or told
    for row, place, other in told[:PLACES]:
        said = seen(trial, roles, take(whole, [row]), other)
        asked += said is not None
        visible += [f"row {row}, token {place}"] * bool(said)
    bound = shown * asked + 3 * (asked * shown * (1 - shown)) ** 0.5
    assert len(visible) <= bound, (
        f"{len(visible)} of {asked} predictions change with their own target ({', '.join(visible[:3])}, ...), where {shown:.0%} "
        "may be shown: an input holds what is to be predicted"
    )


def alone(one: Features, other: Features, names: Iterable[str]) -> bool:
    """Whether two batches of one row differ in at most one place of each of the named arrays."""
    differ = (
        (one[name] != other[name]).reshape(*one[name].shape[:2], -1).any(-1) for name in names if one[name].ndim > 1
    )
    return all(np.count_nonzero(places) <= 1 for places in differ)


def changed_tokens(trial: Trial) -> list[tuple[int, int, Features]]:
    """(row, place, the row's batch with another token in that place), of ordinary tokens in any order."""
    features, generator = trial.features, np.random.default_rng(0)
    ordinary = np.setdiff1d(np.arange(trial.subject.tokenizer.size), trial.subject.tokenizer.special_ids)
    places = np.argwhere(np.isin(features["token_ids"], ordinary) & real(features))
    places = generator.permutation(places)[: 12 * PLACES]
    variants = take(features, np.repeat(places[:, 0], TRIES))
    variants["token_ids"] = variants["token_ids"].copy()
    for number, (row, place) in enumerate(np.repeat(places, TRIES, axis=0)):
        others = np.setdiff1d(ordinary, features["token_ids"][row])
        variants["token_ids"][number, place] = generator.choice(others)
    made, whole = trial.prepared(variants), trial.whole
    rows = np.repeat(places[:, 0], TRIES)
    # one that changes as little else as may be: the beginning of a word in the place of another
    changes = sum((value != whole[name][rows]).reshape(len(rows), -1).sum(1) for name, value in made.items())
    best = np.argmin(np.asarray(changes).reshape(-1, TRIES), axis=1) + TRIES * np.arange(len(places))
    return [(int(row), int(place), take(made, [number])) for number, (row, place) in zip(best, places, strict=True)]


def real(features: Features) -> np.ndarray:
    """Where the rows of records have tokens: bool [B, S]."""
    ids = features["token_ids"]
    if "segment_lengths" not in features:
        return np.ones(ids.shape, bool)
    return np.arange(ids.shape[1]) < features["segment_lengths"].sum(1, keepdims=True)


def seen(trial: Trial, roles: Sequence[Role], one: Features, other: Features) -> bool | None:
    """Whether the prediction of the targets that differ between two batches is told by the inputs; None where none differ.

    What the changed targets cost, loss(inputs, targets of the other) - loss(inputs, own targets), is then not the same with
    the inputs of both.
    """

    def costs(inputs: Features) -> dict[str, float]:
        changed, own = (trial.sums(Split(inputs, targets, roles)) for targets in (other, one))
        return {name: changed[name] - own[name] for name in trial.losses}

    before = costs(one)
    if not any(abs(value) > SMALL for value in before.values()):
        return None
    after = costs(other)
    return any(abs(before[name] - after[name]) > SMALL for name in before)


def check_drawn_inputs(trial: Trial, inputs: set[str], labels: set[str]) -> None:
    """Where another draw gives other targets, it gives other inputs."""
    others = [trial.prepared(trial.features, seed=seed) for seed in (1, 2, 3)]
    moved = [same(take(trial.whole, [row]), take(other, [row])) for other in others for row in range(BATCH)]
    drawn = [names for names in moved if labels & {*names}]
    blind = [names for names in drawn if not inputs & {*names}]
    assert len(blind) * 2 <= len(drawn), (
        f"another draw changes the targets {', '.join(sorted(labels & {*blind[0]}))} and no input: the network reads the text as "
        "it was, not what was made of it"
    )


def check_micro_batches(
    made: Callable[[], tuple[Objective, Subject]], counts: Sequence[int] = (1, 2), steps: int = 1
) -> None:
    """The weights after updates are the same for every number of micro-batches.

    Args:
        made: () -> an objective and its Subject, the same at each call.
        counts: numbers of micro-batches. steps: int, updates.
    """
    found = {}
    for accumulate in counts:
        program, subject = made()
        strategy = tf.distribute.get_strategy()
        core = StepCore(program, keras.optimizers.SGD(0.1), strategy, accumulate=accumulate, seed=5)
        data = iter(subject.records().dataset(BATCH, seed=0, prepare=program.prepare))
        with eagerly():
            for _ in range(steps):
                core.step(next(data))
        found[accumulate] = values(program.model)
    first, *others = counts
    for name, value in found[first].items():
        for other in others:
            np.testing.assert_allclose(
                found[other][name], value, rtol=0, atol=1e-6, err_msg=f"{name}: {other} micro-batches are not {first}"
            )


def check_replicas(trial: Trial, folder: Path, replicas: int) -> None:
    """Two updates on so many replicas, in a process of its own, are those on one."""
    found = []
    for count in (1, replicas):
        out = folder / f"replicas-{trial.name}-{count}.npz"
        asked = [f"cpu:{count}" if count > 1 else "cpu", str(folder), str(out), f"{trial.model}:{trial.name}"]
        program = (
            "import sys; from kerasbert import registry; from kerasbert.testing import replicas; "
            "[registry.load_plugin(path) for path in sys.argv[5:]]; replicas.main(*sys.argv[1:4], sys.argv[4:5])"
        )
        command = children.command(program, *asked, *registry.plugin_files())
        made = subprocess.run(command, env=children.environment(), capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-2000:]
        found.append(np.load(out))
    for name in found[0].files:
        error = float(np.abs(found[0][name] - found[1][name]).max())
        assert error <= 1e-6, (
            f"{name}: two updates on {replicas} replicas are not those on one, they differ by {error:.2g}"
        )
