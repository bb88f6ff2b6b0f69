"""What networks read: arrays of rows, settings, makers."""

import numpy as np
import pytest

from kerasbert import inputs
from kerasbert.errors import InputError
from kerasbert.inputs import PAD, TEXT, Input, row

LANGUAGE = Input(
    "language_ids", optional=True, filled_by="setting", setting="language", choices=lambda _: {"en": 0, "fr": 2}
)


def test_rows_are_padded_and_rows_that_fill_up_see_one_token():
    arrays = inputs.arrays(TEXT, [row([5, 6], [0, 1]), row([7], [0])], 3, pad_id=9, count=3)
    assert arrays["token_ids"].tolist() == [[5, 6, 9], [7, 9, 9], [9, 9, 9]]
    assert arrays["padding_mask"].tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert arrays["segment_ids"].tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert {array.dtype for array in arrays.values()} == {np.dtype("int32")}


def test_a_setting_is_an_input_only_where_it_is_given():
    declared = (*TEXT, LANGUAGE)
    assert "language_ids" not in inputs.arrays(declared, [row([5, 6], [0, 0])], 3)
    numbers = inputs.numbers(declared, None, {"language": "fr"})
    assert inputs.arrays(declared, [row([5, 6], [0, 0])], 3, settings=numbers)["language_ids"].tolist() == [[2, 2, 0]]
    assert inputs.numbers(declared, None, {"language": None}) == {}
    with pytest.raises(InputError, match=r"no language 'fra'. Nearest: 'fr'. All: en, fr"):
        inputs.numbers(declared, None, {"language": "fra"})
    with pytest.raises(InputError, match=r"""no language "\['fr'\]". All: en, fr"""):
        inputs.numbers(declared, None, {"language": ["fr"]})
    with pytest.raises(InputError, match=r"the model takes no language. Received: 'fr'. Leave --language out"):
        inputs.numbers(TEXT, None, {"language": "fr"})


def test_a_maker_fills_a_square_for_each_row():
    same = Input(
        "visible_matrix",
        "BSS",
        "bool",
        filled_by="maker",
        make=lambda values: np.equal.outer(values["segment_ids"], values["segment_ids"]),
    )
    made = inputs.arrays((*TEXT, same), [row([5, 6, 7], [0, 0, 1]), row([5], [0])], 4)["visible_matrix"]
    assert made[0].astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert made[1].sum() == 1
    assert (made.shape, made.dtype) == ((2, 4, 4), bool)


def test_nobody_but_those_known_fills_an_input():
    with pytest.raises(InputError, match="filled by 'nobody', expected one of"):
        Input("x", pad=PAD, filled_by="nobody")
