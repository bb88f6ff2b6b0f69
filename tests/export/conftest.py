"""A SavedModel that the tests here share."""

from pathlib import Path

import pytest

from tests.support import once


@pytest.fixture(scope="session")
def served(classifier, tmp_path_factory) -> Path:
    """Version 1 of the classifier."""

    def make(folder):
        import kerasbert as kb

        kb.export(classifier, folder / "author" / "1")

    return once(tmp_path_factory, "served", make)[0] / "author" / "1"
