"""The prompts of a model whose task is vectors: which one is put before each text, and what a user is told of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasbert import progress
from kerasbert.answers.vector import DOCUMENT, QUERY, prompt_tokens
from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks.base import Task, TaskKind, find, kind_of

if TYPE_CHECKING:
    import keras


def vector_kind(model: "keras.Model", prompt_name: str | None = None, prompt: str | None = None) -> TaskKind | None:
    """The kind of a model whose task is vectors, with another prompt than its default; None of any other model.

    Args:
        prompt_name: of one of its prompts. prompt: a text in its place.

    Raises:
        InputError: no such prompt, both of them, or the name of one for a model that has none.
    """
    if prompt is not None and prompt_name is not None:
        raise InputError(f"prompt_name is {prompt_name!r} and prompt {prompt!r:.60}, expected one of them")
    vectors = getattr(model, "task", None) is not None and kind_of(model).name == find("vector").name
    if not vectors and prompt_name:
        raise InputError(
            f"prompt_name is {prompt_name!r}, and the model has no prompts: leave it out, or give the text as prompt"
        )
    if not vectors:
        return None
    asked: Json = {} if prompt_name is None else {"prompt_name": prompt_name}
    options = model.task.how.options
    if prompt is not None:
        asked = {"prompts": {**options["prompts"], "prompt": prompt}, "prompt_name": "prompt"}
    if asked and not options["include_prompt"]:
        asked["prompt_tokens"] = prompt_tokens(model.tokenizer, {**options["prompts"], **asked.get("prompts", {})})
    return model.task.optioned(asked).how


def prefixed(prompt: str, texts: Sequence[Any]) -> list[str]:
    """Texts with a prompt before each.

    Raises:
        InputError: what is no text.
    """
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"a prompt goes before a text, and text {number} is a {type(text).__name__}")
    return [prompt + text for text in texts]


def prompt_names(model: "keras.Model", prompt_name: str | None = None) -> tuple[str | None, str | None]:
    """Names of the prompts before texts that are searched and before queries: the model's own where nothing is said.

    Args:
        prompt_name: of texts; None where nothing is said.
    """
    kind = vector_kind(model)
    known = {} if kind is None else kind.options.get("prompts", {})
    query, texts = (next((name for name in names if name in known), None) for names in (QUERY, DOCUMENT))
    prompt_name = texts if prompt_name is None else prompt_name
    return prompt_name, prompt_name if query is None else query


def tell_prompt(model: "keras.Model", prompt_name: str | None = None, task: Task | None = None) -> None:
    """Say on stderr which prompt is put before each text, where one is."""
    kind = vector_kind(model, prompt_name)
    if kind is None:
        return
    kind = kind if task is None else task.how
    if prompt := getattr(kind.answers, "prompt", ""):
        progress.say(
            f"each text gets the prompt {prompt!r} ({kind.options['prompt_name']!r}; others: --prompt-name of encode,"
            " --set task.prompt_name=NAME)"
        )
