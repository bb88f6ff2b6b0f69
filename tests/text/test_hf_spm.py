"""SentencePiece models in the order of ids that a paper's tokenizer has, and the sentinels of a T5."""

import pytest

from kerasbert.errors import InputError
from kerasbert.text.hf_spm import fairseq_order, sentencepiece_order, with_mask
from kerasbert.text.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Model
from kerasbert.text.unigram import BERT


def model(pieces, types=None):
    """A model whose scores are all different."""
    types = types or (NORMAL,) * len(pieces)
    return Model(tuple(pieces), tuple(-0.5 * i for i in range(len(pieces))), tuple(types))


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_fairseqs_order_and_back(count):
    """<s> <pad> </s> <unk>, then each piece with its score and type one further, then <mask>."""
    pieces = [f"p{i}" for i in range(count)]
    plain = model(["<unk>", "<s>", "</s>", *pieces], (UNKNOWN, CONTROL, CONTROL, *((NORMAL, BYTE) * count)[:count]))
    plain = plain._replace(scores=(0.0, 0.0, 0.0, *plain.scores[3:]))
    found = fairseq_order(plain)
    assert found.pieces == ("<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>")
    assert found.scores == (0, 0, 0, 0, *plain.scores[3:], 0)
    assert found.types == (CONTROL, CONTROL, CONTROL, UNKNOWN, *plain.types[3:], CONTROL)
    assert sentencepiece_order(found) == plain


@pytest.mark.parametrize(
    "pieces", [["<s>", "<unk>", "</s>", "a"], ["<unk>", "<s>"], ["<s>", "<pad>", "</s>", "<unk>", "a", "<mask>"]]
)
def test_another_order_is_refused(pieces):
    with pytest.raises(InputError, match=f"the first pieces are {' '.join(pieces[:3])}, expected <unk> <s> </s>"):
        fairseq_order(model(pieces))


@pytest.mark.parametrize("pieces", [["<s>", "<pad>", "</s>", "<unk>", "a"], ["<unk>", "<s>", "</s>", "a", "<mask>"]])
def test_another_order_cannot_be_undone(pieces):
    with pytest.raises(InputError, match=f"the first pieces are .*the last is {pieces[-1]}, expected <s> <pad>"):
        sentencepiece_order(model(pieces))


def test_a_mask_stands_behind_the_pieces_where_there_is_none():
    mask, others = BERT.specials["mask"], [piece for part, piece in BERT.specials.items() if part != "mask"]
    plain = model([*others, "a"])
    found = with_mask(plain, [])
    assert found.pieces == (*plain.pieces, mask)
    assert (found.scores, found.types) == ((*plain.scores, 0.0), (*plain.types, CONTROL))
    for kept, tokens in ((model([*others, mask]), []), (model(others[1:]), []), (plain, [{"content": mask, "id": 9}])):
        assert with_mask(kept, tokens) is kept
