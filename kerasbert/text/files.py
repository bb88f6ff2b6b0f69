"""Read a tokenizer: a directory of ours, a Hugging Face directory or tokenizer.json, or the vocabulary's own files."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError, unknown
from kerasbert.lazy import later
from kerasbert.registry import TOKENIZERS
from kerasbert.text import hf, unigram
from kerasbert.text.base import KNOWLEDGE, SENTINEL, Tokenizer
from kerasbert.text.bpe import BytePairEncoding, MergeTokenizer
from kerasbert.text.characters import CharacterWords
from kerasbert.text.in_memory import InMemory
from kerasbert.text.kinds import Kind
from kerasbert.text.languages import NAME as LANGUAGES
from kerasbert.text.languages import read_languages
from kerasbert.text.regex import RegexWords
from kerasbert.text.regex import read_vocabulary as read_words
from kerasbert.text.sentencepiece import CONTROL, UNKNOWN, Model, folded, read_model
from kerasbert.text.unigram import Unigram
from kerasbert.text.word_bpe import END, SPECIALS, WordPairEncoding
from kerasbert.text.wordpiece import WordPiece

# what a directory may hold, the most telling first
NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json")
SENTENCEPIECE = (".model", ".spm")


def load_tokenizer(path: str | os.PathLike | Mapping[str, bytes], lowercase: bool | None = None) -> Tokenizer:
    """The tokenizer at `path`.

    Args:
        path: a directory that `save` wrote, a Hugging Face directory (tokenizer.json, or the vocabulary's files with
            tokenizer_config.json), a tokenizer.json, a vocab.txt (WordPiece), a vocab.json or encoder.json beside
            merges.txt or vocab.bpe (byte-level BPE), or SentencePiece's .model (ALBERT's, XLNet's, XLM-R's or T5's,
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
    file: Any = path
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
    tokenizer.languages = read_languages(file.parent)
    return tokenizer


def _with_knowledge(tokenizer: Tokenizer, folder: Any) -> Tokenizer:
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


def tokenizer_file(directory: Path | InMemory) -> Path | InMemory | None:
    """The file of a directory that a tokenizer can be read from; None where there is none."""
    models = sorted(file for file in directory.iterdir() if file.suffix in SENTENCEPIECE)
    return next((directory / name for name in NAMES if (directory / name).is_file()), models[0] if models else None)


def _load(file: Any, lowercase: bool | None) -> Tokenizer:
    if file.name != "tokenizer.json" and file.with_name("source.spm").exists():
        raise InputError(
            "Marian's tokenizer (source.spm, target.spm, vocab.json) is two SentencePiece models over one vocabulary, which is "
            "not read here. Import the model without a tokenizer (--tokenizer none), or with another of the same ids"
        )
    if file.suffix in SENTENCEPIECE:
        _check_class(file, "sentencepiece")
        return _from_sentencepiece(file, lowercase)
    if file.suffix != ".json":
        return _from_vocabulary(file, lowercase)
    content = _read_json(file)
    if file.name in ("vocab.json", "encoder.json"):
        return _from_merges(file, content, lowercase)
    if "kind" not in content:
        _check_class(file, "tokenizer.json")
        return hf.from_hf(content, lowercase, _beside(file))
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


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file.name}: {error.strerror}") from None


def _read_text(file: Path) -> str:
    try:
        return _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 (byte {error.start}). Save it as UTF-8") from None


def _read_json(file: Path) -> dict:
    try:
        content = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise InputError(f"not json (line {error.lineno}: {error.msg}). Download or write it again") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not json ({str(error)[:80]}). Download or write it again") from None
    if not isinstance(content, dict):
        raise InputError(f"a json {type(content).__name__}, expected an object")
    return content


def _config(file: Path, name: str = "tokenizer_config.json") -> dict | None:
    """A json file of Hugging Face's beside a file."""
    config = file.parent / name
    return _read_json(config) if config.exists() else None


def _beside(file: Path) -> list[dict]:
    """Added tokens that the files beside a tokenizer's file name."""
    names = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")
    return hf.added_beside(*(_config(file, name) or {} for name in names))


# Hugging Face's classes that the vocabulary's own files are enough for; "Fast" at the end says nothing
CLASSES = {
    "wordpiece": "Bert DistilBert Electra MobileBert ConvBert LayoutLM Lxmert SqueezeBert Retribert Realm Ernie Nezha",
    "bpe": "Roberta GPT2 Bart Longformer LED Blenderbot",
    "word_bpe": "OpenAIGPT",
    "sentencepiece": "Albert XLMRoberta XLNet T5 Bert",
}
MOST_SENTINELS = 10_000
# what these do before or after a tokenizer.json (another splitter, Moses, emoji) stands in no file
OWN_CODE = ("BertJapanese", "Bertweet", "Phobert", "XLM", "Flaubert", "FSMT", "BertGeneration", "Transfo")


def _check_class(file: Path, kind: str) -> None:
    """Refuse the files of a class that reads them in another way than ours."""
    given = (_config(file) or {}).get("tokenizer_class")
    if given is None:
        return
    name = str(given).removesuffix("Fast").removesuffix("Tokenizer")
    if kind == "tokenizer.json":
        if name in OWN_CODE:
            raise InputError(
                f"tokenizer_class is {hf.short(given)}, whose own code splits texts: it cannot be read here"
            )
    elif name not in (*CLASSES[kind].split(), "PreTrained", "TokenizersBackend"):
        raise InputError(
            f"tokenizer_class is {hf.short(given)}, which reads {file.name} in a way of its own, expected one of "
            f"{', '.join(f'{known}Tokenizer' for known in CLASSES[kind].split())}: give another --tokenizer, or none"
        )


def _read_vocabulary(file: Path) -> list[str]:
    """One piece a line; only a line feed ends one, because a piece may be another kind of line break."""
    text = _read_text(file)
    pieces = text.split("\n")
    if any(blank in text for blank in " \t\r"):
        pieces = [line.rstrip(" \t\r") for line in pieces]
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _read_merges(file: Path) -> list[list[str]]:
    """One merge a line; a first line that begins with #version is none."""
    lines = [line.rstrip("\r") for line in _read_text(file).split("\n")]
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


def _pieces_and_merges(folder: Any) -> tuple[list[str], list[list[str]]]:
    """Of a folder with vocab.json and merges.txt."""
    return hf.by_id(_read_json(folder / "vocab.json")), _read_merges(folder / "merges.txt")


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


def _from_vocabulary(file: Path, lowercase: bool | None) -> WordPiece:
    _check_class(file, "wordpiece")
    pieces = _read_vocabulary(file)
    settings: dict[str, Any] = {}
    given = _config(file)
    if given is not None:
        settings = {
            "lowercase": hf.field(given, "do_lower_case", bool, "tokenizer_config.json", True),
            "strip_accents": hf.field(given, "strip_accents", bool, "tokenizer_config.json", None),
            "split_cjk": hf.field(given, "tokenize_chinese_chars", bool, "tokenizer_config.json", True),
        }
    else:
        # markup such as [MASK] or the Chinese vocabulary's <S> says nothing about the text's case
        settings["lowercase"] = not any(piece[:1] not in "[<" and piece != piece.lower() for piece in pieces)
    if lowercase is not None:
        settings["lowercase"] = lowercase
    # an unreadable piece is the vocabulary's affair: say that first
    beside = _beside(file) if file.name == "vocab.txt" else []
    if not beside:
        return WordPiece(pieces, **settings)
    plain = WordPiece(pieces, **settings)
    pieces, added = hf.with_added(plain._ids, beside)
    return WordPiece(pieces, **settings, added=hf.ordinary(added, plain.specials.values()))


def _from_merges(file: Path, ids: dict, lowercase: bool | None) -> MergeTokenizer:
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
    _check_class(file, "word_bpe" if ends else "bpe")
    pieces, added = hf.with_added(dict(zip(hf.by_id(ids), range(len(ids)))), _beside(file))
    if ends:
        return hf.within_words(pieces, merges, added)
    prefix = hf.field(_config(file) or {}, "add_prefix_space", bool, "tokenizer_config.json", False)
    return hf.byte_level(pieces, merges, prefix, added)


def _from_sentencepiece(file: Path, lowercase: bool | None) -> Unigram:
    model = read_model(_read_bytes(file))
    given = _config(file) or {}
    layout = unigram.layout_of(model.pieces)
    if layout in (unigram.ALBERT, unigram.XLNET):
        lower = given.get("do_lower_case", layout == unigram.ALBERT) if lowercase is None else lowercase
        model = folded(model, lower, not given.get("keep_accents", False))
    elif lowercase is not None:
        _only_wordpiece("unigram")
    if layout == unigram.XLM_R and "<pad>" not in model.pieces:
        model = fairseq_order(model)
    settings: dict[str, Any] = {"specials": layout.specials, "template": layout.template}
    beside = _beside(file)
    if layout == unigram.T5 and model.can_add:
        beside = _with_sentinels(beside, model.pieces, given)
    if beside:
        pieces, added = hf.with_added({piece: i for i, piece in enumerate(model.pieces)}, beside)
        more = tuple(pieces[len(model.pieces) :])
        model = model._replace(
            pieces=(*model.pieces, *more),
            scores=(*model.scores, *(0.0 for _ in more)),
            types=(*model.types, *(CONTROL for _ in more)),
        )
        settings["added"] = hf.ordinary(added, layout.specials.values())
    return Unigram(model, **settings)


def _with_sentinels(beside: list[dict], pieces: Sequence[str], given: dict) -> list[dict]:
    """Added tokens and before them T5's sentinels, <extra_id_0> last, where neither model nor files give them an id.

    tokenizer_config.json says how many they are, `extra_ids`; 100 by default.
    """
    count = hf.field(given, "extra_ids", int, "tokenizer_config.json", 100)
    if not 0 <= count <= MOST_SENTINELS:
        raise InputError(f"extra_ids is {count}, expected 0 to {MOST_SENTINELS}: the sentinels of a T5")
    names = [SENTINEL.format(i) for i in reversed(range(count))]
    if {*names} & {*pieces, *(each["content"] for each in beside if each["id"] is not None)}:
        return beside
    sentinels = [{"content": name, "special": True, "id": None} for name in names]
    return [*sentinels, *(each for each in beside if each["content"] not in names)]


def fairseq_order(model: Model) -> Model:
    """XLM-R's ids: fairseq puts <s> <pad> </s> <unk> first and <mask> last, so that the others are one more than in the file."""
    if model.pieces[:3] != ("<unk>", "<s>", "</s>"):
        raise InputError(
            f"the first pieces are {' '.join(model.pieces[:3])}, expected <unk> <s> </s> as in XLM-R's model"
        )
    return model._replace(
        pieces=("<s>", "<pad>", "</s>", "<unk>", *model.pieces[3:], "<mask>"),
        scores=(0.0,) * 4 + (*model.scores[3:], 0.0),
        types=(CONTROL, CONTROL, CONTROL, UNKNOWN, *model.types[3:], CONTROL),
    )
