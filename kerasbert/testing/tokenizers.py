"""`check_tokenizer`: what every tokenizer must do, ours and a third party's: in Python, in the graph, from its files and back."""

import contextlib
import inspect
import itertools
import json
import pickle
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.errors import InputError
from kerasbert.registry import TOKENIZERS
from kerasbert.testing import world
from kerasbert.text import Tokenizer, load_tokenizer, save_hf
from kerasbert.text.base import Tokens, to_text

if TYPE_CHECKING:
    from kerasbert.text.graph import GraphTokenizer

ORDINARY = (
    "the cat sees the old house",
    "The CAT runs; a dog, happy.",
    "don't re-read 3,14 films",
    "Zoë's naïve café",
    "very old river\tand a stone\nhouse",
)
HOSTILE = (
    "",
    " ",
    " \t\n\u00a0\u3000 ",
    "  the  cat ",
    "the\0cat \x01\x7f\x85sees",
    "e\u0301 \u0301 a\u0334b\u0301\u0327",  # marks, alone too and in any order
    "\U0001f600\u200d\U0001f469\U0001f3fd the \U0001f1e9\U0001f1ea",
    "北京 is 大きい, 한국어 \u1112\u1161\u11ab",
    "שלום the العَرَبِيَّة \u202ecat\u202c",
    "ﬁne İstanbul Straße ǅ ½ Ⅷ ΣΑΣ",
    "a" * 101,
    "é" * 102 + " cat",
    "[CLS] the [MASK]<mask> <s></s><pad> [SEP]<unk> ##s ▁cat </w> Ġdog <0x41>",
    "\ufeff\ufffd\u2028the\u2029\u200bcat",
    "the cat " * 12,
)
TEXTS = (*ORDINARY, *HOSTILE)
MARKED = HOSTILE[5:9]  # marks, emoji, Chinese and Arabic, which settings may treat apart
INVALID = (b"the \xff\xfecat", b"\xe4\xb8", b"a\xed\xa0\x80b", b"\xf0\x9f\x98 dog\xc0\x80")
PARTS = Tokens._fields
NEW = ("<check_new_0>", "<check_new_1>")


def check_tokenizer(tokenizer: str | Tokenizer, folder: Path, texts: Sequence[str] = ()) -> None:
    """Check a tokenizer: numbers, offsets, rows, files, and its form as TensorFlow operations.

    A tokenizer whose settings are true or false is checked with each of them turned round too.

    Args:
        tokenizer: a registered kind, which is learned from the tiny world, or a tokenizer.
        folder: an empty one, for its files.
        texts: more texts that it must read, of the language that it is for.

    Raises:
        AssertionError: what is wrong, and with which text.
    """
    if isinstance(tokenizer, str):
        tokenizer = learned(tokenizer)
    texts = (*TEXTS, *texts)
    _check_specials(tokenizer)
    _check_settings(tokenizer)
    for number, (name, each) in enumerate(_variants(tokenizer, folder / "variants")):
        with _named(name):
            _check_texts(each, texts)
            _check_saved(each, folder / f"saved-{number}", texts)
            _check_graph(each, texts if each is tokenizer else (*ORDINARY, *MARKED), rows=each is tokenizer)
    _check_decoding(tokenizer)
    _check_rows(tokenizer)
    _check_exported(tokenizer, folder, texts)
    _check_extended(tokenizer)
    _check_renumbered(tokenizer)
    _check_shared(tokenizer, texts)


def learned(kind: str) -> Tokenizer:
    """A tokenizer of a kind, learned from the tiny world; a kind that cannot be learned is an InputError."""
    from kerasbert.text.train import train

    size = 300 if kind == "bpe" else 60  # bytes alone are 256 pieces
    return train(kind, world.sentences(300, 0) * 2, size)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """The name of a variant in front of what is wrong with it."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{name}{error}") from error


def _variants(tokenizer: Tokenizer, folder: Path) -> Iterator[tuple[str, Tokenizer]]:
    """The tokenizer, and itself with each setting turned round that is true or false."""
    yield "", tokenizer
    settings = tokenizer.settings()
    flags = {name: value for name, value in settings.items() if isinstance(value, bool)}
    if not flags:
        return
    tokenizer.save(folder)
    for name, value in flags.items():
        assets = TOKENIZERS.find(tokenizer.kind).assets(folder)
        with contextlib.suppress(InputError):  # which does not go together with the rest
            other = type(tokenizer)(*assets, **{**settings, name: not value})
            yield f"with {name}={not value}: ", other


def _check_specials(tokenizer: Tokenizer) -> None:
    """Numbers of special tokens are those of their pieces; no two parts share one by accident."""
    ids: dict[int, str] = {}
    assert tokenizer.kind in TOKENIZERS, f"kind is {tokenizer.kind!r}, which is not registered (register_tokenizer)"
    assert tokenizer.size == len(tokenizer.vocabulary), (
        f"size is {tokenizer.size}, of {len(tokenizer.vocabulary)} pieces"
    )
    for part, piece in tokenizer.specials.items():
        number = getattr(tokenizer, f"{part}_id")
        assert number in range(tokenizer.size), f"{part}_id is {number!r}, of a vocabulary of {tokenizer.size}"
        said = tokenizer.vocabulary[number]
        assert said == piece, f"{part}_id is {number}, the id of {said!r}; specials say {piece!r}"
        assert number in tokenizer.special_ids, f"special_ids lack {number}, the {part}_id: a text could give it"
        shared = ids.get(number)
        # GPT-2 has one piece for pad, sep and unk; a mask that is something else too cannot be learned
        assert shared is None or part != "mask", f"mask_id is {number}, the {shared}_id too"
        ids[number] = part
    wrong = [i for i in tokenizer.special_ids if not 0 <= i < tokenizer.size]
    assert not wrong, f"special_ids hold {wrong}, of a vocabulary of {tokenizer.size}"
    for item in (*tokenizer.single, *tokenizer.pair):
        assert item.text or item.id in tokenizer.special_ids, f"the template's {item.id} is not in special_ids"


def _check_settings(tokenizer: Tokenizer) -> None:
    """`settings()` holds what the constructor takes: it is all that a file remembers beside the vocabulary."""
    settings = tokenizer.settings()
    for name, parameter in inspect.signature(type(tokenizer).__init__).parameters.items():
        plain = isinstance(parameter.default, bool | int | float | str)
        assert name in settings or not plain, (
            f"settings() lacks {name!r}, which {type(tokenizer).__name__} takes: a saved tokenizer forgets it"
        )


def _check_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Ids, pieces and offsets of each text."""
    given = {*tokenizer.special_ids} - {tokenizer.unk_id} - tokenizer.added_ids
    for text in texts:
        ids, pieces, starts, ends = tokens = tokenizer.tokenize(text)
        assert len({*map(len, tokens)}) == 1, f"{text!r}: tokenize gives lists of {[*map(len, tokens)]} entries"
        _same(f"{text!r}: ids of tokenize and of encode", ids, tokenizer.encode(text))
        _same(f"{text!r}: ids of a text and of its bytes", ids, tokenizer.encode(to_text(text).encode()))
        wrong = [i for i in ids if not 0 <= i < tokenizer.size]
        assert not wrong, f"{text!r}: ids {wrong}, of a vocabulary of {tokenizer.size}"
        _same(f"{text!r}: pieces and the vocabulary at the ids", pieces, [tokenizer.vocabulary[i] for i in ids])
        special = [tokenizer.vocabulary[i] for i in ids if i in given]
        assert not special, f"{text!r}: gives the special token {special[0]!r}, which is no text"
        _check_offsets(text, starts, ends)
        if text in ORDINARY:
            _check_covered(tokenizer, text)
    for data in INVALID:
        replaced = data.decode("utf-8", "replace")
        _same(f"{data!r}: ids, invalid bytes as U+FFFD", tokenizer.encode(data), tokenizer.encode(replaced))


def _check_offsets(text: str, starts: Sequence[int], ends: Sequence[int]) -> None:
    """They lie in the text, and do not go back."""
    for i, (start, end) in enumerate(zip(starts, ends)):
        assert 0 <= start <= end <= len(text), (
            f"{text!r}: offsets of token {i} are {start} to {end}, of {len(text)} characters"
        )
    for name, values in (("starts", starts), ("ends", ends)):
        back = [i for i, (one, other) in enumerate(itertools.pairwise(values)) if other < one]
        assert not back, f"{text!r}: {name} go back after token {(back or [0])[0]}: {values}"


def _check_covered(tokenizer: Tokenizer, text: str) -> None:
    """Each letter and digit is in a token, and each token's text is what the offsets say, where ids can be read back."""
    ids, _, starts, ends = tokenizer.tokenize(text)
    covered = {at for start, end in zip(starts, ends) for at in range(start, end)}
    # some kinds read words of ASCII alone: a letter that is no word by itself is none in a text
    left = [
        at for at, c in enumerate(text) if c.isalnum() and at not in covered and (c.isascii() or tokenizer.encode(c))
    ]
    assert not left, f"{text!r}: no token covers {text[left[0]]!r} at {left[0]}: {list(zip(starts, ends))}"
    if not text.isascii() or _letters(tokenizer.decode(ids)) != _letters(text):
        return
    for token_id, start, end in zip(ids, starts, ends):
        said = _letters(tokenizer.decode([token_id]))
        assert said == _letters(text[start:end]), (
            f"{text!r}: offsets {start} to {end} are {text[start:end]!r}, of the token {tokenizer.vocabulary[token_id]!r}"
        )


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum()).casefold()


def _check_decoding(tokenizer: Tokenizer) -> None:
    """Any ids are a text; special tokens that frame a text are none of it."""
    everything = tokenizer.decode(range(tokenizer.size))
    assert isinstance(everything, str), f"decode gives a {type(everything).__name__}, expected str"
    read = {tokenizer.unk_id, tokenizer.mask_id}
    framing = [i for i in (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) if i is not None and i not in read]
    _same("decode of the special tokens around a text", tokenizer.decode(framing), "")
    for text in ORDINARY:
        ids = tokenizer.encode(text)
        packed, _ = tokenizer.pack(text)
        _same(f"{text!r}: decode of pack and of encode", tokenizer.decode(packed), tokenizer.decode(ids))
    for i in range(tokenizer.size):
        assert isinstance(tokenizer.continues(i), bool | np.bool_), f"continues({i}) is {tokenizer.continues(i)!r}"
        spelling = tokenizer.spelling(i)
        assert spelling is None or isinstance(spelling, bytes), f"spelling({i}) is {spelling!r}, expected bytes or None"


def _check_rows(tokenizer: Tokenizer) -> None:
    """Rows are no longer than asked for, keep their special tokens, and are padded."""
    text, other = "the cat sees the old house", "a dog runs"
    rows = (((text,), tokenizer.single), ((text, other), tokenizer.pair))
    for parts, items in rows:
        specials = [item.id for item in items if not item.text]
        whole, _ = tokenizer.pack(*parts, length=None)
        for length in range(len(specials) + len(parts), len(whole) + 3):
            ids, segments = tokenizer.pack(*parts, length=length)
            told = f"pack({', '.join(map(repr, parts))}, length={length})"
            assert len(ids) <= length, f"{told} gives {len(ids)} tokens"
            assert len(ids) == min(length, len(whole)), (
                f"{told} gives {len(ids)} tokens, expected {min(length, len(whole))}"
            )
            assert len(segments) == len(ids), f"{told} gives {len(segments)} segments of {len(ids)} tokens"
            assert all(0 <= segment < tokenizer.segments for segment in segments), f"{told} gives segments {segments}"
            _same(f"{told}: special tokens", [i for i in ids if i in specials], specials)
        arrays = tokenizer([parts[0] if len(parts) == 1 else parts], length=len(whole) + 2)
        assert arrays["token_ids"].dtype == np.int32, f"token_ids are {arrays['token_ids'].dtype}, expected int32"
        padded = [*whole, tokenizer.pad_id, tokenizer.pad_id]
        _same(f"token_ids of {parts} with two places of padding", arrays["token_ids"][0].tolist(), padded)
        _same("padding_mask", arrays["padding_mask"][0].tolist(), [1] * len(whole) + [0, 0])
        if specials:
            try:
                tokenizer.pack(*parts, length=len(specials) - 1)
            except InputError:
                continue
            raise AssertionError(f"pack with length={len(specials) - 1} has no room for {len(specials)} special tokens")


def _check_saved(tokenizer: Tokenizer, folder: Path, texts: Sequence[str]) -> None:
    """What `save` writes is read as the same."""
    tokenizer.save(folder)
    other = load_tokenizer(folder)
    assert other.kind == tokenizer.kind, f"saved and loaded it is of kind {other.kind!r}, was {tokenizer.kind!r}"
    before, after = (json.loads(json.dumps(each.settings())) for each in (tokenizer, other))
    for name in sorted({*before, *after}):
        one, two = before.get(name), after.get(name)
        assert one == two, f"saved and loaded, setting {name!r} is {two!r}, was {one!r}"
    _equal_on("saved and loaded", other, tokenizer, texts)
    assert other.digest() == tokenizer.digest(), "saved and loaded, its digest is another"


def _equal_on(what: str, other: Tokenizer, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Two tokenizers of the same pieces, ids, offsets and rows."""
    _same(f"{what}: the vocabulary", other.vocabulary, tokenizer.vocabulary)
    _same(f"{what}: special_ids", {*other.special_ids}, {*tokenizer.special_ids})
    for part in ("pad", "unk", "cls", "sep", "mask"):
        _same(f"{what}: {part}_id", getattr(other, f"{part}_id"), getattr(tokenizer, f"{part}_id"))
    for text in texts:
        _same_tokens(what, other, tokenizer, text)
    _same(f"{what}: pack", other.pack("the cat", "a dog runs"), tokenizer.pack("the cat", "a dog runs"))


def _check_graph(tokenizer: Tokenizer, texts: Sequence[str], rows: bool = True) -> None:
    """The form as TensorFlow operations gives the same; `rows`: packed ones and what is decoded too."""
    if TOKENIZERS.find(tokenizer.kind).graph is None:
        return
    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    graph = graph_tokenizer(tokenizer)
    data = [to_text(text).encode() for text in texts] + list(INVALID)
    for batch in (data, []):
        strings = tf.constant(batch, tf.string, shape=[len(batch)])
        found = [part.to_list() for part in (*graph.tokenize(strings), graph.encode(strings))][: 4 if rows else 3]
        for row, text in enumerate(batch):
            tokens = tokenizer.tokenize(text)
            wanted = (tokens.ids, tokens.starts, tokens.ends, tokens.ids)
            for name, got, expected in zip(("ids", "starts", "ends", "ids by encode"), found, wanted):
                _same(f"{_shown(text)}: {name} of the graph and of Python", got[row], expected)
    if not rows:
        return
    _check_packed(tokenizer, graph, [(text,) for text in data], 24)
    _check_packed(tokenizer, graph, list(zip(data, data[::-1])), len(tokenizer.pair) + 2)
    every = [*map(tokenizer.encode, texts), [*range(tokenizer.size)]]
    decoded = graph.detokenize(tf.ragged.constant([[int(i) for i in row] for row in every], dtype=tf.int32))
    for got, ids in zip(decoded.numpy(), every):
        _same(f"detokenize of {ids} in the graph and in Python", got.decode(), tokenizer.decode(map(int, ids)))


def _check_packed(tokenizer: Tokenizer, graph: "GraphTokenizer", rows: Sequence[tuple], length: int) -> None:
    """The graph packs texts or pairs as Python does."""
    packed = {name: value.numpy().tolist() for name, value in graph.pack(*map(list, zip(*rows)), length=length).items()}
    for row, parts in enumerate(rows):
        ids, segments = tokenizer.pack(*parts, length=length)
        none = [0] * (length - len(ids))
        wanted = {"token_ids": [*ids, *(tokenizer.pad_id for _ in none)], "padding_mask": [1] * len(ids) + none}
        for name, values in {**wanted, "segment_ids": [*segments, *none]}.items():
            _same(
                f"pack({', '.join(map(_shown, parts))}, length={length}): {name} of the graph and of Python",
                packed[name][row],
                values,
            )


def _shown(text: object) -> str:
    return repr(text.decode("utf-8", "backslashreplace")) if isinstance(text, bytes) else repr(text)


def _check_exported(tokenizer: Tokenizer, folder: Path, texts: Sequence[str]) -> None:
    """Where a kind has a form in Hugging Face's tokenizer.json, that is read as the same; special tokens in a text aside."""
    file = folder / "exported" / "tokenizer.json"
    file.parent.mkdir(parents=True)
    with contextlib.suppress(InputError):  # a kind that has none
        save_hf(tokenizer, file)
    if not file.exists():
        return
    pieces = [tokenizer.vocabulary[i] for i in tokenizer.special_ids]
    kept = [text for text in texts if not any(piece in text for piece in pieces)]
    _equal_on("exported to tokenizer.json and read again", load_tokenizer(file), tokenizer, kept)


def _check_extended(tokenizer: Tokenizer) -> None:
    """Further special tokens stand behind the pieces, whose ids stay."""
    try:
        other = tokenizer.extended(NEW)
    except (NotImplementedError, InputError):  # where the kind has no room for them
        return
    _same("extended: the kind", other.kind, tokenizer.kind)
    _same("extended: the first pieces", other.vocabulary[: tokenizer.size], tokenizer.vocabulary)
    _same("extended: the last pieces", other.vocabulary[tokenizer.size :], NEW)
    for i, piece in enumerate(NEW, tokenizer.size):
        given = i in other.encode(f"the {piece} cat")
        assert i in other.special_ids or not given, f"extended: a text gives {piece!r}, which is not in special_ids"
    for text in ORDINARY:
        _same_tokens("extended", other, tokenizer, text)


def _check_renumbered(tokenizer: Tokenizer) -> None:
    """A part of the pieces in another order, which a trimmed model has: other numbers, nothing else."""
    specials = sorted(tokenizer.special_ids)
    order = [*specials, *(i for i in reversed(range(tokenizer.size)) if i not in specials)]
    try:
        other = tokenizer.renumbered(order)
    except (NotImplementedError, InputError):
        return
    _same("renumbered: the kind", other.kind, tokenizer.kind)
    _same("renumbered: the pieces", [*other.vocabulary], [tokenizer.vocabulary[i] for i in order])
    for text in ORDINARY:
        _same_tokens("renumbered", other, tokenizer, text, ("pieces", "starts", "ends"))


def _check_shared(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """The same in another process, in several threads, and in another order."""
    expected = [tokenizer.tokenize(text) for text in texts]
    copied = pickle.loads(pickle.dumps(tokenizer))
    _same("ids of a pickled copy", [copied.encode(text) for text in texts], [each.ids for each in expected])
    found: list[list] = [[] for _ in range(4)]

    def read(number: int) -> None:
        order = texts if number % 2 else texts[::-1]
        found[number] = [tokenizer.tokenize(text) for text in order]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, each in enumerate(found):
        _same("tokens of texts in another order, in threads", each, expected if number % 2 else expected[::-1])


def _same(what: str, got: object, wanted: object) -> None:
    assert got == wanted, f"{what} differ: {_clipped(got)}, expected {_clipped(wanted)}"


def _same_tokens(what: str, other: Tokenizer, tokenizer: Tokenizer, text: str, parts: Sequence[str] = PARTS) -> None:
    """Two tokenizers read a text alike."""
    got, wanted = other.tokenize(text), tokenizer.tokenize(text)
    for name in parts:
        _same(f"{what}: {name} of {text!r}", getattr(got, name), getattr(wanted, name))


def _clipped(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
