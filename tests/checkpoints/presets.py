"""Tiny models and tokenizers of every family that KerasHub has too, for tests with it and without."""

import numpy as np

from kerasbert import registry
from kerasbert.checkpoints import save_model
from kerasbert.checkpoints.directory import Weights
from kerasbert.checkpoints.plans import shapes_of
from kerasbert.text import BytePairEncoding, Unigram, WordPiece, bpe, hf, unigram
from kerasbert.text.hf_spm import fairseq_order
from kerasbert.text.sentencepiece import CONTROL, NORMAL, UNKNOWN, Model

SIZE = {
    "blocks.layers": 2,
    "hidden": 20,
    "attention.heads": 5,
    "feedforward.width": 33,
    "embeddings.vocabulary": 301,
    "embeddings.positions": 32,
}
TANH = {"feedforward.activation": "gelu_tanh"}
V1_1 = {"feedforward.activation": "gated_gelu_tanh", "output.own": True, "output.scaled": False}
# name of a case -> (family, what its Spec has beside SIZE)
MODELS = {
    "bert": ("bert", TANH),
    "kbert": ("kbert", TANH),
    "albert": ("albert", {"embeddings.width": 12}),
    "albert, E = H": ("albert", {"embeddings.width": 20, "embeddings.projected": True}),
    "distilbert": ("distilbert", {}),
    "electra": ("electra", TANH | {"embeddings.width": 12}),
    "electra, E = H": ("electra", TANH),
    "roberta": ("roberta", {}),
    "xlm-roberta": ("xlm-roberta", {}),
    "deberta-v3": ("deberta-v3", {"relative.distance": 32, "relative.buckets": 8}),
    "xlnet": ("xlnet", {"feedforward.activation": "relu"}),
    "gpt2": ("gpt2", {}),
    "bart": ("bart", {}),
    "t5": ("t5", {"attention.head_size": 3}),
    "t5 v1.1": ("t5", V1_1),
    "mt5": ("mt5", {}),
}


def spec_of(case, **changes):
    """The Spec of a case."""
    family, own = MODELS[case]
    base = registry.family(family).spec
    size = {path: value for path, value in SIZE.items() if base.embeddings.kind != "none" or "positions" not in path}
    size |= {"embeddings.positions": 32} if family == "deberta-v3" else {}
    return base.derive({"attention.head_size": None} | size | own | changes)


def arrays_of(case, spec, seed=0):
    """Random weights, large enough that a swapped matrix shows."""
    draw = np.random.default_rng(seed)
    shapes = shapes_of(registry.family(MODELS[case][0]), spec)
    return {name: draw.normal(0, 0.2, shape).astype("float32") for name, shape in shapes.items()}


def directory(path, case, tokenizer=None, changes=None, **more):
    """A model directory of a case; returns its weights."""
    spec = spec_of(case, **(changes or {}))
    arrays = arrays_of(case, spec)
    save_model(path, name=MODELS[case][0], encoder=Weights(spec, arrays), tokenizer=tokenizer, **more)
    return arrays


def inputs_of(case, rows=3, length=9):
    """What our model reads, padded at the end; XLNet's one row at a time."""
    draw = np.random.default_rng(1)
    rows = 1 if case == "xlnet" else rows

    def masked(length):
        mask = np.ones((rows, length), "int32")
        for row in range(rows):
            mask[row, length - row :] = 0
        return np.where(mask, draw.integers(6, 300, (rows, length)), 1).astype("int32"), mask

    ids, mask = masked(length)
    found = {"token_ids": ids, "padding_mask": mask}
    family = registry.family(MODELS[case][0])
    if family.kind == "seq2seq":
        found["decoder_token_ids"], found["decoder_padding_mask"] = masked(7)
    elif case in ("xlnet", "bert", "kbert", "albert", "albert, E = H", "electra", "electra, E = H"):
        found["segment_ids"] = np.sort(draw.integers(0, 2, ids.shape), axis=1).astype("int32")
    return found


# Tokenizers


def _pieces(*specials):
    others = ("\u2581", "\u2581the", "\u2581cat", "s", "t", "h", "e", "c", "a", "m", "\u2581ma", "ts")
    types = (*(UNKNOWN if "unk" in each.lower() else CONTROL for each in specials), *[NORMAL] * len(others))
    scores = (*[0.0] * len(specials), *(-float(3 + i % 4) for i in range(len(others))))
    return Model((*specials, *others), scores, types)


def _unigram(layout, *specials):
    model = _pieces(*specials)
    model = fairseq_order(model) if layout == unigram.XLM_R else model
    return Unigram(model, specials=layout.specials, template=layout.template)


def _bpe(*specials) -> BytePairEncoding:
    merges = [["t", "h"], ["th", "e"], ["\u0120", "the"]]
    return hf.byte_level([*specials, *sorted(bpe.ALPHABET), "th", "the", "\u0120the"], merges, {})


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "mat", ",", "\u00e9"]
TOKENIZERS = {
    "bert": WordPiece(WORDS, lowercase=True, strip_accents=True),
    "distilbert": WordPiece(WORDS, lowercase=False, strip_accents=False),
    "electra": WordPiece(WORDS, lowercase=True, strip_accents=True),
    "albert": _unigram(unigram.ALBERT, *unigram.ALBERT.specials.values()),
    "deberta-v3": _unigram(unigram.BERT, "[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
    "xlm-roberta": _unigram(unigram.XLM_R, "<unk>", "<s>", "</s>"),
    "t5": _unigram(unigram.T5, "<pad>", "</s>", "<unk>"),
    "roberta": _bpe(*bpe.SPECIALS.values()),
    "bart": _bpe(*bpe.SPECIALS.values()),
    "gpt2": _bpe("<|endoftext|>"),
}
TEXTS = ["the cats", "The mat, the cat", "thecat  smat", "zzz the"]
