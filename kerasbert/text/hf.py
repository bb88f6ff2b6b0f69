"""Hugging Face's tokenizer.json and the files beside it, read: closed, so that what is not applied is refused or told."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text import bpe, metaspace_bpe, wordpiece
from kerasbert.text.base import PARTS, Tokenizer
from kerasbert.text.bpe import BytePairEncoding, MergeTokenizer
from kerasbert.text.bpe_words import SPLITS, named
from kerasbert.text.hf_added import ordinary, token_entry, with_added
from kerasbert.text.hf_beside import Beside
from kerasbert.text.hf_template import renamed, template_of
from kerasbert.text.hf_unigram import read_unigram
from kerasbert.text.hf_values import by_id, expect, field, only_step, short, steps
from kerasbert.text.metaspace_bpe import MetaspacePairEncoding
from kerasbert.text.unigram import BERT
from kerasbert.text.word_bpe import END, WordPairEncoding
from kerasbert.text.word_bpe import SPECIALS as WORD_BPE
from kerasbert.text.wordpiece import WordPiece

__all__ = ["by_id", "byte_level", "field", "from_hf", "short", "within_words", "word_pieces"]

GPT2 = dict.fromkeys(("pad", "unk", "sep"), "<|endoftext|>")
GPT2_TEMPLATE = ("$A", "$A $B")
DECODERS = {
    "wordpiece": ("WordPiece",),
    "bpe": ("ByteLevel",),
    "word_bpe": ("BPEDecoder",),
    "metaspace_bpe": ("Replace", "ByteFallback", "Fuse"),
    "unigram": ("Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"),
}
# keys of a tokenizer.json that change no id of a kind, each with the reason
WITHOUT_EFFECT = {
    "version": "of the format",
    "padding": "padded places are masked, whatever stands there",
    "truncation": "a default of their calls, which a user gives here for each call; that it cuts the end is checked",
    "decoder.*": "how ids become text again, which a kind does in its own way; other decoders are refused",
}
OF_KIND = {
    "wordpiece": {},
    "word_bpe": {},
    "unigram": {},
    "metaspace_bpe": {"model.fuse_unk": "the pieces of bytes stand for what is unknown", "model.unk_token": "the same"},
    "bpe": {
        "model.unk_token": "all 256 bytes are pieces: nothing is unknown",
        "model.fuse_unk": "nothing is unknown",
        "model.byte_fallback": "nothing is unknown",
        "pre_tokenizer.trim_offsets": "offsets leave blanks out, always",
        "pre_tokenizer.pretokenizers.*.trim_offsets": "offsets leave blanks out, always",
    },
}
_AROUND = dict.fromkeys(("add_bos_token", "add_eos_token"), "tokenizer.json's post_processor or the class says it")
# keys of tokenizer_config.json that change nothing of a kind, each with the reason
CONFIG_OF_KIND = {
    "wordpiece": _AROUND | {"add_prefix_space": "BERT's words have no blank before them"},
    "bpe": _AROUND | {"do_lower_case": "of DeBERTa's files: byte-level classes never read it"},
    "word_bpe": _AROUND,
    "metaspace_bpe": _AROUND,
    "unigram": _AROUND
    | {"extra_ids": "where no file numbers the sentinels they are made of it, else it says their number again"},
}


def from_hf(content: dict, lowercase: bool | None, beside: Beside | None = None) -> Tokenizer:
    """The tokenizer of a tokenizer.json's content: WordPiece as BERT has it, byte-level BPE, GPT's BPE within words, or unigram.

    The template is the file's post_processor's. Its `not_used` names what was not used and changes no id.

    Differs: SentencePiece's normalisation is sentencepiece's own, which theirs only follows closely; special tokens such as
    [MASK] in a text are ordinary text; and only WordPiece takes `lowercase`.

    Args:
        content: the file's content.
        lowercase: bool, overrides what the file says, or None.
        beside: what the other files say.
    Raises:
        InputError: something that changes ids and is not here.
    """
    beside = Beside() if beside is None else beside
    given = field(content, "model", dict, "tokenizer.json", {})
    kind = given.get("type")
    readers = {"WordPiece": _wordpiece, "BPE": _bpe, "Unigram": _unigram}
    if not isinstance(kind, str) or kind not in readers:
        raise InputError(f"model.type is {short(kind)}, expected one of {', '.join(readers)}")
    if lowercase is not None and kind != "WordPiece":
        raise InputError(f"lowercase cannot be changed for a {kind} model: its pieces have the case they have")
    large = ("vocab", "merges")  # lists that a view would copy
    view = JsonView({**content, "model": {key: value for key, value in given.items() if key not in large}})
    view["model"].get("type")
    listed = field(view, "added_tokens", list, "tokenizer.json", [])
    tokens = [*(token_entry(entry) for entry in listed), *beside.added()]
    tokenizer = readers[kind](view, {key: given.get(key) for key in large}, tokens, lowercase, beside)
    _check_decoder(view, tokenizer.kind)
    cut = field(content, "truncation", dict, "tokenizer.json", None) or {}
    if cut.get("direction", "Right") != "Right":
        raise InputError(
            f"truncation.direction is {short(cut['direction'])}, expected 'Right': a text that is too long loses its end here. "
            "Set it to null to read the tokenizer so"
        )
    if left := view.unread([*WITHOUT_EFFECT, *OF_KIND[tokenizer.kind]]):
        name, value = next(iter(left.items()))
        raise InputError(
            f"{name} is {short(value)}, which is not known here and may change ids. Save the tokenizer without it"
        )
    tokenizer.not_used = beside.left_over(CONFIG_OF_KIND[tokenizer.kind])
    return tokenizer


def _check_decoder(content: Mapping, kind: str) -> None:
    """Refuse a decoder that spells tokens in another way than the kind does."""
    for step in steps(content.get("decoder"), "decoders", "decoder"):
        name = step["type"]
        if name not in DECODERS[kind]:
            raise InputError(
                f"decoder.type is {short(name)}, expected {' or '.join(DECODERS[kind])}: texts would be spelled otherwise"
            )
        wanted = {"WordPiece": ("prefix", "##"), "BPEDecoder": ("suffix", END), "Metaspace": ("replacement", "\u2581")}
        key, value = wanted.get(name, ("type", name))
        if step.get(key) != value:
            raise InputError(
                f"decoder.{key} is {short(step.get(key))}, expected {value!r}: texts would be spelled otherwise"
            )


def byte_level(
    pieces: list[str],
    merges: list,
    words: JsonMap,
    tokens: Sequence[Mapping] = (),
    beside: Beside | None = None,
    template: tuple[str, str] | None = None,
) -> BytePairEncoding:
    """With RoBERTa's special tokens, BERT's or GPT-2's one where the vocabulary has those, or with those that files name.

    Args:
        words: settings of `BytePairEncoding`, what it does to a text before pieces are merged.
        tokens: as `hf_added.with_added` gives them. template: the file's; None for the family's.
    """
    beside, known = Beside() if beside is None else beside, set(pieces)
    named = beside.named(known)
    gpt2 = "<s>" not in known and GPT2["sep"] in known
    specials, own = (GPT2, GPT2_TEMPLATE) if gpt2 else (bpe.SPECIALS, bpe.TEMPLATE)
    if known >= {*BERT.specials.values()} and not known & {*bpe.SPECIALS.values()}:
        specials, own = BERT
    if "sep" in named and not known & {*specials.values()}:
        specials, own = dict.fromkeys(GPT2, named["sep"]), GPT2_TEMPLATE
    specials = specials | named
    if named:  # another model's: it need not have a mask
        optional = {"mask", "cls"} if template else {"mask"}
        specials = {part: piece for part, piece in specials.items() if piece in known or part not in optional}
    if template is None:
        theirs = BERT.specials if own == BERT.template else bpe.SPECIALS
        template = renamed(own, {theirs[part]: piece for part, piece in specials.items()})
        template = beside.template(template, known if own == GPT2_TEMPLATE else (), specials["sep"])
    else:
        template = beside.template(template)
    extra = ordinary(tokens, specials.values())
    return BytePairEncoding(pieces, merges, **words, specials=specials, template=template, added=extra)


def within_words(
    pieces: list[str],
    merges: list,
    tokens: Sequence[Mapping] = (),
    split: JsonMap = MappingProxyType({}),
    beside: Beside | None = None,
    template: tuple[str, str] = ("$A", "$A $B"),
) -> WordPairEncoding:
    """With the special tokens that the vocabulary has: GPT's has <unk> alone.

    Args:
        tokens: as `hf_added.with_added` gives them.
        split: settings of the words.
    """
    beside, known = Beside() if beside is None else beside, set(pieces)
    specials = {part: piece if piece in known else WORD_BPE["unk"] for part, piece in WORD_BPE.items()}
    specials |= {part: piece for part, piece in beside.named(known).items() if part != "unk"}
    template = beside.template(template)
    extra = ordinary(tokens, specials.values())
    return WordPairEncoding(pieces, merges, specials=specials, template=template, added=extra, **split)


def word_pieces(
    pieces: list[str],
    settings: JsonMap,
    tokens: Sequence[Mapping] = (),
    beside: Beside | None = None,
    template: tuple[str, str] | None = None,
    unknown: str | None = None,
    layout: str = "bert",
) -> WordPiece:
    """WordPiece with the special tokens of a layout (`wordpiece.LAYOUTS`), or those that files name.

    Args:
        settings: of the words. tokens: as `hf_added.with_added` gives them.
        template: the file's; None for the layout's. unknown: what the model says.
    """
    beside, known = Beside() if beside is None else beside, set(pieces)
    usual, own = wordpiece.LAYOUTS[layout]
    specials = {part: usual[part] for part in PARTS} | beside.named(known)
    if unknown is not None:
        if beside.of_model and specials["unk"] != unknown:
            raise InputError(
                f"model.unk_token is {short(unknown)}, unk_token {short(specials['unk'])}: their releases differ in which one "
                "they read. Make them agree"
            )
        specials["unk"] = unknown
    own = renamed(own, {piece: specials[part] for part, piece in usual.items()})
    template = beside.template(own if template is None else template)
    return WordPiece(
        pieces, **settings, specials=specials, template=template, added=ordinary(tokens, specials.values())
    )


def _ids(vocab: object) -> dict[str, int]:
    return field({"vocab": vocab}, "vocab", dict, "model", {})


def _words(content: Mapping, beside: Beside, lowercase: bool | None, kind: str) -> Json:
    """Settings of BERT's words."""
    normalizer = only_step(content.get("normalizer"), "normalizers", "normalizer", "BertNormalizer", kind)
    only_step(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer", "BertPreTokenizer", kind)
    expect(("normalizer.clean_text", normalizer.get("clean_text"), True), kind=kind)
    said = {
        name: field(normalizer, name, bool, "normalizer", default)
        for name, default in (("lowercase", True), ("strip_accents", None), ("handle_chinese_chars", True))
    }
    lower = beside.settled("do_lower_case", said["lowercase"], usual=True)
    accents = said["strip_accents"]
    settings = {
        "lowercase": lower,
        "strip_accents": beside.settled("strip_accents", accents, usual=accents if accents == lower else None),
        "split_cjk": beside.settled("tokenize_chinese_chars", said["handle_chinese_chars"], usual=True),
    }
    return settings if lowercase is None else settings | {"lowercase": lowercase, "strip_accents": None}


def _wordpiece(content: JsonView, large: dict, tokens: list, lowercase: bool | None, beside: Beside) -> WordPiece:
    kind, model = "BERT's WordPiece", content["model"]
    expect(("model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##"), kind=kind)
    pieces, added = with_added(_ids(large["vocab"]), tokens)
    unknown = field(model, "unk_token", str, "model", "[UNK]")
    settings = _words(content, beside, lowercase, kind)
    most = settings["max_word_chars"] = field(model, "max_input_chars_per_word", int, "model", 100)
    if beside.of_model and most != 100:
        beside.tell(f"max_input_chars_per_word 100, as newer releases of {beside.given_class} take {most}")
    template = template_of(content.get("post_processor"), pieces)
    return word_pieces(pieces, settings, added, beside, template, unknown)


def _bpe(content: JsonView, large: dict, tokens: list, lowercase: None, beside: Beside) -> MergeTokenizer:
    """Byte-level BPE, or within words where those have an end."""
    model = content["model"]
    if model.get("dropout"):
        raise InputError(
            f"model.dropout is {short(model['dropout'])}, expected none: a text always has the same pieces here"
        )
    read = _within_words if model.get("end_of_word_suffix") else _byte_level
    levels = [step["type"] for step in steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer")]
    if model.get("byte_fallback") and "ByteLevel" not in levels:
        read = _metaspace
    return read(content, large, tokens, beside)


def _within_words(content: JsonView, large: dict, tokens: list, beside: Beside) -> WordPairEncoding:
    kind, model = "BPE within words as in OpenAI's GPT", content["model"]
    expect(
        ("model.end_of_word_suffix", model.get("end_of_word_suffix"), END),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.unk_token", model.get("unk_token"), WORD_BPE["unk"]),
        ("model.fuse_unk", model.get("fuse_unk", False), False),
        ("model.byte_fallback", model.get("byte_fallback", False), False),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        kind=kind,
    )
    pieces, added = with_added(_ids(large["vocab"]), tokens)
    split = _words(content, beside, None, kind)
    template = template_of(content.get("post_processor"), pieces)
    return within_words(pieces, _merges(large["merges"]), added, split, beside, template)


def _merges(merges: object) -> list:
    """Pairs, which older files write in one string."""
    listed = field({"merges": merges}, "merges", list, "model", [])
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in listed]


def _byte_level(content: JsonView, large: dict, tokens: list, beside: Beside) -> BytePairEncoding:
    kind, model = "byte-level BPE as in GPT-2 and RoBERTa", content["model"]
    level, split = _level_of(content, kind)
    expect(
        ("normalizer", None if _composes(content) else content.get("normalizer"), None),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        kind=kind,
    )
    pieces, added = with_added(_ids(large["vocab"]), tokens)
    words = {"split": split, "ignore_merges": field(model, "ignore_merges", bool, "model", False)}
    words["nfc"] = _composes(content)
    said = field(level, "add_prefix_space", bool, "pre_tokenizer", True)
    prefix = beside.settled("add_prefix_space", said, usual=beside.class_name == "Blenderbot")
    template = template_of(content.get("post_processor"), pieces)
    if prefix and split != "gpt2":
        raise InputError(
            f"add_prefix_space is true beside the split {split!r}, expected false: a blank would stand before every word"
        )
    words["add_prefix_space"] = bool(prefix)
    return byte_level(pieces, _merges(large["merges"]), words, added, beside, template)


def _level_of(content: JsonView, kind: str) -> tuple[Mapping, str]:
    """The ByteLevel step, and the name of the split: its own, or that of the step before it."""
    found = list(steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer"))
    if [step["type"] for step in found] != ["Split", "ByteLevel"]:
        level = only_step(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer", "ByteLevel", kind)
        expect(("pre_tokenizer.use_regex", level.get("use_regex", True), True), kind=kind)
        return level, "gpt2"
    split, level = found
    expression = field(split, "pattern", dict, "pre_tokenizer", {}).get("Regex")
    name = named(expression)
    if name is None:
        raise InputError(
            f"pre_tokenizer splits at {short(expression)}, expected the expression of {', '.join(SPLITS)}: other words would be "
            "merged"
        )
    # both keep what the expression finds, and it finds all of a text
    ways = (("Isolated", False), ("Removed", True))
    way = split.get("behavior"), split.get("invert", False)
    if way not in ways:
        raise InputError(f"pre_tokenizer's Split has behavior and invert {way}, expected {ways[0]} or {ways[1]}")
    expect(
        ("pre_tokenizer.use_regex", level.get("use_regex", True), False),
        ("pre_tokenizer.add_prefix_space", level.get("add_prefix_space", True), False),
        kind=kind,
    )
    return level, name


def _metaspace(content: JsonView, large: dict, tokens: list, beside: Beside) -> MetaspacePairEncoding:
    kind, model = "BPE with byte fallback as in Gemma", content["model"]
    blanks = only_step(content.get("normalizer"), "normalizers", "normalizer", "Replace", kind)
    pattern, content_ = dict(field(blanks, "pattern", dict, "normalizer", {})), blanks.get("content")
    expect(
        ("normalizer.pattern and content", (pattern, content_), ({"String": " "}, metaspace_bpe.SPACE)),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        kind=kind,
    )
    for split in steps(content.get("pre_tokenizer"), "pretokenizers", "pre_tokenizer"):
        pattern = dict(field(split, "pattern", dict, "pre_tokenizer", {}))
        expect(  # of blanks, of which the normalizer leaves none
            ("pre_tokenizer.type and pattern", (split["type"], pattern), ("Split", {"String": " "})), kind=kind
        )
        for key in ("behavior", "invert"):
            split.get(key)
    pieces, added = with_added(_ids(large["vocab"]), tokens)
    known = set(pieces)
    specials = {part: piece for part, piece in metaspace_bpe.SPECIALS.items() if part != "mask" or piece in known}
    specials |= beside.named(known)
    template = beside.template(template_of(content.get("post_processor"), pieces))
    extra = ordinary(added, specials.values())
    return MetaspacePairEncoding(pieces, _merges(large["merges"]), specials=specials, template=template, added=extra)


def _composes(content: JsonView) -> bool:
    """Whether the normalizer is NFC alone, as GPT-NeoX's and ModernBERT's is."""
    return [step["type"] for step in steps(content.get("normalizer"), "normalizers", "normalizer")] == ["NFC"]


def _unigram(content: JsonView, large: dict, tokens: list, lowercase: None, beside: Beside) -> Tokenizer:
    return read_unigram(content, content["model"], large["vocab"], tokens, beside)
