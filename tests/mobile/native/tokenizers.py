"""Tokenizers of the kinds that the C library reads, their files, and texts with added tokens in them."""

import random
import tempfile
from functools import cache
from pathlib import Path

from kerasbert.mobile.runtime.native import NativeTokenizer
from kerasbert.text import Tokenizer, Unigram, WordPiece, load_tokenizer
from kerasbert.text.added import AddedToken
from kerasbert.text.bpe import MergeTokenizer
from kerasbert.text.sentencepiece import CONTROL
from kerasbert.text.wordpiece import SPECIALS
from tests.support import shared
from tests.text.kinds import (
    SENTENCEPIECE,
    gpt2_bpe,
    nfc_bpe,
    shared_unigram,
    small_bpe,
    small_metaspace,
    small_unigram,
    split_bpe,
)
from tests.text.strings import generate

NEW = ("@USER", "[E1]", "Élan", "foo bar")
ADDED = (
    AddedToken("@USER", normalized=True),
    AddedToken("[E1]", special=True, lstrip=True, rstrip=True),
    AddedToken("Élan", normalized=True, single_word=True),
    AddedToken("foo bar"),
)
TRAPS = (
    "@USER",
    "[E1]",
    "Élan",
    "elan",
    "É",
    "foo bar",
    " the ",
    "THE",
    "@user",
    "<extra_id_0>",
    " [E1] ",
    "’s",
    "'ll",
)


def files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """What its `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@cache
def small_wordpiece() -> tuple[str, ...]:
    """Every character of the generated texts as a piece, and some pieces of several."""
    characters = sorted({c for text in generate(400, seed=3) for c in text.lower() if c > " " and c.split()})
    some = characters[::3]
    more = ["the", "##e", "un", "##aff", "##able", "##s", "em", "##bed", "##ding", "don", "##"]
    return tuple(dict.fromkeys([*SPECIALS, *some, *(f"##{c}" for c in some[::2]), *more]))


def wordpiece(**settings) -> WordPiece:
    """A small one."""
    new = NEW if "added" in settings else ()
    return WordPiece([*small_wordpiece(), *new], **settings)


def with_added(tokenizer: Tokenizer) -> Tokenizer:
    """The same with ADDED."""
    if isinstance(tokenizer, Unigram):
        model, count = tokenizer.model, len(NEW)
        more = {"pieces": NEW, "scores": (0.0,) * count, "types": (CONTROL,) * count}
        model = model._replace(**{name: (*getattr(model, name), *values) for name, values in more.items()})
        return Unigram(model, **{**tokenizer.settings(), "added": ADDED})
    assert isinstance(tokenizer, MergeTokenizer)
    settings = {**tokenizer.settings(), "added": [*tokenizer.added, *ADDED]}
    return type(tokenizer)([*tokenizer.vocabulary, *NEW], tokenizer.merges, **settings)


SMALL = {
    "wordpiece": lambda: wordpiece(),
    "wordpiece cased": lambda: wordpiece(lowercase=False, strip_accents=True, max_word_chars=9),
    "wordpiece accents": lambda: wordpiece(strip_accents=False, split_cjk=False),
    "wordpiece added": lambda: wordpiece(added=(*ADDED, AddedToken("the", normalized=True, piece=True))),
    "wordpiece template": lambda: wordpiece(
        specials={"pad": "[PAD]", "unk": "[UNK]", "cls": "[SEP]", "sep": "[CLS]"},
        template=("[MASK] $A [CLS]:2", "$A [SEP] [SEP] $B:1"),
    ),
    "bpe": lambda: small_bpe(),
    "bpe llama3 added": lambda: with_added(split_bpe("llama3")),
    "bpe qwen2": lambda: split_bpe("qwen2"),
    "bpe nfc added": lambda: with_added(nfc_bpe()),
    "metaspace": lambda: small_metaspace(),
    "metaspace added": lambda: with_added(small_metaspace()),
    "bpe space added": lambda: with_added(small_bpe(True)),
    "unigram": lambda: small_unigram(),
    "unigram lower added": lambda: with_added(small_unigram(True)),
}
SHARED = {
    **{
        name: lambda name=name: load_tokenizer(shared(f"data/vocab/bert-base-{name}"))
        for name in ("uncased", "cased", "chinese")
    },
    "gpt2": lambda: gpt2_bpe(),
    "roberta": lambda: gpt2_bpe(True),
    "roberta added": lambda: with_added(gpt2_bpe(True)),
    **{name: lambda name=name: shared_unigram(name) for name in SENTENCEPIECE},
}


def texts(count: int, seed: int) -> list[str]:
    """Generated strings, half of them with added tokens and other traps in them."""
    draw = random.Random(seed)
    found = generate(count, seed)
    for i in range(0, count - 1, 2):
        items = list(found[i])
        for _ in range(3):
            items.insert(draw.randrange(len(items) + 1), draw.choice(TRAPS))
        found[i] = "".join(items)
    return found


def byte_strings(count: int, seed: int) -> list[bytes]:
    """Random bytes, and UTF-8 cut off or changed at random."""
    draw = random.Random(seed)
    found = []
    for i, text in enumerate(generate(count + 1, seed)[:-1]):
        data = bytearray(text.encode()[:200])
        if i % 3 == 0:
            data = bytearray(draw.randbytes(draw.randrange(60)))
        elif i % 3 == 1:
            del data[draw.randrange(len(data) + 1) :]
        for _ in range(3 if data and i % 3 == 2 else 0):
            data[draw.randrange(len(data))] = draw.choice(
                (0xED, 0xF4, 0xE0, 0xC0, 0xFF, 0x80, 0xA0, draw.randrange(256))
            )
        found.append(bytes(data))
    return found


def differences(tokenizer: Tokenizer, strings: list) -> list[str]:
    """Strings of which C gives other ids or offsets than Python."""
    fast, wrong = NativeTokenizer(files(tokenizer)), []
    for text in strings:
        tokens = tokenizer.tokenize(text)
        if fast.offsets(text) != (tokens.ids, tokens.starts, tokens.ends):
            wrong.append(f"offsets: {text[:80]!r}")
        if fast.encode(text) != tokenizer.encode(text):
            wrong.append(f"ids: {text[:80]!r}")
    return wrong
