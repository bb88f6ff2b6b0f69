"""Learning a vocabulary."""

import itertools
import random

import pytest

from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import count_words, train, train_wordpiece
from kerasbert.text.train_bpe import learn_merges, train_bpe
from kerasbert.text.train_unigram import train_unigram
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


def test_the_textbook_dictionary():
    """es and st occur 9 times each, lo and ow 7 times each: the smaller pair comes first."""
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    assert learn_merges(words, 3) == [(("e", "s"), 9), (("es", "t"), 9), (("l", "o"), 7)]
    backwards = dict(reversed(words.items()))
    assert learn_merges(backwards, 10) == learn_merges(words, 10)


def test_merges_count_as_a_slow_count_does():
    """Against counting all pairs again after each merge."""
    words = {"banana": 3, "bandana": 2, "aaaa": 4, "anna": 1}
    symbols = {word: list(word) for word in words}
    for (left, right), number in learn_merges(words, 8):
        counts: dict = {}
        for word, parts in symbols.items():
            for pair in itertools.pairwise(parts):
                counts[pair] = counts.get(pair, 0) + words[word]
        assert number == max(counts.values())
        assert (left, right) == min(pair for pair, count in counts.items() if count == number)
        for parts in symbols.values():
            at = 0
            while at + 1 < len(parts):
                if parts[at : at + 2] == [left, right]:
                    parts[at : at + 2] = [left + right]
                at += 1


def test_byte_level_vocabulary():
    tokenizer = train_bpe(lines(), 400)
    assert tokenizer.size == 400
    assert tokenizer.vocabulary[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert tokenizer.vocabulary[4:260] == tuple(ALPHABET)
    assert tokenizer.vocabulary[-1] == "<mask>"
    assert train_bpe(lines()[::-1], 400).digest() == tokenizer.digest()
    ids = [i for line in lines() for i in tokenizer.encode(line)]
    assert len(ids) < 0.6 * sum(len(line) for line in lines())


def test_unigram_vocabulary():
    tokenizer = train_unigram(lines(), 120)
    assert tokenizer.vocabulary[:5] == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert 60 < tokenizer.size <= 120
    assert tokenizer.encode("KaLó") == tokenizer.encode("kalo")
    assert train_unigram(lines(), 120).digest() == tokenizer.digest()
    assert tokenizer.unk_id not in [i for line in lines() for i in tokenizer.encode(line)]


def test_errors_of_the_other_kinds():
    with pytest.raises(InputError, match="size is 260, expected at least 261: the 256 bytes and the special tokens"):
        train_bpe(lines(), 260)
    with pytest.raises(InputError, match="the text holds no words"):
        train_bpe([""], 300)
    with pytest.raises(InputError, match="sentencepiece learns no vocabulary of 10 pieces"):
        train_unigram(lines(), 10)
    with pytest.raises(InputError, match="no tokenizer kind 'bpee'. Nearest: 'bpe'. All: kerasbert list tokenizers"):
        train("bpee", lines(), 300)
