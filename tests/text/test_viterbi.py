"""The best segmentation beside trying all of them: its score, its pieces, and by how much it wins."""

import itertools
import math
import random

import pytest

from kerasbert.text.viterbi import as_sentencepiece, best, places


def every(text, scores, unknown):
    """(score, pieces) of each segmentation; a character without a piece is one of its own."""
    found = []
    for cuts in itertools.product((False, True), repeat=max(0, len(text) - 1)):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [len(text)] * bool(text)
        pieces = [text[a:b] for a, b in zip([0, *ends], ends)]
        if all(piece in scores or len(piece) == 1 for piece in pieces):
            found.append((sum(scores.get(piece, unknown) for piece in pieces), pieces))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_best_of_all(seed):
    draw = random.Random(seed)
    for _ in range(60):
        pieces = {"".join(draw.choices("abc", k=draw.randint(1, 4))) for _ in range(draw.randint(0, 8))}
        scores = {piece: -draw.randint(4, 40) / 4 for piece in pieces}
        longest = {c: max((len(piece) for piece in pieces if piece[0] == c), default=0) for c in "abc"}
        longest = {c: length for c, length in longest.items() if length}
        text = "".join(draw.choices("abcd", k=draw.randint(0, 9)))
        ways = every(text, scores, -12.0)
        begins, score, gap = best(text, scores, longest, -12.0)
        assert score == pytest.approx(ways[0][0])
        found = [text[a:b] for a, b in places(begins)]
        assert (score, found) in [(pytest.approx(each), way) for each, way in ways]
        if len(ways) > 1 and ways[0][0] > ways[1][0]:  # alone: no tie on it
            assert found == ways[0][1]
            assert 0 < gap <= ways[0][0] - ways[1][0] + 1e-9
        elif len(ways) > 1:
            assert gap == 0
        else:
            assert gap == math.inf
        theirs = [text[a:b] for a, b in places(as_sentencepiece(text, scores, longest, -12.0))]
        assert sum(scores.get(piece, -12.0) for piece in theirs) == pytest.approx(score)
