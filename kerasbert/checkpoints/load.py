"""Read a checkpoint of others: Hugging Face (safetensors, by consent torch pickles), Google's TF1, KerasHub, AllenNLP's ELMo."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import answers, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints import allennlp, hub, keras_hub, made, sentence_transformers
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.directory import Weights, built, named_weights, save_model
from kerasbert.checkpoints.names import Coverage, Dialect, Shape, cover, matches
from kerasbert.checkpoints.readers import Reader, open_checkpoint
from kerasbert.checkpoints.views import View
from kerasbert.errors import InputError, unknown
from kerasbert.text import knowledge
from kerasbert.text.base import Tokenizer
from kerasbert.text.files import tokenizer_file
from kerasbert.text.tree import with_knowledge


def import_checkpoint(
    path: str | os.PathLike,
    source: str = "hf",
    model: str | None = None,
    out: str | os.PathLike | None = None,
    *,
    tokenizer: str | os.PathLike | None = None,
    ignore: Sequence[str] = (),
    allow_pickle: bool = False,
    pair: bool | None = None,
    revision: str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    build: bool = True,
    graph: Any = None,
) -> Any:
    """Read a checkpoint of others; every weight is assigned exactly once and nothing of theirs is left over.

    Args:
        path: a folder, a file, the prefix of a TF1 checkpoint, or for "hf" a name on the Hugging Face hub.
        source: "hf", "tf1", "keras_hub" or "allennlp" (ELMo's options.json and .hdf5).
        model: `family` or `family/size`; by default the family is the configuration's `model_type`. A size must agree
            with the configuration and stands in for one that is absent. Of a directory of ours, or word vectors, a model of
            another family is made: `taglm/ner` of an ELMo's.
        out: a model directory to write; of a folder of sentence-transformers it answers with vectors, pooled as there.
        tokenizer: path of a tokenizer where the checkpoint's folder has none; "none" for a model without one.
        ignore: shell patterns of tensors to drop.
        allow_pickle: bool, whether a torch pickle may be read.
        pair: bool, whether the checkpoint's classifier reads two texts (entailment, paraphrases, cross-encoders). Nothing
            in a checkpoint of others tells; one that kerasbert exported does, and None takes its word.
        revision: branch, tag or commit of a name on the hub; the hash of its commit is recorded in model.json (`source`).
        dry_run: bool, assign nothing and return the Coverage: what would go where, missing and left over. What the import
            would refuse for another reason is refused.
        overwrite: bool, whether an existing `out` is replaced.
        graph: a .spo file (or a `text.knowledge.KnowledgeGraph`): a checkpoint of BERT's is read as K-BERT, which keeps it.
        build: bool, False where `out` is all that is wanted: nothing is built then, no device is asked for, None comes back.

    Returns:
        the encoder (a Keras model) with `.tokenizer` (None where there is none), `.labels`, `.task` and `.heads`
        ({head: {weight: float32 array}}) and `.source` ({"hub", "revision"} of a name), or with `dry_run` the Coverage.

    Raises:
        InputError: everything that is missing, extra or misshaped, in one line; no configuration; a setting that cannot
            be computed here; a pickle without consent.
    """
    origin = None
    if source == "hf" and not os.path.exists(path) and hub.looks_like_name(os.fspath(path)):
        name = os.fspath(path)
        path, commit = hub.fetch(name, revision)
        origin = {"hub": name, "revision": commit}
    elif revision is not None:
        raise InputError(f"revision {revision!r} is of a name on the hub, and {path} is none: leave it out")
    if source == "allennlp":
        if pair or graph is not None:
            raise InputError("an ELMo of AllenNLP has no classifier and no graph: leave pair and graph out")
        about: dict[str, Any] = {"tokenizer": tokenizer, "ignore": ignore, "dry_run": dry_run, "build": build}
        return allennlp.read(path, model, out, overwrite=overwrite, **about)
    if source == "hf" and model and made.is_ours(path, model):
        if tokenizer is not None or ignore or pair is not None or graph is not None or dry_run:
            raise InputError(
                f"{path} is a directory of ours or word vectors, of which {model} takes weights and words as they are: leave "
                "tokenizer, ignore, pair, graph and dry_run out"
            )
        return made.of_ours(path, model, out, overwrite)
    around = Path(path)
    path = sentence_transformers.transformer(around) if source == "hf" and around.is_dir() else path
    reader, folder = open_checkpoint(path, source, allow_pickle)
    content = keras_hub.read_config(folder) if source == "keras_hub" else configs.read_config(folder)
    family, named = _family(content, model, folder)
    triples = None if graph is None else knowledge.graph_of(graph)
    family = family if triples is None else registry.with_tree(family)
    if content and model and (convert := family.made_of.get(_family(content, None, folder)[0].name)):
        about = {"tokenizer": tokenizer, "ignore": ignore, "allow_pickle": allow_pickle, "pair": pair}
        theirs = import_checkpoint(around, source, dry_run=dry_run, **about)
        return theirs if dry_run else _converted(convert, theirs, family, named, out, overwrite, model, origin)
    if source not in family.names:
        raise unknown(f"checkpoint format of {family.name}", source, family.names, ", ".join(family.names) or "none")
    dialect: Dialect = family.names[source]
    content = content or {}
    kind = dialect.class_of(_architecture(content))
    dialect = dialect.of(kind)
    reader = View(reader, dialect)
    found = {name: reader.shape(name) for name in reader.names()}
    kept = {name: shape for name, shape in found.items() if not matches(name, (*dialect.ignore, *ignore))}
    spec = configs.to_spec(content, dialect, family.spec.derive(dialect.spec), folder) if content else named
    assert spec is not None  # `_family` refuses a folder with neither
    if content and named:
        _agree(named, spec, model, folder)
    if spec.blocks.layers > len(found):
        raise InputError(f"{path} holds {len(found)} tensors, too few for the {spec.blocks.layers} layers it claims")
    spec = _untied(dialect, reader, found, spec)
    shapes = shapes_of(family, spec)
    if _without_pooler(content, kind, dialect, kept, shapes):
        spec = spec.derive({"pooler": False})
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith("pooler/")}

    heads, labels, classes = heads_of(dialect, spec, content, kind, kept, ignore)
    expected = {f"heads/{head}/{weight}": shape for head, parts in heads.items() for weight, shape in parts.items()}
    # everything is checked before anything is allocated
    coverage = cover(dialect, shapes | expected, found, ignore)
    if not coverage.fits:
        if dry_run:
            return coverage
        raise coverage.problems(path)
    for copy, original in coverage.copies:
        if dialect.untied.get(copy) == {}:
            continue
        if found[copy] != found[original] or not np.array_equal(reader.read(copy), reader.read(original)):
            raise InputError(
                f"{copy} in {path} differs from {original}, expected an equal copy: untied weights have no place here"
            )
    if pair and "classifier" not in heads:
        raise InputError(f"{path} holds no classifier, expected one that reads pairs: leave pair out (--pair)")
    task = task_of(content, kind, heads, classes, pair)
    if task:
        spec = family.settings_for(spec, answers.find(task["kind"]).configured(task.get("options")))
    hidden = not spec.pooler and getattr(family.encoder, "label_activation", None)
    if task and hidden and not answers.find(task["kind"]).per_token and "inner/kernel" not in heads["classifier"]:
        task["hidden_layer"] = False  # the released ELECTRA's classifier
    languages = configs.languages(content)
    if tokenizer is not None and os.fspath(tokenizer) == "none":
        pieces = None
    elif source == "keras_hub" and not tokenizer:
        pieces = _fitting(keras_hub.read_tokenizer(folder), folder, spec)
    else:
        pieces = _tokenizer(Path(tokenizer) if tokenizer else folder, spec, required=bool(tokenizer))
    if triples is not None:
        pieces = _with_graph(pieces, triples, spec, graph, folder)
    vector = sentence_transformers.task_of(around, spec, pieces) if task is None and source == "hf" else None
    if dry_run:
        for part in coverage.pairs:
            _finite(reader, part.theirs)
        return coverage
    arrays, parts = _read(reader, coverage)
    name, names = _name(family, spec), labels if task and answers.find(task["kind"]).labelled else None
    if out is not None:
        described = {
            "tokenizer": pieces,
            "task": task or vector,
            "labels": names,
            "source": origin,
            "languages": languages,
        }
        save_model(out, replace=overwrite, encoder=Weights(spec, arrays), name=name, heads=parts, **described)
    if not build:
        return None
    encoder = built(family, spec, name)
    for weight, variable in named_weights(encoder).items():
        variable.assign(arrays.pop(weight))
    encoder.heads, encoder.labels = parts, names
    encoder.task, encoder.tokenizer, encoder.source = task, pieces, origin
    return encoder


def _converted(
    convert: Callable,
    theirs: Any,
    family: registry.Family,
    named: specs.Spec | None,
    out: str | os.PathLike | None,
    overwrite: bool,
    model: str | None,
    origin: Mapping[str, str] | None,
) -> Any:
    """A model of another family than the checkpoint's, made of it (`Family.made_of`); a model directory where `out` is given."""
    if named:
        _agree(named, theirs.spec, model, Path("the checkpoint"))
    new = convert(theirs, named)
    new.model_name, new.source = _name(family, new.spec), origin
    if out is not None:
        about = {"tokenizer": new.tokenizer, "task": theirs.task, "labels": new.labels, "source": origin}
        save_model(out, replace=overwrite, encoder=new, name=new.model_name, heads=theirs.heads, **about)
    return new


def _untied(dialect: Dialect, reader: Reader, found: Mapping[str, Shape], spec: specs.Spec) -> specs.Spec:
    """The Spec with what the file holds, and with a weight of its own where the file's is not the copy that it may be."""
    for name, changes in dialect.present.items():
        spec = spec.derive(changes) if name in found else spec
    for copy, changes in dialect.untied.items():
        original = dialect.originals(copy)[0]
        if copy not in found or original not in found:
            continue
        if found[copy] != found[original] or not np.array_equal(reader.read(copy), reader.read(original)):
            spec = spec.derive(changes)
    return spec


def _family(
    content: Mapping[str, Any] | None, model: str | None, folder: Path
) -> tuple[registry.Family, specs.Spec | None]:
    """The family, and the Spec of the size that `model` names."""
    if model and "/" in model:
        return registry.find(model)
    if content is None:
        raise InputError(
            f"no config.json or bert_config.json in {folder}: put it there, or name the size: --model bert/base"
        )
    if model is None and "class_name" in content:
        return _of_backbone(content["class_name"], folder), None
    name = model or str(content.get("model_type", "bert"))
    for family in registry.families().values():
        if not model and "hf" in family.names and name in family.names["hf"].model_types:
            return family, None
    return registry.family(name), None


def _of_backbone(name: str, folder: Path) -> registry.Family:
    """The family of a KerasHub class."""
    known = {}
    for family in registry.families().values():
        if "keras_hub" in family.names:
            known.setdefault(family.names["keras_hub"].fixed["class_name"], family)
    if name not in known:
        raise InputError(f"{folder} holds a {name}, expected one of {', '.join(sorted(known))}")
    return known[name]


def _agree(named: specs.Spec, spec: specs.Spec, model: str | None, folder: Path) -> None:
    fields = ("hidden", "blocks.layers", "attention.heads", "feedforward.width")
    differ = {path: pair for path, pair in specs.differences(named, spec).items() if path in fields}
    if differ:
        sizes = ", ".join(f"{path} {theirs} instead of {ours}" for path, (ours, theirs) in differ.items())
        raise InputError(
            f"the configuration in {folder} is not {model}: {sizes}. Leave model out: sizes come from there"
        )


def _without_pooler(
    content: Mapping[str, Any],
    kind: str | None,
    dialect: Dialect,
    found: Mapping[str, Shape],
    ours: Mapping[str, Shape],
) -> bool:
    """Whether the file is of a class without a pooler and indeed holds no weights of one."""
    if content.get("add_pooling_layer") is not False and kind not in dialect.without_pooler:
        return False
    pooler = {dialect.theirs(name)[0] for name in ours if name.startswith("pooler/")}
    return bool(pooler) and not any(dialect.spelled(name, pooler) in pooler for name in found)


def _architecture(content: Mapping[str, Any]) -> str | None:
    classes = content.get("architectures") or [None]
    return str(classes[0]) if isinstance(classes, list) and classes[0] is not None else None


def task_of(
    content: Mapping[str, Any], architecture: str | None, heads: Mapping[str, Any], classes: int, pair: bool | None
) -> dict[str, Any] | None:
    """The task of the heads that a file holds; None for an encoder and for heads of pretraining."""
    kind = configs.kind_of(architecture, heads)
    if not heads.keys() & {"classifier", "span"}:
        return None
    task = configs.task_of(content, classes, pair, kind)
    if kind is not None and kind in registry.tasks():
        declared = registry.task(kind)
        task |= {"text": declared.text} | ({"text_b": declared.text_b} if declared.text_b else {})
    return task


def heads_of(
    dialect: Dialect,
    spec: specs.Spec,
    content: Mapping[str, Any],
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
        bias = spelled.get(dialect.theirs("heads/classifier/bias")[0])
        labels = configs.labels(content, bias[0] if bias else None)
        classes = 1 if configs.one_number(kind) else len(labels)
    width = spec.embeddings.width or spec.hidden
    letters = {
        "H": spec.hidden,
        "E": width,
        "R": spec.hidden - width,
        "V": spec.embeddings.vocabulary,
        "L": classes,
    }
    shapes = {
        head: {
            weight: tuple(letters[size] if size in letters else int(size) for size in shape.split())
            for weight, shape in dialect.heads[head].items()
        }
        for head in names
    }
    return shapes, labels, classes


def shapes_of(family: registry.Family, spec: specs.Spec) -> dict[str, Shape]:
    """Shapes of an encoder's weights, nothing allocated."""
    from kerasbert.layers.naming import unallocated

    with unallocated():
        return {name: tuple(variable.shape) for name, variable in named_weights(built(family, spec)).items()}


def _read(reader: Reader, coverage: Coverage) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """The encoder's weights by our names, and the heads'."""
    arrays: dict[str, np.ndarray] = {}
    heads: dict[str, dict[str, np.ndarray]] = {}
    for pair in coverage.pairs:
        values = _finite(reader, pair.theirs)
        values = np.array(values.T if pair.transpose else values, order="C")
        if pair.ours.startswith("heads/"):
            _, head, weight = pair.ours.split("/", 2)
            heads.setdefault(head, {})[weight] = values
        else:
            arrays[pair.ours] = values
    return arrays, heads


def _finite(reader: Reader, name: str) -> np.ndarray:
    values = reader.read(name)
    if not np.isfinite(values).all():
        raise InputError(f"{name} holds values that are not finite: the checkpoint is damaged")
    return values


def _tokenizer(place: Path, spec: specs.Spec, required: bool) -> Any:
    if not required and not (place.is_dir() and tokenizer_file(place)):
        return None
    return _fitting(text.load_tokenizer(place), place, spec)


def _with_graph(tokenizer: Any, triples: knowledge.KnowledgeGraph, spec: specs.Spec, graph: Any, place: Path) -> Any:
    """A tokenizer with a graph, of which a row of all positions holds every triple."""
    if tokenizer is None:
        raise InputError(f"{place} has no tokenizer, and a graph is found in texts: give one (--tokenizer DIR)")
    planted = with_knowledge(tokenizer, triples)
    if spec.longest:
        planted.knowledge.check(spec.longest, where=str(graph))
    return planted


def _fitting(tokenizer: Tokenizer | None, place: Path, spec: specs.Spec) -> Any:
    if tokenizer is not None and tokenizer.size > spec.embeddings.vocabulary:
        raise InputError(
            f"the tokenizer in {place} has {tokenizer.size} pieces, the checkpoint only {spec.embeddings.vocabulary}: "
            "they do not belong together"
        )
    return tokenizer


def _name(family: registry.Family, spec: specs.Spec) -> str:
    """`family/size` where a size has exactly these dimensions, else the family."""
    rates = {"dropout", "attention.dropout", "initializer", "pooler"}
    rates |= {path for dialect in family.names.values() for path in dialect.by_class}
    for size in family.sizes:
        if set(specs.differences(family.size(size), spec)) <= rates:
            return f"{family.name}/{size}"
    return family.name
