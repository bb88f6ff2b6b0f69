"""CI covers what it says: every pair (stage, trait), every family once; `full` has the product."""

import pytest

from kerasbert import registry
from tests.models.cover import LEAST, STAGES, WITHOUT, candidates, cover, families, traits

POSSIBLE = candidates()
KNOWN = {name: traits(name) for names in POSSIBLE.values() for name in names}
CHOSEN = cover(POSSIBLE, KNOWN, without=WITHOUT)


def test_every_stage_meets_every_trait_and_every_family_a_stage():
    for stage, names in POSSIBLE.items():
        wanted, met = ({trait for name in of for trait in KNOWN[name]} for of in (names, CHOSEN[stage]))
        assert {trait for trait in wanted if trait[0] != WITHOUT.get(stage)} <= met
        assert len(CHOSEN[stage]) == len(set(CHOSEN[stage]))
    for name in KNOWN:
        most = sum(name in names for names in POSSIBLE.values())
        assert sum(name in names for names in CHOSEN.values()) >= min(LEAST, most)
    assert set(KNOWN) == {name for name, family in registry.families().items() if family.one_stack}


def test_it_is_less_than_the_product_and_the_same_every_time():
    counts = {stage: (len(CHOSEN[stage]), len(names)) for stage, names in POSSIBLE.items()}
    print(counts)
    assert sum(few for few, _ in counts.values()) < 0.5 * sum(every for _, every in counts.values())
    backwards = {stage: names[::-1] for stage, names in POSSIBLE.items()}
    assert {stage: sorted(names) for stage, names in cover(backwards, KNOWN, without=WITHOUT).items()} == {
        stage: sorted(names) for stage, names in CHOSEN.items()
    }


def test_a_family_without_a_new_trait_costs_one_stage():
    more = {stage: [*names, "zz-new"] for stage, names in POSSIBLE.items()}
    made = cover(more, KNOWN | {"zz-new": KNOWN["bert"]}, without=WITHOUT)
    assert sum("zz-new" in names for names in made.values()) == LEAST


@pytest.mark.parametrize("stage", STAGES)
def test_the_whole_product_is_slow_or_full(stage):
    marks = {param.values[0]: {mark.name for mark in param.marks} for param in families(stage)}
    assert list(marks) == POSSIBLE[stage]
    assert {name for name, of in marks.items() if of == {"slow"}} == set(CHOSEN[stage])
    assert {name for name, of in marks.items() if of == {"full"}} == set(POSSIBLE[stage]) - set(CHOSEN[stage])
