"""A text over a network of the caller's: the steps that C asks for are those of Python's search."""

import numpy as np
import pytest

from kerasbert import answers
from kerasbert.answers.beam_search import searched
from kerasbert.answers.generation import text_of
from kerasbert.mobile.runtime.native import NativeModel
from kerasbert.mobile.runtime.writing.stream import scored
from tests.mobile.native.runners import Failed
from tests.mobile.native.test_generation import OPTIONS, prompts, said
from tests.mobile.native.tokenizers import SMALL, files
from tests.mobile.native.writers import Writing


class Toy:
    """A network of which the states are the tokens themselves; logits follow from all of them."""

    def __init__(self, width: int) -> None:
        self.states, self.table = [()], np.random.default_rng(6).normal(size=(width, width)).astype("float32") * 2

    def __call__(self, tokens, column, origins):
        self.states = [(*self.states[at], token) for token, at in zip(tokens, origins)]
        wave = np.sin(np.array([[sum(state)] for state in self.states]) * np.arange(1, len(self.table) + 1) / 7)
        return (self.table[np.asarray(tokens)] + 2 * wave).astype("float32"), None


def followed(writing: Writing, toy: Toy) -> list[str]:
    """The pieces of a text over a network of the caller's."""
    pieces, logits, ended = [], None, False
    while not ended:
        tokens, origins, column, piece, ended = writing.next(logits)
        pieces.append(piece)
        logits = np.ascontiguousarray(toy(tokens, column, origins)[0]) if tokens else None
    return [piece for piece in pieces if piece]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_network_of_the_callers_is_asked_for_steps(options):
    tokenizer = SMALL["bpe"]()
    model = NativeModel(said(files(tokenizer), separator="", target_length=8).to_zip())
    kind = answers.find("generation").configured({"start": "", "separator": "", "target_length": 8, **options})
    single = max(options.get("beams", 1), options.get("num_return_sequences", 1)) == 1
    for text in prompts(5):
        prompt = list(model.rows([text])[0][0])
        wanted = searched(Toy(tokenizer.size), prompt, kind.decoding, end_id=tokenizer.sep_id)
        writing = Writing(model, text, told=single, **options)
        pieces, answer = followed(writing, Toy(tokenizer.size)), writing.answer()
        assert [each["text"] for each in answer.get("sequences", [answer])] == [
            text_of(tokenizer, i) for i, _ in wanted
        ]
        assert answer["score"] == pytest.approx(wanted[0][1], rel=1e-5)
        assert "".join(pieces) == (answer["text"] if single else "")
        writing.close()


def test_a_network_of_the_callers_scores_texts():
    tokenizer = SMALL["bpe"]()
    model = NativeModel(said(files(tokenizer), separator="").to_zip())
    for text in [*prompts(5), "the " * 60]:
        ids, toy = tokenizer.encode(text), Toy(tokenizer.size)
        kept = ids[: model.longest]
        wanted = scored(tokenizer, kept, (toy([i], 0, [0])[0][0] for i in kept), len(ids) > len(kept))
        writing = Writing(model, text, score=True)
        assert followed(writing, Toy(tokenizer.size)) == []
        answer = writing.answer()
        writing.close()
        assert answer["tokens"] == list(wanted.tokens)
        assert answer["log_probabilities"] == pytest.approx(wanted.log_probabilities, rel=1e-12)
        assert [answer["score"], answer["perplexity"]] == pytest.approx([wanted.score, wanted.perplexity], rel=1e-12)
        assert answer.get("truncated", False) == wanted.truncated == (len(text) > 200)


def test_steps_out_of_turn_are_refused():
    tokenizer = SMALL["bpe"]()
    model = NativeModel(said(files(tokenizer), separator="").to_zip())
    for score in (False, True):
        for logits, text in (
            (None, "no logits of the steps that were asked for"),
            (np.zeros(0, "float32"), "the network gives 0 logits"),
            (np.full(tokenizer.size, np.nan, "float32"), "logits that are not finite"),
        ):
            writing = Writing(model, "the cat sees", score=score)
            writing.next(None)
            with pytest.raises(Failed, match="the text has not ended"):
                writing.answer()
            for wanted in (text, "the text has failed before"):
                with pytest.raises(Failed, match=wanted):
                    writing.next(logits)
            with pytest.raises(Failed, match="the text has not ended"):
                writing.answer()
            writing.close()
    for text, options, wanted in (
        ("the cat", {"told": True, "beams": 2}, "beams is 2, expected 1: a text is known at its end alone"),
        ("the cat", {"bems": 2}, "no option 'bems'"),
        (" ", {}, "a source is empty"),
        ("", {"score": True}, "a text has 0 tokens, expected at least two"),
    ):
        with pytest.raises(Failed, match=wanted):
            Writing(model, text, **options)
