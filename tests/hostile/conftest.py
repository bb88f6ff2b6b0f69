"""The processes that open files, one with children and one without, for all tests of a session."""

import pytest

from tests.hostile import fuzz


@pytest.fixture(scope="session")
def worker(tmp_path_factory):
    """Opens each file in a child of its own."""
    yield from _opened(tmp_path_factory.mktemp("forks"), True)


@pytest.fixture(scope="session")
def tensorflow_worker(tmp_path_factory):
    """Opens files itself: TensorFlow's threads do not survive a fork."""
    yield from _opened(tmp_path_factory.mktemp("no-forks"), False)


def _opened(folder, fork):
    process = fuzz.Worker(folder, fork)
    yield process
    process.close()
