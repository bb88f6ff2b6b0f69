"""Learn a unigram vocabulary (Kudo, 2018) with sentencepiece's trainer."""

import io
from collections.abc import Iterable, Iterator

from kerasbert.errors import InputError, unknown
from kerasbert.text.sentencepiece import folded, preprocessed, read_model
from kerasbert.text.train import lines_of
from kerasbert.text.unigram import ALBERT, XLNET, Unigram

COVERAGE = 0.9995  # of the characters; a rarer one is <unk>
THREADS = 4  # sums of floats depend on their number: the same everywhere
CHARACTERS = 32_000_000  # learned from at most: sentencepiece takes 21 bytes of memory for each
BYTES = 4192  # of a line: sentencepiece drops longer ones without a word
LAYOUTS = {"albert": ALBERT, "xlnet": XLNET}
RESERVED = "\u2585"  # its sign for what it does not know: it drops lines that hold it


def train_unigram(
    text: Iterable[str | bytes], size: int, *, lowercase: bool = False, layout: str = "albert"
) -> Unigram:
    """A unigram tokenizer of at most `size` pieces with ALBERT's preprocessing.

    What is longer than sentencepiece reads is cut at white space. Of more than CHARACTERS every second line is learned from, or
    every fourth, and so on: memory has a bound.

    Args:
        text: lines as strings or UTF-8; `kerasbert.data.read_lines` reads files.
        size: int, the largest vocabulary.
        lowercase: bool, lower-case and drop accents, as ALBERT's released models do; False keeps both.
        layout: special tokens and where they stand: "albert" ([CLS] text [SEP]) or "xlnet" (text <sep> <cls>).
    Raises:
        InputError: bytes that are not UTF-8, no words in the text, a size too small for the text's characters, no sentencepiece.
    """
    try:
        import sentencepiece
    except ImportError:
        raise InputError("learning a unigram vocabulary needs sentencepiece: pip install sentencepiece") from None
    if layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS, ", ".join(LAYOUTS))
    specials, template = LAYOUTS[layout]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sampled(_lines(text, lowercase))),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=COVERAGE,
            max_sentence_length=BYTES,
            num_threads=THREADS,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=specials["pad"],
            unk_piece=specials["unk"],
            control_symbols=[specials[part] for part in ("cls", "sep", "mask")],
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[-200:]
        raise InputError(f"sentencepiece learns no vocabulary of {size} pieces from this text: {reason}") from None
    learned = folded(read_model(model.getvalue()), lowercase, lowercase)
    return Unigram(learned, specials=specials, template=template)


def sampled(lines: Iterable[str], most: int = CHARACTERS) -> list[str]:
    """Every n-th line, n the least power of 2 with which they have at most so many characters; at least one.

    >>> sampled(["one", "two", "three", "four"], most=9)
    ['one', 'three']
    """
    kept, size, every = [], 0, 1
    for number, line in enumerate(lines):
        if number % every:
            continue
        kept.append(line)
        size += len(line)
        while size > most and len(kept) > 1:
            kept, every = kept[::2], 2 * every
            size = sum(map(len, kept))
    return kept


def _lines(text: Iterable[str | bytes], lowercase: bool) -> Iterator[str]:
    """Preprocessed lines of at most BYTES; white space is where words end anyway, so that nothing else is learned."""
    for line in lines_of(text):
        line = preprocessed(line.rstrip("\r\n").replace(RESERVED, " "), lowercase, lowercase)
        for piece in [line] if 4 * len(line) <= BYTES else at_spaces(line, BYTES):
            if piece and not piece.isspace():
                yield piece


def at_spaces(text: str, size: int) -> list[str]:
    """A text in pieces of at most `size` bytes of UTF-8, cut at white space, and inside a word only where one is longer.

    >>> at_spaces("one two three", 8)
    ['one two', 'three']
    """
    pieces, begin = [], 0
    while begin < len(text):
        end = min(len(text), begin + size)
        while len(text[begin:end].encode("utf-8", "surrogatepass")) > size:
            end = begin + max(1, (end - begin) * 3 // 4)
        if end < len(text):
            space = max(text.rfind(" ", begin, end + 1), text.rfind("\t", begin, end + 1))
            end = space if space > begin else end
        if piece := text[begin:end].strip():
            pieces.append(piece)
        begin = end + (text[end : end + 1] in (" ", "\t"))
    return pieces
