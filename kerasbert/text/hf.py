"""Hugging Face's tokenizer.json and the files beside it, read."""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kerasbert.errors import InputError
from kerasbert.text import unigram
from kerasbert.text.added import AddedToken
from kerasbert.text.base import Tokenizer
from kerasbert.text.bpe import SPECIALS as ROBERTA
from kerasbert.text.bpe import BytePairEncoding, MergeTokenizer
from kerasbert.text.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Model, folded
from kerasbert.text.unigram import Unigram, float32
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.word_bpe import SPECIALS as WORD_BPE
from kerasbert.text.wordpiece import SPECIALS as BERT
from kerasbert.text.wordpiece import WordPiece

GPT2 = dict.fromkeys(("pad", "unk", "sep"), "<|endoftext|>")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
QUOTES = ("``", "''")


def from_hf(content: dict, lowercase: bool | None, beside: Sequence[Mapping] = ()) -> Tokenizer:
    """The tokenizer of a tokenizer.json's content: WordPiece as BERT has it, byte-level BPE, GPT's BPE within words, or unigram.

    Differs: SentencePiece's normalisation is sentencepiece's own, which theirs only follows closely; special tokens such as
    [MASK] in a text are ordinary text; and only WordPiece takes `lowercase`.

    Args:
        content: the file's content.
        lowercase: bool, overrides what the file says, or None.
        beside: added tokens of the other files, see `added_beside`.
    """
    model = field(content, "model", dict, "tokenizer.json", {})
    kind = model.get("type")
    readers = {"WordPiece": _wordpiece, "BPE": _bpe, "Unigram": _unigram}
    if not isinstance(kind, str) or kind not in readers:
        raise InputError(f"model.type is {short(kind)}, expected one of {', '.join(readers)}")
    if lowercase is not None and kind != "WordPiece":
        raise InputError(f"lowercase cannot be changed for a {kind} model: its pieces have the case they have")
    listed = field(content, "added_tokens", list, "tokenizer.json", [])
    return readers[kind](content, model, [*(token_entry(entry) for entry in listed), *beside], lowercase)


def short(value: Any) -> str:
    """A value for an error's text."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def field(part: Mapping, name: str, kind: Any, where: str, default: Any) -> Any:
    """A value of a checked type; `default` where it is absent or null.

    Raises:
        InputError: another type.
    """
    value = part.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a whole number"}
        raise InputError(f"{name} of {where} is {short(value)}, expected {names[kind]}")
    return value


def by_id(ids: dict[str, int]) -> list[str]:
    """Pieces in the order of their ids."""
    try:
        whole = sorted(ids.values()) == list(range(len(ids)))
    except TypeError:
        whole = False
    if not whole:
        raise InputError(f"the {len(ids)} ids of the vocabulary are not 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def byte_level(
    pieces: list[str], merges: list, add_prefix_space: bool, tokens: Sequence[Mapping] = ()
) -> BytePairEncoding:
    """With RoBERTa's special tokens, or with GPT-2's one where the vocabulary has only that; `tokens` as `added` gives them."""
    layout: dict[str, Any] = {}
    if "<s>" not in pieces and GPT2["sep"] in pieces:
        layout = {"specials": GPT2, "template": ("$A", "$A $B")}
    specials = layout.get("specials", ROBERTA).values()
    return BytePairEncoding(
        pieces, merges, add_prefix_space=add_prefix_space, added=ordinary(tokens, specials), **layout
    )


def within_words(
    pieces: list[str], merges: list, tokens: Sequence[Mapping] = (), split: Mapping[str, Any] = MappingProxyType({})
) -> WordPairEncoding:
    """With the special tokens that the vocabulary has: GPT's has <unk> alone.

    Args:
        tokens: as `added` gives them.
        split: settings of the words.
    """
    specials = {part: piece if piece in pieces else WORD_BPE["unk"] for part, piece in WORD_BPE.items()}
    return WordPairEncoding(pieces, merges, specials=specials, added=ordinary(tokens, specials.values()), **split)


def token_entry(entry: Any) -> dict[str, Any]:
    """{"content", "id" (or None), flags} of an entry of added_tokens.

    Raises:
        InputError: another type somewhere.
    """
    if isinstance(entry, str):
        entry = {"content": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"added_tokens has {short(entry)}, expected objects with id and content")
    content = field(entry, "content", str, "an added token", "")
    if not content:
        raise InputError(f"added_tokens has {short(entry)}, expected objects with id and content")
    where = f"the added token {short(content)}"
    number = field(entry, "id", int, where, None)
    special = field(entry, "special", bool, where, False)
    defaults = {"normalized": not special, "special": special}
    flags = {name: field(entry, name, bool, where, defaults.get(name, False)) for name in FLAGS}
    return {"content": content, "id": number, **flags}


def added_beside(config: Mapping, numbers: Mapping, names: Mapping) -> list[dict[str, Any]]:
    """Added tokens of the files beside the vocabulary.

    Args:
        config: tokenizer_config.json.
        numbers: added_tokens.json.
        names: special_tokens_map.json.
    Returns:
        as `token_entry` gives them; those that only have a name (additional special tokens) without an id, at the end.
    """
    listed = []
    for part in (config, names):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            some = part.get(key) or []
            some = list(some.values()) if isinstance(some, Mapping) else some
            if not isinstance(some, list):
                raise InputError(f"{key} is {short(some)}, expected a list of tokens")
            for entry in some:
                flags = dict(entry) if isinstance(entry, Mapping) else {"content": entry, "normalized": False}
                listed.append(token_entry(flags | {"id": None, "special": True}))
    special = {token["content"] for token in listed}
    if decoder := field(config, "added_tokens_decoder", dict, "tokenizer_config.json", {}):
        found = []
        for number, entry in decoder.items():
            if not (number.isdecimal() and len(number) < 10):
                raise InputError(f"added_tokens_decoder has the id {short(number)}, expected a number")
            found.append(token_entry(entry) | {"id": int(number)})
    else:
        entries = [{"content": c, "id": number, "special": c in special} for c, number in numbers.items()]
        found = [token_entry(entry) for entry in entries]
    return sorted(found, key=lambda token: token["id"] if token["id"] is not None else -1) + listed


def with_added(ids: dict[str, int], tokens: Sequence[Mapping]) -> tuple[list[str], list[dict]]:
    """(pieces by id, the added tokens) of a model's ids; where a token occurs twice, the later flags hold, ids agree.

    A name without an id anywhere comes after the last, as in transformers.
    """
    merged: dict[str, dict] = {}
    for token in tokens:
        known = merged.get(token["content"])
        if token["id"] is None and (known or token["content"] in ids):
            token = dict(known or token) | {"id": (known or {"id": ids[token["content"]]})["id"]}
        merged[token["content"]] = dict(token)
    whole = dict(ids)
    for content, token in merged.items():
        if token["id"] is not None:
            whole[content] = token["id"]
    for content, token in merged.items():
        if token["id"] is None:
            token["id"] = whole[content] = len(whole)
    return by_id(whole), [token | {"piece": token["content"] in ids} for token in merged.values()]


def ordinary(tokens: Sequence[Mapping], specials: Any) -> list[AddedToken]:
    """Those that are no special tokens of the model, as settings."""
    kept = [token for token in tokens if token["content"] not in set(specials)]
    return [AddedToken(**{name: value for name, value in token.items() if name != "id"}) for token in kept]


def _expect(*expected: tuple[str, Any, Any], kind: str) -> None:
    for name, received, wanted in expected:
        if received != wanted:
            raise InputError(f"{name} is {short(received)}, expected {wanted!r}: only {kind} can be read")


def _steps(part: Any, key: str, where: str) -> Iterator[dict]:
    """A step, or those of a Sequence."""
    if part is None:
        return
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InputError(f"{where} is {short(part)}, expected an object with a type")
    if part["type"] == "Sequence":
        for inner in field(part, key, list, where, []):
            yield from _steps(inner, key, where)
    else:
        yield part


def _ids(model: dict) -> dict[str, int]:
    ids = field(model, "vocab", dict, "model", {})
    if any(type(number) is not int for number in ids.values()):
        raise InputError(f"the {len(ids)} ids of the vocabulary are not 0 to {len(ids) - 1}, each once")
    return ids


def _wordpiece(content: dict, model: dict, tokens: list, lowercase: bool | None) -> WordPiece:
    normalizer = field(content, "normalizer", dict, "tokenizer.json", {})
    splitter = field(content, "pre_tokenizer", dict, "tokenizer.json", {})
    _expect(
        ("model.unk_token", model.get("unk_token"), "[UNK]"),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##"),
        ("normalizer.type", normalizer.get("type"), "BertNormalizer"),
        ("normalizer.clean_text", normalizer.get("clean_text"), True),
        ("pre_tokenizer.type", splitter.get("type"), "BertPreTokenizer"),
        kind="BERT's WordPiece",
    )
    pieces, added = with_added(_ids(model), tokens)
    strip = field(normalizer, "strip_accents", bool, "normalizer", None)
    return WordPiece(
        pieces,
        lowercase=field(normalizer, "lowercase", bool, "normalizer", True) if lowercase is None else lowercase,
        strip_accents=strip if lowercase is None else None,
        split_cjk=field(normalizer, "handle_chinese_chars", bool, "normalizer", True),
        max_word_chars=field(model, "max_input_chars_per_word", int, "model", 100),
        added=ordinary(added, BERT),
    )


def _bpe(content: dict, model: dict, tokens: list, lowercase: None) -> MergeTokenizer:
    """Byte-level BPE, or within words where those have an end."""
    read = _within_words if model.get("end_of_word_suffix") else _byte_level
    return read(content, model, tokens, lowercase)


def _within_words(content: dict, model: dict, tokens: list, lowercase: None) -> WordPairEncoding:
    normalizer = field(content, "normalizer", dict, "tokenizer.json", {})
    splitter = field(content, "pre_tokenizer", dict, "tokenizer.json", {})
    _expect(
        ("model.end_of_word_suffix", model.get("end_of_word_suffix"), END),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.unk_token", model.get("unk_token"), WORD_BPE["unk"]),
        ("model.fuse_unk", model.get("fuse_unk", False), False),
        ("model.byte_fallback", model.get("byte_fallback", False), False),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        ("normalizer.type", normalizer.get("type"), "BertNormalizer"),
        ("normalizer.clean_text", normalizer.get("clean_text"), True),
        ("pre_tokenizer.type", splitter.get("type"), "BertPreTokenizer"),
        kind="BPE within words as in OpenAI's GPT",
    )
    pieces, added = with_added(_ids(model), tokens)
    split = {
        "lowercase": field(normalizer, "lowercase", bool, "normalizer", True),
        "strip_accents": field(normalizer, "strip_accents", bool, "normalizer", None),
        "split_cjk": field(normalizer, "handle_chinese_chars", bool, "normalizer", True),
    }
    return within_words(pieces, _merges(model), added, split)


def _merges(model: dict) -> list:
    """Pairs, which older files write in one string."""
    return [
        merge.split(" ") if isinstance(merge, str) else merge for merge in field(model, "merges", list, "model", [])
    ]


def _byte_level(content: dict, model: dict, tokens: list, lowercase: None) -> BytePairEncoding:
    splitters = list(_steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer"))
    first = splitters[0] if splitters else {}
    _expect(
        ("pre_tokenizer.type", first.get("type"), "ByteLevel"),
        ("pre_tokenizer.use_regex", first.get("use_regex", True), True),
        ("normalizer", content.get("normalizer"), None),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        kind="byte-level BPE as in GPT-2 and RoBERTa",
    )
    pieces, added = with_added(_ids(model), tokens)
    return byte_level(pieces, _merges(model), field(first, "add_prefix_space", bool, "pre_tokenizer", True), added)


def _unigram(content: dict, model: dict, tokens: list, lowercase: None) -> Unigram:
    scored = _scored(field(model, "vocab", list, "model", []))
    steps = list(_steps(content.get("normalizer"), "normalizers", "normalizer"))
    names = {step["type"] for step in steps}
    if unreadable := names - {"Precompiled", "Replace", "NFKD", "StripAccents", "Lowercase", "Strip"}:
        raise InputError(f"normalizer has {' '.join(sorted(unreadable))}, expected SentencePiece's or ALBERT's steps")
    splitters = list(_steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer"))
    metaspace = next((step for step in splitters if step["type"] == "Metaspace"), None)
    if metaspace is None:
        raise InputError("pre_tokenizer has no Metaspace, expected it: only SentencePiece's unigram can be read")
    if other := {step["type"] for step in splitters} - {"Metaspace", "WhitespaceSplit"}:
        raise InputError(f"pre_tokenizer has {' '.join(sorted(other))}, expected WhitespaceSplit and Metaspace alone")
    pieces, added = with_added({piece: i for i, (piece, _) in enumerate(scored)}, tokens)
    layout = unigram.layout_of(pieces)
    added = ordinary(added, layout.specials.values())
    scheme = field(metaspace, "prepend_scheme", str, "pre_tokenizer", "always")
    spaced = scheme != "never" and field(metaspace, "add_prefix_space", bool, "pre_tokenizer", True)
    if added:
        _check_blanks(added, steps, any(step["type"] == "WhitespaceSplit" for step in splitters), scheme, spaced)
    special = {token["content"] for token in tokens}
    unknown = field(model, "unk_id", int, "model", None)
    if unknown is None or not 0 <= unknown < len(scored):
        raise InputError(f"model.unk_id is {short(unknown)}, expected the number of a piece, 0 to {len(scored) - 1}")
    fallback = field(model, "byte_fallback", bool, "model", False)
    scores, types = [], []
    for i, piece in enumerate(pieces):
        scores.append(float32(scored[i][1]) if i < len(scored) else 0.0)
        is_byte = fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
        types.append(UNKNOWN if i == unknown else CONTROL if piece in special else BYTE if is_byte else NORMAL)
    precompiled = next((step for step in steps if step["type"] == "Precompiled"), {})
    try:
        charsmap = base64.b64decode(field(precompiled, "precompiled_charsmap", str, "normalizer", ""), validate=True)
    except (binascii.Error, ValueError):
        raise InputError("normalizer.precompiled_charsmap is not base64. Download the file again") from None
    made = Model(tuple(pieces), tuple(scores), tuple(types), charsmap, dummy_prefix=spaced, byte_fallback=fallback)
    if any(step.get("pattern") == {"String": "``"} for step in steps):
        made = folded(made, "Lowercase" in names, "StripAccents" in names)
    elif names & {"NFKD", "StripAccents", "Lowercase"}:
        raise InputError(
            "normalizer strips accents or lower-cases, but does not replace quotes as ALBERT's and XLNet's do"
        )
    return Unigram(made, specials=layout.specials, template=layout.template, added=added)


def _scored(entries: list) -> list[tuple[str, float]]:
    """Pieces with scores, each a string and a finite number."""
    for i, entry in enumerate(entries):
        fits = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and entry[0]
        if not fits or type(entry[1]) not in (int, float) or not math.isfinite(entry[1]) or abs(entry[1]) > 1e9:
            raise InputError(f"model.vocab[{i}] is {short(entry)}, expected a piece and its score")
    return [(piece, float(score)) for piece, score in entries]


def _check_blanks(added: list[AddedToken], steps: list[dict], split: bool, scheme: str, spaced: bool) -> None:
    """Refuse what makes pieces of the blanks beside added tokens: sentencepiece trims the text between them."""
    normalized = [token.content for token in added if token.normalized]
    trims = any(step["type"] == "Strip" and step.get("strip_right") for step in steps)
    collapses = any(
        step["type"] == "Strip"
        or (step["type"] == "Replace" and step.get("pattern") not in [{"String": q} for q in QUOTES])
        for step in steps
    )
    if not spaced or scheme != "always":
        raise InputError(
            f"the added token {added[0].content!r} beside a Metaspace with prepend_scheme {short(scheme)} cannot be matched "
            "as theirs: only 'always' can. Save the tokenizer with it, or without the added tokens"
        )
    if (normalized and (not split or collapses)) or not (split or trims):
        raise InputError(
            f"the added token {(normalized or [added[0].content])[0]!r} (normalized {bool(normalized)}) cannot be matched as "
            "theirs here: their pre_tokenizer has no WhitespaceSplit, so that blanks beside it are pieces. Load and save the "
            "tokenizer with transformers 5, or add the tokens with normalized=False"
        )
