"""What `registry.register_task` asks of a task, so that its author's mistake is seen where it is registered.

No TensorFlow: plug-ins register tasks on a phone too.
"""

from kerasbert import answers
from kerasbert.errors import InputError, check_known, of_entry, unknown
from kerasbert.family import LAYERS
from kerasbert.registry import METRICS, READERS, shipped
from kerasbert.tasks import base

SPLITS = ("train", "dev", "test")


def check(name: str, task: object) -> None:
    """Refuse a task whose kind, options, metric, layers or reader do not exist.

    A plug-in registers its kind, its metric and its reader before the task that names them. The metrics of a plug-in's kind
    are known where its side of training is made, which needs Keras: `testing.check_kind` and every run look there.

    Raises:
        InputError: with the nearest name.
    """
    if not isinstance(task, base.Task):
        raise InputError(f"the task {name!r} is {task!r:.80}, expected a kerasbert.tasks.base.Task")
    if task.kind not in answers.KINDS:
        raise of_entry(
            "task", name, unknown("kind of task", task.kind, answers.KINDS, ", ".join(sorted(answers.KINDS)))
        )
    try:
        kind = answers.KINDS[task.kind].configured(task.options)
    except InputError as error:
        raise of_entry("task", name, error) from error
    known = shipped()["metrics"].get(kind.name)
    if known and task.metric not in known:
        check_known("task", name, f"metric of a {kind.name}", task.metric, [*known, *METRICS])
    _check_names(name, task)


def _check_names(name: str, task: base.Task) -> None:
    """The layers, the reader and the splits."""
    check_known("task", name, "layers", task.layers, LAYERS)
    if task.reader:
        check_known("task", name, READERS.kind, task.reader, READERS)
    for split in task.files:
        check_known("task", name, "split", split, SPLITS)
