"""The tokenizer of a KerasHub preset: tokenizer.json and assets/tokenizer, in and out."""

from pathlib import Path

from kerasbert import progress
from kerasbert.checkpoints.json_files import read_json
from kerasbert.errors import InputError
from kerasbert.storage import files, unused
from kerasbert.storage.json_view import Json, JsonView
from kerasbert.text import BytePairEncoding, WordPiece, hf, hf_spm, unigram
from kerasbert.text.added import finding_specials
from kerasbert.text.base import Tokenizer
from kerasbert.text.sentencepiece import read_model, write_model
from kerasbert.text.unigram import Unigram
from kerasbert.text.wordpiece import BY_PART

# settings of its tokenizers: what is computed here, and what changes no id
_TOKENIZER = {
    "split": True,
    "split_on_cjk": True,
    "suffix_indicator": "##",
    "sequence_length": None,
    "add_bos": False,
    "add_eos": False,
    "oov_token": "[UNK]",
}
_TOKENIZER_UNREAD = {
    "name": "of the layer",
    "trainable": "what training may change",
    "dtype*": "how it is computed there",
    "config_file": "its own name",
    "vocabulary": "a file beside it",
    "merges": "a file beside it",
    "proto": "a file beside it",
    "unk_token": "a piece of the vocabulary",
    "special_tokens": "pieces of the vocabulary",
}
# class of theirs -> kind of ours, and the special tokens that it has in its code
_FAIRSEQ = {"pad": "<pad>", "cls": "<s>", "sep": "</s>"}
_LAYOUTS = {
    "AlbertTokenizer": unigram.ALBERT,
    "DebertaV3Tokenizer": unigram.BERT,
    "XLMRobertaTokenizer": unigram.XLM_R,
    "T5Tokenizer": unigram.T5,
}
_CLASSES = {
    "BertTokenizer": ("wordpiece", BY_PART),
    "DistilBertTokenizer": ("wordpiece", BY_PART),
    "ElectraTokenizer": ("wordpiece", BY_PART),
    "RobertaTokenizer": ("bpe", _FAIRSEQ | {"mask": "<mask>"}),
    "BartTokenizer": ("bpe", _FAIRSEQ),
    "GPT2Tokenizer": ("bpe", {"sep": "<|endoftext|>"}),
    **{name: ("unigram", layout.specials) for name, layout in _LAYOUTS.items()},
}


def read_tokenizer(folder: Path, finding: bool = False) -> Tokenizer | None:
    """The preset's tokenizer; None where it has none.

    Args:
        finding: whether it finds the special tokens of its class within texts, as byte-level BPE does there.

    Differs: KerasHub's splitting of text (tensorflow-text's regular expressions) differs from Hugging Face's in rare
    characters; the tokenizer read here follows Hugging Face's.
    """
    assets = folder / "assets" / "tokenizer"
    if not assets.is_dir() or not (folder / "tokenizer.json").is_file():
        return None
    content = read_json(folder / "tokenizer.json")
    settings = JsonView(content.get("config", {}))
    for key, only in _TOKENIZER.items():
        if settings.get(key, only) not in (only, None):
            raise InputError(
                f"{folder / 'tokenizer.json'} has {key} {settings[key]!r}, expected {only!r}: no such tokenizer here"
            )
    settings.read("lowercase", "strip_accents", "add_prefix_space", "special_tokens_in_strings")
    unused.leave(folder / "tokenizer.json", settings.unread(_TOKENIZER_UNREAD))
    name = str(content.get("class_name"))
    found = _held(assets, settings, name)
    if found is None or not (finding or settings.get("special_tokens_in_strings")):
        return found
    return finding_specials(found, _CLASSES[name][1].values() if name in _CLASSES else None)


def _held(assets: Path, settings: JsonView, name: str) -> Tokenizer | None:
    """What the files of a tokenizer hold; `settings` and `name` of its class."""
    if (assets / "vocabulary.txt").is_file():
        pieces = (assets / "vocabulary.txt").read_text("utf-8").split("\n")
        lowercase, accents = (bool(settings.get(name, False)) for name in ("lowercase", "strip_accents"))
        return WordPiece([piece for piece in pieces if piece], lowercase=lowercase, strip_accents=accents)
    if (assets / "vocabulary.json").is_file():
        lines = (assets / "merges.txt").read_text("utf-8").split("\n")
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        pieces = hf.by_id(read_json(assets / "vocabulary.json"))
        words = {"add_prefix_space": bool(settings.get("add_prefix_space", False))}
        tokenizer: BytePairEncoding = hf.byte_level(pieces, merges, words)
        return tokenizer
    models = sorted(assets.glob("*.spm"))
    return _of_pieces(models[0], name) if models else None


def _of_pieces(path: Path, name: str) -> Tokenizer:
    """The SentencePiece model of a class of theirs, whose texts nothing but its own rules changes."""
    if name not in _LAYOUTS:
        raise InputError(f"{path} is of a {name}, expected one of {', '.join(_LAYOUTS)}: no such tokenizer here")
    layout, model = _LAYOUTS[name], hf_spm.with_mask(read_model(path.read_bytes()), [])
    if layout == unigram.XLM_R:
        model = hf_spm.fairseq_order(model)
    return Unigram(model, specials=layout.specials, template=layout.template)


def write_tokenizer(folder: Path, tokenizer: Tokenizer, backbone: str, run: Path) -> Json | None:
    """Write the tokenizer of a backbone's class, and return what describes it.

    One that they have no class for is left out, which is told, and None comes back.
    """
    name = backbone.replace("Backbone", "Tokenizer")
    if problem := _unlike(tokenizer, name):
        progress.say(f"{run}: the tokenizer is left out: {problem}")
        return None
    own_added = [token.content for token in tokenizer.added if token.content not in tokenizer.specials.values()]
    finds = len(own_added) < len(tokenizer.added)
    if own_added or (finds and tokenizer.kind == "unigram"):
        added = " ".join([token.content for token in tokenizer.added][:3])
        progress.say(f"{run}: {name} finds no added tokens in a text ({added}): there they are read as other text")
    assets = folder / "assets" / "tokenizer"
    assets.mkdir(parents=True)
    own, config = tokenizer.settings(), {}
    if isinstance(tokenizer, WordPiece):
        config = {"vocabulary": None, "lowercase": own["lowercase"], "strip_accents": own["strip_accents"]}
        config |= {"special_tokens_in_strings": True} if finds else {}
        files.write_atomic(assets / "vocabulary.txt", "\n".join(tokenizer.vocabulary) + "\n")
    elif isinstance(tokenizer, BytePairEncoding):
        config = {"add_prefix_space": own["add_prefix_space"]}
        files.write_json(assets / "vocabulary.json", tokenizer._ids)
        files.write_atomic(assets / "merges.txt", "\n".join(map(" ".join, tokenizer.merges)) + "\n")
    elif isinstance(tokenizer, Unigram):
        config = {"proto": None}
        model = tokenizer.model
        model = hf_spm.sentencepiece_order(model) if _LAYOUTS[name] == unigram.XLM_R else model
        files.write_atomic(assets / "vocabulary.spm", write_model(model))
    config = {"name": "tokenizer", "trainable": True, **config}
    described = {"module": "keras_hub.models", "class_name": name, "config": config}
    described |= {"registered_name": f"keras_hub>{name}"}
    files.write_json(folder / "tokenizer.json", described)
    return described


def _unlike(tokenizer: Tokenizer, name: str) -> str:
    """Why a class of theirs does not give the tokenizer's ids; "" where it does."""
    if name not in _CLASSES:
        return f"KerasHub has no {name}"
    kind, specials = _CLASSES[name]
    if tokenizer.kind != kind:
        return f"{name} is no {tokenizer.kind}"
    own = {part: piece for part, piece in tokenizer.specials.items() if part in specials}
    if own != specials:
        return f"{name} has the special tokens {' '.join(specials.values())}, this one {' '.join(own.values())}"
    if isinstance(tokenizer, WordPiece) and not tokenizer.settings()["split_cjk"]:
        return f"{name} parts Chinese characters, this one does not"
    return ""
