"""The prompts of a model whose task is vectors: which one is put before each text, and what a user is told of it."""

from typing import Any

from kerasbert.checkpoints import source
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task, TaskKind, find, kind_of


def vector_kind(model: Any, prompt_name: str | None = None) -> TaskKind | None:
    """The kind of a model whose task is vectors, with another prompt than its default; None of any other model.

    Raises:
        InputError: no such prompt, or a prompt for a model that has none.
    """
    vectors = getattr(model, "task", None) is not None and kind_of(model).name == find("vector").name
    if not vectors and prompt_name:
        raise InputError(
            f"prompt_name is {prompt_name!r}, and the model has no prompts: leave it out, or put the text there"
        )
    if not vectors:
        return None
    return (model.task if prompt_name is None else model.task.optioned({"prompt_name": prompt_name})).how


def tell_prompt(model: Any, prompt_name: str | None = None, task: Task | None = None) -> None:
    """Say on stderr which prompt is put before each text, where one is."""
    kind = vector_kind(model, prompt_name)
    if kind is None:
        return
    kind = kind if task is None else task.how
    if prompt := getattr(kind.answers, "prompt", ""):
        source.say(
            f"each text gets the prompt {prompt!r} ({kind.options['prompt_name']!r}; others: --prompt-name of encode,"
            " --set task.prompt_name=NAME)"
        )
