"""Phases: which records and which batch hold at an update."""

import pytest

from kerasbert.errors import InputError
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.training.phases import Phase, check_phases, make_phases, phase_at, stream_step

BERT = (Phase(900_000, "128", 1024), Phase(100_000, "512", 256))


def test_bert_has_two_phases_of_the_same_number_of_tokens():
    assert [phase_at(BERT, step) for step in (0, 899_999, 900_000, 999_999)] == [
        (0, 0),
        (0, 0),
        (1, 900_000),
        (1, 900_000),
    ]
    assert {phase.batch * int(phase.data) for phase in BERT} == {131_072}
    check_phases(BERT, 1_000_000)


def test_every_update_belongs_to_one_phase():
    phases = (Phase(3, "a", 2), Phase(1, "a", 4), Phase(None, "b", 8))
    assert [phase_at(phases, step)[0] for step in range(7)] == [0, 0, 0, 1, 2, 2, 2]
    check_phases(phases, 7)
    check_phases(phases, 70)  # the last one takes what a longer run adds


def test_a_batch_warm_up_reads_every_example_once():
    phases = (Phase(4, "a", 2), Phase(3, "a", 4), Phase(3, "a", 8))
    read = []
    for step in range(10):
        batch = phases[phase_at(phases, step)[0]].batch
        read += range(stream_step(phases, step) * batch, (stream_step(phases, step) + 1) * batch)
    assert len(read) == len(set(read)) == 4 * 2 + 3 * 4 + 3 * 8
    assert read == sorted(read)
    assert max(read) < len(read) + 8  # less than a batch is left out where a batch does not divide


def test_other_records_begin_at_their_start():
    assert stream_step(BERT, 899_999) == 899_999
    assert stream_step(BERT, 900_000) == 0
    again = (Phase(2, "a", 2), Phase(2, "b", 2), Phase(2, "a", 2))
    assert stream_step(again, 4) == 2


def test_fields_that_a_phase_leaves_out_are_the_runs():
    made = make_phases([{"steps": 9, "data": "x"}, {"accumulate": 2, "steps": 1}], data="y", batch=4)
    assert made == (Phase(9, "x", 4), Phase(1, "y", 4, 2))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"step": 3}], "phase 1 has no field 'step'. Nearest: 'steps'"),
        ([{"steps": 3}, {"steps": 0}], "steps of a phase must be a whole number of at least 1. Received: 0"),
        ([{"steps": True}], "steps of a phase must be a whole number of at least 1. Received: True"),
        ([{"batch": 6, "accumulate": 4}], "batch 6 of a phase is not a multiple of its accumulate 4"),
    ],
)
def test_mistakes_in_a_phase(rows, message):
    with pytest.raises(InputError, match=message):
        make_phases(rows, data="a", batch=4)


def test_a_phase_without_records():
    with pytest.raises(InputError, match="phase 1 has no data, and the run has none either"):
        make_phases([{"steps": 3}], batch=4)


@pytest.mark.parametrize(
    ("phases", "steps", "message"),
    [
        ((), 3, "at least one phase"),
        ((Phase(None, "a", 2), Phase(2, "a", 2)), 4, "phase 1 of 2 has no steps: only the last may leave them out"),
        ((Phase(4, "a", 2), Phase(None, "a", 2)), 4, "make 4 steps and leave none of the run's 4 to it"),
        ((Phase(4, "a", 2), Phase(2, "a", 2)), 7, "the phases make 6 steps, the run 7"),
    ],
)
def test_phases_that_do_not_make_up_the_run(phases, steps, message):
    with pytest.raises(InputError, match=message):
        check_phases(phases, steps)


def test_no_update_before_the_first():
    with pytest.raises(InputError, match="step must be at least 0"):
        phase_at(BERT, -1)


def test_a_phase_may_mask_differently():
    changes = {"select": "words", "rate": 0.2}
    plain, words = Phase(3, "a", 2), Phase(None, "a", 2, objective=changes)
    run = MaskedLM(mask=0.9, random=0.05)
    assert plain.settings(run) == run
    assert words.settings(run) == MaskedLM(mask=0.9, random=0.05, select="words", rate=0.2)
    assert plain.to_json() == {"steps": 3, "data": "a", "batch": 2, "accumulate": 1}
    assert Phase(**words.to_json()) == words


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"selct": "words"}, "the objective of a phase has no setting 'selct'. Nearest: 'select'"),
        ({"select": "word"}, "no select function 'word'. Nearest: 'words'"),
        ({"rate": 1.5}, "masking rate 1.5"),
    ],
)
def test_settings_of_a_phase_that_cannot_be(objective, message):
    with pytest.raises(InputError, match=message):
        Phase(3, "a", 2, objective=objective).settings(MaskedLM())
