"""Names of the ways from the vectors of tokens to one vector; `layers.readout` computes them. Standard library only."""

from kerasbert.errors import InputError

LATE = "late"  # of labels: those of every token, averaged
READOUTS = ("first", "last", "mean", "max", "mean_sqrt_len", "weighted_mean", "concat", "none")


def reads_pooler(encoder: object, pooler: bool | None, kind: str) -> bool:
    """Whether a task of a kind reads the pooler's vector, of an encoder, or a class of them, that has one."""
    kinds = getattr(encoder, "pooled_kinds", None)
    return bool(pooler) and (kinds is None or kind in kinds)


def readouts_of(kind: str) -> tuple[str, ...]:
    """The readouts that stand side by side: "mean+max" is two, and "concat" three (Howard and Ruder, 2018, section 3.3).

    Raises:
        InputError: no such readout.
    """
    names = kind.split("+") if isinstance(kind, str) else [kind]
    names = tuple("first" if name == "cls" else name for name in names)
    if any(name not in READOUTS for name in names) or (len(names) > 1 and {"concat", "none"} & set(names)):
        known = ", ".join(READOUTS)
        raise InputError(f"readout must be one of {known}, or some with + between them. Received: {kind!r}")
    return ("last", "max", "mean") if names == ("concat",) else names
