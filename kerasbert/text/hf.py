"""Hugging Face's tokenizer.json: read one, write one."""

import base64
import os
from collections.abc import Iterator
from typing import Any

from kerasbert.errors import InputError
from kerasbert.text import unigram
from kerasbert.text.base import Item, Tokenizer
from kerasbert.text.bpe import BytePairEncoding
from kerasbert.text.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Charsmap, Model, folded
from kerasbert.text.unigram import SPACE, Unigram, float32
from kerasbert.text.wordpiece import WordPiece

GPT2 = dict.fromkeys(("pad", "unk", "sep"), "<|endoftext|>")


def from_hf(content: dict, lowercase: bool | None) -> Tokenizer:
    """The tokenizer of a tokenizer.json's content: WordPiece as BERT has it, byte-level BPE, or unigram.

    Differs: SentencePiece's normalisation is sentencepiece's own, which theirs only follows closely; and only WordPiece
    takes `lowercase`.
    """
    model = content.get("model") or {}
    kind = model.get("type")
    readers = {"WordPiece": _wordpiece, "BPE": _byte_level, "Unigram": _unigram}
    if kind not in readers:
        raise InputError(f"model.type is {kind!r}, expected one of {', '.join(readers)}")
    if lowercase is not None and kind != "WordPiece":
        raise InputError(f"lowercase cannot be changed for a {kind} model: its pieces have the case they have")
    return readers[kind](content, model, lowercase)


def by_id(ids: dict[str, int]) -> list[str]:
    """Pieces in the order of their ids."""
    try:
        whole = sorted(ids.values()) == list(range(len(ids)))
    except TypeError:
        whole = False
    if not whole:
        raise InputError(f"the {len(ids)} ids of the vocabulary are not 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def byte_level(pieces: list[str], merges: list, add_prefix_space: bool) -> BytePairEncoding:
    """With RoBERTa's special tokens, or with GPT-2's one where the vocabulary has only that."""
    layout: dict[str, Any] = {}
    if "<s>" not in pieces and GPT2["sep"] in pieces:
        layout = {"specials": GPT2, "template": ("$A", "$A $B")}
    return BytePairEncoding(pieces, merges, add_prefix_space=add_prefix_space, **layout)


def _expect(*expected: tuple[str, Any, Any], kind: str) -> None:
    for name, received, wanted in expected:
        if received != wanted:
            raise InputError(f"{name} is {received!r}, expected {wanted!r}: only {kind} can be read")


def _with_added(ids: dict[str, int], content: dict) -> list[str]:
    return by_id(ids | {token["content"]: token["id"] for token in content.get("added_tokens") or []})


def _steps(part: dict | None, key: str) -> Iterator[dict]:
    """A step, or those of a Sequence."""
    if part and part.get("type") == "Sequence":
        for inner in part.get(key) or []:
            yield from _steps(inner, key)
    elif part:
        yield part


def _wordpiece(content: dict, model: dict, lowercase: bool | None) -> WordPiece:
    normalizer = content.get("normalizer") or {}
    splitter = content.get("pre_tokenizer") or {}
    _expect(
        ("model.unk_token", model.get("unk_token"), "[UNK]"),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##"),
        ("normalizer.type", normalizer.get("type"), "BertNormalizer"),
        ("normalizer.clean_text", normalizer.get("clean_text"), True),
        ("pre_tokenizer.type", splitter.get("type"), "BertPreTokenizer"),
        kind="BERT's WordPiece",
    )
    return WordPiece(
        _with_added(model.get("vocab") or {}, content),
        lowercase=normalizer.get("lowercase", True) if lowercase is None else lowercase,
        strip_accents=normalizer.get("strip_accents") if lowercase is None else None,
        split_cjk=normalizer.get("handle_chinese_chars", True),
        max_word_chars=model.get("max_input_chars_per_word", 100),
    )


def _byte_level(content: dict, model: dict, lowercase: None) -> BytePairEncoding:
    splitters = list(_steps(content.get("pre_tokenizer"), "pretokenizers"))
    first = splitters[0] if splitters else {}
    _expect(
        ("pre_tokenizer.type", first.get("type"), "ByteLevel"),
        ("pre_tokenizer.use_regex", first.get("use_regex", True), True),
        ("normalizer", content.get("normalizer"), None),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.end_of_word_suffix", model.get("end_of_word_suffix") or "", ""),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        kind="byte-level BPE as in GPT-2 and RoBERTa",
    )
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges") or []]
    return byte_level(_with_added(model.get("vocab") or {}, content), merges, bool(first.get("add_prefix_space", True)))


def _unigram(content: dict, model: dict, lowercase: None) -> Unigram:
    scored = model.get("vocab") or []
    steps = list(_steps(content.get("normalizer"), "normalizers"))
    names = {step["type"] for step in steps}
    if unreadable := names - {"Precompiled", "Replace", "NFKD", "StripAccents", "Lowercase", "Strip"}:
        raise InputError(f"normalizer has {' '.join(sorted(unreadable))}, expected SentencePiece's or ALBERT's steps")
    splitters = list(_steps(content.get("pre_tokenizer"), "pretokenizers"))
    metaspace = next((step for step in splitters if step["type"] == "Metaspace"), None)
    if metaspace is None:
        raise InputError("pre_tokenizer has no Metaspace, expected it: only SentencePiece's unigram can be read")
    ids = {piece: i for i, (piece, _) in enumerate(scored)}
    pieces = _with_added(ids, content)
    special = {token["content"] for token in content.get("added_tokens") or []}
    unknown = model.get("unk_id")
    fallback = bool(model.get("byte_fallback"))
    scores, types = [], []
    for i, piece in enumerate(pieces):
        scores.append(float32(scored[i][1]) if i < len(scored) else 0.0)
        is_byte = fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
        types.append(UNKNOWN if i == unknown else CONTROL if piece in special else BYTE if is_byte else NORMAL)
    charsmap = next((step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"), "")
    spaced = metaspace.get("prepend_scheme", "always") != "never" and metaspace.get("add_prefix_space", True)
    made = Model(
        tuple(pieces),
        tuple(scores),
        tuple(types),
        base64.b64decode(charsmap),
        dummy_prefix=spaced,
        byte_fallback=fallback,
    )
    quotes = any(step.get("pattern") == {"String": "``"} for step in steps)
    if quotes:
        made = folded(made, "Lowercase" in names, "StripAccents" in names)
    elif names & {"NFKD", "StripAccents", "Lowercase"}:
        raise InputError(
            "normalizer strips accents or lower-cases, but does not replace quotes as ALBERT's and XLNet's do"
        )
    layout = unigram.layout_of(pieces)
    return Unigram(made, specials=layout.specials, template=layout.template)


def save_hf(tokenizer: Tokenizer, path: str | os.PathLike) -> None:
    """Write a tokenizer.json for Hugging Face: `tokenizers.Tokenizer.from_file` gives the same ids.

    With special tokens it adds those that `pack` adds. Differs: theirs reads a literal "[MASK]" in a text as the mask,
    ours as text; their unigram normalises by grapheme where sentencepiece and ours take the longest rule.
    """
    from kerasbert.files import write_json

    parts = {"wordpiece": _wordpiece_parts, "bpe": _byte_level_parts, "unigram": _unigram_parts}[tokenizer.kind]
    special = [
        {
            "id": i,
            "content": tokenizer.vocabulary[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in sorted(tokenizer.special_ids)
    ]
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special}
    write_json(path, base | parts(tokenizer) | {"post_processor": _post_processor(tokenizer)})


def _post_processor(tokenizer: Tokenizer) -> dict:
    def theirs(items: tuple[Item, ...]) -> list[dict]:
        return [
            {"Sequence": {"id": text, "type_id": segment}}
            if text
            else {"SpecialToken": {"id": tokenizer.vocabulary[i], "type_id": segment}}
            for text, i, segment in items
        ]

    used = sorted({item.id for item in tokenizer.pair if not item.text})
    names = {tokenizer.vocabulary[i]: i for i in used}
    template = {
        "type": "TemplateProcessing",
        "single": theirs(tokenizer.single),
        "pair": theirs(tokenizer.pair),
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in names.items()},
    }
    if tokenizer.kind != "bpe":
        return template
    trim = {
        "type": "ByteLevel",
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {"type": "Sequence", "processors": [trim, template]}


def _wordpiece_parts(tokenizer: WordPiece) -> dict:
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.max_word_chars,
            "vocab": {piece: i for i, piece in enumerate(tokenizer.vocabulary)},
        },
    }


def _byte_level_parts(tokenizer: BytePairEncoding) -> dict:
    level = {"add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": True, "use_regex": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel"} | level,
        "decoder": {"type": "ByteLevel"} | level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(tokenizer.vocabulary)},
            "merges": [list(merge) for merge in tokenizer.merges],
        },
    }


def _unigram_parts(tokenizer: Unigram) -> dict:
    model = tokenizer.model
    rules = Charsmap(model.charsmap)
    # rules that begin with more than one character of theirs are out of reach of their Precompiled
    steps = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}
        for quotes in ("``", "''")
        if model.charsmap and rules.longest(quotes, 0) == (2, '"')
    ]
    if model.charsmap:
        text = base64.b64encode(model.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": text})
    if model.remove_extra:
        steps += [
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]
    scheme = "always" if model.dummy_prefix else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": metaspace,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [list(entry) for entry in zip(model.pieces, model.scores)],
            "byte_fallback": model.byte_fallback,
        },
    }
