"""`kerasbert check-tpu`: lower, refuse, compile, and say what a step costs."""

import dataclasses
from collections.abc import Callable

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.options import configured, option
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tpu_check import chips, compiler
from kerasbert.tpu_check.lower import Lowered, Step
from kerasbert.training.chips import GB

TILE = 8  # a TPU keeps arrays in tiles of 8 x 128: other batches waste part of one
COMPILES = 4  # in search of the largest batch, each of which takes minutes
WORTH = 16  # the search ends where the line promises less than a sixteenth more
ABSURD = 8  # times the memory: refused by estimate, for the compiler would try for hours to make it fit


@dataclasses.dataclass(frozen=True)
class Check:
    """A train step on one device of a slice.

    Args:
        name: str, the model.
        where: Slice.
        batch: rows per replica.
        length: int.
        precision: str.
        lowered: Lowered.
        compiled: Compiled, None with `lower_only`.
    """

    name: str
    where: chips.Slice
    batch: int
    length: int
    precision: str
    lowered: Lowered
    compiled: compiler.Compiled | None

    @property
    def capacity(self) -> float:
        """Bytes of HBM that one device has for programs."""
        return self.where.chip.device.hbm

    @property
    def flops(self) -> float:
        """FLOPs of one step."""
        assert self.compiled is not None
        return self.compiled.flops + self.lowered.repeated

    @property
    def roofline(self) -> chips.Roofline:
        """The bound of one step."""
        at = self.compiled
        assert at is not None  # a problem has no bound
        return chips.roofline(self.where, flops=self.flops, moved=at.moved, reduced=self.lowered.reduced)

    def to_json(self) -> Json:
        """Plain values: bytes, FLOPs, seconds."""
        found = {
            "name": self.name,
            "topology": str(self.where),
            "chips": self.where.chips,
            "replicas": self.where.replicas,
            "batch": self.batch,
            "global_batch": self.batch * self.where.replicas,
            "length": self.length,
            "precision": self.precision,
            "problems": [],
            "hbm": {"state": self.lowered.state, "capacity": self.capacity},
            "bytes_reduced": self.lowered.reduced,
        }
        if self.compiled is None:
            return found
        at, bound = self.compiled, self.roofline
        found["hbm"] |= {
            "arguments": at.arguments,
            "temporaries": at.temporaries,
            "code": at.code,
            "used": at.used,
        }
        return found | {
            "flops": self.flops,
            "bytes_hbm": at.hbm,
            "bytes_accessed": at.accessed,
            "estimated_cycles": at.cycles,
            "seconds": dataclasses.asdict(bound) | {"bound": bound.seconds},
            "limit": bound.limit,
            "utilisation": bound.utilisation,
        }

    def __str__(self) -> str:
        where, lowered, at = self.where, self.lowered, self.compiled
        rows = [
            ("slice", f"{where.chips} chips, {where.replicas} replicas, {self.precision}"),
            (
                "batch",
                f"{self.batch} x {self.length} per replica, {self.batch * where.replicas} x {self.length} in all",
            ),
            ("lowered", "no dynamic dimension, float64, host operation or unknown custom call"),
        ]
        reduced = f"{lowered.reduced / 1e9:.2f} GB summed over the replicas"
        if at is None:
            rows += [
                ("state", f"{lowered.state / GB:.2f} GB of {self.capacity / GB:.2f} GB HBM"),
                ("one step", reduced),
                ("not compiled", "temporaries, FLOPs and bytes are unknown (--lower-only)"),
            ]
        else:
            bound = self.roofline
            moved = "bytes from and to HBM unknown" if at.hbm is None else f"{at.hbm / 1e9:.1f} GB from and to HBM"
            rows += [
                (
                    "HBM",
                    f"state and batch {at.arguments / GB:.2f} + temporaries {at.temporaries / GB:.2f} + code "
                    f"{at.code / GB:.2f} = {at.used / GB:.2f} of {self.capacity / GB:.2f} GB",
                ),
                ("one step", f"{self.flops / 1e12:.2f} TFLOP, {moved}, {reduced}"),
                (
                    "at least",
                    f"{bound.compute * 1e3:.1f} ms of arithmetic, {bound.memory * 1e3:.1f} ms of memory, "
                    f"{bound.links * 1e3:.1f} ms of links: {bound.seconds * 1e3:.1f} ms",
                ),
                ("utilisation", f"at most {bound.utilisation:.0%}, limited by {bound.limit}"),
            ]
            if at.unread:
                rows.append(("not read", f"the compiled module, of which memory is the state read once: {at.unread}"))
        lines = [f"{label:14}{text}" for label, text in rows]
        return "\n".join([f"{self.name} on {where}", *(f"  {line}" for line in lines)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """Of `check_tpu`."""

    batch: int = option(32, "rows per replica, which is a chip (on v4 one of its two cores)")
    length: int = option(128, "tokens of a row")
    precision: str = option("mixed_bfloat16", "mixed_bfloat16 or float32")
    accumulate: int = option(1, "micro-batches per update")
    changes: JsonMap | None = option(None, "Spec fields at dotted paths")
    objective: str | JsonMap | None = option(
        None, "as of `kb.pretrain`: name of another than the family's, or settings with the name as `name` among them"
    )
    lower_only: bool = option(False, "do not compile, for slices that libtpu takes long for. It needs no extra")

    def __post_init__(self) -> None:
        for name in ("batch", "length", "accumulate"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1. Received: {getattr(self, name)}")


@configured(CheckConfig)
def check_tpu(
    model: str,
    topology: str = "v5e:2x2",
    *,
    say: Callable[[str], None] = lambda line: None,
    config: CheckConfig,
) -> Check:
    """Prove that a model's pretraining step runs on a TPU slice that is not here.

    Args:
        model: `family/size`.
        topology: `v5e:2x2`, `v4:2x2x1`.
        say: is told what takes minutes.
        {options}

    Raises:
        InputError: unsafe operations, with their layers; too large, by how much and which batch fits.
        ModuleNotFoundError: the extra `tpu-check` is not installed.
    """
    where = chips.topology(topology)
    family, spec = registry.find(model)
    if not config.lower_only:
        compiler.require()
    step = Step(
        family,
        specs.derive(spec, config.changes or {}),
        length=config.length,
        replicas=where.replicas,
        precision=config.precision,
        accumulate=config.accumulate,
        objective=config.objective,
        chip=where.kind,
    )
    lowered = _lower(step, model, config.batch)
    compiled = None if config.lower_only else _compiled(step, lowered, model, where, config, say)
    return Check(model, where, config.batch, config.length, config.precision, lowered, compiled)


def _compiled(
    step: Step, lowered: Lowered, model: str, where: chips.Slice, config: CheckConfig, say: Callable[[str], None]
) -> compiler.Compiled:
    """The compiled step; where it is too large, an error that names the largest batch that fits."""
    batch, rough, capacity = config.batch, step.estimate(config.batch), where.chip.device.hbm
    try:
        if rough > ABSURD * capacity:
            raise compiler.TooLarge(rough, capacity)
        say(f"compiling {model} for {where}: minutes for twelve layers")
        return compiler.compile_for(where, lowered.module)
    except compiler.TooLarge as error:
        say(f"too large: {error}. Looking for the largest batch that fits")
        fits = largest(
            lambda rows: compiler.compile_for(where, _lower(step, model, rows).module).used,
            batch,
            error,
            state=lowered.state,
            multiple=config.accumulate,
            say=say,
        )
        needs = "needs about" if error.used == rough else "needs"
        raise _refusal(f"{model} at {batch} x {config.length} per replica {needs}", where, error, fits) from error


def _refusal(subject: str, where: chips.Slice, error: compiler.TooLarge, fits: int) -> InputError:
    """The error of a step that is too large: by how much, and which batch fits."""
    advice = (
        f"the largest batch found to fit is {fits}" if fits else "no batch fits: take a smaller model or more memory"
    )
    return InputError(
        f"{subject} {error.used / GB:.2f} GB of HBM, {where.kind} has {error.capacity / GB:.2f} GB, "
        f"{(error.used - error.capacity) / GB:.2f} GB too much: {advice} (--batch; --accumulate keeps the update)"
    )


def _lower(step: Step, model: str, batch: int) -> Lowered:
    lowered = step.lower(batch)
    if lowered.problems:
        first = "; ".join(map(str, lowered.problems[:3]))
        more = f" (and {len(lowered.problems) - 3} more)" if len(lowered.problems) > 3 else ""
        raise InputError(f"{model} cannot run on a TPU: {first}{more}")
    return lowered


def largest(
    used: Callable[[int], int],
    batch: int,
    error: compiler.TooLarge,
    *,
    state: int,
    multiple: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """The largest batch that fits, by few compilations.

    Memory grows almost linearly with the batch: the next guess lies on the line through the state at batch 0, or the
    largest that fits, and the smallest that does not.

    Args:
        used: batch -> bytes, or TooLarge.
        batch: that does not fit.
        error: how it did not.
        state: bytes at batch 0.
        multiple: the answer is a multiple of it, and of 8 from 8 on.

    Returns:
        the largest batch that was compiled and fits, 0 where none did.
    """
    low, high = (0, state), (batch, error.used)
    for _ in range(COMPILES):
        guess = low[0] + (error.capacity - low[1]) * (high[0] - low[0]) / (high[1] - low[1])
        guess = _round(min(guess, high[0] - 1), multiple)
        if guess - low[0] <= low[0] // WORTH:
            break
        try:
            low = (guess, used(guess))
            say(f"batch {guess} fits")
        except compiler.TooLarge as larger:
            high = (guess, larger.used)
            say(f"batch {guess} does not fit: {larger}")
    return low[0]


def _round(batch: float, multiple: int) -> int:
    """Down to whole tiles where there is one."""
    unit = TILE * multiple if batch >= TILE * multiple else multiple
    return int(batch // unit * unit)
