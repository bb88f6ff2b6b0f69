"""A view of somebody else's json that notes what was read of it, so that nothing in it is passed over in silence."""

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

Json = dict[str, Any]  # an object of json: its values are texts, numbers, truths, nothing, lists and objects of such
JsonMap = Mapping[str, Any]  # one that is only read


class RepeatedKey(ValueError):
    """A key that is twice in an object of json: of two values one would be lost."""


def unrepeated(pairs: list[tuple[str, object]]) -> Json:
    """The object of its keys and values: what json's `object_pairs_hook` is to be for somebody else's json.

    Raises:
        RepeatedKey: a key is there twice.

    >>> unrepeated([("a", 1), ("b", 2)])
    {'a': 1, 'b': 2}
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKey(f"the key {next(name for name in names if names.count(name) > 1)[:80]!r} is there twice")
    return found


class JsonView(Mapping[str, Any]):
    """A json object that notes which of its values were read.

    Objects inside it, in lists too, are views themselves, whose values are noted one by one; a list of plain values is read
    whole. Iterating over keys, `in` and `len` read nothing; `get`, `[]`, `items` and `values` do.

    Args:
        content: the object, as json gives it.

    >>> view = JsonView({"size": 3, "norm": {"type": "layer", "scale": 2}, "note": None, "colour": "red"})
    >>> view["size"], view["norm"]["type"], view.get("bias", False)
    (3, 'layer', False)
    >>> view.unread()
    {'norm.scale': 2, 'colour': 'red'}
    >>> view.unread(without_effect=["colour"])
    {'norm.scale': 2}
    """

    def __init__(self, content: JsonMap) -> None:
        self._content = {key: _viewed(value) for key, value in content.items()}
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        value = self._content[key]
        self._read.add(key)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return repr(self.plain())

    def plain(self) -> Json:
        """The object as json gave it; reading that notes nothing."""
        return {key: _plain(value) for key, value in self._content.items()}

    def read(self, *keys: str) -> None:
        """Note values as read, with all that is inside them."""
        for key in keys or self._content:
            self._read.add(key)
            for inner in _views(self._content.get(key)):
                inner.read()

    def unread(self, without_effect: Collection[str] = ()) -> Json:
        """Values that nobody read, by dotted path; a null says nothing and is none of them.

        Args:
            without_effect: paths of values that change no number, with `*` for any part: `rope.*`, `layers.*.name`.
        """
        left: Json = {}
        for key, value in self._content.items():
            inside = _views(value)
            if inside and key in self._read:
                for i, inner in enumerate(inside):
                    prefix = key if isinstance(value, JsonView) else f"{key}.{i}"
                    left |= {f"{prefix}.{path}": each for path, each in inner.unread().items()}
            elif key not in self._read and value is not None:
                left[key] = _plain(value)
        return {
            path: value
            for path, value in left.items()
            if not any(fnmatchcase(path, pattern) for pattern in without_effect)
        }


def _viewed(value: object) -> object:
    if isinstance(value, Mapping):
        return JsonView(value)
    return [_viewed(each) for each in value] if isinstance(value, list) else value


def _plain(value: object) -> object:
    if isinstance(value, JsonView):
        return value.plain()
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _views(value: object) -> list[JsonView]:
    """The objects directly inside a value."""
    if isinstance(value, JsonView):
        return [value]
    return [inner for each in value for inner in _views(each)] if isinstance(value, list) else []
