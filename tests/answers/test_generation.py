"""Texts that are written: decoding of scores and ids by hand. No TensorFlow."""

import dataclasses

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers.generation import PLACE, WRITTEN, About, Generation, text_of
from kerasbert.inputs import row
from tests import tiny


def test_scores_stand_before_the_ids_of_each_text():
    tokenizer = tiny.tokenizer()
    kind = answers.find("generation").configured({"num_return_sequences": 2, "temperature": 1.0})
    ids = [tokenizer.encode(text) for text in ("the cat runs", "a dog sees")]
    source = dataclasses.replace(row([2, 3], [0, 0], True), about=About(tokenizer, None, 0))
    output = np.array([[-0.5, *ids[0]], [-2.0, *ids[1]]], "float32")
    first, second = Generation("the cat runs", -0.5), Generation("a dog sees", -2.0)
    for given in (output, output.reshape(-1)):
        found = kind.decode(("x",), [source], [given], ())
        assert found == dataclasses.replace(first, truncated=True, sequences=(first, second))


def test_a_text_ends_at_its_end_token():
    tokenizer = tiny.tokenizer()
    ids = tokenizer.encode("the cat")
    assert text_of(tokenizer, [*ids, tokenizer.sep_id, *tokenizer.encode("a dog")]) == "the cat"
    assert text_of(tokenizer, ids) == "the cat"
    assert text_of(tokenizer, np.array([tokenizer.sep_id])) == ""


SOURCE = "the cat sees the old house"
# who writes -> options
FORMS = {
    "encoder-decoder": {},
    "a language": {"start": "[UNK]"},
    "forced": {"forced_bos_token_id": 7},
    "one stack": {"start": "", "separator": "runs"},
    "going on": {"start": "", "separator": ""},
    "masked": {"masked": True},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("most", [3, 5])
def test_a_target_has_its_end_and_no_more_tokens_than_it_may(form, count, most):
    """What is learnt, what the decoder reads, and whether tokens were lost: of targets around the most."""
    tokenizer, target = tiny.tokenizer(), " ".join((["dog", "a", "old"] * 3)[:count])
    kind = answers.find("generation").configured({"target_length": most, **FORMS[form]})
    (alone,) = kind.rows(tokenizer, (SOURCE,), 30)
    (found,) = kind.rows(tokenizer, (SOURCE, target), 30)
    ids = tokenizer.encode(target)
    row = form in ("encoder-decoder", "forced")
    first = [7 if form == "forced" else tokenizer.cls_id] if row else []
    room = most - 1 - len(first)
    assert list(found.about.target) == [*first, *ids[:room], tokenizer.sep_id]
    assert (found.about.cut, alone.about.cut, alone.about.target) == (count > room, False, None)
    assert kind.told([found, alone]) == (
        [f"1 of 2 targets (50.0%) have more than {most} tokens and are cut (--set task.target_length=N)"]
        if count > room
        else []
    )
    written = found.values.get(WRITTEN.name)
    if kind.masked:
        assert list(written) == [tokenizer.mask_id] * len(found.about.target)
        assert found.values[PLACE.name] == found.about.prompt == len(tokenizer.pack(SOURCE)[0])
    elif not kind.one_row:
        start = tokenizer.unk_id if form == "a language" else tokenizer.pad_id
        assert list(written) == [start, *found.about.target[:-1]]
        assert list(found.values["token_ids"]) == list(alone.values["token_ids"]) == tokenizer.pack(SOURCE)[0]
    if kind.one_row:
        prompt = [*tokenizer.encode(SOURCE), *([] if form == "going on" else tokenizer.encode("runs"))]
        prompt = tokenizer.pack(SOURCE)[0] if kind.masked else prompt
        assert list(alone.values["token_ids"]) == prompt
        assert list(found.values["token_ids"]) == [*prompt, *found.about.target]
        assert found.about.prompt == alone.about.prompt == len(prompt)


@pytest.mark.parametrize("form", FORMS)
def test_a_source_of_a_token_too_many_is_truncated_and_what_stays_is_told(form):
    """The one that is gone on from loses its beginning, others their end."""
    tokenizer, most = tiny.tokenizer(), 4
    kind = answers.find("generation").configured({"target_length": most, **FORMS[form]})
    (whole,) = kind.rows(tokenizer, (SOURCE,), 40)
    taken = most if kind.one_row else 0
    (fits,) = kind.rows(tokenizer, (SOURCE,), whole.length + taken)
    (cut,) = kind.rows(tokenizer, (SOURCE,), whole.length + taken - 1)
    assert (fits.truncated, fits.values["token_ids"], cut.truncated) == (False, whole.values["token_ids"], True)
    ids, kept = list(whole.values["token_ids"]), list(cut.values["token_ids"])
    assert len(kept) == len(ids) - 1
    begins = 0 if form in ("one stack", "going on") else 1
    source = tokenizer.encode(SOURCE)
    assert kept[begins : begins + len(source) - 1] == (source[1:] if form == "going on" else source[:-1])
    assert kind.goes_on == (form == "going on")
    said = kind.cut(1, 2, 8)
    assert said.count("truncated") == 1
    assert ("truncated at their beginning" in said) == kind.goes_on
