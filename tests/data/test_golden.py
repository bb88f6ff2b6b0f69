"""Records of every packing are the same bytes as ever: a run that goes on reads what it was begun with."""

import pytest

from kerasbert.data import write_records
from tests import tiny

# packing, length -> sha256 of the shard, its first digits
DIGESTS = {
    ("pairs", 16): "19bec38e68d87b10",
    ("pairs", 24): "5506b00e05cabbe2",
    ("place", 16): "25d1b2818aacaebe",
    ("packed", 24): "98d242f3f509162e",
    ("doc", 16): "812dd62c0a306af1",
}


@pytest.mark.parametrize(("packing", "length"), DIGESTS)
def test_records_are_the_same_bytes_as_ever(tmp_path, packing, length):
    corpus = tiny.corpus(tmp_path / "corpus.txt", documents=4)
    (shard,) = write_records([corpus], tiny.tokenizer(), tmp_path / "data", length=length, packing=packing).shards
    assert shard.sha256.startswith(DIGESTS[packing, length])
