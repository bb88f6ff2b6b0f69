"""Learning rates by hand, from their papers' formulas."""

import math

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.training.schedules import SCHEDULES, make_schedule


def rates(name, steps, warmup=0, peak=1.0, **options):
    """The rates of updates 1 .. steps."""
    schedule = make_schedule(name, peak, steps, warmup, options)
    return [float(schedule(step)) for step in range(steps)]


def test_linear():
    np.testing.assert_allclose(rates("linear", 6, 2), [0.5, 1.0, 0.8, 0.6, 0.4, 0.2], rtol=1e-6)
    np.testing.assert_allclose(rates("linear", 3, 0), [0.75, 0.5, 0.25], rtol=1e-6)


def test_linear_of_bert():
    # Devlin et al., appendix A.2: peak 1e-4 after 10,000 of a million updates
    schedule = make_schedule("linear", 1e-4, 1_000_000, 10_000)
    found = [float(schedule(update - 1)) for update in (1, 5_000, 10_000, 505_000, 1_000_000)]
    np.testing.assert_allclose(found, [1e-8, 5e-5, 1e-4, 5e-5, 1e-4 / 990_001], rtol=2e-5)


def test_polynomial():
    # left: 1, 3/4, 1/2, 1/4; squared, between 0.1 and 1
    expected = [0.1 + 0.9 * x**2 for x in (0.75, 0.5, 0.25)]
    np.testing.assert_allclose(rates("polynomial", 4, 1, power=2.0, end=0.1), [1.0, *expected], rtol=1e-6)
    np.testing.assert_allclose(rates("polynomial", 9, 3), rates("linear", 9, 3), rtol=1e-6)


def test_cosine():
    # updates 3, 4 and 5 stand at 1/4, 1/2 and 3/4 of the half circle
    quarters = [(1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
    np.testing.assert_allclose(rates("cosine", 5, 2), [0.5, 1.0, *quarters], rtol=1e-6)
    np.testing.assert_allclose(rates("cosine", 5, 2, end=0.2)[3], 0.6, rtol=1e-6)


def test_inverse_square_root_is_noam():
    # Vaswani et al., section 5.3: d^-0.5 * min(n^-0.5, n * 4000^-1.5), d = 512
    schedule = make_schedule("inverse_square_root", (512 * 4000) ** -0.5, 100_000, 4000)
    for n in (1, 100, 3999, 4000, 4001, 16_000, 100_000):
        assert float(schedule(n - 1)) == pytest.approx(512**-0.5 * min(n**-0.5, n * 4000**-1.5), rel=1e-5)
    assert float(schedule(3999)) == pytest.approx(6.99e-4, abs=5e-7)
    assert float(schedule(15_999)) == pytest.approx(6.99e-4 / 2, abs=5e-7)


def test_warmup_stable_decay():
    # of 8 updates after the warm-up the last 4 go down: a fifth, two fifths ... of the way are done
    done = np.arange(1, 5) / 5
    found = rates("warmup_stable_decay", 10, 2, decay=0.5)
    np.testing.assert_allclose(found, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, *(1 - np.sqrt(done))], rtol=1e-6)
    straight = rates("warmup_stable_decay", 10, 2, decay=0.5, power=1.0, end=0.5)
    np.testing.assert_allclose(straight[6:], 1 - 0.5 * done, rtol=1e-6)
    np.testing.assert_allclose(rates("warmup_stable_decay", 9, 1, decay=1, power=1), rates("linear", 9, 1), rtol=1e-6)
    assert rates("warmup_stable_decay", 5, 1, decay=0) == [1.0] * 5


def test_slanted_triangular():
    # Howard and Ruder, equation 3: T = 10, cut_frac = 0.2, ratio = 32: cut 2, p = t/2, then 1 - (t - 2) / (2 * (1/0.2 - 1))
    p = [0.0, 0.5, 1.0, *(1 - (t - 2) / 8 for t in range(3, 10))]
    np.testing.assert_allclose(
        rates("slanted_triangular", 10, 2, peak=0.01), [0.01 * (1 + x * 31) / 32 for x in p], rtol=1e-6
    )
    assert rates("slanted_triangular", 10, 2, ratio=4.0)[0] == 0.25


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_peaks_after_its_warm_up_and_never_stops(name):
    found = rates(name, 50, 10)
    assert max(found) == pytest.approx(1.0)
    assert np.argmax(found) == (10 if name == "slanted_triangular" else 9)
    stays = 46 if name == "warmup_stable_decay" else 11  # updates before the rate goes down
    assert np.diff(found)[:9].min() > 0 > np.diff(found)[stays:].max()
    assert np.diff(found)[11:].max() <= 0
    assert min(found) > 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_can_be_made_from_its_config(name):
    schedule = make_schedule(name, 0.5, 20, 4)
    again = type(schedule).from_config(schedule.get_config())
    assert [float(again(step)) for step in (0, 3, 9)] == [float(schedule(step)) for step in (0, 3, 9)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cosin", 1.0, 10), "no schedule 'cosin'. Nearest: 'cosine'. All: linear, polynomial, cosine"),
        (("linear", 1.0, 10, 11), "warmup 11 is not between 0 and steps 10: lower --warmup or raise --steps"),
        (("linear", 1.0, 10, 1, {"power": 2}), "schedule 'linear' has no option 'power'. It takes none"),
        (("polynomial", 1.0, 10, 1, {"powr": 2}), "no option 'powr'. Nearest: 'power'"),
        (("cosine", 1.0, 10, 1, {"end": 2}), "end of schedule 'cosine' must be from 0 to 1. Received: 2"),
        (("cosine", 1.0, 10, 1, {"end": True}), "end of schedule 'cosine' must be from 0 to 1. Received: True"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        make_schedule(*arguments)
