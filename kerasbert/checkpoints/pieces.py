"""The tokenizer beside a checkpoint, as its tables fit it."""

import copy
from pathlib import Path

from kerasbert import answers, text
from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.storage.json_view import JsonMap
from kerasbert.text import knowledge
from kerasbert.text.base import Tokenizer
from kerasbert.text.files import tokenizer_file
from kerasbert.text.template import parse_template
from kerasbert.text.tree import with_knowledge


def tokenizer_in(place: Path, spec: specs.Spec, required: bool) -> Tokenizer | None:
    """The tokenizer of a checkpoint's folder; None where there is none and it is not `required`."""
    if not required and not (place.is_dir() and tokenizer_file(place)):
        return None
    return fitting(text.load_tokenizer(place), place, spec)


def with_graph(
    tokenizer: Tokenizer | None, triples: knowledge.KnowledgeGraph, spec: specs.Spec, graph: object, place: Path
) -> Tokenizer:
    """A tokenizer with a graph, of which a row of all positions holds every triple."""
    if tokenizer is None:
        raise InputError(f"{place} has no tokenizer, and a graph is found in texts: give one (--tokenizer DIR)")
    planted = with_knowledge(tokenizer, triples)
    if spec.longest and planted.knowledge is not None:
        planted.knowledge.check(spec.longest, where=str(graph))
    return planted


def fitting(tokenizer: Tokenizer | None, place: Path, spec: specs.Spec) -> Tokenizer | None:
    """A tokenizer whose ids and segments the checkpoint's tables have."""
    if tokenizer is not None and tokenizer.size > spec.embeddings.vocabulary:
        raise InputError(
            f"the tokenizer in {place} has {tokenizer.size} pieces, the checkpoint only {spec.embeddings.vocabulary}: "
            "they do not belong together"
        )
    segments = specs.maybe(spec, "embeddings.segments", 0)
    if tokenizer is not None and 1 < segments <= (most := tokenizer.segments - 1):
        raise InputError(
            f"the tokenizer in {place} has the template {' | '.join(tokenizer.template)}, with segments up to {most}, the "
            f"checkpoint has segments 0 to {segments - 1}: they do not belong together"
        )
    return tokenizer


def numbered(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with segment 1 for the second of two texts and for what stands behind it."""
    if tokenizer.segments > 1:
        return tokenizer
    one, two = tokenizer.template
    before, _, behind = two.partition("$B")
    words = [word.removesuffix(":0") + ":1" for word in behind.removeprefix(":0").split()]
    other = copy.copy(tokenizer)
    other.template = (one, " ".join([before.strip(), "$B:1", *words]))
    other.pair = parse_template(other.template[1], tokenizer._ids)
    return other


def padded_left(tokenizer: "Tokenizer") -> bool:
    """Whether their tokenizer pads at the left, since their classes read the last place (XLNet's <cls>)."""
    return tokenizer.cls_id is not None and tokenizer.single[-1].id == tokenizer.cls_id


def context_first(task: JsonMap, tokenizer: "Tokenizer | None") -> bool | None:
    """Whether a task reads the context in front of the question; None where that is no choice, as for most of theirs.

    Their scripts and pipelines put the question first where rows are padded at the right.
    """
    kind = answers.find(task["kind"])
    if "context_first" not in kind.defaults or tokenizer is None or not padded_left(tokenizer):
        return None
    return bool(kind.configured(task.get("options")).options["context_first"])
