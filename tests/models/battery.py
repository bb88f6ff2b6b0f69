"""What every model must pass, ours and a third party's: one battery, no list kept by hand (see test_battery.py)."""

from kerasbert import spec as specs

HIDDEN = 16


def tiny(spec: specs.Spec, vocabulary: int) -> dict:
    """Changes that make any Spec tiny, whatever fields its family adds.

    Known sizes get known values; any other whole number above 16 becomes 8, 16 or 24 as it was below, at or above
    `hidden`, so that what is narrower, as wide or wider than H stays so.
    """
    known = {
        "vocabulary": vocabulary,
        "positions": 32 + spec.embeddings.offset,
        "heads": 2,
        "layers": 2,
        "hidden": HIDDEN,
    }
    changes = {}
    for path in specs.paths(type(spec)):
        value, name = specs.get(spec, path), path.rpartition(".")[2]
        if type(value) is not int:
            continue
        if name in known:
            changes[path] = known[name] if name in ("vocabulary", "positions") else min(value, known[name])
        elif value > HIDDEN:
            changes[path] = 8 if value < spec.hidden else HIDDEN if value == spec.hidden else 24
    return changes
