"""The two models of a distillation: the teacher from its directory; the student by name, from a directory, or cut from it."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from kerasbert import checkpoints, progress, registry, text
from kerasbert import spec as specs
from kerasbert.checkpoints.adapters import merged_directory
from kerasbert.checkpoints.directory import built
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.encoder import Encoder, SpecModel
from kerasbert.layers.heads import HeadedModel
from kerasbert.layers.naming import names, values
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import Task
from kerasbert.text.base import Tokenizer
from kerasbert.training import model_files
from .recipes import spread

OBJECTIVE = "bert"  # on records; without a feature that asks about pairs it predicts tokens alone


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known of a model before it is built.

    Attributes:
        family, name: str, as in `tinybert` and `tinybert/4x312`.
        directory: where its weights come from, or None.
        layers: of the teacher's (from 0), copied, or None.
        digest: of the weights that it starts from, or None for a random start.
    """

    family: str
    name: str
    spec: specs.Spec
    directory: Path | None = None
    layers: tuple[int, ...] | None = None
    digest: str | None = None


def find_teacher(directory: str | os.PathLike) -> tuple[Source, checkpoints.ModelInfo, Tokenizer]:
    """Where the teacher lies, what its model.json says, its tokenizer."""
    path = merged_directory(directory)
    info = checkpoints.read_model_json(path)
    teacher = Source(info.family, info.name, info.spec, path, digest=model_files.digest(path))
    return teacher, info, _tokenizer(path, "the teacher")


def _tokenizer(directory: Path, who: str) -> Tokenizer:
    tokenizer = text.held_tokenizer(directory)
    if tokenizer is None:
        raise InputError(f"{who} {directory} has no tokenizer, expected one in its tokenizer/: import it with one")
    return tokenizer


def find_student(
    student: str | int | os.PathLike,
    teacher: Source,
    tokenizer: Tokenizer,
    *,
    changes: Mapping[str, object] | None = None,
    copy_layers: bool = False,
) -> Source:
    """Where the student starts.

    Args:
        student: `family/size` (a random start, with the teacher's vocabulary), a model directory, a number of the
            teacher's layers, or "half" of them, copied evenly spaced.
        changes: Spec fields over those of the name, or of the teacher; of a directory dropout alone.
        copy_layers: bool, start a named student of the teacher's width from the teacher's layers too.

    Raises:
        InputError: no such model, another tokenizer than the teacher's, a vocabulary that does not hold its ids, more
            layers than the teacher's.
    """
    registry.family(teacher.family).needs_blocks("its layers cannot be imitated")
    changes, most = dict(changes or {}), teacher.spec.blocks.layers
    if isinstance(student, str) and (student == "half" or student.isdecimal()):
        student = max(1, most // 2) if student == "half" else int(student)
    if type(student) is int:
        spec = fewer(teacher.spec, spread(student, most)).derive(changes)
        source, copy_layers = Source(teacher.family, teacher.name, spec), True
    elif isinstance(student, str | os.PathLike) and os.path.isdir(student):
        source = _of_directory(Path(student), tokenizer, changes, copy_layers)
    else:
        found, spec = registry.find(str(student))
        spec = specs.derive(spec, {"embeddings.vocabulary": teacher.spec.embeddings.vocabulary} | changes)
        source = Source(found.name, str(student), spec)
    family, spec = registry.family(source.family), source.spec
    family.needs_blocks("it cannot imitate a teacher's layers")
    if family.reads_tree != registry.family(teacher.family).reads_tree:
        raise InputError(
            f"one of the student {source.family} and the teacher {teacher.family} reads sentence trees: take two of a family"
        )
    if spec.embeddings.vocabulary < tokenizer.size:
        raise InputError(
            f"the student has {spec.embeddings.vocabulary} token embeddings, the teacher's tokenizer {tokenizer.size} "
            "pieces, expected as many or more: set embeddings.vocabulary"
        )
    if not copy_layers:
        return source
    return dataclasses.replace(source, layers=spread(spec.blocks.layers, most), digest=teacher.digest)


def _of_directory(path: Path, tokenizer: Tokenizer, changes: Mapping[str, object], copy_layers: bool) -> Source:
    """A student that has weights of its own."""
    info, own, wanted = checkpoints.read_model_json(path), _tokenizer(path, "the student").digest(), tokenizer.digest()
    if own != wanted:
        raise InputError(
            f"the student {path} has another tokenizer ({own[:12]}) than the teacher ({wanted[:12]}): take a student with "
            "the teacher's vocabulary"
        )
    if set(changes) - {"dropout", "attention.dropout"}:
        raise InputError(f"cannot change {', '.join(changes)} of trained weights: only dropout may change")
    if copy_layers:
        raise InputError("copy_layers and a student with weights of its own: choose one")
    return Source(info.family, info.name, specs.derive(info.spec, changes), path, digest=model_files.digest(path))


def fewer(spec: specs.Spec, layers: tuple[int, ...]) -> specs.Spec:
    """The Spec with some of its layers, numbered from 0."""
    own = {path: [value[layer] for layer in layers] for path, value in specs.by_layer(spec).items()}
    return spec.derive({"blocks.layers": len(layers), **own})


def build_encoder(source: Source, tokenizer: Tokenizer) -> SpecModel:
    """A built encoder, with the weights of its directory if it has one; in the precision and scope that are open."""
    encoder = built(registry.family(source.family), source.spec)
    encoder.tokenizer = tokenizer
    if source.directory is not None:
        checkpoints.load_weights(source.directory, encoder)
    return encoder


def with_head(encoder: Encoder, task: Task | None, answers: bool, tokenizer: Tokenizer) -> HeadedModel:
    """The encoder with the head that answers: a task's, or the masked LM's; without one where nothing reads it."""
    if not answers:
        model = HeadedModel(encoder, {}, {}, name="headless")
    elif task is None:
        return registry.objective(OBJECTIVE)(encoder, tokenizer).model
    else:
        model = TaskModel(encoder, task, name="label_model")
    model.build()
    return model


def load_heads(source: Source, model: HeadedModel) -> None:
    """Give the teacher's heads their weights.

    Raises:
        InputError: the directory does not hold them.
    """
    assert source.directory is not None  # a teacher has weights
    held = checkpoints.head_names(checkpoints.read_tensors(source.directory))
    for name, head in model.heads.items():
        if name not in held:
            raise InputError(
                f"the teacher {source.directory} has no head {name!r}, which the losses labels, soft and logits need: "
                "take losses of its layers, or another teacher"
            )
        checkpoints.load_weights(source.directory, head, f"heads/{name}/")


def start_heads(source: Source, model: HeadedModel, teacher: HeadedModel | None, quiet: bool) -> None:
    """Give the student's heads the weights that it starts from, where there are any of the same names and shapes."""
    for name, head in model.heads.items():
        mine, theirs = names(head), {}
        if (source.layers is not None or hasattr(head, "of_labels")) and teacher is not None and name in teacher.heads:
            theirs = values(teacher.heads[name])
        elif source.directory is not None:
            tensors, prefix = checkpoints.read_tensors(source.directory), f"heads/{name}/"
            found = [tensor for tensor in tensors.names() if tensor.startswith(prefix)]
            theirs = {tensor.removeprefix(prefix): tensors.read(tensor) for tensor in found}
        if _shapes(theirs) == _shapes(mine):
            for weight, variable in mine.items():
                variable.assign(theirs[weight])
        else:
            progress.say(f"the student's head {name!r} starts at random", quiet=quiet)


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}
