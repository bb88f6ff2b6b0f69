"""Write a tokenizer.json for Hugging Face."""

import base64
import os

from kerasbert.errors import InputError
from kerasbert.text.base import Tokenizer
from kerasbert.text.bert_words import BertWords
from kerasbert.text.bpe import BytePairEncoding, MergeTokenizer
from kerasbert.text.bpe_words import SPLITS
from kerasbert.text.charsmap import Charsmap
from kerasbert.text.metaspace_bpe import MetaspacePairEncoding
from kerasbert.text.sentencepiece import NORMAL
from kerasbert.text.template import Item
from kerasbert.text.unigram import SPACE, Unigram
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.wordpiece import WordPiece


def save_hf(tokenizer: Tokenizer, path: str | os.PathLike) -> None:
    """Write a tokenizer.json for Hugging Face: `tokenizers.Tokenizer.from_file` gives the same ids.

    With special tokens it adds those that `pack` adds. Differs: theirs reads a literal "[MASK]" in a text as the mask,
    ours as text; their unigram normalises by grapheme where sentencepiece and ours take the longest rule.
    """
    from kerasbert.storage.files import write_json

    kinds = {
        "wordpiece": _wordpiece_parts,
        "bpe": _byte_level_parts,
        "word_bpe": _word_bpe_parts,
        "metaspace_bpe": _metaspace_parts,
        "unigram": _unigram_parts,
    }
    parts = kinds.get(tokenizer.kind)
    if parts is None:
        raise InputError(f"a tokenizer of kind {tokenizer.kind!r} has no form in Hugging Face's tokenizer.json")
    listed = [{"id": i} | token for i, token in added_tokens(tokenizer).items()]
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": listed}
    write_json(path, base | parts(tokenizer) | {"post_processor": _post_processor(tokenizer)})


def added_tokens(tokenizer: Tokenizer) -> dict[int, dict]:
    """Id -> content and flags of special and added tokens, ascending."""
    flags = {token.content: token for token in tokenizer.added}
    # where pieces hold the blank before a word a mask takes it in, as those of RoBERTa, ALBERT and XLM-R do
    takes_blanks = set() if tokenizer.kind == "wordpiece" else {tokenizer.mask_id}
    return {
        i: {
            "content": (content := tokenizer.vocabulary[i]),
            **{
                name: getattr(flags[content], name) if content in flags else name == "lstrip" and i in takes_blanks
                for name in ("single_word", "lstrip", "rstrip", "normalized")
            },
            "special": flags[content].special if content in flags else True,
        }
        for i in sorted({*tokenizer.special_ids, *tokenizer.added_ids})
    }


def _own_pieces(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary without the added tokens at its end, which are not the model's: they number them on from it."""
    pieces = list(tokenizer.vocabulary)
    own = {token.content for token in tokenizer.added if not token.piece}
    while pieces[-1] in own:
        pieces.pop()
    return pieces


def _post_processor(tokenizer: Tokenizer) -> dict:
    def theirs(items: tuple[Item, ...]) -> list[dict]:
        return [
            {"Sequence": {"id": text, "type_id": segment}}
            if text
            else {"SpecialToken": {"id": tokenizer.vocabulary[i], "type_id": segment}}
            for text, i, segment in items
        ]

    used = sorted({item.id for item in (*tokenizer.single, *tokenizer.pair) if not item.text})
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
        "add_prefix_space": tokenizer.settings()["add_prefix_space"],
        "trim_offsets": True,
        "use_regex": True,
    }
    return {"type": "Sequence", "processors": [trim, template]}


def _words_parts(tokenizer: BertWords) -> dict:
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


def _wordpiece_parts(tokenizer: WordPiece) -> dict:
    return _words_parts(tokenizer) | {
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.specials["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.max_word_chars,
            "vocab": {piece: i for i, piece in enumerate(_own_pieces(tokenizer))},
        },
    }


def _byte_level_parts(tokenizer: BytePairEncoding) -> dict:
    usual = tokenizer.split == "gpt2"
    level = {"add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": True, "use_regex": usual}
    splitter: dict = {"type": "ByteLevel"} | level
    if not usual:
        expression = {"Regex": SPLITS[tokenizer.split].expression}
        split = {"type": "Split", "pattern": expression, "behavior": "Isolated", "invert": False}
        splitter = {"type": "Sequence", "pretokenizers": [split, splitter]}
    return {
        "normalizer": {"type": "NFC"} if tokenizer.nfc else None,
        "pre_tokenizer": splitter,
        "decoder": {"type": "ByteLevel"} | level | {"use_regex": True},
        "model": _bpe_model(tokenizer, None, "") | {"ignore_merges": tokenizer.ignore_merges},
    }


def _word_bpe_parts(tokenizer: WordPairEncoding) -> dict:
    decoder = {"type": "BPEDecoder", "suffix": END}
    return _words_parts(tokenizer) | {
        "decoder": decoder,
        "model": _bpe_model(tokenizer, tokenizer.specials["unk"], END),
    }


def _metaspace_parts(tokenizer: MetaspacePairEncoding) -> dict:
    blank, model = {"String": " "}, _bpe_model(tokenizer, tokenizer.specials["unk"], "")
    model |= {"end_of_word_suffix": None, "continuing_subword_prefix": None, "fuse_unk": True, "byte_fallback": True}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {
        "normalizer": {"type": "Replace", "pattern": blank, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": blank, "behavior": "MergedWithPrevious", "invert": False},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": model,
    }


def _bpe_model(tokenizer: MergeTokenizer, unknown: str | None, end: str) -> dict:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": end,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {piece: i for i, piece in enumerate(_own_pieces(tokenizer))},
        "merges": [list(merge) for merge in tokenizer.merges],
    }


def _unigram_parts(tokenizer: Unigram) -> dict:
    model = tokenizer.model
    # rules for several characters that are no grapheme are out of reach of their Precompiled
    steps: list[dict] = [
        {"type": "Replace", "pattern": {"String": string}, "content": other}
        for string, other in sorted(Charsmap(model.charsmap).rules().items(), key=lambda rule: (-len(rule[0]), rule[0]))
        if len(string) > 1 and string.isascii()
    ]
    if model.charsmap:
        text = base64.b64encode(model.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": text})
    if model.remove_extra and not tokenizer.added:
        steps += [
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]
    scheme = "always" if model.dummy_prefix else "never"
    # pieces may hold blanks inside where the text is not split at them
    split = not any(SPACE in piece[1:] for piece, kind in zip(model.pieces, model.types) if kind == NORMAL)
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}
    splitter: dict = metaspace
    if tokenizer.added:  # so that blanks beside them are no pieces, in normalised text neither
        splitter = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": splitter,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [list(entry) for entry in zip(_own_pieces(tokenizer), model.scores)],
            "byte_fallback": model.byte_fallback,
        },
    }
