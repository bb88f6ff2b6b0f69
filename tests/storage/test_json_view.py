"""What a view of a json object notes as read."""

from kerasbert.storage.json_view import JsonView

CONTENT = {
    "a": 1,
    "norm": {"type": "layer", "scale": 2},
    "steps": [{"type": "x", "on": True}, {"type": "y"}],
    "plain": [1, 2],
    "null": None,
}


def test_nothing_read_leaves_everything_but_nulls():
    """An object that nobody opened is named as one."""
    assert JsonView(CONTENT).unread() == {key: value for key, value in CONTENT.items() if value is not None}


def test_what_is_read_is_noted_at_every_depth():
    """Objects inside lists have their number in the path; lists of plain values are read whole."""
    view = JsonView(CONTENT)
    assert (view.get("a"), view["norm"]["type"], view["plain"]) == (1, "layer", [1, 2])
    assert [step["type"] for step in view["steps"]] == ["x", "y"]
    assert view.unread() == {"norm.scale": 2, "steps.0.on": True}
    assert view.unread(["norm.*", "steps.*.on"]) == {}


def test_keys_length_and_plain_copies_read_nothing():
    """To look whether a key is there is not to use its value."""
    view = JsonView(CONTENT)
    assert ("a" in view, len(view), list(view)) == (True, 5, list(CONTENT))
    assert view.plain() == CONTENT
    assert "a" in view.unread()


def test_values_and_items_read_everything_at_their_own_depth():
    """`dict(view)` takes all values; what is inside the objects among them is still noted one by one."""
    view = JsonView(CONTENT)
    assert dict(view.items())["a"] == 1
    assert view.unread() == {
        "norm.type": "layer",
        "norm.scale": 2,
        "steps.0.type": "x",
        "steps.0.on": True,
        "steps.1.type": "y",
    }
    view.read()
    assert view.unread() == {}
