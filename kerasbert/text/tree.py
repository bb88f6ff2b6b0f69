"""A sentence tree as one row (Liu et al., 2019, figure 2). Standard library only; `tree_graph` is the same
in a SavedModel.

The text is the trunk. A branch, the predicate and the object of a triple, stands behind the last token of its entity. One number
a token says each thing: `position_ids` the place in the tree (soft: a branch goes on from its entity, as the trunk does),
`branch_ids` the branch (0: the trunk), `entity_ids` the entity that a token of the trunk belongs to, and that a branch hangs on
(0: none). `layers.visibility.tree` makes the visible matrix of them.

A token belongs to the entity in which it begins. The paper says nothing of a tree that is too long: as in the released code
(autoliuweijie/K-BERT, brain/knowgraph.py, `add_knowledge_with_vm`) branches are inserted first and the tree is cut at its end, so
that a long text loses more of its end than without them. Differs: the code cuts the last branch too, and the last special token.
Here a branch that does not fit is left out whole, what stands behind it goes on, and each text of a pair is cut as BERT's. A
triple that the text says already is inserted too, as in the code.
"""

import copy
import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kerasbert.errors import InputError
from kerasbert.inputs import BRANCHES, ENTITIES, POSITIONS, TEXT, Row, arrays
from kerasbert.text.knowledge import KnowledgeGraph, Triple
from kerasbert.text.lexicon import FIRST_WITHOUT_BLANKS, SortedLexicon, folding
from kerasbert.text.template import kept_tokens, room

if TYPE_CHECKING:
    import numpy as np

    from kerasbert.text.base import Tokenizer

NONE = -1
LONGEST = 1 << 30  # tokens of a row that nothing bounds
MOST_TOKENS = 33  # of a character: NFKC makes 18 characters of U+FDFA, 33 bytes


class Knowledge:
    """A graph as a tokenizer spells its branches, and the rows that it makes; `Tokenizer.knowledge`.

    Args:
        graph: KnowledgeGraph. tokenizer: Tokenizer.
    """

    def __init__(self, graph: KnowledgeGraph, tokenizer: "Tokenizer") -> None:
        self.graph, self.tokenizer = graph, tokenizer
        self.folded = folding(tokenizer)
        self.find = SortedLexicon(graph.subjects, self.folded) if self.folded else graph.lexicon
        self._spelled: dict[int, list[tuple[list[int], Triple]]] = {}

    def branches(self, number: int) -> list[tuple[list[int], Triple]]:
        """Tokens and triple of each branch of a subject: predicate and object, without those that have no token.

        Subjects that the tokenizer folds to one, such as "Apple" and "apple", have their branches in common.
        """
        if number not in self._spelled:
            encode = self.tokenizer.encode
            triples = [triple for each in self.find.alike(number) for triple in self.graph.triples(each)]
            different = {triple[1:]: triple for triple in reversed(triples)}  # the first of equal ones
            triples = [triple for triple in triples if different[triple[1:]] is triple][: self.graph.branches]
            spelled = [(encode(triple.predicate) + encode(triple.object), triple) for triple in triples]
            self._spelled[number] = [(ids, triple) for ids, triple in spelled if ids]
        return self._spelled[number]

    def ids(self) -> Iterator[int]:
        """The tokens of all branches."""
        return (i for number in range(len(self.graph.subjects)) for ids, _ in self.branches(number) for i in ids)

    def row(self, tokenizer: "Tokenizer", parts: Sequence[Any], length: int) -> Row:
        """The row of a text or a pair with its branches, cut to `length` tokens.

        Args:
            tokenizer: what gives the tokens of the texts.
            parts: str or bytes each; kinds of tasks with lists of texts in a part have `rows` of their own.
        """
        items = tokenizer.single if len(parts) == 1 else tokenizer.pair
        entities, ids, members = Entities(self), [], []
        for text in map(tokenizer.to_text, parts):
            tokens = tokenizer.tokenize(text)
            ids.append(tokens.ids)
            members.append(entities.of(text, tokens.starts))
        budget, sizes = room(items, length), [len(each) for each in ids]
        rooms = kept_tokens(budget, *map(entities.size, members)) if len(sizes) > 1 else (budget,)
        kept = list(map(entities.trunk, members, rooms))
        token_ids, segment_ids, places = tokenizer.join(*(each[:count] for each, count in zip(ids, kept)))
        belongs = [NONE] * len(token_ids)
        for item, place in zip(items, places):
            if item.text:
                number = "AB".index(item.text)
                belongs[place : place + kept[number]] = members[number][: kept[number]]
        row = tree(entities, token_ids, segment_ids, belongs, length, sum(kept) < sum(sizes))[0]
        there = sum(len(branches) for own in members for _, branches in entities.hung(own))
        row.lost = there - len(row.triples)  # those behind the cut too
        return row

    def windows(
        self, words: Sequence[str], raw: tuple[str, Sequence[int]] | None, starts: Sequence[int], length: int
    ) -> Callable[..., tuple[Row, list[int]]]:
        """What makes the rows of a text of words that is read in windows.

        Args:
            words: str. raw: the text that they are of, and where each begins in it; None where they were given as a list.
            starts: of each token its first character in the words joined by blanks. length: int, most tokens of a row.

        Returns:
            (trunk, segment_ids, lead, begin, end) -> the row and the places of `tree`: of the tokens begin to end of the text,
            behind `lead` special ones.
        """
        text, places = as_text(words) if raw is None else raw
        entities = Entities(self)
        belongs = entities.of(text, starts_in(places, words, starts))

        def row(
            trunk: Sequence[int], segment_ids: Sequence[int], lead: int, begin: int, end: int
        ) -> tuple[Row, list[int]]:
            around = [NONE] * len(trunk)
            around[lead : lead + end - begin] = belongs[begin:end]
            return tree(entities, trunk, segment_ids, around, length)

        return row

    def arrays(
        self, tokenizer: "Tokenizer", texts: Sequence[Sequence[str | bytes]], length: int | None
    ) -> "dict[str, np.ndarray]":
        """What `Tokenizer.__call__` gives, of trees."""
        rows = [self.row(tokenizer, parts, LONGEST if length is None else length) for parts in texts]
        longest = max((row.length for row in rows), default=0) if length is None else length
        return arrays((*TEXT, POSITIONS, BRANCHES, ENTITIES), rows, longest, pad_id=tokenizer.pad_id)

    def check(self, length: int, where: str | os.PathLike) -> None:
        """Refuse a graph with a triple that no row of so many tokens can hold.

        Args:
            where: the file, for the error.

        Raises:
            InputError: naming the first one.
        """
        most, spelled = room(self.tokenizer.single, length), _Lengths(self.tokenizer.encode)
        for number, subject in enumerate(self.graph.subjects):
            # no normalisation makes more tokens of a character
            if MOST_TOKENS * (len(subject) + len(self.graph.rows[number])) <= most:
                continue
            for triple in self.graph.triples(number):
                if sum(spelled[part] for part in triple) <= most:
                    continue
                entity = max(triple, key=spelled.__getitem__)
                what = f"the entity {entity[:40]!r} has {spelled[entity]} tokens"
                if spelled[entity] <= most:
                    what = f"{subject[:40]!r} and its branch have {sum(spelled[part] for part in triple)} tokens"
                raise InputError(
                    f"{where}: {what}, a text of length {length} holds {most}: take the triple out, or raise the length "
                    "(--length)"
                )


class _Lengths(dict):
    """Text -> how many tokens it has; on demand."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self.encode = encode

    def __missing__(self, text: str) -> int:
        self[text] = found = len(self.encode(text))
        return found


def with_knowledge(tokenizer: "Tokenizer", graph: KnowledgeGraph | None) -> "Tokenizer":
    """The tokenizer with a graph: its rows are sentence trees. None: without one."""
    plain = copy.copy(tokenizer)
    plain.knowledge = None
    if graph is None:
        return plain
    other = copy.copy(plain)
    other.knowledge = Knowledge(graph, plain)
    return other


class Entities:
    """The entities of some texts that stand in one row.

    Attributes:
        numbers: list of int, of each entity its subject in the graph, one text after the other.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge, self.numbers = knowledge, []

    def of(self, text: str, starts: Sequence[int]) -> list[int]:
        """Of each token the entity in which it begins, by its place in `numbers`; NONE where there is none.

        Args:
            text: str, in which entities are looked for. starts: of each token its first character there.
        """
        branches, first = self.knowledge.branches, len(self.numbers)
        spans = [span for span in self.knowledge.find(text) if branches(span[2])]
        if not spans:
            return [NONE] * len(starts)
        begins, ends = [span[0] for span in spans], [span[1] for span in spans]
        self.numbers += [span[2] for span in spans]
        found = []
        for start in starts:
            place = bisect_right(begins, start) - 1
            found.append(first + place if place >= 0 and start < ends[place] else NONE)
        return found

    def hung(self, belongs: Sequence[int]) -> Iterator[tuple[int, list[tuple[list[int], Triple]]]]:
        """The branches of each run of an entity's tokens, and how many tokens there are with its last one."""
        for place, entity in enumerate(belongs, 1):
            if entity != NONE and (place == len(belongs) or belongs[place] != entity):
                yield place, self.knowledge.branches(self.numbers[entity])

    def size(self, belongs: Sequence[int]) -> int:
        """How many tokens a text has with all its branches."""
        return len(belongs) + sum(len(ids) for _, branches in self.hung(belongs) for ids, _ in branches)

    def trunk(self, belongs: Sequence[int], most: int) -> int:
        """How many tokens of a text are left where it has `most` with its branches."""
        used = 0
        for place, branches in self.hung(belongs):
            for ids, _ in branches:
                used += len(ids) if place + used + len(ids) <= most else 0
        return min(len(belongs), most - used)


def tree(
    entities: Entities,
    trunk: Sequence[int],
    segment_ids: Sequence[int],
    belongs: Sequence[int],
    length: int,
    truncated: bool = False,
) -> tuple[Row, list[int]]:
    """The row of a trunk and its branches, and where each token of the trunk stands in it.

    Args:
        trunk, segment_ids: tokens and segments of the text, with special tokens. belongs: of each token its entity, as
            `Entities.of` gives it; an entity's tokens stand side by side.
        length: int, most tokens of the row; those of the trunk at least. Branches fill what it leaves, from left to right.
    """
    names = "token_ids", "segment_ids", "position_ids", "branch_ids", "entity_ids"
    values: dict[str, list[int]] = {name: [] for name in names}
    left, branch, entity, first, lost = length - len(trunk), 0, 0, 0, 0
    triples: list[Triple] = []
    places: list[int] = []

    def put(ids: Sequence[int], segments: Sequence[int], position: int, of_branch: int, of_entity: int) -> None:
        count = len(ids)
        new = ids, segments, range(position, position + count), (of_branch,) * count, (of_entity,) * count
        for name, added in zip(names, new):
            values[name] += added

    while first < len(trunk):
        last = first + 1  # behind the run of tokens of one entity, or of none
        while last < len(trunk) and belongs[last] == belongs[first]:
            last += 1
        hung = [] if belongs[first] == NONE else entities.knowledge.branches(entities.numbers[belongs[first]])
        kept = []
        for ids, triple in hung:
            if len(ids) > left:
                lost += 1
                continue
            left -= len(ids)
            kept.append((ids, triple))
        entity += bool(kept)
        places += range(len(values["token_ids"]), len(values["token_ids"]) + last - first)
        put(trunk[first:last], segment_ids[first:last], first, 0, entity if kept else 0)
        for ids, triple in kept:
            branch += 1
            put(ids, [segment_ids[last - 1]] * len(ids), last, branch, entity)
            triples.append(triple)
        first = last
    size = len(values["token_ids"])
    return Row(values | {"padding_mask": 1}, size, truncated, triples=tuple(triples), lost=lost), places


def as_text(words: Sequence[str]) -> tuple[str, list[int]]:
    """Words as the text in which entities are looked for, and where each begins.

    Blanks stand between them, but where one ends or the next begins in a script without blanks: characters that are given one
    by one, as named entities of Chinese are annotated, are text again.

    >>> as_text(["New", "York", "的", "天", "气"])
    ('New York的天气', [0, 4, 8, 9, 10])
    """
    text, places = "", []
    for before, word in itertools.pairwise(("", *words)):
        text += " " if places and not (_runs_on(before[-1:]) or _runs_on(word[:1])) else ""
        places.append(len(text))
        text += word
    return text, places


def _runs_on(character: str) -> bool:
    """Whether no blanks stand beside a character: those of scripts without, but not Hangul's syllables."""
    return character >= chr(FIRST_WITHOUT_BLANKS) and not "\uac00" <= character <= "\ud7a3"


def starts_in(places: Sequence[int], words: Sequence[str], starts: Sequence[int]) -> list[int]:
    """The character of a text in which each token begins.

    Args:
        places: where each word begins in it. words: str. starts: of each token its first character in the words joined by blanks.
    """
    begins = [0, *itertools.accumulate(len(word) + 1 for word in words)][:-1]
    at = (bisect_right(begins, start) - 1 for start in starts)
    return [places[word] + start - begins[word] for word, start in zip(at, starts)]
