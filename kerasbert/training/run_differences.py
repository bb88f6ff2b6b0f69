"""In what a run differs from the one that a folder holds."""

from collections.abc import Mapping

from kerasbert.storage.json_view import Json, JsonMap


def differences(old: JsonMap, new: JsonMap) -> list[str]:
    """What differs between two contents of run.json, as it is told; more steps are no difference."""
    if old["kind"] != new["kind"]:
        return [f"kind {old['kind']!r} instead of {new['kind']!r}"]
    was, now = _flat(old["settings"]), _flat(new["settings"])
    found = []
    for name in dict.fromkeys([*was, *now]):
        a, b = was.get(name), now.get(name)
        if a != b and not (name == "steps" and isinstance(a, int) and isinstance(b, int) and b > a):
            found.append(_other_file(name, old, new) or f"{name} is {a!r:.200} there, {b!r:.200} asked for")
    return found


def _other_file(name: str, old: JsonMap, new: JsonMap) -> str:
    """Of data that differ which file it is, in the place of its hash; "" of another setting."""
    setting, _, split = name.partition(".")
    if setting != "data" or not split:
        return ""
    was, now = ((each.get("data") or {}).get(split) for each in (old, new))
    told = [
        path or ("rows in memory" if split in (each["settings"].get("data") or {}) else "none")
        for path, each in ((was, old), (now, new))
    ]
    if told[0] == told[1]:
        return f"the {split} rows in {was or 'memory'} are not those of the run"
    return f"the {split} rows are {told[0]} there, {told[1]} asked for{', with other content' * bool(was and now)}"


def _flat(tree: Mapping[str, object], prefix: str = "") -> Json:
    found = {}
    for name, value in tree.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found
