"""What a file of tokens may hold: boundaries of counts, places and sizes, by hand."""

import numpy as np
import pytest

from kerasbert.tasks.token_cache import Recording, Stale, TokenCache, _Recorder, _Replay
from tests import tiny

TOKENIZER = tiny.tokenizer()


def recorded():
    recorder = _Recorder(TOKENIZER)
    said = [recorder.encode("the cat"), recorder.tokenize("a dog"), recorder.tokenize(""), recorder.encode("")]
    return recorder.recording(), said


def test_a_recording_answers_in_order_and_once():
    recording, said = recorded()
    assert recording.counts.tolist()[1:] == [-1 - len(said[1].ids), -1, 0]
    replay = _Replay(Recording.from_bytes(recording.to_bytes(), TOKENIZER.size), TOKENIZER)
    assert [replay.encode("the cat"), replay.tokenize("a dog"), replay.tokenize(""), replay.encode("")] == said
    for ask in (replay.encode, replay.tokenize):
        with pytest.raises(Stale):
            ask("")


@pytest.mark.parametrize(
    "calls", [[("encode", "a cat")], [("tokenize", "the cat")], [("encode", "the cat"), ("encode", "a dog")]]
)
def test_other_questions_are_stale(calls):
    replay = _Replay(recorded()[0], TOKENIZER)
    with pytest.raises(Stale):  # noqa: PT012 (the last one)
        for name, text in calls:
            getattr(replay, name)(text)


def test_offsets_beyond_the_text_are_stale():
    recorder = _Recorder(TOKENIZER)
    recorder.tokenize("a b")
    recording = recorder.recording()
    assert _Replay(recording, TOKENIZER).tokenize("a b").ends == [1, 3]
    with pytest.raises(Stale):
        _Replay(recording._replace(ends=np.array([1, 4], "int32")), TOKENIZER).tokenize("a b")


def test_numbers_that_are_none_of_this_tokenizer():
    recording = recorded()[0]
    last = recording._replace(ids=np.where(np.arange(len(recording.ids)) == 0, TOKENIZER.size - 1, recording.ids))
    assert Recording.from_bytes(last.to_bytes(), TOKENIZER.size).ids[0] == TOKENIZER.size - 1
    for number in (TOKENIZER.size, -1):
        wrong = recording._replace(ids=np.where(np.arange(len(recording.ids)) == 0, number, recording.ids))
        with pytest.raises(ValueError, match="the vocabulary has"):
            Recording.from_bytes(wrong.to_bytes(), TOKENIZER.size)
    for name, value, message in (
        ("counts", recording.counts + 1, "counts are not those"),
        ("starts", recording.starts - 1, "end before they begin"),
        ("ends", recording.starts - 1, "end before they begin"),
    ):
        with pytest.raises(ValueError, match=message):
            Recording.from_bytes(recording._replace(**{name: value}).to_bytes(), TOKENIZER.size)
    equal = recording._replace(ends=recording.starts)  # a token of no characters
    assert len(Recording.from_bytes(equal.to_bytes(), TOKENIZER.size).ends) == len(equal.ends)


def test_a_file_that_is_cut_or_changed():
    content = recorded()[0].to_bytes()
    for wrong, message in (
        (content[:40], "it is no file of tokens"),
        (b"x" + content[1:], "it is no file of tokens"),
        (content[:-4], "it is truncated"),
        (content + b"....", "it is truncated"),
        (content[:-1] + bytes([content[-1] ^ 1]), "it is damaged"),
    ):
        with pytest.raises(ValueError, match=message):
            Recording.from_bytes(wrong, TOKENIZER.size)
    empty = _Recorder(TOKENIZER).recording()
    assert len(Recording.from_bytes(empty.to_bytes(), TOKENIZER.size).ids) == 0


def test_what_took_too_little_is_not_kept(tmp_path):
    for always, files in ((False, 0), (True, 1)):
        cache = TokenCache(tmp_path / "cache", always=always)
        assert cache.rows(lambda tokenizer: tokenizer.encode("the cat"), TOKENIZER, ["x"]) == TOKENIZER.encode(
            "the cat"
        )
        cache.write()
        assert len([*tmp_path.rglob("*.bin")]) == files
