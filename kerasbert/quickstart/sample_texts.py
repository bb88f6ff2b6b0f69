"""What the samples add to the novels: names to look for, a small knowledge graph, sentences in two languages."""

from collections.abc import Iterator

PEOPLE = (
    *(
        "White Rabbit",
        "Mock Turtle",
        "March Hare",
        "Cheshire Cat",
        "Alice",
        "Gryphon",
        "Hatter",
        "Dormouse",
        "Caterpillar",
    ),
    *(
        "Bennet",
        "Darcy",
        "Bingley",
        "Wickham",
        "Collins",
        "Gardiner",
        "Elizabeth",
        "Lizzy",
        "Lydia",
        "Jane",
        "Charlotte",
    ),
    *("Manette", "Darnay", "Carton", "Lorry", "Defarge", "Cruncher", "Stryver", "Lucie", "Pross", "Foulon"),
    *(
        "Holmes",
        "Watson",
        "Lestrade",
        "McCarthy",
        "Ahab",
        "Starbuck",
        "Stubb",
        "Queequeg",
        "Flask",
        "Ishmael",
        "Bildad",
        "Peleg",
    ),
)
PLACES = (
    *("Longbourn", "Netherfield", "Pemberley", "Meryton", "Rosings", "Hertfordshire", "Derbyshire", "Kent", "Brighton"),
    *("London", "Paris", "England", "France", "Saint Antoine", "Dover", "Soho", "Bohemia", "Baker Street", "Australia"),
    *("Nantucket", "New Bedford", "Japan", "Greenland", "Africa", "America"),
)
GRAPH = (
    ("Alice", "follows", "White Rabbit"),
    ("Hatter", "hosts", "tea party"),
    ("Dormouse", "guest of", "tea party"),
    ("Gryphon", "friend of", "Mock Turtle"),
    ("Elizabeth", "lives at", "Longbourn"),
    ("Darcy", "lives at", "Pemberley"),
    ("Bingley", "lives at", "Netherfield"),
    ("Collins", "occupation", "clergyman"),
    ("Wickham", "occupation", "officer"),
    ("Carton", "occupation", "lawyer"),
    ("Lorry", "occupation", "banker"),
    ("Manette", "occupation", "doctor"),
    ("Defarge", "lives in", "Saint Antoine"),
    ("Holmes", "occupation", "detective"),
    ("Holmes", "lives at", "Baker Street"),
    ("Watson", "occupation", "doctor"),
    ("Lestrade", "occupation", "inspector"),
    ("Ahab", "captain of", "Pequod"),
    ("Starbuck", "mate of", "Pequod"),
    ("Stubb", "mate of", "Pequod"),
    ("Queequeg", "occupation", "harpooneer"),
    ("Nantucket", "port of", "whalers"),
    ("London", "capital of", "England"),
    ("Paris", "capital of", "France"),
)
_SUBJECTS = (
    ("The captain", "Le capitaine"),
    ("The girl", "La fille"),
    ("The doctor", "Le médecin"),
    ("My sister", "Ma sœur"),
    ("The rabbit", "Le lapin"),
    ("The sailor", "Le marin"),
)
_VERBS = (
    ("sees", "voit"),
    ("looks for", "cherche"),
    ("finds", "trouve"),
    ("follows", "suit"),
    ("loves", "aime"),
    ("paints", "peint"),
)
_OBJECTS = (
    ("the whale", "la baleine"),
    ("the old house", "la vieille maison"),
    ("the cat", "le chat"),
    ("the ship", "le navire"),
    ("the white garden", "le jardin blanc"),
    ("the letter", "la lettre"),
    ("the river", "la rivière"),
)


def translations() -> list[tuple[str, str]]:
    """English sentences with their French: every subject, verb and object, in an order that mixes them."""
    count = len(_SUBJECTS) * len(_VERBS) * len(_OBJECTS)
    return list(_sentences(i * 101 % count for i in range(count)))  # 101 has no factor of 252


def _sentences(numbers: Iterator[int]) -> Iterator[tuple[str, str]]:
    for number in numbers:
        rest, i = divmod(number, len(_OBJECTS))
        subject, verb = divmod(rest, len(_VERBS))
        parts = _SUBJECTS[subject], _VERBS[verb], _OBJECTS[i]
        yield " ".join(part[0] for part in parts) + ".", " ".join(part[1] for part in parts) + "."
