"""`kerasbert.testing.check_tokenizer`: our kinds pass, and it names each mistake of an author's."""

import re

import pytest

from kerasbert import testing
from kerasbert.registry import TOKENIZERS, register_tokenizer
from kerasbert.testing import world
from kerasbert.text import WordPiece
from kerasbert.text.base import Tokens
from kerasbert.text.kinds import Kind
from tests.support import forgotten
from tests.text.kinds import of_kind


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
def test_our_kinds(kind, tmp_path):
    testing.check_tokenizer(of_kind(kind), tmp_path)


class Mine(WordPiece):
    """A plug-in's; those below do one thing wrong."""

    kind = "mine"


def graph(tokenizer):
    from kerasbert.text.wordpiece_graph import WordPieceGraph

    return WordPieceGraph(tokenizer)


def verdict(mine, folder, make_graph=None):
    """What `check_tokenizer` says of a kind; "" where it passes."""
    with forgotten():
        assets = TOKENIZERS["wordpiece"].assets
        register_tokenizer(
            "mine", Kind(mine, assets, lambda text, size: mine(world.tokenizer().vocabulary), make_graph)
        )
        try:
            testing.check_tokenizer("mine", folder)
        except AssertionError as error:
            return str(error)
    return ""


def test_a_kind_of_another_author(tmp_path):
    assert verdict(Mine, tmp_path, graph) == ""


class Shifted(Mine):
    """Offsets one too far."""

    def tokenize_plain(self, text, first):
        ids, starts, ends = super().tokenize_plain(text, first)
        return ids, [start + 1 for start in starts], [end + 1 for end in ends]


class ShiftedInside(Mine):
    """Offsets one too far, but for the last token."""

    def tokenize_plain(self, text, first):
        ids, starts, ends = super().tokenize_plain(text, first)
        return ids, [start + (0 < i < len(ids) - 1) for i, start in enumerate(starts)], ends


class InBytes(Mine):
    """Offsets that count bytes."""

    def tokenize_plain(self, text, first):
        ids, starts, ends = super().tokenize_plain(text, first)
        before = [len(text[:at].encode("utf-8", "replace")) for at in range(len(text) + 1)]
        return ids, [before[start] for start in starts], [before[end] for end in ends]


class Forgetful(Mine):
    """What it saves forgets a setting."""

    def save(self, directory):
        strip, self.strip_accents = self.strip_accents, self.lowercase
        super().save(directory)
        self.strip_accents = strip


class Silent(Mine):
    """`settings` does not know an argument."""

    def __init__(self, vocabulary, *, digits: bool = True, **settings):
        super().__init__(vocabulary, **settings)
        self.digits = digits


class Colliding(Mine):
    """The mask's number is the unknown token's."""

    def __init__(self, vocabulary, **settings):
        super().__init__(vocabulary, **settings)
        self.mask_id = self.unk_id


class OnePiece(Mine):
    """One piece stands for what is unknown and for the mask."""

    def __init__(self, vocabulary, **settings):
        specials = {"pad": "[PAD]", "unk": "[MASK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        super().__init__(vocabulary, **{**settings, "specials": specials})


class Generous(Mine):
    """Rows of pairs are longer than asked for."""

    def pack(self, text_a, text_b=None, length=None):
        more = None if length is None else length + (text_b is not None)
        return super().pack(text_a, text_b, more)


class Markup(Mine):
    """A text can give special tokens."""

    def encode_plain(self, text):
        return [
            i
            for word in text.split()
            for i in ([self.mask_id] if word == "[MASK]" else super(Markup, self).encode_plain(word))
        ]

    def tokenize_plain(self, text, first):
        ids = self.encode_plain(text)
        return ids, [0] * len(ids), [len(text)] * len(ids)


class Spelling(Mine):
    """Decoded texts hold the special tokens."""

    def spelling(self, token_id):
        return self.vocabulary[token_id].encode()


class InFront(Mine):
    """Further tokens come first."""

    def extended(self, pieces):
        return Mine([*self.vocabulary[:5], *pieces, *self.vocabulary[5:]], **self.settings())


class Remembering(Mine):
    """A text's tokens depend on those before it."""

    def tokenize(self, text):
        tokens = super().tokenize(text)
        self.seen = getattr(self, "seen", 0) + 1
        return Tokens(*(part[:-1] for part in tokens)) if self.seen > 10 else tokens


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        (Shifted, r"'the cat sees the old house': offsets of token \d+ are .* to 27, of 26 characters"),
        (ShiftedInside, "no token covers|offsets .* are '.*', of the token"),
        (InBytes, r"offsets of token \d+ are .*, of 16 characters"),
        (
            Forgetful,
            "with lowercase=False: |with strip_accents=False: saved and loaded, setting 'strip_accents' is True, was False",
        ),
        (Silent, r"settings\(\) lacks 'digits', which Silent takes: a saved tokenizer forgets it"),
        (Colliding, r"mask_id is 1, the id of '\[UNK\]'; specials say '\[MASK\]'"),
        (OnePiece, "mask_id is 4, the unk_id too"),
        (Generous, r"pack\('the cat sees the old house', 'a dog runs', length=5\) gives 6 tokens"),
        (Markup, r"gives the special token '\[MASK\]', which is no text|no token covers|of the token"),
        (Spelling, r"decode of the special tokens around a text differ: '\[PAD\] \[CLS\] \[SEP\]', expected ''"),
        (InFront, "extended: the first pieces differ"),
        (Remembering, "ids of tokenize and of encode differ|saved and loaded: .* differ|in threads differ"),
    ],
)
def test_mistakes(mine, message, tmp_path):
    said = verdict(mine, tmp_path)
    assert re.search(message, said), said


def test_mistakes_of_the_graph(tmp_path):
    import tensorflow as tf

    from kerasbert.text.wordpiece_graph import WordPieceGraph

    class Swapped(WordPieceGraph):
        """Two ids change places."""

        def _swapped(self, ids):
            one, other = self.source.encode("cat dog")[:2]
            flat = ids.flat_values
            return ids.with_flat_values(tf.where(flat == one, other, tf.where(flat == other, one, flat)))

        def encode_plain(self, strings):
            return self._swapped(super().encode_plain(strings))

    class Cased(WordPieceGraph):
        """It does not lower-case."""

        def __init__(self, tokenizer):
            cased = Mine(tokenizer.vocabulary, **{**tokenizer.settings(), "lowercase": False, "strip_accents": False})
            super().__init__(cased)

    class Bytes(WordPieceGraph):
        """It leaves invalid bytes out."""

        def tokenize_plain(self, strings, first=None):
            return super().tokenize_plain(tf.strings.regex_replace(strings, rb"\x00", " "), first)

    class Segments(WordPieceGraph):
        """Both texts of a pair are one segment."""

        def pack(self, text_a, text_b=None, length=128):
            packed = super().pack(text_a, text_b, length)
            return packed | {"segment_ids": packed["segment_ids"] * 0}

    for wrong, message in (
        (Swapped, "ids by encode of the graph and of Python differ"),
        (Cased, "'The CAT runs; a dog, happy.': ids of the graph and of Python differ"),
        (Bytes, r"ids of the graph and of Python differ"),
        (Segments, r"pack\(.*, .*, length=7\): segment_ids of the graph and of Python differ"),
    ):
        said = verdict(Mine, tmp_path / wrong.__name__, wrong)
        assert re.search(message, said), (wrong, said)
