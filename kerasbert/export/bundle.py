"""The bundle: what must travel with an exported model so that text goes in and answers come out. No TensorFlow.

It is a zip behind the .tflite's last byte: the interpreter maps the front of the file and ignores the tail, zip readers
look from the end. (MediaPipe finds the vocabulary and the labels by the same convention, uncompressed.)

`bundle.json` says its format, the kind, what the network reads (`Reads`), signatures with a role (`Signature`), assets of the
family, the plug-in that brings the kind, and the least runtime.

A kind is answered by one program of the role `answer`, or a text is written by two: `encode` (or, of a decoder alone, `prefill`)
reads it, `decode_step` gives the logits of the next token, and arrays that go into the next step under the names that they came
out by (`layers.cache`): what `encode` gives stays as it is from step to step, what `prefill` gives are the first places of what a
step changes. Beside them a step reads `token_ids` [1], the token at one place, and `column` [1], that place.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, TypeVar

from kerasbert import answers
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Input
from kerasbert.inputs import find as find_input
from kerasbert.storage.json_view import Json
from kerasbert.storage.zips import MAX_BYTES, digest, pack, unpack

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


__all__ = ["MAX_BYTES", "Bundle", "Reads", "Signature", "digest", "pack", "read", "unpack"]
Part = TypeVar("Part", bound="DataclassInstance")  # a Reads or a Signature
FORMAT = 3
ROLES = {"answer": "S", "encode": "S", "prefill": "P", "decode_step": "T"}
"""Role of a signature -> the axis of its buckets: tokens of a text, of a prompt, places of a text that is written."""
STEP = ("token_ids", "column")  # what a step reads beside its state
LOGITS = "logits"
PACKAGE = "ai-edge-litert"
SETTINGS = "bundle.json"
LABELS = "labels.txt"
DTYPES = ("int32", "bool")
FILLED_BY = ("packing", "setting", "maker", "kind", "tree")  # what a runtime can fill
AXES = ("BS", "BSS", "BP", "BSW")
MAX_LENGTH = 1 << 16  # of a text in tokens
MAX_WIDTH = 1 << 20  # of an output in values; XLM-R has 250,002 tokens
MAX_VALUES = 1 << 24  # of an input


@dataclasses.dataclass(frozen=True)
class Reads:
    """One input of a file: what a family declares of it (`inputs.Input`), in names and numbers.

    Args:
        name: str, ours. signature: str, its name in the signatures.
        axes: str, one of AXES. dtype: str, one of DTYPES.
        pad: int, at padded places. What is padded is masked, so tokens are padded with 0 whatever the tokenizer says.
        filled_by: str, one of FILLED_BY. A maker is found in `inputs` by the name of the input.
        setting: str, such as "language". choices: its values and their numbers. default: the value where none is given.
        places: int, P.
    """

    name: str
    signature: str
    axes: str = "BS"
    dtype: str = "int32"
    pad: int = 0
    filled_by: str = "packing"
    setting: str = ""
    choices: dict[str, int] = dataclasses.field(default_factory=dict)
    default: str = ""
    places: int = 1

    def declared(self) -> Input:
        """What `inputs.arrays` fills.

        Raises:
            InputError: its maker is not registered.
        """
        make = find_input(self.name).make if self.filled_by == "maker" else None
        fields = {"filled_by": self.filled_by, "setting": self.setting, "make": make, "places": self.places}
        return Input(self.name, self.axes, self.dtype, self.pad, choices=lambda _: self.choices, **fields)


@dataclasses.dataclass(frozen=True)
class Signature:
    """One program of a file.

    Args:
        role: str, one of ROLES. name: str, in the .tflite.
        lengths: axis -> tokens that it takes; of a bundle of any length the most. That of ROLES tells it from others of its role.
        outputs: our name of an output -> the signature's.
    """

    role: str
    name: str
    lengths: dict[str, int]
    outputs: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Settings, labels and tokenizer files of an exported model.

    Args:
        kind: str, a name of `answers.find`: what the numbers of the output are.
        signatures: the programs, one for each length bucket and role.
        any_length: bool, whether there is one answering signature, which takes every length up to its own.
        inputs: what the signatures read.
        labels: tuple of str, the names of the outputs' columns, in their order, where the kind has labels.
        pair: bool, whether an input is two texts.
        model: str, such as "bert/base".
        target: str, the reader that the file is for: "kerasbert" (our runtime), "mediapipe" or "task_library" (one length).
        quantization: str, such as "float32" or "dynamic_int8".
        litert: str, the least version of ai-edge-litert that computes the file rightly; empty: any does.
        digest: str, hex sha256 of the .tflite without the bundle.
        versions: dict of package -> version that wrote the file.
        recipe: dict, the plan that made it, without paths; empty where it was compressed alone.
        plugin: {"file", "sha256"} of the plug-in file that brings the kind or a maker; empty where both are ours.
        tokenizer: dict of file name -> bytes, as the tokenizer's `save` writes them.
        assets: dict of file name -> bytes, which the family brings.
        parts: names of what an input is made of, such as question and context; empty: a text, or the two of a pair.
        columns: names of a text, or of the two of a pair, in the tables of the task; empty: the usual ones, or `parts`.
        options: of the kind, such as {"stride": 64}.
        settings_digest: str, hex sha256 of the bundle.json that was read.
    """

    kind: str
    tokenizer: dict[str, bytes]
    signatures: tuple[Signature, ...]
    inputs: tuple[Reads, ...]
    any_length: bool = False
    labels: tuple[str, ...] = ()
    pair: bool = False
    model: str = ""
    target: str = "kerasbert"
    quantization: str = "float32"
    litert: str = ""
    digest: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    recipe: Json = dataclasses.field(default_factory=dict)
    plugin: dict[str, str] = dataclasses.field(default_factory=dict)
    assets: dict[str, bytes] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    options: Json = dataclasses.field(default_factory=dict)
    settings_digest: str = dataclasses.field(default="", compare=False)

    def of(self, role: str) -> dict[int, Signature]:
        """Length in tokens -> the signature of a role for it; ascending."""
        found = {each.lengths[ROLES[role]]: each for each in self.signatures if each.role == role}
        return dict(sorted(found.items()))

    @functools.cached_property
    def answering(self) -> dict[int, Signature]:
        """Length in tokens -> the signature that answers texts of it; ascending."""
        return self.of("answer")

    @functools.cached_property
    def reading(self) -> dict[int, Signature]:
        """Length in tokens -> the signature that reads texts of it, to answer them or for the steps; ascending."""
        return self.answering or self.of("encode") or self.of("prefill")

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """The buckets' lengths in tokens, ascending; the last is the longest text's."""
        return tuple(self.reading)

    @functools.cached_property
    def longest(self) -> int:
        """Tokens of the longest row: of a text, or of a prompt and what is written after it."""
        return max(self.of("decode_step")) if self.of("prefill") else self.lengths[-1]

    def signature(self, length: int) -> str:
        """The name of the signature that runs a length."""
        return self.answering[self.lengths[-1] if self.any_length else length].name

    def output(self, name: str) -> str:
        """The answering signatures' name of an output; that of the kind is `answers.Kind.output`."""
        return self.answering[self.lengths[-1]].outputs[name]

    @property
    def trained(self) -> dict[str, str]:
        """The settings that it was trained with, which a call has where it gives none."""
        return {each.setting: each.default for each in self.inputs if each.setting}

    def to_json(self) -> Json:
        """What `bundle.json` holds."""
        names = ("labels", "pair", "model", "target", "quantization", "digest", "versions")
        settings = {name: getattr(self, name) for name in names} | {"format": FORMAT, "kind": self.kind}
        settings |= {name: getattr(self, name) for name in ("any_length", "recipe", "columns") if getattr(self, name)}
        for name in ("inputs", "signatures"):
            settings[name] = [_without_defaults(each) for each in getattr(self, name)]
        settings |= {"runtimes": {PACKAGE: self.litert}} if self.litert else {}
        settings |= {name: getattr(self, name) for name in ("plugin", "parts", "options") if getattr(self, name)}
        return settings | ({"assets": sorted(self.assets)} if self.assets else {})

    def to_zip(self) -> bytes:
        """The same bundle gives the same bytes: fixed dates, fixed order, nothing compressed."""
        files = dict(sorted((self.tokenizer | self.assets).items()))
        if self.labels:
            files[LABELS] = "".join(f"{label}\n" for label in self.labels).encode()
        files[SETTINGS] = json.dumps(self.to_json(), indent=1, sort_keys=True, ensure_ascii=False).encode()
        return pack(files)


def _without_defaults(part: "DataclassInstance") -> Json:
    plain = Reads("", "") if isinstance(part, Reads) else None
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in fields.items() if plain is None or value != getattr(plain, name)}


def read(source: str | os.PathLike | bytes) -> Bundle:
    """The bundle of an exported file. Its `digest` is not compared with the file: see `digest`.

    A kind that a plug-in brings need not be known here: the runtime asks for it.

    Raises:
        InputError: there is none, it is damaged, or another version of kerasbert wrote it.
    """
    files = unpack(source)
    where = "the bundle" if isinstance(source, bytes) else str(source)
    files.pop(LABELS, None)
    if SETTINGS not in files:
        raise InputError(f"{where} carries no {SETTINGS}. Expected a .tflite file written by kerasbert-mobile compress")
    text = files.pop(SETTINGS)
    try:
        settings = json.loads(text, parse_constant=_no_constant)
        number = settings.pop("format")
        if number != FORMAT:
            raise InputError(
                f"{where} has bundle format {number!r:.40}, expected {FORMAT}: install the kerasbert that wrote it"
            )
        _check_types(settings)
        settings["inputs"] = tuple(_made(Reads, row) for row in settings["inputs"])
        settings["signatures"] = tuple(_made(Signature, row) for row in settings["signatures"])
        for each in settings["signatures"]:
            if each.role not in ROLES:
                error = unknown("role of a signature", each.role[:40], list(ROLES), ", ".join(ROLES))
                raise InputError(f"{where}: {error}: install the kerasbert that wrote it")
        litert = settings.pop("runtimes", {}).get(PACKAGE, "")
        for name in ("labels", "parts", "columns"):
            settings[name] = tuple(settings.get(name, ()))
        assets = {name: files.pop(name) for name in settings.pop("assets", ())}
        known = {"tokenizer": files, "assets": assets, "litert": litert}
        bundle = Bundle(**known, settings_digest=hashlib.sha256(text).hexdigest(), **settings)
        _check_values(bundle)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{where} carries a damaged {SETTINGS} ({reason}). Write the file again") from error
    return bundle


def _made(kind: type[Part], row: object) -> Part:
    """A Reads or a Signature of its json, types checked."""
    if not isinstance(row, dict):
        raise TypeError(f"{row!r:.40} stands where a {kind.__name__} belongs")
    wanted = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, value in row.items():
        if name not in wanted:
            raise TypeError(f"a {kind.__name__} with {name!r:.40}")
        inner = {dict[str, int]: int, dict[str, str]: str}.get(wanted[name])
        outer = dict if inner else wanted[name]
        values = value.values() if inner and type(value) is dict else ()
        if type(value) is not outer or any(type(each) is not inner for each in values):
            raise TypeError(f"{name} is {value!r:.40}, expected json for {wanted[name]}")
    return kind(**row)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of json")


def _check_types(settings: Json) -> None:
    """Every field that is there has the type that `to_json` gives it."""
    kinds: dict[str, type] = dict.fromkeys(("kind", "model", "target", "quantization", "digest"), str)
    kinds |= dict.fromkeys(("labels", "assets", "parts", "columns", "signatures", "inputs"), list)
    kinds |= dict.fromkeys(("versions", "recipe", "plugin", "runtimes", "options"), dict)
    kinds |= dict.fromkeys(("pair", "any_length"), bool)
    for name, kind in kinds.items():
        if name in settings and not isinstance(settings[name], kind):
            raise TypeError(f"{name} is {settings[name]!r:.40}, expected json for {kind.__name__}")
    texts = [*settings["labels"], *settings.get("assets", ()), *settings.get("parts", ()), *settings.get("columns", ())]
    for name in ("plugin", "runtimes"):
        texts += settings[name].values() if isinstance(settings.get(name), dict) else ()
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.40} stands where a name belongs")


def _check_values(bundle: Bundle) -> None:
    """What the fields say fits together; whether the model agrees, its interpreter tells."""
    kind = answers.KINDS.get(bundle.kind)
    if kind is not None and kind.labelled != bool(bundle.labels):
        raise ValueError(f"{len(bundle.labels)} labels of a {bundle.kind}")
    lengths = [length for each in bundle.signatures for length in each.lengths.values()]
    if not lengths or not all(1 <= length <= MAX_LENGTH for length in lengths):
        raise ValueError(f"lengths {tuple(lengths)!s:.40}, expected some of 1 to {MAX_LENGTH}")
    roles = {each.role for each in bundle.signatures}
    roles = {"answer"} if "answer" in roles else roles
    for role in sorted(roles):
        _check_role(bundle, role)
    if not bundle.reading or (roles != {"answer"} and (len(roles) != 2 or "decode_step" not in roles)):
        raise ValueError(f"roles {sorted(roles)!s:.80}, expected answer, or encode or prefill with decode_step")
    if bundle.columns and len(bundle.columns) != 1 + bundle.pair:
        raise ValueError(f"columns {bundle.columns!s:.60}, expected one of each text")
    if len(set(bundle.labels)) < len(bundle.labels) or len(bundle.labels) > MAX_LENGTH:
        raise ValueError(f"{len(bundle.labels)} labels, of which {len(set(bundle.labels))} differ")
    if bundle.litert and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", bundle.litert):
        raise ValueError(f"litert {bundle.litert!r:.40}, expected a version such as 2.1.3")
    plugin = bundle.plugin
    if plugin and (set(plugin) != {"file", "sha256"} or not re.fullmatch("[0-9a-f]{64}", plugin["sha256"])):
        raise ValueError(f"plugin {plugin!s:.80}, expected its file and its sha256")
    for each in bundle.inputs:
        _check_input(each, max(bundle.lengths))
    for names in ([each.name for each in bundle.inputs], [each.signature for each in bundle.inputs]):
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"inputs {names!s:.80}, expected some, each once")


def _check_role(bundle: Bundle, role: str) -> None:
    """The signatures of one role differ in their length alone."""
    each = [signature for signature in bundle.signatures if signature.role == role]
    said = [signature.lengths.get(ROLES[role]) for signature in each]
    if None in said:
        raise ValueError(f"lengths of a signature of {role} without {ROLES[role]}")
    if bundle.any_length and (len(said) > 1 or role != "answer"):
        raise ValueError(f"{len(said)} signatures of any length, expected one")
    if len(set(said)) < len(said):
        raise ValueError(f"two signatures of one length {said!s:.40}")
    if not each[0].outputs or any(one.outputs != each[0].outputs for one in each):
        raise ValueError(f"signatures with different outputs or none, expected the same of all of the role {role}")
    if role == "decode_step" and LOGITS not in each[0].outputs:
        raise ValueError(f"a step that gives {', '.join(each[0].outputs)!s:.60}, expected {LOGITS} among them")


def _check_input(each: Reads, length: int) -> None:
    """An input that a runtime can fill."""
    numbers = [each.pad, *each.choices.values()]
    if each.dtype not in DTYPES or each.filled_by not in FILLED_BY or each.axes not in AXES:
        said = f"{each.dtype!r:.20}, {each.axes!r:.20}, {each.filled_by!r:.20}"
        raise ValueError(f"input {each.name!r:.30} of {said}, expected int32 or bool, {AXES}, {FILLED_BY}")
    if not 1 <= each.places <= MAX_LENGTH:
        raise ValueError(f"input {each.name!r:.40} of {each.places} places, expected 1 to {MAX_LENGTH}")
    if length ** each.axes.count("S") > MAX_VALUES:
        raise ValueError(f"input {each.name!r:.40} of {length} tokens, expected at most {MAX_VALUES} numbers")
    if not all(-(2**31) <= number < 2**31 for number in numbers):
        raise ValueError(f"input {each.name!r:.40} with numbers that are no int32")
    setting = each.filled_by == "setting"
    if setting != bool(each.setting) or setting != bool(each.choices) or (setting and each.default not in each.choices):
        raise ValueError(f"input {each.name!r:.40} of the setting {each.setting!r:.40}, expected choices and a default")
