"""Templates, what is kept of two texts, and rows of a tokenizer at their boundaries, by hand."""

import pytest

from kerasbert.errors import InputError
from kerasbert.text.template import Item, kept_tokens, parse_template, room
from tests import tiny

IDS = {"[CLS]": 2, "[SEP]": 3, "a:b": 7}


def test_items_of_a_template():
    assert parse_template("[CLS] $A:1 a:b [SEP]:12 $B", IDS) == (
        Item("", 2, 0),
        Item("A", -1, 1),
        Item("", 7, 0),
        Item("", 3, 12),
        Item("B", -1, 0),
    )
    for wrong in ("$C", "[SEP]:123", "[SEP]:x", "[SEP]:"):
        with pytest.raises(InputError, match="expected \\$A, \\$B or a piece of the vocabulary"):
            parse_template(f"[CLS] {wrong}", IDS)


@pytest.mark.parametrize("budget", range(9))
def test_the_longer_text_loses_its_end_first(budget):
    """As `_truncate_seq_pair`: one token after the other of the longer one, of equal ones the second."""
    for a in range(8):
        for b in range(8):
            kept = [a, b]
            while sum(kept) > budget:
                kept[kept[0] <= kept[1]] -= 1
            assert kept_tokens(budget, a, b) == tuple(kept)


def test_room_between_the_special_tokens():
    items = parse_template("[CLS] $A [SEP]", IDS)
    assert [room(items, length) for length in (2, 3, 9)] == [0, 1, 7]
    with pytest.raises(InputError, match="length is 1, expected at least 2: room for the special tokens"):
        room(items, 1)


def test_arrays_of_a_tokenizer():
    tokenizer = tiny.tokenizer()
    arrays = tokenizer(["the cat", ("the", "dog"), ""])
    assert {name: values.shape for name, values in arrays.items()} == dict.fromkeys(arrays, (3, 5))
    assert arrays["padding_mask"].sum(1).tolist() == [4, 5, 2]
    assert arrays["segment_ids"].tolist() == [[0] * 5, [0, 0, 0, 1, 1], [0] * 5]
    assert arrays["token_ids"][2].tolist() == [tokenizer.cls_id, tokenizer.sep_id, *[tokenizer.pad_id] * 3]
    assert tokenizer([])["token_ids"].shape == (0, 0)
    assert tokenizer(["the cat"], length=3)["token_ids"].shape == (1, 3)
    for wrong in (5, ("a", "b", "c"), ("a", 1)):
        with pytest.raises(InputError, match="text 1 is .*, expected a text or a pair"):
            tokenizer(["a", wrong])


def test_special_numbers_and_segments():
    tokenizer = tiny.tokenizer()
    assert (tokenizer.segments, tokenizer.special_ids) == (2, (0, 1, 2, 3, 4))
    sentinels = tokenizer.extended(["<extra_id_1>", "<extra_id_0>"])
    assert sentinels.sentinel_ids == (tokenizer.size + 1, tokenizer.size)
    assert tokenizer.sentinel_ids == tokenizer.extended(["<extra_id_1>"]).sentinel_ids == ()
    assert tokenizer.digest() == tiny.tokenizer().digest() != sentinels.digest()
