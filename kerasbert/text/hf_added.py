"""Added tokens of Hugging Face's files. Standard library only."""

from collections.abc import Iterable, Mapping, Sequence

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.text.added import AddedToken
from kerasbert.text.hf_values import by_id, field, filled, short

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def token_entry(entry: object) -> Json:
    """{"content", "id" (or None), flags} of an entry of added_tokens.

    Raises:
        InputError: another type somewhere.
    """
    if isinstance(entry, str):
        entry = {"content": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"added_tokens has {short(entry)}, expected objects with id and content")
    content = field(entry, "content", str, "an added token", "")
    if not content:
        raise InputError(f"added_tokens has {short(entry)}, expected objects with id and content")
    where = f"the added token {short(content)}"
    number = field(entry, "id", int, where, None)
    special = field(entry, "special", bool, where, False)
    defaults = {"normalized": not special, "special": special}
    flags = {name: field(entry, name, bool, where, defaults.get(name, False)) for name in FLAGS}
    return {"content": content, "id": number, **flags}


def added_beside(config: Mapping, numbers: Mapping, names: Mapping) -> list[Json]:
    """Added tokens of the files beside the vocabulary.

    Args:
        config: tokenizer_config.json.
        numbers: added_tokens.json.
        names: special_tokens_map.json.
    Returns:
        as `token_entry` gives them; those that only have a name (additional special tokens) without an id, at the end.
    """
    listed = []
    for part in (config, names):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            some = part.get(key) or []
            some = list(some.values()) if isinstance(some, Mapping) else some
            if not isinstance(some, list):
                raise InputError(f"{key} is {short(some)}, expected a list of tokens")
            for entry in some:
                flags = dict(entry) if isinstance(entry, Mapping) else {"content": entry, "normalized": False}
                listed.append(token_entry(flags | {"id": None, "special": True}))
    special = {token["content"] for token in listed}
    if decoder := field(config, "added_tokens_decoder", dict, "tokenizer_config.json", {}):
        found = []
        for number, entry in decoder.items():
            if not (number.isdecimal() and len(number) < 10):
                raise InputError(f"added_tokens_decoder has the id {short(number)}, expected a number")
            found.append(token_entry(entry) | {"id": int(number)})
    else:
        entries = [{"content": c, "id": number, "special": c in special} for c, number in numbers.items()]
        found = [token_entry(entry) for entry in entries]
    return sorted(found, key=lambda token: token["id"] if token["id"] is not None else -1) + listed


def with_added(ids: Mapping[str, int], tokens: Sequence[Mapping]) -> tuple[list[str], list[dict]]:
    """(pieces by id, the added tokens) of a model's ids; where a token occurs twice, the later flags hold, ids agree.

    A name without an id anywhere comes after the last, as in transformers. Ids that the model leaves out get a piece that no
    text gives, so that every other id stays what it is.

    Raises:
        InputError: two pieces of one id, or an added token that leaves out ids.
    """
    merged: dict[str, dict] = {}
    for token in tokens:
        known = merged.get(token["content"])
        if token["id"] is None and (known or token["content"] in ids):
            token = dict(known or token) | {"id": (known or {"id": ids[token["content"]]})["id"]}
        merged[token["content"]] = dict(token)
    whole = dict(ids)
    for content, token in merged.items():
        if token["id"] is not None:
            whole[content] = token["id"]
    whole = filled(whole, max((number for number in ids.values() if type(number) is int), default=-1))
    for content, token in merged.items():
        if token["id"] is None:
            token["id"] = whole[content] = len(whole)
    _check_ids(whole, merged)
    return by_id(whole), [token | {"piece": token["content"] in ids} for token in merged.values()]


def _check_ids(whole: Mapping[str, int], merged: Mapping[str, Mapping]) -> None:
    """Refuse ids that are not 0 to n - 1, each once, naming the added token."""
    owner: dict[int, str] = {}
    for piece, number in whole.items():
        other = owner.setdefault(number, piece)
        if other != piece:
            raise InputError(
                f"{short(other)} and {short(piece)} have one id, {number}: each needs its own. Ids are rows of the embedding "
                "table: keep the one that the model was trained with"
            )
    if len(owner) <= max(owner, default=-1):
        missing = next(number for number in range(len(owner) + 1) if number not in owner)
        beyond = min((number, piece) for piece, number in whole.items() if number > missing and piece in merged)
        raise InputError(
            f"the added token {short(beyond[1])} has the id {beyond[0]}, and no piece has {missing}: their releases number it "
            "otherwise. Give added tokens the ids after the last piece, without a gap"
        )


def ordinary(tokens: Sequence[Mapping], specials: Iterable[str]) -> list[AddedToken]:
    """Those that are no special tokens of the model, as settings."""
    left_out = set(specials)
    kept = [token for token in tokens if token["content"] not in left_out]
    return [AddedToken(**{name: value for name, value in token.items() if name != "id"}) for token in kept]
