"""The unigram model of a Hugging Face tokenizer.json: SentencePiece's, with the steps that its model file cannot say."""

import base64
import binascii
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kerasbert.errors import InputError
from kerasbert.text import unigram
from kerasbert.text.added import AddedToken
from kerasbert.text.charsmap import Charsmap, compile_charsmap
from kerasbert.text.hf_added import ordinary, with_added
from kerasbert.text.hf_beside import Beside
from kerasbert.text.hf_template import template_of
from kerasbert.text.hf_values import field, short, steps
from kerasbert.text.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    Model,
    folded,
)
from kerasbert.text.unigram import SPACE, Unigram, float32

RUNS = {"Regex": " {2,}"}  # the pattern that makes runs of blanks one
# DeBERTa's in transformers 5: and blanks of ends of lines and tabs. Differs: runs of other white space are not joined
LINES = {"Regex": r"\s{2,}|[\n\r\t]"}
# white space as Rust's char::is_whitespace has it
WHITE = "\t\n\x0b\x0c\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
STRIP = "normalizer's Strip of other white space than blanks (tokenizer.json)"
BESIDE = "the pieces of blanks beside special tokens in a text (tokenizer.json)"
TRAILING = "the piece of a blank at a text's end (tokenizer.json)"


class Normalizer(NamedTuple):
    """What the steps of a normalizer do, in this order.

    Attributes:
        replaced: string -> what stands for it.
        strip_accents, lowercase: as ALBERT does it.
        charsmap: bytes, SentencePiece's rules.
        trims_left, trims, collapses: blanks at the beginning, at the end, in runs.
        blanks: white space that is made a blank.
        composes: by NFC.
    """

    replaced: dict[str, str]
    strip_accents: bool
    lowercase: bool
    charsmap: bytes
    trims_left: bool
    trims: bool
    collapses: bool
    blanks: str = ""
    composes: bool = False


class Splitter(NamedTuple):
    """What the steps of a pre_tokenizer do: words at white space first; where U+2581 is put; whether pieces end at it."""

    words: bool
    scheme: str
    split: bool


def read_unigram(content: Mapping, model: Mapping, vocab: object, tokens: list, beside: Beside) -> Unigram:
    """The tokenizer of a tokenizer.json with a Unigram model.

    Args:
        content, model: views of the file and its model section, without the vocabulary.
        vocab: [piece, score] by id. tokens: added tokens.
    """
    scored = _scored(vocab)
    normalizer, splitter = _normalizer(content), _splitter(content)
    pieces, added = with_added(_unique(scored), tokens)
    unknown = field(model, "unk_id", int, "model", None)
    if unknown is None or not 0 <= unknown < len(scored):
        raise InputError(f"model.unk_id is {short(unknown)}, expected the number of a piece, 0 to {len(scored) - 1}")
    layout = unigram.layout_of(pieces)
    specials = layout.specials | beside.named(set(pieces)) | {"unk": pieces[unknown]}
    extra = ordinary(added, specials.values())
    spaced = splitter.scheme != "never"
    if extra:
        _check_blanks(extra, normalizer, splitter, beside)
    _check_steps(normalizer, splitter, beside)
    template = template_of(content.get("post_processor"), pieces)
    template = beside.template(template)
    fallback = field(model, "byte_fallback", bool, "model", False)
    special = {token["content"] for token in tokens}
    types = [_type(i, piece, unknown, special, fallback, splitter.split) for i, piece in enumerate(pieces)]
    scores = [float32(scored[i][1]) if i < len(scored) else 0.0 for i in range(len(pieces))]
    made = Model(
        tuple(pieces), tuple(scores), tuple(types), normalizer.charsmap, dummy_prefix=spaced, byte_fallback=fallback
    )
    if normalizer.composes:
        made = made._replace(charsmap=compile_charsmap(compositions()))
    kept = _kept_blanks(made)
    blanks = kept if splitter.words else normalizer.blanks
    if normalizer.replaced or normalizer.lowercase or normalizer.strip_accents or blanks:
        made = folded(made, normalizer.lowercase, normalizer.strip_accents, normalizer.replaced, blanks)
    if not (splitter.words or normalizer.trims):
        beside.told[TRAILING] = "left out, as sentencepiece does"
    elif {*kept} - {*normalizer.blanks} and not splitter.words and not normalizer.composes:
        beside.told[STRIP] = "its rules make no blank of it, so that it is a piece"
    return Unigram(made, specials=specials, template=template, added=extra)


def _type(i: int, piece: str, unknown: int, special: set[str], fallback: bool, split: bool) -> int:
    is_byte = fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
    if i == unknown:
        return UNKNOWN
    if piece in special:
        return CONTROL
    if is_byte:
        return BYTE
    return UNUSED if split and SPACE in piece[1:] else NORMAL


def compositions() -> dict[str, str]:
    r"""The rules of NFC: a character or what it is decomposed into -> the composed one.

    Differs: accents in another than Unicode's order, and Korean letters that are not syllables yet, stay as they are.

    >>> compositions()["e\u0301"]
    'é'
    """
    rules = {}
    for character in map(chr, range(0xC0, 0x2FA1E)):
        parts = unicodedata.decomposition(character)
        if not parts or parts.startswith("<"):
            continue
        composed = unicodedata.normalize("NFC", character)
        pair = "".join(chr(int(code, 16)) for code in parts.split())
        for spelled in {character, pair, unicodedata.normalize("NFD", character)} - {composed}:
            rules[spelled] = composed
    return rules


def _kept_blanks(model: Model) -> str:
    """White space that the model's own rules leave in a text, but blanks."""
    rules = Charsmap(model.charsmap)
    return "".join(c for c in WHITE if any(part in WHITE for part in rules.longest(c, 0)[1]))


def _scored(entries: object) -> list[tuple[str, float]]:
    """Pieces with scores, each a string and a finite number."""
    if not isinstance(entries, list):
        raise InputError(f"vocab of model is {short(entries)}, expected a list")
    for i, entry in enumerate(entries):
        fits = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and entry[0]
        if not fits or type(entry[1]) not in (int, float) or not math.isfinite(entry[1]) or abs(entry[1]) > 1e9:
            raise InputError(f"model.vocab[{i}] is {short(entry)}, expected a piece and its score")
    return [(piece, float(score)) for piece, score in entries]


def _unique(scored: Sequence[tuple[str, float]]) -> dict[str, int]:
    ids = {piece: i for i, (piece, _) in enumerate(scored)}
    if len(ids) < len(scored):
        twice = next(piece for i, (piece, _) in enumerate(scored) if ids[piece] != i)
        raise InputError(f"model.vocab has the piece {short(twice)} twice: one text would have two ids. Give each once")
    return ids


def _steps_of(content: Mapping) -> list[Mapping]:
    """The steps of the normalizer, all of kinds that are known here."""
    found = list(steps(content.get("normalizer"), "normalizers", "normalizer"))
    names = [step["type"] for step in found]
    known = {"NFC"} if any(_is_lines(step) for step in found) else set()
    if unreadable := set(names) - known - {"Precompiled", "Replace", "NFKD", "StripAccents", "Lowercase", "Strip"}:
        raise InputError(f"normalizer has {' '.join(sorted(unreadable))}, expected SentencePiece's or ALBERT's steps")
    if ("NFKD" in names) != ("StripAccents" in names):
        raise InputError("normalizer has one of NFKD and StripAccents, expected both, as ALBERT has them, or neither")
    return found


def _normalizer(content: Mapping) -> Normalizer:
    found = _steps_of(content)
    names = [step["type"] for step in found]
    # what may come before each: SentencePiece's own rules are the last that change characters
    order = ("Replace", "NFKD", "StripAccents", "Lowercase", "Precompiled")
    replaced: dict[str, str] = {}
    collapses, at = False, 0
    trims_left = trims = False
    charsmap, blanks, composes = b"", "", False
    for step in found:
        kind = step["type"]
        if kind == "Strip":
            trims_left |= field(step, "strip_left", bool, "normalizer", False)
            trims |= field(step, "strip_right", bool, "normalizer", False)
            continue
        if kind == "Replace" and _is_runs(step):
            collapses = True
            continue
        if (
            kind == "Replace"
            and dict(field(step, "pattern", dict, "normalizer", {})) == LINES
            and step.get("content") == " "
        ):
            collapses, blanks = True, "\n\r\t"
            continue
        if kind == "NFC" and blanks and not charsmap:
            composes = True
            continue
        place = order.index(kind)
        if place < at or collapses or (kind == "Precompiled" and charsmap):
            raise InputError(
                f"normalizer has {kind} after {order[at] if not collapses else 'blanks were joined'}, expected before"
            )
        at = place
        if kind == "Replace":
            replaced.update([_replacement(step)])
        elif kind == "Precompiled":
            charsmap = _charsmap(step)
    of_text = charsmap, trims_left, trims, collapses, blanks, composes
    return Normalizer(replaced, "NFKD" in names, "Lowercase" in names, *of_text)


def _is_runs(step: Mapping) -> bool:
    pattern = field(step, "pattern", dict, "normalizer", {})
    return dict(pattern) == RUNS and step.get("content") in (" ", SPACE)


def _is_lines(step: Mapping) -> bool:
    return step["type"] == "Replace" and step.get("content") == " " and dict(step.get("pattern") or {}) == LINES


def _replacement(step: Mapping) -> tuple[str, str]:
    """(string, what stands for it) of a Replace that a character map can hold."""
    pattern, content = field(step, "pattern", dict, "normalizer", {}), field(step, "content", str, "normalizer", "")
    text = pattern.get("String")
    plain = isinstance(text, str) and list(pattern) == ["String"]
    # a rule of several characters that are no ASCII would be looked up by grapheme where it is written back
    if not plain or not 0 < len(text) <= 16 or (len(text) > 1 and not text.isascii()) or "\0" in text + content:
        raise InputError(
            f"normalizer has a Replace of {short(dict(pattern))}, expected a String of one character, or of up to 16 of ASCII"
        )
    if text == " " or SPACE in text + content:
        raise InputError(
            f"normalizer replaces {short(text)} by {short(content)}: blanks and {SPACE} are the model's own affair here"
        )
    return text, content


def _charsmap(step: Mapping) -> bytes:
    try:
        return base64.b64decode(field(step, "precompiled_charsmap", str, "normalizer", ""), validate=True)
    except (binascii.Error, ValueError):
        raise InputError("normalizer.precompiled_charsmap is not base64. Download the file again") from None


def _splitter(content: Mapping) -> Splitter:
    found = list(steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer"))
    names = [step["type"] for step in found]
    if "Metaspace" not in names:
        raise InputError("pre_tokenizer has no Metaspace, expected it: only SentencePiece's unigram can be read")
    if names not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise InputError(f"pre_tokenizer has {' '.join(names)}, expected WhitespaceSplit and Metaspace alone")
    metaspace = found[-1]
    for name in ("replacement", "str_rep"):
        character = field(metaspace, name, str, "pre_tokenizer", SPACE)
        if character != SPACE:
            raise InputError(
                f"{name} of pre_tokenizer's Metaspace is {short(character)}, expected {SPACE!r}, as in SentencePiece"
            )
    scheme = field(metaspace, "prepend_scheme", str, "pre_tokenizer", "always")
    if not field(metaspace, "add_prefix_space", bool, "pre_tokenizer", True):
        scheme = "never"
    if scheme not in ("always", "first", "never"):
        raise InputError(f"prepend_scheme of pre_tokenizer is {short(scheme)}, expected always, first or never")
    return Splitter(len(names) > 1, scheme, field(metaspace, "split", bool, "pre_tokenizer", True))


def _check_steps(normalizer: Normalizer, splitter: Splitter, beside: Beside) -> None:
    """Refuse what makes pieces of blanks that sentencepiece never has, and what tokenizer_config.json says otherwise."""
    beside.settled("add_prefix_space", splitter.scheme != "never", own=False)
    if {*normalizer.replaced} >= {"``", "''"}:  # of ALBERT and XLNet
        beside.settled("do_lower_case", normalizer.lowercase, own=False)
        beside.settled("keep_accents", not normalizer.strip_accents, own=False)
    if beside.class_name == "DebertaV2":
        beside.settled("do_lower_case", normalizer.lowercase, own=False)
        beside.settled("split_by_punct", False, own=False)
    if splitter.words and splitter.scheme != "always":
        raise InputError(
            f"pre_tokenizer has WhitespaceSplit and a Metaspace with prepend_scheme {splitter.scheme!r}: words would have no "
            "blank before them, expected 'always'"
        )
    if not (splitter.words or normalizer.collapses):
        raise InputError(
            "neither normalizer (Replace of ' {2,}') nor pre_tokenizer (WhitespaceSplit) makes runs of blanks one, as "
            "SentencePiece does: they cannot be kept here"
        )
    if splitter.scheme == "never" and not normalizer.trims_left:
        raise InputError(
            "pre_tokenizer's Metaspace has prepend_scheme 'never' and no Strip removes blanks before a text: they cannot be "
            "kept here"
        )


def _check_blanks(added: list[AddedToken], normalizer: Normalizer, splitter: Splitter, beside: Beside) -> None:
    """Refuse what makes pieces of the blanks beside added tokens: sentencepiece trims the text between them.

    Of special tokens alone, as the languages of mBART and the masks of Pegasus are, it is told: no text has them.
    """
    normalized = [token.content for token in added if token.normalized]
    if splitter.scheme != "always":
        raise InputError(
            f"the added token {added[0].content!r} beside a Metaspace with prepend_scheme {short(splitter.scheme)} cannot be "
            "matched as theirs: only 'always' can. Save the tokenizer with it, or without the added tokens"
        )
    changes = normalizer.collapses or normalizer.trims or normalizer.trims_left
    changes = changes or bool({*normalizer.replaced} - {"``", "''"})
    if (normalized and (not splitter.words or changes)) or not (splitter.words or normalizer.trims):
        if all(token.special for token in added):
            beside.told[BESIDE] = "left out, as sentencepiece does"
            return
        raise InputError(
            f"the added token {(normalized or [added[0].content])[0]!r} (normalized {bool(normalized)}) cannot be matched as "
            "theirs here: their pre_tokenizer has no WhitespaceSplit, so that blanks beside it are pieces. Load and save the "
            "tokenizer with transformers 5, or add the tokens with normalized=False"
        )
