"""Special tokens that are found within texts (`import --special-tokens-in-texts`): Python == graph == `tokenizers`.

By default they are other text, and a text that holds one is told of, once.
"""

import random

import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.registry import TOKENIZERS
from kerasbert.text import WordPiece, load_tokenizer
from kerasbert.text.added import AddedToken, finding_specials
from tests import tiny
from tests.checkpoints import theirs
from tests.checkpoints.theirs import parity
from tests.tasks.test_parity_sentence_losses import save
from tests.text.kinds import of_kind, with_added
from tests.text.test_added import KINDS, WORDS, differences, plain, theirs_of

AROUND = (" ", "  ", "", "", ".", "a", "\u0301", "é", "\n")


def texts(tokenizer, count, seed):
    """Words, special tokens and what may stand beside them."""
    draw, known = random.Random(seed), [*tokenizer.specials.values()]
    return ["".join(draw.choice([*known, *known, *WORDS, *AROUND, *AROUND]) for _ in range(9)) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_what_tokenizers_finds(kind, tmp_path):
    tokenizer = finding_specials(with_added(plain(kind), [AddedToken("@USER")]))
    drawn = [text for text in texts(tokenizer, 60, 1) if "unigram" not in kind or "\u0301" not in text]
    assert differences(tokenizer, theirs_of(tokenizer, tmp_path / "tokenizer.json"), drawn) == []


WHOLE = ("regex", "word_characters")  # kinds of whole words, which know no added tokens


@pytest.mark.parametrize("kind", sorted({*TOKENIZERS} - {*WHOLE}))
def test_what_is_saved_finds_them_and_decoding_leaves_them_out(kind, tmp_path):
    plain, tokenizer = of_kind(kind), finding_specials(of_kind(kind))
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    for text in texts(tokenizer, 20, 2):
        assert again.encode(text) == tokenizer.encode(text)
    sep = tokenizer.specials["sep"]
    assert tokenizer.encode(f"a{sep} b").count(tokenizer.sep_id) == 1
    assert finding_specials(tokenizer).added == tokenizer.added
    ids = [*plain.encode("a"), plain.sep_id, plain.pad_id]
    assert tokenizer.decode(ids) == plain.decode(ids)


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_words_find_none(kind):
    with pytest.raises(InputError, match=f"a tokenizer of the kind {kind} finds no special tokens in texts"):
        finding_specials(of_kind(kind))


def test_a_text_that_holds_one_is_told_of_once(capsys, tmp_path):
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size})
    encoder.tokenizer = WordPiece(tiny.tokenizer().vocabulary)
    kb.save(encoder, tmp_path / "model")
    kb.encode(encoder, ["a cat", "the [SEP] cat", "no [CLS]"])
    told = "2 of 3 texts hold [SEP], which is read as other text, not as the special token: a pair goes in as two texts"
    assert told in capsys.readouterr().err
    kb.encode(encoder, ["the [SEP] cat"])
    assert capsys.readouterr().err == ""
    encoder.tokenizer = finding_specials(WordPiece(tiny.tokenizer().vocabulary))
    kb.encode(encoder, ["the [SEP] cat"])
    assert capsys.readouterr().err == ""


@parity
def test_an_import_finds_them_where_it_is_asked_for(tmp_path):
    """Ids and vectors of transformers, whose tokenizers find them by default."""
    save(tmp_path / "theirs")
    text, transformers = "the cat [SEP] a dog [MASK] film", theirs.transformers()
    expected = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")(text)["input_ids"]
    command = ["import", str(tmp_path / "theirs"), "--special-tokens-in-texts", "--out", str(tmp_path / "ours")]
    assert main(command) == 0
    assert kb.load_tokenizer(tmp_path / "ours").pack(text)[0] == expected
    assert kb.import_checkpoint(tmp_path / "theirs").tokenizer.pack(text)[0] != expected
