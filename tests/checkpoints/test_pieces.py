"""What a checkpoint says of its tokenizer's rows."""

from kerasbert.checkpoints import pieces
from kerasbert.testing.battery import tokenizer
from tests import tiny


def test_the_second_text_is_numbered():
    own = tiny.tokenizer()
    plain = type(own)(own.vocabulary, template=tuple(text.replace(":1", "") for text in own.template))
    assert (plain.segments, own.segments) == (1, 2)
    found = pieces.numbered(plain)
    assert found.template == own.template
    assert found.pack("the film", "a cat") == own.pack("the film", "a cat")
    assert plain.pack("the film", "a cat")[1] == [0] * 7
    assert pieces.numbered(own) is own


def test_where_the_context_stands():
    """First where the tokenizer pads at the left, and where the options say so."""
    task = {"kind": "span"}
    assert pieces.context_first(task, tiny.tokenizer()) is None
    assert pieces.context_first(task, None) is None
    left = tokenizer("unigram", "xlnet")
    assert pieces.context_first(task, left) is False
    assert pieces.context_first({"kind": "classification"}, left) is None
    assert pieces.context_first({"kind": "span", "options": {"context_first": True}}, left) is True
