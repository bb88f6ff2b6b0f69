"""Which families go through which expensive stage in CI; `-m full` takes every family through every stage.

A stage can break for what a family has, such as shared layers or no pooler, so that CI covers every pair (stage, trait), and
takes every family through one stage at least. A family without a new trait costs that one.
"""

import collections
import functools
from collections.abc import Hashable, Mapping, Sequence

import pytest

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.layers.block import Block
from kerasbert.testing.battery import different

# stage -> what families that are otherwise one encoder differ in, see `different`; None: every family
STAGES: dict[str, tuple[str, ...] | None] = {
    "journey": ("tokenizer",),
    "finetune": None,
    "static": (),
    "aware": (),
    "cut": (),
    "prune": (),
    "trim": ("objective", "tokenizer"),
    "student": (),
    "teacher": (),
    "tokens": (),
}
OF_ANY = ("journey", "finetune")  # the others work on what is in blocks
LEAST = 1
CHEAP = "finetune"  # the stage for a family that brings no trait: seconds, where a journey takes half a minute
WITHOUT = {stage: "tokenizer" for stage, by in STAGES.items() if by is not None and "tokenizer" not in by}


def traits(name: str) -> set[tuple[str, Hashable]]:
    """What a family has that a stage may not know."""
    family = registry.family(name)
    spec = family.size(next(iter(family.sizes)))
    return {
        ("norm", specs.maybe(spec, "blocks.norm")),
        ("share", specs.maybe(spec, "blocks.share")),
        ("pooler", bool(specs.maybe(spec, "pooler"))),
        ("segments", bool(specs.maybe(spec, "embeddings.segments"))),
        ("narrow embeddings", specs.maybe(spec, "embeddings.width") not in (None, spec.hidden)),
        ("offset", bool(specs.maybe(spec, "embeddings.offset"))),
        ("languages", hasattr(spec.embeddings, "languages")),
        ("blocks", getattr(family.encoder, "block_class", Block) is registry.family("bert").encoder.block_class),
        ("tokenizer", family.tokenizer),
    }


def cover(
    candidates: Mapping[str, Sequence[str]],
    known: Mapping[str, set[tuple[str, Hashable]]],
    least: int = LEAST,
    without: Mapping[str, str] | None = None,
    cheap: str = CHEAP,
) -> dict[str, list[str]]:
    """Stage -> families such that every pair (stage, trait) and every family `least` times are there.

    Args:
        candidates: stage -> the families that it can take.
        known: family -> its traits, (name, value).
        least: stages of a family.
        without: stage -> name of the traits that cannot matter to it.
        cheap: the stage for such a family, if it can take it.
    """
    without = without or {}
    chosen: dict[str, list[str]] = {stage: [] for stage in candidates}
    load: collections.Counter[str] = collections.Counter()

    def take(stage: str, name: str) -> None:
        chosen[stage].append(name)
        load[name] += 1

    for stage, names in candidates.items():
        missing = {trait for name in names for trait in known[name] if trait[0] != without.get(stage)}
        while missing:  # the most that is new, the one least used so far
            best = max(sorted(names), key=lambda name: (len(known[name] & missing), -load[name]))
            take(stage, best)
            missing -= known[best]
    for name in sorted(known):
        while load[name] < least:
            stages = [stage for stage, names in candidates.items() if name in names and name not in chosen[stage]]
            if not stages:
                break
            take(min(stages, key=lambda stage: (stage != cheap, len(chosen[stage]))), name)
    return chosen


def candidates() -> dict[str, list[str]]:
    """Stage -> the families that differ for it."""
    names = {stage: list(registry.families()) if by is None else different(*by) for stage, by in STAGES.items()}
    every = registry.families()
    return {
        stage: [name for name in of if every[name].one_stack and (every[name].has_blocks or stage in OF_ANY)]
        for stage, of in names.items()
    }


@functools.cache
def _covered() -> dict[str, list[str]]:
    possible = candidates()
    known = {name: traits(name) for names in possible.values() for name in names}
    return cover(possible, known, without=WITHOUT)


def families(stage: str, quick: Sequence[str] = ()) -> list:
    """Parameters of a test: `slow` where CI takes the family through the stage, else `full`; `quick` ones neither."""
    parameters = []
    for name in candidates()[stage]:
        mark = pytest.mark.slow if name in _covered()[stage] else pytest.mark.full
        parameters.append(pytest.param(name, marks=() if name in quick else mark))
    return parameters
