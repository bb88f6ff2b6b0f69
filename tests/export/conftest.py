"""SavedModels that the tests here share, and a server."""

from pathlib import Path

import pytest

from tests.export import served as serving
from tests.support import once


@pytest.fixture(scope="session")
def served(classifier, tmp_path_factory) -> Path:
    """Version 1 of the classifier."""

    def make(folder):
        import kerasbert as kb

        kb.export(classifier, folder / "author" / "1")

    return once(tmp_path_factory, "served", make)[0] / "author" / "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Versions of a model that is a few operators."""
    return serving.write(tmp_path_factory.mktemp("serving") / "tiny" / "3", 3).parent


@pytest.fixture(scope="module")
def tiny(folder):
    """A server of it, in a thread."""
    with serving.server({"tiny": folder}, max_body=200_000, timeout=1.0) as one:
        yield one
