"""What stands around the texts, as Hugging Face's files say it, in the notation of `text.template`. Standard library only."""

from collections.abc import Mapping, Sequence

from kerasbert.errors import InputError
from kerasbert.text.hf_values import field, short, steps

BARE = ("$A", "$A $B:1")  # without a post_processor: nothing, and the second text is of the second segment
MOST_SEGMENTS = 100
Part = tuple[str, int]  # "A", "B" or a piece with a sign before it that tells it from those; and its segment


def template_of(processor: object, vocabulary: Sequence[str]) -> tuple[str, str]:
    """The templates of a tokenizer.json's post_processor: for one text and for two.

    Offsets are none of its affair here: those of our byte-level BPE leave blanks out whatever `trim_offsets` says.

    Args:
        processor: the section, or None.
        vocabulary: pieces by id.
    Raises:
        InputError: a processor of another type, two that add tokens, or a template that `text.template` cannot hold.
    """
    adding = []
    for step in steps(processor, "processors", "post_processor"):
        kind = step["type"]
        if kind not in ("BertProcessing", "RobertaProcessing", "TemplateProcessing", "ByteLevel"):
            raise InputError(
                f"post_processor.type is {short(kind)}, expected BertProcessing, RobertaProcessing, TemplateProcessing or "
                "ByteLevel"
            )
        for offsets in ("trim_offsets", "add_prefix_space", "use_regex"):
            step.get(offsets)
        if kind != "ByteLevel":
            adding.append(step)
    if len(adding) > 1:
        names = ", ".join(step["type"] for step in adding)
        raise InputError(f"post_processor has {names}, expected one that adds special tokens")
    if not adding:
        return BARE
    if adding[0]["type"] == "TemplateProcessing":
        return _of_template(adding[0], vocabulary)
    return _of_pair(adding[0], vocabulary)


def written(items: Sequence[Part]) -> str:
    """Items as `template.parse_template` reads them.

    >>> written([("=[CLS]", 0), ("A", 0), ("=x:1", 0), ("B", 1)])
    '[CLS] $A x:1:0 $B:1'

    Raises:
        InputError: a piece that cannot stand there.
    """
    words = []
    for name, segment in items:
        piece = f"${name}" if name in ("A", "B") else name[1:]
        if name not in ("A", "B") and (piece.split() != [piece] or piece in ("$A", "$B")):
            raise InputError(
                f"a template has the special token {short(piece)}, expected one without blanks, not $A or $B"
            )
        last = piece.rpartition(":")[2]
        apart = segment or (":" in piece and last.isascii() and last.isdecimal())
        words.append(f"{piece}:{segment}" if apart else piece)
    return " ".join(words)


def renamed(template: Sequence[str], names: Mapping[str, str]) -> tuple[str, str]:
    """A family's templates with other special tokens.

    Args:
        names: a special token of the family -> the other.

    >>> renamed(("[CLS] $A", "[CLS] $A $B:1"), {"[CLS]": "<s>"})
    ('<s> $A', '<s> $A $B:1')
    """
    found = []
    for text in template:
        items = []
        for word in text.split():
            name, _, segment = word.rpartition(":") if ":" in word else (word, "", "0")
            items.append((name[1:] if name in ("$A", "$B") else f"={names.get(name, name)}", int(segment)))
        found.append(written(items))
    return found[0], found[1]


def by_flags(start: str | None, end: str | None) -> tuple[str, str]:
    """The templates of add_bos_token and add_eos_token: each text between what they add."""
    before, after = ([f"={piece}"] if piece is not None else [] for piece in (start, end))
    one, two = [*before, "A", *after], [*before, "B", *after]
    return written([(name, 0) for name in one]), written([(name, 0) for name in (*one, *two)])


def without_segments(template: tuple[str, str]) -> tuple[str, str]:
    """The same with every token of the first segment."""
    found = []
    for text in template:
        words = []
        for word in text.split():
            name, colon, segment = word.rpartition(":")
            numbered = colon and segment.isascii() and segment.isdecimal() and len(segment) < 3
            inner = name.rpartition(":")[2]
            again = ":" in name and inner.isascii() and inner.isdecimal()
            words.append((f"{name}:0" if again else name) if numbered else word)
        found.append(" ".join(words))
    return found[0], found[1]


def _of_pair(step: Mapping, vocabulary: Sequence[str]) -> tuple[str, str]:
    """BertProcessing and RobertaProcessing: cls and sep with their ids, which alone count."""
    names = {}
    for part in ("cls", "sep"):
        given = field(step, part, list, "post_processor", [])
        if len(given) != 2 or type(given[1]) is not int:
            raise InputError(f"{part} of post_processor is {short(given)}, expected a token and its id")
        names[part] = _piece(given[1], vocabulary)[1:]
    if step["type"] == "BertProcessing":
        return renamed(("cls $A sep", "cls $A sep $B:1 sep:1"), names)
    return renamed(("cls $A sep", "cls $A sep sep $B sep"), names)


def _of_template(step: Mapping, vocabulary: Sequence[str]) -> tuple[str, str]:
    tokens = field(step, "special_tokens", dict, "post_processor", {})
    for token in tokens.values():
        for name in ("id", "ids", "tokens") if isinstance(token, Mapping) else ():
            token.get(name)
    found = []
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        default = None if name == "single" else [{"Sequence": {"id": t, "type_id": i}} for i, t in enumerate("AB")]
        given = field(step, name, list, "post_processor", default)
        items = [item for entry in given or [] for item in _items(entry, tokens, vocabulary)]
        if [text for text, _ in items if text in ("A", "B")] != texts:
            told = " ".join(f"${text}" for text in texts)
            raise InputError(
                f"post_processor.{name} has the texts {' '.join(f'${t}' for t, _ in items if t in ('A', 'B')) or 'none'}, "
                f"expected {told}: no other order can be held"
            )
        found.append(written(items))
    return found[0], found[1]


def _items(entry: object, tokens: Mapping, vocabulary: Sequence[str]) -> list[Part]:
    """What an item of a TemplateProcessing stands for: a text, or one or several special tokens."""
    kind = next(iter(entry), None) if isinstance(entry, Mapping) and len(entry) == 1 else None
    value = entry[kind] if isinstance(entry, Mapping) and kind in ("Sequence", "SpecialToken") else None
    if not isinstance(value, Mapping) or not isinstance(value.get("id"), str):
        raise InputError(
            f"post_processor has the item {short(entry)}, expected a Sequence or a SpecialToken with an id"
        )
    segment = field(value, "type_id", int, "post_processor", 0)
    if not 0 <= segment < MOST_SEGMENTS:
        raise InputError(f"post_processor has the type_id {segment}, expected 0 to {MOST_SEGMENTS - 1}")
    if kind == "Sequence":
        return [(value["id"], segment)]
    token = tokens.get(value["id"])
    ids = token.get("ids") if isinstance(token, Mapping) else None
    if not isinstance(ids, list) or not ids or any(type(number) is not int for number in ids):
        raise InputError(f"special_tokens of post_processor has no ids for {short(value['id'])}")
    return [(_piece(number, vocabulary), segment) for number in ids]


def _piece(number: int, vocabulary: Sequence[str]) -> str:
    """The piece of an id, with the sign of a special token."""
    if not 0 <= number < len(vocabulary):
        raise InputError(f"post_processor has the id {number}, the vocabulary has {len(vocabulary)} pieces")
    return f"={vocabulary[number]}"
