"""What an import of an opened checkpoint would do: family, sizes, which tensor goes where. All is checked, nothing allocated."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import answers, progress, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import beam_span, closed
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.coverage import Coverage, cover
from kerasbert.checkpoints.formats import Answers, Format, ImportOptions, Opened
from kerasbert.checkpoints.forms import Shape
from kerasbert.checkpoints.names import Class, Dialect, matches
from kerasbert.checkpoints.pieces import context_first, numbered, with_graph
from kerasbert.checkpoints.plans import Imported, Plan, name_of, shapes_of
from kerasbert.checkpoints.readers import equal
from kerasbert.checkpoints.views import View, check_buffers, partly_wrapped, unwrapped
from kerasbert.errors import InputError, unknown
from kerasbert.poolings import reads_pooler
from kerasbert.storage import unused
from kerasbert.storage.json_view import Json, JsonMap, JsonView
from kerasbert.text import knowledge

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel
    from kerasbert.text.base import Tokenizer


class NamedFormat(Format):
    """A format whose tensors are renamed one by one.

    Attributes:
        names: key of `Family.names` under which a family holds its `Dialect`.
    """

    names = ""

    @abstractmethod
    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open a checkpoint; nothing is allocated.

        Raises:
            InputError: it is damaged, or a pickle without consent (`asked.allow_pickle`).
        """
        ...

    def family_of(self, opened: Opened) -> str | None:
        """The family that the configuration names; None where nobody knows that name."""
        return None

    def dialect(self, family: registry.Family) -> Dialect:
        """What the weights and settings of a family are called.

        Raises:
            InputError: it has no such family.
        """
        if not family.names:
            raise InputError(f"{family.name} has no format of other libraries, so that nothing is imported as one")
        if self.names not in family.names:
            known = ", ".join(family.names)
            raise unknown(f"checkpoint format of {family.name}", self.names, family.names, known)
        return family.names[self.names]

    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """What an import would do, as of `Format`."""
        return plan(self, self.open(path, asked), asked)


@dataclasses.dataclass
class _Theirs:
    """A checkpoint under the names of a family.

    Args:
        opened: it.
        family: the family. named: the Spec of the size that was asked for, or None.
        dialect: of the class of theirs. kind: that class, or None.
        tensors: Reader in today's names and in our forms. shapes: of all tensors by name.
        content: the configuration; empty where there is none.
    """

    opened: Opened
    family: registry.Family
    named: specs.Spec | None
    dialect: Dialect
    kind: str | None
    tensors: View
    shapes: dict[str, Shape]
    content: JsonMap


def plan(format: NamedFormat, opened: Opened, asked: ImportOptions) -> Plan:
    """The plan of an import: find the family, read the settings, cover every weight, find what the heads answer.

    Raises:
        InputError: a setting that is not computed here, a tokenizer that does not belong to it.
    """
    family, named = _family(format, opened, asked.model)
    triples = None if asked.graph is None else knowledge.graph_of(asked.graph)
    family = family if triples is None else registry.with_tree(family)
    if opened.config and asked.model:
        own = _family(format, opened, None)[0].name
        if convert := family.made_of.get(own):
            return _converted(
                convert, plan(format, opened, dataclasses.replace(asked, model=None)), family, named, asked
            )
    theirs = _named(format, opened, asked, family, named)
    spec, shapes = _spec(theirs, asked)
    heads, labels, classes = heads_of(
        theirs.dialect, spec, theirs.content, theirs.kind, _kept(theirs, asked.ignore), asked.ignore
    )
    expected = {f"heads/{head}/{weight}": shape for head, parts in heads.items() for weight, shape in parts.items()}
    coverage = cover(theirs.dialect, shapes | expected, theirs.shapes, asked.ignore)
    if not coverage.fits:
        path = opened.path
        return Plan(coverage, partly_wrapped(theirs.tensors, theirs.dialect.prefix, path) or coverage.problems(path))
    _check_others(theirs, coverage, asked)
    found, spec = _answers(theirs, heads, classes, spec, asked)
    pieces = opened.tokenizer(spec, asked)
    if pieces is not None and theirs.dialect.classes.get(theirs.kind or "", Class()).numbers:
        pieces = numbered(pieces)
    if triples is not None:
        pieces = with_graph(pieces, triples, spec, asked.graph, opened.folder)
    if found.task and configs.PAIR not in theirs.content and context_first(found.task, pieces) is False:
        found.task["options"] = {**found.task.get("options", {}), "context_first": True}
        found.told.append(
            "rows hold the context before the question, as transformers' scripts do for a tokenizer that pads at the left"
        )
    generation, lines = opened.generation(pieces, family)
    progress.say(*found.told, *lines)
    opened.leave()
    _settle(theirs, found, pieces, heads)
    described = _described(theirs, found, pieces, labels) | {"generation": generation}
    about = {"family": family, "name": name_of(family, spec), "spec": spec, "task": found.task, "described": described}
    return Plan(coverage, tensors=theirs.tensors, heads=found.heads, **about)


def _described(theirs: _Theirs, found: Answers, pieces: "Tokenizer | None", labels: tuple[str, ...] | None) -> Json:
    """What a model directory says beside its weights: as of `Imported.described`."""
    labelled = found.task and answers.find(found.task["kind"]).labelled
    return {
        "tokenizer": pieces,
        "task": found.task or found.vector,
        "labels": labels if labelled else None,
        "source": theirs.opened.origin,
        "languages": configs.languages(theirs.content),
    }


def _converted(
    convert: Callable[["SpecModel", specs.Spec | None], "SpecModel"],
    theirs: Plan,
    family: registry.Family,
    named: specs.Spec | None,
    asked: ImportOptions,
) -> Plan:
    """The plan of a model of another family than the checkpoint's, made of it (`Family.made_of`)."""

    def made(found: Imported) -> Imported:
        encoder = found.build()
        if named:
            _agree(named, encoder.spec, asked.model, Path("the checkpoint"))
        new = convert(encoder, named)
        described = found.described | {"tokenizer": new.tokenizer, "labels": new.labels}
        return Imported(family, name_of(family, new.spec), new, found.heads, found.task, described)

    return dataclasses.replace(theirs, convert=made)


def _named(
    format: NamedFormat, opened: Opened, asked: ImportOptions, family: registry.Family, named: specs.Spec | None
) -> _Theirs:
    """A checkpoint under the names of a family."""
    dialect = format.dialect(family)
    content = configs.flat(opened.config, dialect.halves) if opened.config else {}
    said = _architecture(content)
    kind = dialect.class_of(said)
    if said and dialect.classes and kind not in dialect.classes:
        unused.leave(
            opened.folder / "config.json", [f"the class {said}, which is not known (its tensors are read by name)"]
        )
    dialect = dialect.of(kind)
    reader, wrapper = unwrapped(opened.tensors, dialect.prefix, asked.ignore)
    if wrapper:
        unused.leave(opened.path, [f"{wrapper!r} before every name"])
    view = View(reader, dialect.forms, _heads(dialect, content))
    shapes = {name: view.shape(name) for name in view.names()}
    return _Theirs(opened, family, named, dialect, kind, view, shapes, content)


def _heads(dialect: Dialect, content: JsonMap) -> int | None:
    """How many heads a configuration says."""
    said = [content.get(key) for path, key, *_ in dialect.config if path == "attention.heads" and key in content]
    return said[0] if said and type(said[0]) is int and said[0] > 0 else None


def _kept(theirs: _Theirs, ignore: Sequence[str]) -> dict[str, Shape]:
    """Shapes of the tensors that are weights."""
    dropped = (*theirs.dialect.ignored, *ignore)
    return {name: shape for name, shape in theirs.shapes.items() if not matches(name, dropped)}


def _spec(theirs: _Theirs, asked: ImportOptions) -> tuple[specs.Spec, dict[str, Shape]]:
    """The Spec of the model, and the shapes of its weights."""
    opened, dialect, family, named = theirs.opened, theirs.dialect, theirs.family, theirs.named
    spec = named
    if theirs.content:
        spec = configs.to_spec(theirs.content, dialect, family.spec.derive(dialect.spec), opened.folder)
        if named:
            _agree(named, spec, asked.model, opened.folder)
    assert spec is not None  # `_family` refuses a checkpoint with neither
    if spec.blocks.layers > len(theirs.shapes):
        raise InputError(
            f"{opened.path} holds {len(theirs.shapes)} tensors, too few for the {spec.blocks.layers} layers it claims"
        )
    spec = dialect.in_file(spec, theirs.tensors)
    shapes = shapes_of(family, spec)
    if _without_pooler(theirs, _kept(theirs, asked.ignore), shapes):
        spec = spec.derive({"pooler": False})
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith("pooler/")}
    return spec, shapes


def _check_others(theirs: _Theirs, coverage: Coverage, asked: ImportOptions) -> None:
    """Refuse copies that differ from their original, and buffers that are not what is computed in their place."""
    path, dialect, reader = theirs.opened.path, theirs.dialect, theirs.tensors
    for copy, original in coverage.copies:
        if copy not in dialect.spare and not equal(reader, copy, original):
            raise InputError(
                f"{copy} in {path} differs from {original}, expected an equal copy: untied weights have no place here"
            )
    check_buffers(reader, dialect, [name for name in coverage.ignored if not matches(name, asked.ignore)], path)
    dropped = [pattern for pattern, expected in dialect.ignored.items() if expected is None]
    unused.leave(
        path, (each for each in (*dropped, *asked.ignore) if any(matches(t, [each]) for t in coverage.ignored))
    )


def _answers(
    theirs: _Theirs, heads: Mapping[str, Mapping], classes: int, spec: specs.Spec, asked: ImportOptions
) -> tuple[Answers, specs.Spec]:
    """What the heads answer, and the Spec of a model that does."""
    if asked.pair and "classifier" not in heads:
        raise InputError(
            f"{theirs.opened.path} holds no classifier, expected one that reads pairs: leave pair out (--pair)"
        )
    task = task_of(theirs.content, theirs.kind, heads, classes, asked.pair)
    found = theirs.opened.answers(task, classes, spec, asked)
    if not found.task:
        return found, spec
    kind, family = answers.find(found.task["kind"]), theirs.family
    spec = family.settings_for(spec, kind.configured(found.task.get("options")))
    hidden = not reads_pooler(family.encoder, spec.pooler, kind.name) and getattr(
        family.encoder, "label_activation", None
    )
    if hidden and not kind.per_token and "inner/kernel" not in heads["classifier"]:
        found.task["hidden_layer"] = False  # the released ELECTRA's classifier
    return found, spec


def _settle(theirs: _Theirs, found: Answers, pieces: "Tokenizer | None", heads: Mapping[str, object]) -> None:
    """Refuse what is left of the configuration and changes numbers; the rest is told."""
    content, folder = theirs.content, theirs.opened.folder
    if not isinstance(content, JsonView):
        return
    if found.vector:  # an export of ours says it in those files too
        content.read(configs.OPTIONS, configs.PAIR)
    file = configs.config_file(folder) or folder
    closed.compare_ids(content, theirs.dialect, file, pieces)
    closed.settle(content, theirs.dialect, file, heads)


def _family(format: NamedFormat, opened: Opened, model: str | None) -> tuple[registry.Family, specs.Spec | None]:
    """The family, and the Spec of the size that `model` names."""
    if model and "/" in model:
        return registry.find(model)
    if opened.config is None:
        raise InputError(
            f"no config.json or bert_config.json in {opened.folder}: put it there, or name the size: --model bert/base"
        )
    name = model or format.family_of(opened)
    if name is None:
        closed.refuse_decoder(opened.folder, opened.model_type, registry.families())
    return registry.family(name or opened.model_type), None


def _agree(named: specs.Spec, spec: specs.Spec, model: str | None, folder: Path) -> None:
    fields = ("hidden", "blocks.layers", "attention.heads", "feedforward.width")
    differ = {path: pair for path, pair in specs.differences(named, spec).items() if path in fields}
    if differ:
        sizes = ", ".join(f"{path} {theirs} instead of {ours}" for path, (ours, theirs) in differ.items())
        raise InputError(
            f"the configuration in {folder} is not {model}: {sizes}. Leave model out: sizes come from there"
        )


def _without_pooler(theirs: _Theirs, found: Mapping[str, Shape], ours: Mapping[str, Shape]) -> bool:
    """Whether the file is of a class without a pooler and indeed holds no weights of one."""
    dialect = theirs.dialect
    if theirs.content.get("add_pooling_layer") is not False and dialect.pooled(theirs.kind):
        return False
    pooler = {dialect.theirs(name)[0] for name in ours if name.startswith("pooler/")}
    return bool(pooler) and not any(dialect.spelled(name, pooler) in pooler for name in found)


def _architecture(content: JsonMap) -> str | None:
    classes = content.get("architectures") or [None]
    return str(classes[0]) if isinstance(classes, list) and classes[0] is not None else None


def task_of(
    content: JsonMap, architecture: str | None, heads: Mapping[str, object], classes: int, pair: bool | None
) -> Json | None:
    """The task of the heads that a file holds; None for an encoder and for heads of pretraining."""
    kind = configs.kind_of(architecture, heads)
    if not heads.keys() & {"classifier", "span", beam_span.HEAD}:
        return None
    task = configs.task_of(content, classes, pair, kind)
    if beam_span.HEAD in heads:
        task["options"] = {**task.get("options", {}), "starts": content.get(beam_span.STARTS, 5)}
    if kind is not None and kind in registry.tasks():
        declared = registry.task(kind)
        task |= {"text": declared.text} | ({"text_b": declared.text_b} if declared.text_b else {})
    return task


def heads_of(
    dialect: Dialect,
    spec: specs.Spec,
    content: JsonMap,
    kind: str | None,
    found: Mapping[str, Shape],
    ignore: Sequence[str],
) -> tuple[dict[str, dict[str, Shape]], tuple[str, ...], int]:
    """Shapes of the heads that the file holds, the names of its classes, and how many there are."""
    spelled = {dialect.spelled(name, ()): shape for name, shape in found.items()}
    names = dialect.heads_in(spelled, kind, ignore)
    labels: tuple[str, ...] = ()
    classes = 0
    if "classifier" in names:
        name, transposed = dialect.theirs("heads/classifier/kernel")
        matrix = () if configs.one_number(kind) else spelled.get(name, ())
        labels = configs.labels(content, matrix[0 if transposed else -1] if matrix else None)
        classes = 1 if configs.one_number(kind) else len(labels)
    width, inner = spec.embeddings.width or spec.hidden, specs.maybe(spec, "feedforward.width", 0)
    letters = {
        "H": spec.hidden,
        "E": width,
        "R": spec.hidden - width,
        "V": spec.embeddings.vocabulary,
        "L": classes,
        "F": inner[0] if isinstance(inner, tuple) else inner,
    }
    shapes = {
        head: {
            weight: tuple(letters[size] if size in letters else int(size) for size in shape.split())
            for weight, shape in dialect.shapes(head).items()
        }
        for head in names
    }
    return shapes, labels, classes
