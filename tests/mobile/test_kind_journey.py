"""Kinds go all the way, ours and a third party's; what `check_kind` says without graphs holds of the files."""

import pytest

from kerasbert import answers
from kerasbert.mobile.testing import check_kind_journey
from kerasbert.registry import register_task
from kerasbert.tasks import base
from tests.support import forgotten
from tests.testing.grades import GradeKind, Grading
from tests.testing.test_kinds import OURS


@pytest.mark.full  # each kind's own tests go to the phone in CI, with more texts; a third party's, below, takes this way
@pytest.mark.parametrize("name", OURS)
def test_a_kind_of_ours(name, tmp_path):
    check_kind_journey(name, tmp_path, **OURS[name])


@pytest.mark.slow
def test_a_third_partys_kind(tmp_path):
    with forgotten():
        answers.register(GradeKind())
        base.register("grade", Grading)
        register_task("grades", base.Task("grades", kind="grade", metric="mean_absolute_error"))
        check_kind_journey("grades", tmp_path)
