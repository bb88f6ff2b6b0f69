"""Learning a vocabulary."""

import itertools
import json
import random

import pytest

from kerasbert.cli import main
from kerasbert.data.config import VocabularyConfig
from kerasbert.data.vocabulary import learn
from kerasbert.errors import InputError
from kerasbert.text.bpe import ALPHABET
from kerasbert.text.normalize import Normalizer
from kerasbert.text.train import count_words, train, train_wordpiece
from kerasbert.text.train_bpe import learn_merges, train_bpe
from kerasbert.text.train_unigram import at_spaces, train_unigram
from kerasbert.text.wordpiece import SPECIALS


def lines() -> list[str]:
    """Words made of few syllables, with accents, punctuation and ideographs."""
    draw = random.Random(5)
    syllables = ["ka", "lo", "mi", "ré", "sun", "ter", "ing", "o", "pa"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
    return [" ".join(draw.choices(words, k=8)).capitalize() + draw.choice([".", "!", "中文"]) for _ in range(400)]


def test_words_are_the_tokenizers():
    words = count_words(["Café, CAFÉ! 中文", b"caf\xc3\xa9"], Normalizer(True, True, True))
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
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": "x", "body": line}) + "\n" for line in lines()))
    (tmp_path / "a.csv").write_text("body,id\n" + "".join(f'"{line}",x\n' for line in lines()), encoding="gb18030")
    digest = train_wordpiece(lines(), 150).digest()
    settings = {"a.txt": {}, "a.jsonl": {"text_field": "body"}, "a.csv": {"text_field": "body", "encoding": "gb18030"}}
    for name, given in settings.items():
        tokenizer, coverage = learn([tmp_path / name], VocabularyConfig(size=150, **given))
        assert tokenizer.digest() == digest
        assert (coverage.lines, coverage.characters, coverage.unknown) == (400, sum(map(len, lines())), 0)


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
    with pytest.raises(InputError, match=r"line 2: byte 0xff is not UTF-8"):
        train_wordpiece(["one", b"\xff"], 100)
    with pytest.raises(InputError, match=r"a PosixPath, expected lines\. Read files with kerasbert\.data\.read_lines"):
        train_wordpiece([tmp_path / "nothing.txt"], 100)


def test_the_textbook_dictionary():
    """es and st occur 9 times each, lo and ow 7 times each: the smaller pair comes first."""
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    assert learn_merges(words, 3) == [(("e", "s"), 9), (("es", "t"), 9), (("l", "o"), 7)]
    backwards = dict(reversed(words.items()))
    assert learn_merges(backwards, 10) == learn_merges(words, 10)


@pytest.mark.parametrize("letters", ["a", "ab", "abcde", "abcdefghij"])
def test_merges_count_as_a_slow_count_does(letters):
    """Against counting all pairs again after each merge; repeated letters overlap with themselves."""
    draw = random.Random(letters)
    words = {"".join(draw.choices(letters, k=draw.randint(1, 12))): draw.randint(1, 9) for _ in range(40)}
    symbols = {word: list(word) for word in words}
    for (left, right), number in learn_merges(words, 60):
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


@pytest.mark.slow
def test_unigram_vocabulary():
    tokenizer = train_unigram(lines(), 120, lowercase=True)
    assert tokenizer.vocabulary[:5] == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert 60 < tokenizer.size <= 120
    assert tokenizer.encode("KaLó") == tokenizer.encode("kalo")
    assert train_unigram(lines(), 120, lowercase=True).digest() == tokenizer.digest()
    assert tokenizer.unk_id not in [i for line in lines() for i in tokenizer.encode(line)]


def test_a_frequent_word_is_a_unigram_piece_whatever_other_words_look_like():
    """sentencepiece tries what occurs twice in its rows: of a table of words with their counts none of these was one."""
    words = "river dog good house film".split()
    found = train_unigram([" ".join(words[i % 5 :] + words[: i % 5]) for i in range(100)], 60)
    assert {f"\u2581{word}" for word in words} <= set(found.vocabulary)


def test_unigram_keeps_case_and_marks_unless_asked():
    """Hindi lost every vowel sign: 'sabhi manushyon' became 'sabh manshyan'."""
    text = ["सभी मनुष्यों को गौरव और अधिकारों के मामले में स्वतन्त्रता है", "Éléonore Ärzte"] * 30
    tokenizer = train("unigram", text, 90)
    assert "".join(tokenizer.tokenize(text[0]).pieces).replace("▁", " ").strip() == text[0]
    assert tokenizer.encode("Éa") != tokenizer.encode("ea")
    assert train("wordpiece", lines()[:20], 100).lowercase


def test_no_line_is_too_long_for_unigram():
    """sentencepiece drops lines above 4,192 bytes, and said nothing: 28 pieces were learned from lines of 6 kB."""
    text = lines()
    long = [" ".join(text[begin : begin + 200]) for begin in range(0, 400, 200)]
    assert min(len(line.encode()) for line in long) > 4192
    tokenizer = train_unigram([*long, "▅ 中 " * 30], 120)  # nor is a line dropped that holds its own sign
    assert tokenizer.size == 120
    assert tokenizer.unk_id not in [i for line in text for i in tokenizer.encode(line)]
    assert tokenizer.unk_id not in tokenizer.encode("中")
    words = [*at_spaces("ж" * 10_000 + " " + "щи " * 3000, 4192)]
    assert max(len(piece.encode()) for piece in words) <= 4192
    assert "".join(words).replace(" ", "") == "ж" * 10_000 + "щи" * 3000


def test_the_command_warns_of_small_and_of_leaky_vocabularies(tmp_path, capsys):
    letters = [chr(0x4E00 + number) for number in range(2000)]
    (tmp_path / "a.txt").write_text("\n".join(" ".join(letters[i : i + 50]) for i in range(0, 2000, 50)))
    command = ["vocab", tmp_path / "a.txt", "--out", tmp_path / "out", "--overwrite"]
    assert main([*map(str, command), "--size", "1000"]) == 0
    shown = capsys.readouterr()
    assert "learned from 40 lines, 3,960 characters; 7" in shown.out
    assert "warning: 7" in shown.err
    assert "of the tokens are unknown" in shown.err
    (tmp_path / "a.txt").write_text("\n".join(lines()))
    assert main([*map(str, command), "--kind", "unigram", "--size", "9000"]) == 0
    shown = capsys.readouterr()
    assert "0.00% of a sample's tokens unknown" in shown.out
    assert "9,000 were asked for" in shown.err
    assert main([*map(str, command), "--kind", "bpe", "--lowercase"]) == 2


def test_errors_of_the_other_kinds():
    with pytest.raises(InputError, match="size is 260, expected at least 261: the 256 bytes and the special tokens"):
        train_bpe(lines(), 260)
    with pytest.raises(InputError, match="the text holds no words"):
        train_bpe([""], 300)
    with pytest.raises(InputError, match="sentencepiece learns no vocabulary of 10 pieces"):
        train_unigram(lines(), 10)
    with pytest.raises(InputError, match="no tokenizer kind 'bpee'. Nearest: 'bpe'. All: kerasbert list tokenizers"):
        train("bpee", lines(), 300)


def test_a_unigram_vocabulary_of_xlnets_layout():
    tokenizer = train("unigram", ["the cat sat on the mat", "a cat and a hat"] * 5, 40, layout="xlnet")
    ids, segments = tokenizer.pack("the cat", "a hat")
    assert [tokenizer.vocabulary[i] for i in ids if i in tokenizer.special_ids] == ["<sep>", "<sep>", "<cls>"]
    assert (ids[-1], segments[-2:]) == (tokenizer.cls_id, [1, 2])
    with pytest.raises(InputError, match="no layout 'xlmet'. Nearest: 'xlnet'"):
        train("unigram", ["a"], 40, layout="xlmet")
    with pytest.raises(
        InputError, match="layout 'xlnet' is of wordpiece or unigram, received kind 'bpe': leave it out"
    ):
        train("bpe", ["a"], 300, layout="xlnet")


def test_what_unigram_learns_from_has_a_bound():
    """Every n-th line of a text that is too long, spread over all of it, and the user is told."""
    from kerasbert.data.vocabulary import Coverage
    from kerasbert.text.train_unigram import CHARACTERS, sampled

    lines = [f"{i:03} " + "x" * (i % 7) for i in range(1000)]
    assert sampled(iter(lines)) == lines
    for most in (5000, 999, 100, 1):
        kept = sampled(iter(lines), most)
        assert sum(map(len, kept)) <= most or len(kept) == 1
        every = int(kept[1][:3]) if len(kept) > 1 else 1024
        assert every & (every - 1) == 0
        assert kept == lines[::every]
        assert 2 * sum(map(len, kept)) > most * 0.9 or len(kept) == 1
    (told,) = Coverage(9, CHARACTERS + 1, 10, 0, 0, 10, CHARACTERS).warnings(10, 10)
    assert told.startswith(
        "learned from lines of at most 32,000,000 of the 32,000,001 characters, spread over the text"
    )
    assert not list(Coverage(9, CHARACTERS, 10, 0, 0, 10, CHARACTERS).warnings(10, 10))


@pytest.mark.parametrize("size", [8, 9, 13, 14, 100])
def test_pieces_at_spaces_are_as_long_as_they_may_be(size):
    """No piece is longer, none could take in the next word, and nothing is lost."""
    text = "one two three  four\tfive six seven"
    pieces = at_spaces(text, size)
    assert all(len(piece) <= size for piece in pieces)
    assert " ".join(pieces).split() == text.split()
    start = 0
    for piece, following in itertools.pairwise(pieces):
        end = text.index(piece, start) + len(piece)
        word = following.split()[0]
        assert text.index(word, end) + len(word) - start > size
        start = end + 1
    for blank in (" ", "\t"):  # it may be the one behind the last byte, and no later one
        assert at_spaces(f"a bc{blank}de", 4) == ["a bc", "de"]
        assert at_spaces(f"abc{blank}d e", 2) == ["ab", "c", "d", "e"]
    assert at_spaces("abcd efgh", 9) == ["abcd efgh"]
    assert at_spaces("abcd efgh", 8) == ["abcd", "efgh"]
    assert at_spaces("éé éé", 9) == ["éé éé"]
    assert at_spaces("abcdefgh", 3) == ["abc", "def", "gh"]
    assert at_spaces("", 3) == at_spaces("  ", 3) == []
