"""Learn a unigram vocabulary (Kudo, 2018) with sentencepiece's trainer."""

import io
import os
from collections.abc import Iterable

from kerasbert.errors import InputError
from kerasbert.text.sentencepiece import folded, preprocessed, read_model
from kerasbert.text.train import lines_of
from kerasbert.text.unigram import ALBERT, Unigram

COVERAGE = 0.9995  # of the characters; a rarer one is <unk>
THREADS = 4  # sums of floats depend on their number: the same everywhere
LINES = 2_000_000  # read at most, chosen at random (with sentencepiece's fixed seed)


def train_unigram(text: Iterable[str | bytes | os.PathLike], size: int, *, lowercase: bool = True) -> Unigram:
    """A unigram tokenizer of at most `size` pieces with ALBERT's special tokens and preprocessing.

    Args:
        text: lines as strings or bytes; a `Path` among them is a file of lines.
        size: int, the largest vocabulary.
        lowercase: bool, lower-case and drop accents, as ALBERT does; False keeps both.
    Raises:
        InputError: a missing file, no words in the text, a size too small for the text's characters, no sentencepiece.
    """
    try:
        import sentencepiece
    except ImportError:
        raise InputError("learning a unigram vocabulary needs sentencepiece: pip install sentencepiece") from None
    specials = ALBERT.specials
    lines = (preprocessed(line.rstrip("\r\n"), lowercase, lowercase) for line in lines_of(text))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for line in lines if line and not line.isspace()),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=COVERAGE,
            input_sentence_size=LINES,
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
    return Unigram(folded(read_model(model.getvalue()), lowercase, lowercase))
