"""One rule for texts that hold nothing to read, in Python and in a graph."""

import pytest
import tensorflow as tf

from kerasbert.answers import find
from kerasbert.blanks import RE2, blank
from kerasbert.errors import InputError
from tests import tiny


def test_a_graph_has_the_rule_of_python():
    """Of every character but those that Unicode 15 and later added to the format characters."""
    texts = [chr(code) for code in range(0x13430) if not 0xD800 <= code < 0xE000] + ["", " \u200b\n", "\u200bx"]
    found = tf.strings.regex_full_match(tf.constant(texts), RE2).numpy()
    assert [text for text, one in zip(texts, found) if one != blank(text)] == []
    assert 80 < sum(found) < 200


@pytest.mark.parametrize("text", ["", " \t", "\u200b", "\ufeff\u00ad", "\x00"])
def test_a_generation_refuses_a_source_that_holds_nothing(text):
    with pytest.raises(InputError, match="a source is empty, expected a text to write from"):
        find("generation").rows(tiny.tokenizer(), (text,), 16)


def test_a_character_that_python_does_not_know_yet_is_text():
    """An emoji of a later Unicode is unassigned (Cn) there."""
    assert not any(map(blank, (chr(0x378), "\ue000")))
