"""Read a tokenizer directory of ours, a Hugging Face directory or tokenizer.json, or a vocab.txt; write Hugging Face's."""

import json
import os
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError, unknown
from kerasbert.text.wordpiece import SPECIALS, WordPiece

KINDS = {WordPiece.kind: WordPiece}


def load_tokenizer(path: str | os.PathLike, lowercase: bool | None = None) -> WordPiece:
    """The tokenizer at `path`.

    Args:
        path: a directory that `save` wrote, a Hugging Face directory (tokenizer.json, or vocab.txt with
            tokenizer_config.json), a tokenizer.json or a vocab.txt.
        lowercase: bool, overrides what the files say. None: what they say; of a vocab.txt alone it is inferred,
            because a cased vocabulary has pieces with upper-case letters.
    Raises:
        InputError: nothing there, unreadable, or a special token such as [MASK] is missing.
    """
    path = Path(path)
    file = path
    if path.is_dir():
        file = next((path / name for name in ("tokenizer.json", "vocab.txt") if (path / name).exists()), None)
        if file is None:
            raise InputError(f"no tokenizer in {path}, expected tokenizer.json or vocab.txt there")
    elif not path.exists():
        raise InputError(f"no tokenizer at {path}, expected a tokenizer directory, a tokenizer.json or a vocab.txt")
    try:
        return _load(file, lowercase)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _load(file: Path, lowercase: bool | None) -> WordPiece:
    if file.suffix != ".json":
        return _from_vocabulary(file, lowercase)
    content = _read_json(file)
    if "kind" not in content:
        return _from_hf(content, lowercase)
    if content["kind"] not in KINDS:
        raise unknown("tokenizer", content["kind"], KINDS, "kerasbert list tokenizers")
    settings = content.get("settings", {})
    if lowercase is not None and lowercase != settings.get("lowercase"):
        settings |= {"lowercase": lowercase, "strip_accents": None}
    try:
        return KINDS[content["kind"]](_read_vocabulary(file.parent / "vocab.txt"), **settings)
    except TypeError as error:
        raise InputError(f"settings do not fit: {error}. Write the directory again with this version") from None


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read {file.name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 (byte {error.start}). Save it as UTF-8") from None


def _read_json(file: Path) -> dict:
    try:
        content = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise InputError(f"not json (line {error.lineno}: {error.msg}). Download or write it again") from None
    if not isinstance(content, dict):
        raise InputError(f"a json {type(content).__name__}, expected an object")
    return content


def _read_vocabulary(file: Path) -> list[str]:
    """One piece a line; only a line feed ends one, because a piece may be another kind of line break."""
    pieces = [line.rstrip(" \t\r") for line in _read_text(file).split("\n")]
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _from_vocabulary(file: Path, lowercase: bool | None) -> WordPiece:
    pieces = _read_vocabulary(file)
    config = file.parent / "tokenizer_config.json"
    settings: dict[str, Any] = {}
    if config.exists():
        given = _read_json(config)
        settings = {
            "lowercase": given.get("do_lower_case", True),
            "strip_accents": given.get("strip_accents"),
            "split_cjk": given.get("tokenize_chinese_chars", True),
        }
    else:
        # markup such as [MASK] or the Chinese vocabulary's <S> says nothing about the text's case
        settings["lowercase"] = not any(piece[:1] not in "[<" and piece != piece.lower() for piece in pieces)
    if lowercase is not None:
        settings["lowercase"] = lowercase
    return WordPiece(pieces, **settings)


def _from_hf(content: dict, lowercase: bool | None) -> WordPiece:
    """A tokenizer.json of Hugging Face `tokenizers`."""
    model = content.get("model") or {}
    normalizer = content.get("normalizer") or {}
    splitter = content.get("pre_tokenizer") or {}
    expected = (
        ("model.type", model.get("type"), "WordPiece"),
        ("model.unk_token", model.get("unk_token"), "[UNK]"),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##"),
        ("normalizer.type", normalizer.get("type"), "BertNormalizer"),
        ("normalizer.clean_text", normalizer.get("clean_text"), True),
        ("pre_tokenizer.type", splitter.get("type"), "BertPreTokenizer"),
    )
    for name, received, wanted in expected:
        if received != wanted:
            raise InputError(f"{name} is {received!r}, expected {wanted!r}: only BERT's WordPiece can be read")
    ids = dict(model.get("vocab") or {})
    ids |= {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    pieces = sorted(ids, key=ids.__getitem__)
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"the {len(ids)} ids of the vocabulary are not 0 to {len(ids) - 1}, each once")
    return WordPiece(
        pieces,
        lowercase=normalizer.get("lowercase", True) if lowercase is None else lowercase,
        strip_accents=normalizer.get("strip_accents") if lowercase is None else None,
        split_cjk=normalizer.get("handle_chinese_chars", True),
        max_word_chars=model.get("max_input_chars_per_word", 100),
    )


def save_hf(tokenizer: WordPiece, path: str | os.PathLike) -> None:
    """Write a tokenizer.json for Hugging Face: `tokenizers.Tokenizer.from_file` gives the same ids.

    With special tokens it adds [CLS] and [SEP] as `pack` does. Differs: theirs reads a literal "[MASK]" in a text as
    the mask, ours as text.
    """
    from kerasbert.files import write_json

    ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    special = [
        {
            "id": ids[t],
            "content": t,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for t in sorted(SPECIALS, key=ids.__getitem__)
    ]

    def token(name: str, segment: int) -> dict:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    single = [token("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]", 0)]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, token("[SEP]", 1)],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.max_word_chars,
            "vocab": ids,
        },
    }
    write_json(path, content)
