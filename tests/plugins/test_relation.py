"""A kind that reads two places, from a file of a plug-in to a server and a phone."""

import contextlib
import dataclasses

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.inputs import Input, row
from kerasbert.mobile.model_and_texts import check_places
from kerasbert.mobile.testing import check_kind_journey
from kerasbert.testing import check_kind
from tests.support import ROOT, forgotten

PLUGIN = ROOT / "tests" / "plugins" / "relation.py"


def test_its_halves_fit(tmp_path):
    with forgotten():
        registry.load_plugin(PLUGIN)
        check_kind("relations", tmp_path)


@pytest.mark.slow
def test_it_goes_to_a_server_and_a_phone(tmp_path):
    with forgotten():
        registry.load_plugin(PLUGIN)
        check_kind_journey("relations", tmp_path)


@pytest.mark.parametrize(("places", "fits"), [(2, True), (1, False), (3, True)])
def test_a_file_has_room_for_the_places_that_are_declared(places, fits):
    read = Input("marks", "BP", filled_by="kind", places=places)
    rows = [dataclasses.replace(row([2, 5, 3], [0] * 3), values={"marks": [0, 1]})]
    with (
        contextlib.nullcontext()
        if fits
        else pytest.raises(
            InputError, match="fills marks with 2 places a row, and its Input has room for 1: declare it with places=2"
        )
    ):
        check_places([read, Input("token_ids")], rows)


@pytest.mark.full
def test_without_a_graph_it_stays_in_python(tmp_path):
    with forgotten():
        registry.load_plugin(PLUGIN)
        kind = type(registry.task("relations").how.answers)
        kind.inputs = tuple(dataclasses.replace(each, graph=None) for each in kind.inputs)
        with pytest.raises(
            AssertionError, match="nothing fills marker_places in a graph, which a relation reads: give"
        ):
            check_kind_journey("relations", tmp_path)


def test_graph_and_python_find_the_same_places():
    from keras import ops

    from tests import tiny

    with forgotten():
        registry.load_plugin(PLUGIN)
        (read,) = registry.task("relations").how.answers.inputs
        tokenizer = tiny.tokenizer()
        texts = ["<e1> the cat <e2> a dog", "the <e1> <e2> dog", "a <e2> dog <e1> cat"]
        rows = [tokenizer.pack(text)[0] for text in texts]
        length = max(map(len, rows))
        batch = np.array([[*row, *[tokenizer.pad_id] * (length - len(row))] for row in rows], "int32")
        found = ops.convert_to_numpy(read.graph({"token_ids": batch}, tokenizer))
        kind = registry.task("relations").how.answers
        assert found.tolist() == [list(kind.rows(tokenizer, (text,), 32)[0].values["marker_places"]) for text in texts]
