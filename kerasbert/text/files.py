"""Read a tokenizer: a directory of ours, a Hugging Face directory or tokenizer.json, or the vocabulary's own files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kerasbert.errors import InputError, unknown
from kerasbert.lazy import later
from kerasbert.registry import TOKENIZERS
from kerasbert.storage import unused
from kerasbert.text import hf
from kerasbert.text.base import KNOWLEDGE, Tokenizer
from kerasbert.text.bpe import BytePairEncoding, MergeTokenizer
from kerasbert.text.characters import CharacterWords
from kerasbert.text.hf_added import with_added
from kerasbert.text.hf_beside import CONFIG, GENERIC, NAMES, NUMBERS, Beside
from kerasbert.text.hf_spm import folds, of_model
from kerasbert.text.hf_values import gap
from kerasbert.text.in_memory import File, InMemory
from kerasbert.text.kinds import Kind
from kerasbert.text.languages import NAME as LANGUAGES
from kerasbert.text.languages import read_languages
from kerasbert.text.metaspace_bpe import MetaspacePairEncoding
from kerasbert.text.regex import RegexWords
from kerasbert.text.regex import read_vocabulary as read_words
from kerasbert.text.sentencepiece import read_model
from kerasbert.text.unigram import Unigram
from kerasbert.text.word_bpe import END, SPECIALS, WordPairEncoding
from kerasbert.text.wordpiece import WordPiece

# what a directory may hold, the most telling first
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json")
SENTENCEPIECE = (".model", ".spm")
BOM = "\ufeff"  # which some editors put before a text


def load_tokenizer(path: str | os.PathLike | Mapping[str, bytes], lowercase: bool | None = None) -> Tokenizer:
    """The tokenizer at `path`.

    Args:
        path: a directory that `save` wrote, a Hugging Face directory (tokenizer.json, or the vocabulary's files with
            tokenizer_config.json), a tokenizer.json, a vocab.txt (WordPiece), a vocab.json or encoder.json beside
            merges.txt or vocab.bpe (byte-level BPE), or SentencePiece's .model (ALBERT's, XLNet's, XLM-R's, T5's, DeBERTa's,
            told by its special tokens). Or the files of such a directory in memory: a dict of name -> bytes.
        lowercase: bool, overrides what the files say. None: what they say; of a vocab.txt alone it is inferred,
            because a cased vocabulary has pieces with upper-case letters.
    Raises:
        InputError: nothing there, unreadable, or a special token such as [MASK] is missing.
    """
    if isinstance(path, Mapping):
        file = tokenizer_file(InMemory(path))
        if file is None:
            raise InputError(f"no tokenizer in {', '.join(path) or 'no files'}, expected tokenizer.json or vocab.txt")
        return _with_knowledge(_load(file, lowercase), file.parent)
    path = Path(path)
    file: File | None = path
    if path.is_dir():
        file = tokenizer_file(path)
        if file is None:
            raise InputError(
                f"no tokenizer in {path}, expected tokenizer.json or vocab.txt there (or vocab.json, or a .model)"
            )
    elif not path.exists():
        raise InputError(f"no tokenizer at {path}, expected a tokenizer directory, a tokenizer.json or a vocab.txt")
    try:
        tokenizer = _with_knowledge(_load(file, lowercase), file.parent)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except RecursionError:
        raise InputError(f"{file}: json nested too deeply. Download or write it again") from None
    if not tokenizer.spelled and tokenizer.size <= len(set(tokenizer.special_ids)):
        raise InputError(
            f"{file} holds special tokens alone, by which every word is unknown: write the tokenizer again"
        )
    tokenizer.languages = read_languages(path if path.is_dir() else path.parent)
    for left in tokenizer.not_used:
        key, _, name = left.rpartition(" (")
        unused.leave(name.removesuffix(")"), [key])
    return tokenizer


def _with_knowledge(tokenizer: Tokenizer, folder: File) -> Tokenizer:
    """The tokenizer with the graph beside its files, where there is one."""
    if not (folder / KNOWLEDGE).is_file():
        return tokenizer
    from kerasbert.text.knowledge import held  # here: a phone whose file has no graph starts without them
    from kerasbert.text.tree import with_knowledge

    return with_knowledge(tokenizer, held(folder))


def held_tokenizer(directory: str | os.PathLike) -> Tokenizer | None:
    """The tokenizer of a model directory; None where it has none (its tokenizer/ may hold the table of languages alone)."""
    folder = Path(directory) / "tokenizer"
    if not folder.is_dir() or [file.name for file in folder.iterdir()] == [LANGUAGES]:
        return None
    return load_tokenizer(folder)


def tokenizer_file(directory: File) -> File | None:
    """The file of a directory that a tokenizer can be read from; None where there is none."""
    models = sorted(file for file in directory.iterdir() if file.suffix in SENTENCEPIECE)
    return next((directory / name for name in FILES if (directory / name).is_file()), models[0] if models else None)


def _load(file: File, lowercase: bool | None) -> Tokenizer:
    if file.name != "tokenizer.json" and file.with_name("source.spm").exists():
        raise InputError(
            "Marian's tokenizer (source.spm, target.spm, vocab.json) is two SentencePiece models over one vocabulary, which is "
            "not read here. Import the model without a tokenizer (--tokenizer none), or with another of the same ids"
        )
    if file.suffix in SENTENCEPIECE:
        return _from_sentencepiece(file, lowercase)
    if file.suffix != ".json":
        return _from_vocabulary(file, lowercase)
    content = _read_json(file)
    if file.name in ("vocab.json", "encoder.json"):
        return _from_merges(file, content, lowercase)
    if "kind" not in content:
        beside = _beside(file)
        _check_class(file, beside, "tokenizer.json")
        return hf.from_hf(content, lowercase, beside)
    kind = content["kind"]
    if kind not in TOKENIZERS:
        raise unknown("tokenizer", str(kind)[:60], TOKENIZERS, "kerasbert list tokenizers")
    settings = content.get("settings", {})
    if not isinstance(settings, dict):
        raise InputError(f"settings is {hf.short(settings)}, expected an object. Write the directory again")
    if lowercase is not None and lowercase != settings.get("lowercase"):
        _only_wordpiece(kind)
        settings |= {"lowercase": lowercase, "strip_accents": None}
    try:
        return TOKENIZERS[kind].tokenizer(*TOKENIZERS[kind].assets(file.parent), **settings)
    except TypeError as error:
        raise InputError(
            f"settings do not fit: {str(error)[:200]}. Write the directory again with this version"
        ) from None


def _only_wordpiece(kind: str) -> None:
    if kind != WordPiece.kind:
        raise InputError(
            f"lowercase cannot be changed for a tokenizer of kind {kind!r}: its pieces have the case they have"
        )


def _read_bytes(file: File) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file.name}: {error.strerror}") from None


def _read_text(file: File) -> str:
    try:
        return _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 (byte {error.start}). Save it as UTF-8") from None


def _read_json(file: File) -> dict:
    try:
        content = json.loads(_read_text(file).removeprefix(BOM))
    except json.JSONDecodeError as error:
        raise InputError(f"not json (line {error.lineno}: {error.msg}). Download or write it again") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not json ({str(error)[:80]}). Download or write it again") from None
    if not isinstance(content, dict):
        raise InputError(f"a json {type(content).__name__}, expected an object")
    return content


def _beside(file: File) -> Beside:
    """What the files beside a tokenizer's file say."""
    names = (CONFIG, NAMES, NUMBERS)
    return Beside(*(_read_json(file.parent / name) if (file.parent / name).exists() else {} for name in names))


# Hugging Face's classes that the vocabulary's own files are enough for; "Fast" at the end says nothing
CLASSES = {
    "wordpiece": "Bert DistilBert Electra MobileBert ConvBert LayoutLM Lxmert SqueezeBert Retribert Realm Ernie Nezha "
    "MPNet",
    "bpe": "Roberta GPT2 Bart Longformer LED Deberta",
    "word_bpe": "OpenAIGPT",
    "sentencepiece": "Albert BigBird XLMRoberta XLNet T5 Bert DebertaV2",
}
# what these do before or after a tokenizer.json (another splitter, Moses, emoji) stands in no file
OWN_CODE = ("BertJapanese", "Bertweet", "Phobert", "XLM", "Flaubert", "FSMT", "BertGeneration", "Transfo", "RoFormer")


def _check_class(file: File, beside: Beside, kind: str) -> None:
    """Refuse the files of a class that reads them in another way than ours."""
    given, name = beside.given_class, beside.class_name
    if given is None:
        return
    if kind == "tokenizer.json":
        if name in OWN_CODE:
            raise InputError(
                f"tokenizer_class is {hf.short(given)}, whose own code splits texts: it cannot be read here"
            )
    elif name == "Blenderbot":
        raise InputError(
            f"tokenizer_class is {hf.short(given)}, whose releases put other tokens around a text: save it with transformers, so "
            "that tokenizer.json says which, or give another --tokenizer"
        )
    elif name not in (*CLASSES[kind].split(), *GENERIC):
        raise InputError(
            f"tokenizer_class is {hf.short(given)}, which reads {file.name} in a way of its own, expected one of "
            f"{', '.join(f'{known}Tokenizer' for known in CLASSES[kind].split())}: give another --tokenizer, or none"
        )


def _read_vocabulary(file: File, bom: str = "") -> list[str]:
    """One piece a line; only a line feed ends one, because a piece may be another kind of line break.

    Args:
        bom: str, what may stand before the first.
    """
    text = _read_text(file).removeprefix(bom)
    pieces = text.split("\n")
    if any(blank in text for blank in " \t\r"):
        pieces = [line.rstrip(" \t\r") for line in pieces]
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _read_merges(file: File) -> list[list[str]]:
    """One merge a line; a first line that begins with #version is none."""
    lines = [line.rstrip("\r") for line in _read_text(file).removeprefix(BOM).split("\n")]
    return [line.split(" ") for i, line in enumerate(lines) if line and not (i == 0 and line.startswith("#version"))]


TOKENIZERS.add(
    "wordpiece",
    Kind(
        WordPiece,
        lambda folder: (_read_vocabulary(folder / "vocab.txt"),),
        later("kerasbert.text.train", "train_wordpiece"),
        later("kerasbert.text.wordpiece_graph", "WordPieceGraph"),
    ),
)


def _pieces_and_merges(folder: File) -> tuple[list[str], list[list[str]]]:
    """Of a folder with vocab.json and merges.txt."""
    return hf.by_id(_read_json(folder / "vocab.json")), _read_merges(folder / "merges.txt")


def _pieces_and_numbers(folder: File) -> tuple[list[str], list[list[str]]]:
    """The same where merges are written by ids."""
    pieces, merges = _pieces_and_merges(folder)
    try:
        return pieces, [[pieces[int(number)] for number in merge] for merge in merges]
    except (ValueError, IndexError):
        raise InputError(
            f"merges.txt has no two ids below {len(pieces)} on each line. Write the directory again"
        ) from None


TOKENIZERS.add(
    "bpe",
    Kind(
        BytePairEncoding,
        _pieces_and_merges,
        later("kerasbert.text.train_bpe", "train_bpe"),
        later("kerasbert.text.bpe_graph", "BytePairGraph"),
    ),
)
TOKENIZERS.add(
    "word_bpe",
    Kind(
        WordPairEncoding,
        _pieces_and_merges,
        later("kerasbert.text.train_bpe", "train_word_bpe"),
        later("kerasbert.text.word_bpe_graph", "WordPairGraph"),
    ),
)
TOKENIZERS.add(
    "metaspace_bpe",
    Kind(
        MetaspacePairEncoding,
        _pieces_and_numbers,
        graph=later("kerasbert.text.metaspace_bpe_graph", "MetaspacePairGraph"),
    ),
)
TOKENIZERS.add(
    "regex",
    Kind(
        RegexWords,
        lambda folder: (read_words(_read_text(folder / "vocab.txt"), folder / "vocab.txt"),),
        later("kerasbert.text.regex", "train_regex"),
        later("kerasbert.text.regex_graph", "RegexGraph"),
    ),
)
TOKENIZERS.add(
    "word_characters",
    Kind(
        CharacterWords,
        lambda folder: (_read_vocabulary(folder / "vocab.txt"),),
        later("kerasbert.text.characters", "train_characters"),
        later("kerasbert.text.characters_graph", "CharacterGraph"),
    ),
)
TOKENIZERS.add(
    "unigram",
    Kind(
        Unigram,
        lambda folder: (_read_bytes(folder / "spiece.model"),),
        later("kerasbert.text.train_unigram", "train_unigram"),
        later("kerasbert.text.unigram_graph", "UnigramGraph"),
    ),
)


def _from_vocabulary(file: File, lowercase: bool | None) -> WordPiece:
    """vocab.txt: an id is the number of a line; of a piece on several lines the last counts, as in transformers."""
    beside = _beside(file)
    _check_class(file, beside, "wordpiece")
    pieces = _read_vocabulary(file, BOM)
    if pieces and all("\t" in piece for piece in pieces):
        raise InputError(
            "each line has a tab, expected the piece alone on it: cut the counts off (cut -f1), keep the order of lines"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    for i, piece in enumerate(pieces):
        if ids[piece] != i:
            beside.told[f"line {i + 1} of {file.name}"] = f"{piece!r} stands on line {ids[piece] + 1} again"
            pieces[i] = gap(i, ids)
    if len(beside.config):
        settings = {
            "lowercase": beside.flag("do_lower_case", True),
            "strip_accents": beside.flag("strip_accents", None),
            "split_cjk": beside.flag("tokenize_chinese_chars", True),
        }
    else:
        # markup such as [MASK] or the Chinese vocabulary's <S> says nothing about the text's case
        settings = {"lowercase": not any(piece[:1] not in "[<" and piece != piece.lower() for piece in pieces)}
    if lowercase is not None:
        settings["lowercase"] = lowercase
    tokens = beside.added() if file.name == "vocab.txt" else []
    pieces, added = with_added({piece: i for i, piece in enumerate(pieces)}, tokens)
    layout = "mpnet" if beside.class_name == "MPNet" else "bert"
    tokenizer = hf.word_pieces(pieces, settings, added, beside, layout=layout)
    tokenizer.not_used = beside.left_over(hf.CONFIG_OF_KIND["wordpiece"])
    return tokenizer


def _from_sentencepiece(file: File, lowercase: bool | None) -> Unigram:
    beside = _beside(file)
    _check_class(file, beside, "sentencepiece")
    model = read_model(_read_bytes(file))
    if lowercase is not None and not folds(model):
        _only_wordpiece("unigram")
    tokenizer = of_model(model, lowercase, beside)
    tokenizer.not_used = beside.left_over(hf.CONFIG_OF_KIND["unigram"])
    return tokenizer


def _from_merges(file: File, ids: dict, lowercase: bool | None) -> MergeTokenizer:
    """vocab.json with merges.txt, or GPT-2's own names for them; GPT's where merges end words."""
    if lowercase is not None:
        _only_wordpiece("bpe")
    merges = _read_merges(file.with_name("merges.txt" if file.name == "vocab.json" else "vocab.bpe"))
    ends = sum(any(piece.endswith(END) for piece in merge) for merge in merges)
    gpt = SPECIALS["unk"] in ids and not {"<s>", "</s>", "<special0>"} & ids.keys()
    if ends and not gpt:
        raise InputError(
            f"{ends} of {len(merges)} merges end words with </w>: fastBPE as in XLM and FlauBERT, whose texts go through Moses "
            "first, which is not here. Import the model without a tokenizer (--tokenizer none), or with another of the same "
            "pieces"
        )
    beside = _beside(file)
    _check_class(file, beside, "word_bpe" if ends else "bpe")
    pieces, added = with_added(ids, beside.added())
    tokenizer: MergeTokenizer
    if ends:
        beside.settled("do_lower_case", True, own=False)
        tokenizer = hf.within_words(pieces, merges, added, beside=beside)
    else:
        prefix = beside.flag("add_prefix_space", False)
        tokenizer = hf.byte_level(pieces, merges, {"add_prefix_space": prefix}, added, beside)
    tokenizer.not_used = beside.left_over(hf.CONFIG_OF_KIND[tokenizer.kind])
    return tokenizer
