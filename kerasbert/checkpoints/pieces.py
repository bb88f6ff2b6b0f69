"""The tokenizer beside a checkpoint, as its tables fit it."""

from pathlib import Path

from kerasbert import spec as specs
from kerasbert import text
from kerasbert.errors import InputError
from kerasbert.text import knowledge
from kerasbert.text.base import Tokenizer
from kerasbert.text.files import tokenizer_file
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
