"""Documents -> examples: BERT's segment pairs, the input formats of RoBERTa, and best-fit packing.

A shard's documents lie in one array of ids, so every part of an example is a span of it; the loops below run over
segments or pieces, never over tokens, and `render` copies the spans with numpy.

Legend: T tokens of the shard, G segments, D documents, N examples, S length.
"""

import bisect
import dataclasses
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kerasbert.data.examples import Examples, Pieces, Spans, Stretches
from kerasbert.errors import InputError
from kerasbert.registry import PACKINGS

SHORT = 0.1  # share of sequences with a random shorter target (Devlin et al., 2019, A.2; BERT's short_seq_prob)
SHORTEST = 10  # tokens of a sentence that is cut, unless it is more than half of what a pair holds
TRIES = 10  # draws of another document for a random next sentence, as in BERT's create_pretraining_data.py


@dataclasses.dataclass(frozen=True)
class Documents:
    """The tokenized documents of one shard, ordered by hash.

    Args:
        ids: int array [T].
        bounds: int64 [G + 1]: segment g is ids[bounds[g] : bounds[g + 1]], never empty.
        firsts: int64 [D + 1]: document d has the segments firsts[d] .. firsts[d + 1] - 1, at least one.
        digests: content hash of each document, D of them.
        languages: int [D], the number of each document's language, or None where there is one.
    """

    ids: np.ndarray
    bounds: np.ndarray
    firsts: np.ndarray
    digests: Sequence[bytes]
    languages: np.ndarray | None = None


def document_random(digest: bytes, seed: int, copy: int) -> random.Random:
    """A generator that depends on the document's content, the seed and the copy alone."""
    words = digest + f"/{seed}/{copy}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(words).digest()[:8], "little"))


def _below(rng: random.Random, n: int) -> int:
    """Uniform in 0 .. n - 1. `randrange` may change between Python versions, `random()` may not."""
    return int(rng.random() * n)


def _turns(documents: Documents, seed: int, dupe_factor: int) -> Iterator[tuple[random.Random, int, int, int]]:
    """Every document, `dupe_factor` times: its generator, its index, its first segment and the one after its last."""
    firsts = documents.firsts.tolist()
    for copy in range(dupe_factor):
        for index, digest in enumerate(documents.digests):
            yield document_random(digest, seed, copy), index, firsts[index], firsts[index + 1]


FOLLOWS, BEFORE, ELSEWHERE = range(3)  # where b is from, seen from a


def pack_pairs(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """Sentence pairs (Devlin et al., 2019, section 3.1 and A.2; create_instances_from_document of BERT's code).

    Segments are gathered up to a target length and split at a random segment into a and b. In half of the cases, and
    always where there is one segment only, b comes from a random document of the shard; what followed a is used again.

    Differs: BERT draws "short" once per document, here once per sequence, so that 10% of the sequences are short also
    where a document is a whole book.
    """
    return _gathered(documents, length, seed, dupe_factor, (FOLLOWS, ELSEWHERE))


def pack_order(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """Sentence order (Lan et al., 2020, section 3.1): as `pack_pairs`, but a and b always stand side by side in the text.

    In half of the cases they change places; the label is 1 then, as in ALBERT's code and Hugging Face's.

    Differs: where there is one segment only, ALBERT's code takes b from another document and calls that swapped too; here
    the segment is cut at a random token, and one of a single token is left out.
    """
    return _gathered(documents, length, seed, dupe_factor, (FOLLOWS, BEFORE))


def pack_place(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """StructBERT's sentence objective (Wang et al., 2020, section 2.2): as `pack_pairs` with a third kind of b.

    b is what follows a (label 0), what stands before a (1), or of another document (2), a third of the cases each. Where
    there is one segment only it is always of another document.
    """
    return _gathered(documents, length, seed, dupe_factor, (FOLLOWS, BEFORE, ELSEWHERE))


def _gathered(documents: Documents, length: int, seed: int, dupe_factor: int, kinds: Sequence[int]) -> Spans:
    """Pairs of neighbouring runs of segments; the label is the place in `kinds` of what was drawn."""
    bounds, firsts = documents.bounds.tolist(), documents.firsts.tolist()
    room = length - 3
    spans: list[tuple[int, int, int, int, int]] = []
    for rng, index, first, end in _turns(documents, seed, dupe_factor):
        while first < end:
            short = rng.random() < SHORT
            target = 2 + _below(rng, room - 1) if short else room
            # The fewest segments that reach the target, or all that are left.
            last = bisect.bisect_left(bounds, bounds[first] + target, first + 1, end)
            split = first + 1 + (_below(rng, last - first - 1) if last - first > 1 else 0)
            begin, border, stop = bounds[first], bounds[split], bounds[last]
            alone = last - first == 1
            label = len(kinds) - 1
            if not alone or ELSEWHERE not in kinds:
                label -= _below(rng, len(kinds))
            if kinds[label] == ELSEWHERE:
                other, start = _elsewhere(rng, index, firsts)
                wanted = bounds[start] + max(1, target - (border - begin))
                until = bisect.bisect_left(bounds, wanted, start + 1, firsts[other + 1])
                a, b = (begin, border), (bounds[start], bounds[until])
                first = split
            else:
                first = last
                if alone:
                    if stop - begin == 1:
                        continue
                    border = begin + 1 + _below(rng, stop - begin - 1)
                a, b = (begin, border), (border, stop)
                if kinds[label] == BEFORE:
                    a, b = b, a
            spans.append((*_cut(rng, a, b, room), label))
    return _pairs(documents.ids, spans)


def pack_sentences(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """SENTENCE-PAIR (Liu et al., 2019, section 4.1): a and b are one natural sentence (a segment) each.

    As in `pack_pairs`, b follows a or, in half of the cases and where nothing follows, is of another document.

    Differs: RoBERTa enlarges the batch to the same number of tokens, here a batch has as many rows as ever.
    """
    bounds, firsts = documents.bounds.tolist(), documents.firsts.tolist()
    spans: list[tuple[int, int, int, int, int]] = []
    for rng, index, first, end in _turns(documents, seed, dupe_factor):
        while first < end:
            is_random = int(first + 1 == end or rng.random() < 0.5)
            second = _elsewhere(rng, index, firsts)[1] if is_random else first + 1
            a, b = ((bounds[segment], bounds[segment + 1]) for segment in (first, second))
            spans.append((*_cut(rng, a, b, length - 3), is_random))
            first += 2 - is_random
    return _pairs(documents.ids, spans)


def _elsewhere(rng: random.Random, index: int, firsts: Sequence[int]) -> tuple[int, int]:
    """(document, segment): a random segment of a random document, another one than `index` if that is found."""
    other = index
    for _ in range(TRIES):
        other = _below(rng, len(firsts) - 1)
        if other != index:
            break
    return other, firsts[other] + _below(rng, firsts[other + 1] - firsts[other])


def _pairs(ids: np.ndarray, spans: Sequence[tuple[int, int, int, int, int]]) -> Spans:
    table = np.asarray(spans, np.int64).reshape(-1, 5)
    return Spans(ids, table[:, 0:2], table[:, 2:4], table[:, 4])


def _cut(rng: random.Random, a: tuple[int, int], b: tuple[int, int], room: int) -> tuple[int, int, int, int]:
    """Shorten the longer of the two, token by token, from a random end each time (BERT's truncate_seq_pair).

    In closed form: how many tokens each loses is fixed, and of n lost ones a binomial(n, 1/2) number goes in front.
    """
    (a0, a1), (b0, b1) = a, b
    la, lb = a1 - a0, b1 - b0
    if la + lb <= room:
        return a0, a1, b0, b1
    # At equal lengths BERT's code takes from b, so a keeps the odd token.
    keep_a = min(la, max(room - room // 2, room - lb))
    lost_a, lost_b = la - keep_a, lb - (room - keep_a)
    front_a, front_b = (rng.getrandbits(n).bit_count() if n else 0 for n in (lost_a, lost_b))
    return a0 + front_a, a1 - lost_a + front_a, b0 + front_b, b1 - lost_b + front_b


def pack_full(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """FULL-SENTENCES (Liu et al., 2019, section 4.2): whole segments in a row, across documents with one more [SEP].

    A segment longer than the room is cut into pieces; no token is lost and none is used twice.
    """
    room = length - 2
    ids = _separated(documents, sep_id)
    owner = np.repeat(np.arange(len(documents.digests)), np.diff(documents.firsts))
    return _singles(ids, _fill((documents.bounds[:-1] + owner).tolist(), (documents.bounds[1:] + owner).tolist(), room))


def _separated(documents: Documents, sep_id: int) -> np.ndarray:
    """The ids with one [SEP] in front of every document but the first: an example that crosses a border is then one span."""
    return np.insert(documents.ids, documents.bounds[documents.firsts[1:-1]], sep_id)


def pack_stream(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Stretches:
    """One text cut every S tokens, for models that read on from a memory (Dai et al., 2019, Transformer-XL, section 3.2).

    Documents follow one another with one separator between two; there is no [CLS]. Rows of a shard are neighbours: what
    follows a row begins the next. A row of k * n tokens holds k consecutive segments of n tokens.
    """
    ids = _separated(documents, sep_id)
    starts = np.arange(0, len(ids), length)
    return Stretches(ids, np.stack([starts, np.minimum(starts + length, len(ids))], axis=1))


def pack_doc(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """DOC-SENTENCES (Liu et al., 2019, section 4.1): as FULL-SENTENCES, but no example crosses the end of a document.

    Differs: RoBERTa enlarges the batch to the same number of tokens, here a batch has as many rows as ever.
    """
    starts, ends = documents.bounds[:-1].tolist(), documents.bounds[1:].tolist()
    firsts = documents.firsts.tolist()
    spans = []
    for first, last in itertools.pairwise(firsts):
        spans += _fill(starts[first:last], ends[first:last], length - 2)
    return _singles(documents.ids, spans)


def pack_translations(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """A sentence and its translation (Lample & Conneau, 2019, section 3.4): documents of two segments, one pair each.

    A document that lacks one of the two is left out.
    """
    bounds = documents.bounds.tolist()
    spans = [
        (*_cut(rng, (bounds[first], bounds[first + 1]), (bounds[first + 1], bounds[end]), length - 3), 0)
        for rng, _, first, end in _turns(documents, seed, dupe_factor)
        if end - first == 2
    ]
    return dataclasses.replace(_pairs(documents.ids, spans), label=None)


def _fill(starts: Sequence[int], ends: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Spans of whole segments of at most `room` tokens; a longer segment is cut."""
    spans = []
    segment, start = 0, starts[0]
    while segment < len(ends):
        # The segments that end within the room; a span never ends with a separator, for it ends with a segment.
        stop = bisect.bisect_right(ends, start + room, segment)
        if stop == segment:  # not even one: a piece of it
            end = start + room
            spans.append((start, end))
            start = end
            continue
        spans.append((start, ends[stop - 1]))
        segment = stop
        start = starts[segment] if segment < len(starts) else 0
    return spans


def _singles(ids: np.ndarray, spans: Sequence[tuple[int, int]]) -> Spans:
    a = np.asarray(spans, np.int64).reshape(-1, 2)
    return Spans(ids, a, np.zeros_like(a), None)


def pack_best_fit(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Pieces:
    """Best-fit packing (Ding et al., 2024, Fewer Truncations Improve Language Modeling, section 3).

    Documents longer than the room are cut into full pieces and a rest. Rests and short documents, longest first, go to
    the row with the least space that takes them. The pieces of a row do not see each other (Krell et al., 2021, section
    3.2): each is [CLS] piece [SEP] with positions of its own.
    """
    borders = documents.bounds[documents.firsts]
    room = length - 2
    counts = -(-np.diff(borders) // room)
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = borders[owner] + (np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]) * room
    spans = np.stack([starts, np.minimum(starts + room, borders[owner + 1])], axis=1)
    rows = best_fit(spans[:, 1] - spans[:, 0] + 2, length)
    # Rows stand in the order of their first piece, and pieces in that of the documents.
    order = np.argsort(rows, kind="stable")
    firsts = np.append(0, np.cumsum(np.bincount(rows)))
    return Pieces(documents.ids, spans[order], firsts)


def best_fit(sizes: np.ndarray, capacity: int) -> np.ndarray:
    """Best-fit decreasing: sizes [M] of at most `capacity` -> the row of each, numbered by their first item [M]."""
    rows = np.full(len(sizes), -1, np.int64)
    full = sizes == capacity
    rows[full] = np.flatnonzero(full)
    space: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by the space that is left in them
    spaces = 0  # bit s: there is a row with space s
    for item in np.argsort(-sizes, kind="stable")[full.sum() :].tolist():
        size = int(sizes[item])
        enough = spaces >> size
        if enough:
            left = size + (enough & -enough).bit_length() - 1
            row = space[left].pop()
            if not space[left]:
                spaces ^= 1 << left
        else:
            left, row = capacity, item
        rows[item] = row
        space[left - size].append(row)
        spaces |= 1 << (left - size)
    # A row has the number of the item that opened it, the longest one; now it gets that of its first.
    first = np.full(len(sizes), len(sizes), np.int64)
    np.minimum.at(first, rows, np.arange(len(sizes)))
    return np.unique(first[rows], return_inverse=True)[1]


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a segment may hold where a packing makes pairs: a line of more is split (see `encode.entries`).

    Args:
        line: tokens, a quarter of the room: a longer line is split where it holds several sentences.
        most: tokens, a third of the room, or half of it up to SHORTEST: of a longer sentence much would be lost where it
            does not fit any more.
        piece: tokens of the pieces of such a sentence: of six that fill the room little is cut off, whatever stands
            before them.

    Measured on five novels of one sentence a line, in rows of 32 to 128: `pairs`, `order` and `place` keep 53 to 91% of
    the tokens where lines are left as they are, 92 to 96% with this.
    """

    line: int
    most: int
    piece: int

    @classmethod
    def of(cls, room: int) -> "Fit":
        """For a pair of `room` tokens."""
        return cls(room // 4, max(room // 3, min(SHORTEST, room // 2)), -(-room // 6))


@dataclasses.dataclass(frozen=True)
class Packing:
    """A way to make examples of documents.

    Args:
        pack: Documents -> Spans, Pieces or Stretches.
        shortest: least length: special tokens and at least one token in each part.
        feature: name of the last column of a row, or None.
        labels: int, answers to what is asked about a pair: 0 where nothing is. Such pairs are made of sentences.
        copies: bool, whether packing a document again gives other examples.
        pairs: bool, whether an example has two parts.
        crosses: bool, whether an example may hold several documents.
        cls: bool, whether rows begin with [CLS], which the tokenizers of T5 and GPT-2 have not.
    """

    pack: Callable[..., Examples]
    shortest: int
    feature: str | None = None
    labels: int = 0
    copies: bool = False
    pairs: bool = False
    crosses: bool = False
    cls: bool = True

    def fit(self, length: int, separators: int = 1) -> Fit | None:
        """What a segment may hold in rows of S tokens; None where segments may have any length."""
        return Fit.of(length - 2 - separators) if self.labels else None


def check(name: str, packing: object) -> None:
    """The rules of PACKINGS.

    Raises:
        InputError: no Packing, or one that cannot pack.
    """
    if not isinstance(packing, Packing) or not callable(packing.pack) or packing.shortest < 1:
        raise InputError(
            f"the packing {name!r} is {packing!r:.80}, expected a Packing of a function and a shortest length"
        )


# the first name is what records say
PACKINGS.add("pairs", Packing(pack_pairs, 5, "next_label", 2, copies=True, pairs=True), "sentence_pairs")
PACKINGS.add("order", Packing(pack_order, 5, "order_label", 2, copies=True, pairs=True), "sentence_order_pairs")
PACKINGS.add("place", Packing(pack_place, 5, "place_label", 3, copies=True, pairs=True), "structbert_pairs")
PACKINGS.add("sentences", Packing(pack_sentences, 5, "next_label", 2, copies=True, pairs=True))
PACKINGS.add("full", Packing(pack_full, 3, crosses=True))
PACKINGS.add("doc", Packing(pack_doc, 3))
PACKINGS.add("packed", Packing(pack_best_fit, 3, "pieces", crosses=True), "best_fit")
PACKINGS.add("translations", Packing(pack_translations, 5, pairs=True))
PACKINGS.add("stream", Packing(pack_stream, 2, crosses=True, cls=False))


def packing(name: str, length: int, dupe_factor: int = 1, separators: int = 1) -> Packing:
    """The packing of that name, after a check of what it is asked for; `separators` stand between two parts.

    Raises:
        InputError: no such packing, a length it cannot fill, or copies that would all be the same.
    """
    found = PACKINGS.find(name)
    shortest = found.shortest + (separators - 1) * found.pairs
    if not shortest <= length <= 65535:
        raise InputError(f"length {length} with packing {name!r}, expected {shortest} to 65535")
    if dupe_factor != 1 and not found.copies:
        raise InputError(f"dupe_factor {dupe_factor} with packing {name!r} repeats the same examples: leave it at 1")
    return found
