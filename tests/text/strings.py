"""Text that tokenizers trip over: generated strings with a fixed seed, and Hugging Face's tokenizer as the reference."""

import random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from kerasbert.text import Tokens, WordPiece

# alphabets: each generated string mixes a few
ALPHABETS = {
    "ascii": [chr(c) for c in range(0x20, 0x7F)],
    "words": [
        "the ",
        "unaffable ",
        "Hypatia",
        "Embeddings",
        "don't ",
        "e.g.",
        " ",
        "  ",
        "x" * 60,
        "naïve ",
        "Straße ",
    ],
    "latin": [chr(c) for c in range(0xA0, 0x250)],
    "greek and cyrillic": [chr(c) for c in range(0x370, 0x530)],
    "combining marks": [chr(c) for c in range(0x300, 0x370)] + list("aeo\u0334\u0345\u0f73\u0f75\u0f81\u0344"),
    "marks that stay": [
        chr(c) for c in (0x8D4, 0x1B44, 0x1DFB, 0x302E, 0x302F, 0xA953, 0x1D165, 0x1D15E, 0x1D160, 0x1D16D)
    ]
    + list("a\u0301\u0334\u180b\u00ad"),
    "cjk": [chr(c) for c in range(0x4E00, 0x4F00)] + list("、。，！「」㐀\U00020000\U0002b830\U0002f800豈"),
    "hangul": [chr(c) for c in range(0xAC00, 0xAD00)] + [chr(c) for c in range(0x1100, 0x1200)],
    "right to left": [chr(c) for c in range(0x590, 0x700)]
    + list("\u200f\u202e ")
    + [chr(c) for c in range(0xFB1D, 0xFB50)],
    "indic and thai": [chr(c) for c in range(0x900, 0xE80)],
    "emoji": [chr(c) for c in range(0x1F600, 0x1F650)] + list("\u200d\ufe0f\u20e3\U0001f1e6\U0001f3fd"),
    "control": [chr(c) for c in range(0x20)]
    + [chr(c) for c in range(0x7F, 0xA1)]
    + list("\u2028\u2029\u3000\u1680\ufeff"),
    "punctuation": list("-–—‘’“”…‹›¿¡§¶\u2e43\u2e5d\u166d\U000111c9[MASK][UNK]##")
    + [chr(c) for c in range(0x2E00, 0x2E5E)],
    "width and ligatures": [chr(c) for c in range(0xFF00, 0xFFF0)] + list("ﬁﬂﬃ½²ßİıſςΣ"),
    "anything": [],
}


def generate(count: int, seed: int) -> list[str]:
    """`count` strings of up to 80 items, some words longer than the limit of 100 characters, one of 100,000."""
    draw = random.Random(seed)
    names = list(ALPHABETS)
    strings = ["", " ", "\u0301", "a" * 100, "a" * 101, "é" * 100, "é" * 101, "e\u0301" * 100, "中" * 300]
    while len(strings) < count - 1:
        items = []
        for name in draw.sample(names, draw.randint(1, 3)):
            alphabet = ALPHABETS[name]
            for _ in range(draw.randint(0, 40)):
                items.append(draw.choice(alphabet) if alphabet else _anything(draw))
        if draw.random() < 0.7:
            draw.shuffle(items)
        if draw.random() < 0.5:
            items = [item for pair in zip(items, draw.choices(["", "", " "], k=len(items))) for item in pair]
        strings.append("".join(items)[:400])
    strings.append(
        "".join(draw.choice(ALPHABETS[draw.choice(names[:-1])]) for _ in range(60_000)).ljust(100_000, "é")[:100_000]
    )
    return strings


def _anything(draw: random.Random) -> str:
    """Any code point but a surrogate."""
    code = draw.randrange(0x110000 - 0x800)
    return chr(code + 0x800 if code >= 0xD800 else code)


def hugging_face(tokenizer: WordPiece) -> Tokenizer:
    """BertNormalizer + BertPreTokenizer + WordPiece with the same vocabulary and settings, no special tokens in texts."""
    reference = Tokenizer(
        models.WordPiece(
            {piece: i for i, piece in enumerate(tokenizer.vocabulary)},
            unk_token="[UNK]",
            max_input_chars_per_word=tokenizer.max_word_chars,
        )
    )
    reference.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenizer.split_cjk,
        strip_accents=tokenizer.strip_accents,
        lowercase=tokenizer.lowercase,
    )
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return reference


def reference_tokens(reference: Tokenizer, texts: list[str]) -> list[Tokens]:
    """What Hugging Face gives."""
    return [
        Tokens(e.ids, e.tokens, [start for start, _ in e.offsets], [end for _, end in e.offsets])
        for e in reference.encode_batch(texts, add_special_tokens=False)
    ]
