"""Rows whose texts TensorFlow tokenized ahead are those of the tokenizer itself, whatever a kind asks for."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import ahead
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.token_cache import TokenCache
from tests import tiny
from tests.tasks.test_token_cache import KINDS, TEXTS, unable


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(ahead, "_graphs", {})


def at_once(monkeypatch):
    """Whatever is asked for is read ahead, two texts together."""
    for name, value in {"LEAST": 0, "BUILT": 0.0, "BLOCK": 2}.items():
        monkeypatch.setattr(ahead, name, value)


def rows(encoded):
    return [(row.values, row.length, row.truncated) for row in encoded.rows]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_the_same_and_python_reads_no_text(kind, tmp_path, monkeypatch):
    plain = encode_texts(tiny.tokenizer(), KINDS[kind], 24, kind=find(kind))
    at_once(monkeypatch)
    unable(monkeypatch)
    tokenizer, cache = tiny.tokenizer(), TokenCache(tmp_path, always=True)
    for _ in range(2):
        assert rows(encode_texts(tokenizer, KINDS[kind], 24, kind=find(kind))) == rows(plain)
    found = encode_texts(tokenizer, KINDS[kind], 24, kind=find(kind), cache=cache)
    cache.write()
    assert rows(found) == rows(plain)
    if kind == "span":
        for one, other in zip(found.rows, plain.rows):
            assert one.about.context.starts.tolist() == other.about.context.starts.tolist()
            assert one.about.context.ends.tolist() == other.about.context.ends.tolist()
    monkeypatch.setattr(ahead.Ahead, "_read", lambda _: pytest.fail("a file of tokens is read ahead"))
    assert rows(encode_texts(tokenizer, KINDS[kind], 24, kind=find(kind), cache=cache)) == rows(plain)
    assert not {"encode", "tokenize"} & {*vars(tokenizer)}


def test_a_prompt_is_read_ahead_too(monkeypatch):
    kind = find("vector").configured({"prompts": {"query": "the old "}, "prompt_name": "query"})
    plain = encode_texts(tiny.tokenizer(), TEXTS, 24, kind=kind)
    at_once(monkeypatch)
    unable(monkeypatch)
    assert rows(encode_texts(tiny.tokenizer(), TEXTS, 24, kind=kind)) == rows(plain)


def test_a_mistake_in_a_text_is_told_in_its_turn(monkeypatch):
    at_once(monkeypatch)
    texts = ["the [MASK]", "a dog", "the [MASK]"]
    with pytest.raises(InputError) as found:
        encode_texts(tiny.tokenizer(), texts, 24, kind=find("tokens"))
    assert found.value.number == 1


@pytest.mark.parametrize(
    ("spent", "characters", "reads"),
    [(0.0, 0, 0), (0.1, 2**15, 0), (0.1, 2**14, 0), (0.2, 2**15, 2), (2.0, 2**20, 2)],
)
def test_it_begins_where_the_rest_or_what_went_before_pays(monkeypatch, spent, characters, reads):
    """A rest of twelve times 2^15 characters, of which the 4,096 first are read together."""
    tokenizer, texts, asked = tiny.tokenizer(), ["the cat runs " * 8] * 5000, []
    texts = [f"{number} {text}"[:104] for number, text in enumerate(texts)]
    ahead._spent[tokenizer] = ahead.Spent(spent, characters)
    monkeypatch.setattr(ahead.time, "thread_time", lambda: 0.0)

    def read(self, found, offsets):
        asked.append(len(found))
        ahead._graphs[self.of] = {}

    monkeypatch.setattr(ahead.Ahead, "_tokenize", read)
    sizes = [13 * 2**15 // 5000] * 5000
    of = ahead.Ahead(tokenizer, sizes, lambda tokenizer, number: tokenizer.encode(texts[number]))
    for number, text in enumerate(texts):
        of.to(number)
        of.tokenizer.encode(text)
    assert asked == [ahead.BLOCK, 5000 - ahead.BLOCK][:reads]


def test_few_characters_and_other_tokenizers_are_left_alone(monkeypatch):
    tokenizer = tiny.tokenizer()
    for least, own, left in ((100, tokenizer, True), (99, tokenizer, False)):
        monkeypatch.setattr(ahead, "LEAST", least)
        with ahead.tokenizing(own, [("a" * 49, ("b" * 25, b"c" * 25))], None) as (found, _):
            assert (found is own) == left
    monkeypatch.setattr(tokenizer, "spelled", True, raising=False)
    with ahead.tokenizing(tokenizer, [("a" * 99,)], None) as (found, _):
        assert found is tokenizer
