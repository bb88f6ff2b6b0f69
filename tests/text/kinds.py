"""Tokenizers for the tests: small ones learned from generated words, the shared vocabularies, and the references."""

import json
from collections import Counter
from functools import cache

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasbert.registry import TOKENIZERS
from kerasbert.testing.tokenizers import learned
from kerasbert.text import BytePairEncoding, Tokens, Unigram, load_tokenizer
from kerasbert.text.added import AddedToken
from kerasbert.text.base import Tokenizer as Base
from kerasbert.text.bpe import SPECIALS, MergeTokenizer
from kerasbert.text.bpe_words import SPLITS
from kerasbert.text.metaspace_bpe import SPACE, MetaspacePairEncoding
from kerasbert.text.metaspace_bpe import SPECIALS as METASPACE
from kerasbert.text.sentencepiece import write_model
from kerasbert.text.train_bpe import train_bpe, train_word_bpe
from kerasbert.text.train_unigram import train_unigram
from kerasbert.text.word_bpe import WordPairEncoding
from tests.support import shared
from tests.text.strings import generate

SENTENCEPIECE = ["t5-base", "sentencepiece-1k", "sentencepiece-8k-ja", "sentencepiece-tflite", "cluecorpussmall-spm"]


def lines() -> list[str]:
    """Text with many alphabets, the same one every time."""
    return [text for text in generate(600, seed=3)[:-1] if text.strip()] + ["the unaffable embeddings don't"] * 9


@cache
def small_bpe(add_prefix_space: bool = False) -> BytePairEncoding:
    """600 pieces."""
    return train_bpe(lines(), 600, add_prefix_space=add_prefix_space)


@cache
def split_bpe(split: str) -> BytePairEncoding:
    """`small_bpe` with another split, and with pieces that only `ignore_merges` gives."""
    made = small_bpe()
    merges = [merge for i, merge in enumerate(made.merges) if i % 5]
    return BytePairEncoding(made.vocabulary, merges, **made.settings() | {"split": split, "ignore_merges": True})


@cache
def nfc_bpe() -> BytePairEncoding:
    """`small_bpe` of composed texts."""
    made = small_bpe()
    return BytePairEncoding(made.vocabulary, made.merges, **made.settings() | {"nfc": True})


@cache
def small_metaspace() -> MetaspacePairEncoding:
    """1,505 pieces of Gemma's kind, with its pieces of runs of blanks and of ends of lines."""
    first = [METASPACE[part] for part in ("pad", "sep", "cls", "unk", "mask")]
    trained = Tokenizer(models.BPE(unk_token=METASPACE["unk"], byte_fallback=True, fuse_unk=True))
    trained.normalizer = normalizers.Replace(" ", SPACE)
    trained.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
    numbers = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=first + numbers, show_progress=False)
    # the trainer's own `limit_alphabet` keeps others of the equally frequent ones each time
    letters = Counter("".join(lines()))
    kept = set(sorted(letters, key=lambda letter: (-letters[letter], letter))[:200])
    trained.train_from_iterator(("".join(filter(kept.__contains__, line)) for line in lines()), trainer)
    model = json.loads(trained.to_str())["model"]
    more = ["\n", "\n\n", "\n\n\n", "\t", SPACE * 2, SPACE * 3, SPACE * 4]
    pieces = list(dict.fromkeys([*sorted(model["vocab"], key=model["vocab"].__getitem__), *more]))
    # every way to make a run, as SentencePiece's merges are written
    runs = [
        (c * a, c * b) for c, most in (("\n", 3), (SPACE, 4)) for a in range(1, most) for b in range(1, most - a + 1)
    ]
    merges = [tuple(merge if isinstance(merge, list) else merge.split(" ")) for merge in model["merges"]]
    added = [AddedToken(piece, piece=True) for piece in sorted(more, key=pieces.index)]
    return MetaspacePairEncoding(pieces, list(dict.fromkeys([*merges, *runs])), added=added)


def of_kind(kind: str) -> Base:
    """A tokenizer of a registered kind, learned from the tiny world where that can be."""
    return small_metaspace() if TOKENIZERS[kind].learn is None else learned(kind)


@cache
def small_word_bpe() -> WordPairEncoding:
    """700 pieces; only some characters of each alphabet, so that there are unknown ones too."""
    text = ["".join(c for c in line if ord(c) < 0x180 or ord(c) % 64 == 0) for line in lines()]
    return train_word_bpe(text, 1000)


def with_added(tokenizer: Base, tokens: list[AddedToken]) -> Base:
    """The same with added tokens after its pieces."""
    settings = tokenizer.settings() | {"added": tokens}
    more = tuple(token.content for token in tokens if token.content not in tokenizer.vocabulary)
    if isinstance(tokenizer, Unigram):
        model = tokenizer.model
        model = model._replace(
            pieces=model.pieces + more,
            scores=model.scores + (0.0,) * len(more),
            types=model.types + (3,) * len(more),
        )
        return Unigram(model, **settings)
    assets = [tokenizer.merges] if isinstance(tokenizer, MergeTokenizer) else []
    return type(tokenizer)([*tokenizer.vocabulary, *more], *assets, **settings)


def within_words_reference(tokenizer: WordPairEncoding) -> Tokenizer:
    """Hugging Face's tokenizer of OpenAI's GPT."""
    ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    unknown = tokenizer.specials["unk"]
    reference = Tokenizer(models.BPE(ids, list(tokenizer.merges), unk_token=unknown, end_of_word_suffix="</w>"))
    reference.normalizer = normalizers.BertNormalizer(lowercase=tokenizer.lowercase)
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.decoder = decoders.BPEDecoder("</w>")
    return reference


@cache
def small_unigram(lowercase: bool = False) -> Unigram:
    """At most 1,500 pieces; only some characters of each alphabet, so that there are unknown ones too."""
    text = ["".join(c for c in line if ord(c) < 0x180 or ord(c) % 16 == 0) for line in lines()]
    return train_unigram(text, 1500, lowercase=lowercase)


@cache
def gpt2_bpe(add_prefix_space: bool = False) -> BytePairEncoding:
    """GPT-2's merges and pieces between RoBERTa's special tokens."""
    folder = shared("data/vocab/gpt2-roberta-bpe")
    ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    merges = [line.split(" ") for line in (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:] if line]
    first = [SPECIALS[part] for part in ("cls", "pad", "sep", "unk")]
    pieces = [*first, *sorted(ids, key=ids.__getitem__), SPECIALS["mask"]]
    return BytePairEncoding(pieces, merges, add_prefix_space=add_prefix_space)


@cache
def shared_unigram(name: str) -> Unigram:
    """A SentencePiece model beside the project."""
    return load_tokenizer(shared(f"data/vocab/{name}"))


def byte_level_reference(tokenizer: BytePairEncoding) -> Tokenizer:
    """Hugging Face's ByteLevel + BPE with RoBERTa's offsets."""
    ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    reference = Tokenizer(models.BPE(ids, list(tokenizer.merges), ignore_merges=tokenizer.ignore_merges))
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=tokenizer.add_prefix_space)
    if tokenizer.nfc:
        reference.normalizer = normalizers.NFC()
    if tokenizer.split != "gpt2":
        split = pre_tokenizers.Split(Regex(SPLITS[tokenizer.split].expression), "isolated")
        reference.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    reference.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.sep_id),
        ("<s>", tokenizer.cls_id),
        trim_offsets=True,
        add_prefix_space=tokenizer.add_prefix_space,
    )
    return reference


def sentencepiece_tokens(tokenizer: Unigram, texts: list[str]) -> list[Tokens]:
    """What sentencepiece gives on the same model, its offsets (bytes) as characters."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(tokenizer.model))
    found = []
    for text in texts:
        pieces = processor.encode(text, return_type="proto").pieces
        characters = [i for i, c in enumerate(text) for _ in c.encode()] + [len(text)]
        ids = [piece.id for piece in pieces]
        starts = [characters[piece.begin] for piece in pieces]
        ends = [characters[piece.end] for piece in pieces]
        found.append(Tokens(ids, [tokenizer.vocabulary[i] for i in ids], starts, ends))
    return found
