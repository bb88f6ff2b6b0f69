"""The battery over every registered model, and over a third party's."""

import pytest

from kerasbert import registry
from tests.models import battery
from tests.support import shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records that the families share."""
    return tmp_path_factory.mktemp("battery")


@pytest.mark.parametrize("name", registry.families())
def test_every_model_passes(name, folder):
    battery.check_model(name, folder)


@pytest.mark.parametrize("name", registry.families())
def test_every_model_finetunes(name, folder, tmp_path):
    battery.check_finetuning(name, folder, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.families())
def test_every_model_makes_the_journey(name, folder):
    data = battery.sst2(folder, shared("data/glue/SST-2"))
    print(name, battery.check_journey(name, folder, data))
