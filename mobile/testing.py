"""The battery's last part, which goes all the way to the phone: fine-tuning, a SavedModel, a .tflite.

registry.load_plugin("mine.py")
check_journey("mine", tmp_path)  # a family: a minute
check_kind_journey("mine", tmp_path)  # a Task over a kind: half a minute
check_scheme("mine", tmp_path)  # a quantization scheme: half a minute
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

import kerasbert as kb
from kerasbert import spec as specs
from kerasbert.inputs import Tensor
from kerasbert.tasks import predict
from kerasbert.testing import world
from kerasbert.testing.battery import BATCH, LENGTH, Subject, shallow
from kerasbert.testing.world import first_column
from kerasbert.tpu_check.lower import Step
from . import compress
from .kind_journey import check_kind_journey
from .runtime import load
from .scheme_check import check_scheme

if TYPE_CHECKING:
    from kerasbert.tasks.model import TaskModel


__all__ = ["check_journey", "check_kind_journey", "check_scheme"]

DEVICE = 32  # tokens: of the training too, for a text that one of them truncates has another answer


def sst2(folder: Path, source: Path, train: int = 640, dev: int = 64) -> Path:
    """The first rows of SST-2."""
    out = folder / "sst2"
    out.mkdir(exist_ok=True)
    for split, count in (("train", train), ("dev", dev)):
        lines = (source / f"{split}.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        (out / f"{split}.tsv").write_text("".join(lines[: count + 1]), encoding="utf-8")
    return out


def check_journey(name: str, folder: Path, data: Path | None = None) -> dict[str, float]:
    """Fine-tuning, a SavedModel that takes text, an int8 .tflite; the train step lowers for a TPU.

    Args:
        name: str, the family.
        folder: Path.
        data: SST-2; without it texts of the tiny world, of the same length.

    Returns:
        int8: largest difference of the int8 file's logits, as a share of the range of the float model's.
    """
    subject = Subject(name, folder, hidden=64)
    if subject.family.objective:
        step = Step(subject.family, specs.derive(subject.spec, shallow(subject.spec)), length=LENGTH, replicas=4)
        assert step.lower(BATCH).problems == []

    # int8 is compared on a task that is learnt: after 20 steps of SST-2 from random weights all texts have nearly the
    # same logits, and 2% of their range is less than the rounding of BERT's activations (4 to 5% of it)
    files = {"train": world.labelled(folder / "train.tsv", 640), "dev": world.labelled(folder / "dev.tsv", 64, seed=1)}
    settings = {"batch": 32, "length": DEVICE, "quiet": True}  # of SST-2 too: each longer shape would be traced
    learnt = kb.finetune(
        subject.encoder(scale=0.1),
        "classification",
        files,
        out=folder / f"learnt-{name}",
        # after 60 texts lie between the labels, where rounding moves GPT by .003 to .026; after 120 by .002 to .012, but ELMo,
        # by the seed, by .006 to .023 (after 240 by .003 to .009)
        steps=240 if name == "elmo" else 120,
        learning_rate=3e-3,
        **settings,
    )
    share = check_int8(learnt, first_column(files["dev"]), folder / f"{name}.tflite")
    model = learnt
    if data is not None:
        model = kb.finetune(learnt.encoder, "glue/sst2", data, out=folder / f"sst2-{name}", steps=20, **settings)
    texts = first_column(data / "dev.tsv" if data else files["dev"])
    kb.export(model, folder / f"serving-{name}")
    served = tf.saved_model.load(str(folder / f"serving-{name}")).signatures["serving_default"]
    probabilities = served(text=tf.constant(texts))["probabilities"].numpy()
    expected = [list(answer.scores.values()) for answer in kb.predict(model, texts)]
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    return {"int8": share}


def margins(probabilities: Tensor) -> np.ndarray:
    """[n, 2] -> [n]: the logit of the second label over the first."""
    return np.log(probabilities[:, 1].astype("float64")) - np.log(probabilities[:, 0].astype("float64"))


def check_int8(model: "TaskModel", texts: list[str], out: Path) -> float:
    """The int8 file's margins within 2% of the range of the model's, both labels occurring."""
    # the file gives probabilities, from which logits far apart cannot be read: a range of 10 keeps every digit
    scale = np.float32(10 / np.ptp(np.diff(predict.outputs(model, texts))))
    for weight in model.heads["classifier"].trainable_variables:
        weight.assign(weight.value.numpy() * scale)
    logits = predict.outputs(model, texts)
    assert len(set(logits.argmax(-1))) == 2
    logits = logits[:, 1] - logits[:, 0]
    compress(model, out=out, lengths=[DEVICE], texts=texts, min_agreement=0.9)
    received = np.asarray(load(out).outputs(texts))
    assert len(set(received.argmax(-1))) == 2
    share = float(np.abs(margins(received) - logits).max() / np.ptp(logits))
    assert share <= 0.02, share
    return share
