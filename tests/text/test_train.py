"""Learning a vocabulary."""

import random

import pytest

from kerasbert.errors import InputError
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import count_words, train_wordpiece
from kerasbert.text.wordpiece import SPECIALS


def lines() -> list[str]:
    """Words made of few syllables, with accents, punctuation and ideographs."""
    draw = random.Random(5)
    syllables = ["ka", "lo", "mi", "ré", "sun", "ter", "ing", "o", "pa"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
    return [" ".join(draw.choices(words, k=8)).capitalize() + draw.choice([".", "!", "中文"]) for _ in range(400)]


def test_words_are_the_tokenizers():
    words = count_words(["Café, CAFÉ! 中文", b"caf\xc3\xa9 \xff"], Normalizer(True, True, True))
    assert words == {"cafe": 3, ",": 1, "!": 1, "中": 1, "文": 1}


def test_vocabulary():
    tokenizer = train_wordpiece(lines(), 200)
    assert tokenizer.vocabulary[:5] == SPECIALS
    assert 150 <= tokenizer.size <= 200
    assert {".", "!", "中", "文", "k", "##k"} <= set(tokenizer.vocabulary)
    assert not {"##.", "##中"} & set(tokenizer.vocabulary)  # no word goes on with them
    ids = [i for line in lines() for i in tokenizer.encode(line)]
    assert tokenizer.unk_id not in ids
    letters = sum(c.isalnum() for line in lines() for c in line)
    assert len(ids) < 0.6 * letters


def test_the_same_text_in_another_order_gives_the_same_vocabulary():
    assert train_wordpiece(lines(), 150).digest() == train_wordpiece(lines()[::-1], 150).digest()


def test_settings_reach_the_tokenizer():
    tokenizer = train_wordpiece(lines(), 200, lowercase=False)
    assert any(piece != piece.lower() for piece in tokenizer.vocabulary[5:])
    assert "é" in tokenizer.vocabulary
    assert not tokenizer.lowercase


def test_files(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(lines()), encoding="utf-8")
    assert train_wordpiece([tmp_path / "a.txt"], 150).digest() == train_wordpiece(lines(), 150).digest()


def test_text_without_letters():
    assert set(train_wordpiece(["中文 ! 中"], 20).vocabulary) == {*SPECIALS, "中", "文", "!"}


def test_size_is_never_exceeded():
    for size in (60, 75, 100):
        assert train_wordpiece(lines(), size).size <= size


def test_errors(tmp_path):
    with pytest.raises(InputError, match=r"size is 20, expected at least \d+: the text's \d+ characters"):
        train_wordpiece(lines(), 20)
    with pytest.raises(InputError, match="the text holds no words"):
        train_wordpiece(["", " \n"], 100)
    with pytest.raises(InputError, match=r"cannot read .*nothing.txt: No such file"):
        train_wordpiece([tmp_path / "nothing.txt"], 100)
