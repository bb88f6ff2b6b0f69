"""Slices and the roofline, worked out by hand."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tpu_check import chips


def test_topologies_count_chips_and_replicas():
    assert [(t.chips, t.replicas, str(t)) for t in map(chips.topology, ("v5e:2x2", "v5e:8x8", "v6e:2x4"))] == [
        (4, 4, "v5e:2x2"),
        (64, 64, "v5e:8x8"),
        (8, 8, "v6e:2x4"),
    ]
    # libtpu compiles for each of a v4 chip's two cores
    assert (chips.topology("v4:2x2x1").chips, chips.topology("v4:2x2x1").replicas) == (4, 8)


@pytest.mark.parametrize("name", ["v5e", "v5e:", "v5e:4", "v5e:0x2", "v5e:2x2x2x2", "v5e-4", "2x2", ""])
def test_other_forms_are_refused(name):
    with pytest.raises(InputError, match=r"no topology .*expected CHIP:AxB or CHIP:AxBxC such as v5e:2x2"):
        chips.topology(name)


def test_an_unknown_chip_names_the_nearest():
    with pytest.raises(InputError, match="no TPU chip 'v5'. Nearest: 'v5[ep]'. All: v4, v5e, v5p, v6e"):
        chips.topology("v5:2x2")


def test_roofline_by_hand():
    where = chips.topology("v5e:2x2")
    bound = chips.roofline(where, flops=197e12 * 0.010, moved=819e9 * 0.040, reduced=100e9 * 0.002)
    # a ring of four sends 2 * 3/4 of the bytes over links of 100 GB/s each way
    assert (bound.compute, bound.memory, bound.links) == pytest.approx((0.010, 0.040, 0.003))
    assert (bound.seconds, bound.limit, bound.utilisation) == (bound.memory, "memory", pytest.approx(0.25))


def test_one_replica_sums_nothing():
    assert chips.roofline(chips.topology("v5e:1x1"), flops=1.0, moved=1.0, reduced=1e9).links == 0


def test_a_core_of_v4_has_half_of_its_chip():
    whole, half = chips.CHIPS["v4"], chips.CHIPS["v4"].device
    assert (half.hbm * 2, half.peak * 2, half.bandwidth * 2, half.links * 2) == (
        whole.hbm,
        whole.peak,
        whole.bandwidth,
        whole.links,
    )
    assert chips.CHIPS["v5p"].device == chips.CHIPS["v5p"]
