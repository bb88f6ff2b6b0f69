"""Others' classes for tags, spans, choices and several labels, in and out, against transformers."""

import dataclasses

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import checkpoints, registry
from kerasbert.checkpoints import beam_span
from kerasbert.checkpoints import config as configs
from kerasbert.tasks import base
from kerasbert.tasks.predict import task_logits
from tests import tiny
from tests.checkpoints.test_family_parity import SIZES, batch, make, pad_of, spec_of
from tests.checkpoints.theirs import close, parity, run
from tests.checkpoints.theirs import transformers as peer

KINDS = ("tags", "span", "choice")
FAMILIES = (
    "bert",
    "roberta",
    "albert",
    "distilbert",
    "electra",
    "mobilebert",
    "megatron-bert",
    "xlm",
    "ernie",
    "mpnet",
    "nomic-bert",
    "roformer",
    "xlm-roberta",
)
LABELS = {0: "O", 1: "B-X", 2: "I-X"}
transformers = pytest.fixture(scope="module")(peer)


def classes(families=FAMILIES):
    for name in families:
        for architecture, heads in registry.family(name).names["hf"].architectures.items():
            if configs.kind_of(architecture, ()) and beam_span.HEAD not in heads:  # that has tests of its own
                # their numbers are those of test_parity_random in CI; here the labels and what is asked
                marks = [] if name in ("bert", "xlm") else pytest.mark.full
                yield pytest.param(name, architecture, id=architecture, marks=marks)


def there(kind):
    """The kind, or the test is skipped where no model answers with it yet."""
    return kind if kind in base.OURS else pytest.skip(f"no kind {kind} yet")


def theirs_on(model, inputs, kind):
    """Their logits, as ours: [B, S, L], [B, S, 2] or, of a choice of one, [B, 1]."""
    outputs = run(model, inputs)
    if kind == "span":
        import torch

        return torch.stack([outputs.start_logits, outputs.end_logits], -1)
    return outputs.logits.reshape(-1, 1) if kind == "choice" else outputs.logits


def test_every_family_has_them_all():
    found = {
        name: {configs.kind_of(cls, ()) for cls in registry.family(name).names["hf"].architectures} for name in FAMILIES
    }
    assert found.pop("nomic-bert") == {None, "tags"}
    assert found.pop("xlm") == found.pop("roformer") == {None, "tags", "span"}
    assert all(kinds == {None, *KINDS} for kinds in found.values())


@parity
@pytest.mark.parametrize(("name", "architecture"), list(classes(FAMILIES[:-2])))
def test_in_and_out(transformers, tmp_path, name, architecture):
    family, kind = registry.family(name), there(configs.kind_of(architecture, ()))
    spec = spec_of(family, SIZES[0])
    named = {"id2label": LABELS, "label2id": {label: i for i, label in LABELS.items()}} if kind == "tags" else {}
    theirs = make(transformers, family, spec, architecture, **named)
    theirs.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", model=name, out=tmp_path / "ours", build=False)
    model = kb.load(tmp_path / "ours")
    assert (model.task.kind, model.task.pair) == (kind, kind != "tags")
    assert model.labels == (tuple(LABELS.values()) if kind == "tags" else None)
    inputs = batch(spec, pad_of(theirs), length=7)
    real = inputs["padding_mask"].astype(bool) if kind != "choice" else slice(None)
    expected = theirs_on(theirs, inputs, kind)
    close(np.asarray(task_logits(model, inputs))[real], expected[real])
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = getattr(transformers, architecture).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert kind != "tags" or back.config.id2label == LABELS
    np.testing.assert_allclose(theirs_on(back.eval(), inputs, kind), expected, rtol=0, atol=1e-6)
    kb.import_checkpoint(tmp_path / "back", model=name, out=tmp_path / "again", build=False)
    one, other = (checkpoints.read_model_json(tmp_path / folder) for folder in ("ours", "again"))
    assert (one.task, one.spec, one.labels) == (other.task, other.spec, other.labels)


def test_classes_that_nothing_here_computes():
    with pytest.raises(kb.InputError, match="XLMForMultipleChoice .*two linear maps in a row.*: no such model here"):
        registry.family("xlm").names["hf"].of("XLMForMultipleChoice")


@parity
@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_several_labels(transformers, tmp_path, name):
    family = registry.family(name)
    spec = spec_of(family, SIZES[0])
    architecture = next(cls for cls in family.names["hf"].architectures if cls.endswith("ForSequenceClassification"))
    settings = {"id2label": LABELS, "problem_type": "multi_label_classification"}
    theirs = make(transformers, family, spec, architecture, **settings)
    theirs.save_pretrained(tmp_path / "theirs")
    kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "ours", build=False)
    model = kb.load(tmp_path / "ours")
    assert (model.task.kind, model.labels) == ("multi_label", tuple(LABELS.values()))
    inputs = batch(spec, pad_of(theirs))
    close(task_logits(model, inputs), run(theirs, inputs).logits)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back = getattr(transformers, architecture).from_pretrained(tmp_path / "back").eval()
    assert (back.config.problem_type, back.config.id2label) == ("multi_label_classification", LABELS)
    close(run(theirs, inputs).logits.numpy(), run(back, inputs).logits, 1e-6)
    # thresholds, of which they know nothing, travel too
    model.task = dataclasses.replace(model.task, options={"thresholds": [0.5, 0.25, 0.75]})
    model.tokenizer = tiny.tokenizer()
    kb.save(model, tmp_path / "tuned")
    kb.export_checkpoint(tmp_path / "tuned", tmp_path / "hf")
    assert kb.load(tmp_path / "hf").task.options == model.task.options


INPUTS = {
    "tags": "the cat sees",
    "span": ("the cat", "a dog sees the old house ."),
    "choice": ("the cat", ["sees a dog", "runs"]),
}


@parity
@pytest.mark.parametrize("kind", KINDS)
def test_imported_directories_answer(transformers, tmp_path, kind, capsys):
    from kerasbert.cli import main

    there(kind)
    family, tokenizer = registry.family("bert"), tiny.tokenizer()
    changes = tiny.SPEC | {"embeddings.vocabulary": tokenizer.size, "dropout": 0.0}
    architecture = next(cls for cls in family.names["hf"].architectures if configs.kind_of(cls, ()) == kind)
    more = {"id2label": LABELS} if kind == "tags" else {}
    theirs = make(transformers, family, family.spec.derive(changes), architecture, **more)
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (answer,) = kb.predict(tmp_path, [INPUTS[kind]])
    texts = [INPUTS[kind]] if kind == "tags" else [(INPUTS[kind][0], other) for other in np.ravel(INPUTS[kind][1])]
    expected = theirs_on(theirs, tokenizer(texts), "span" if kind == "span" else "tags") if kind != "choice" else None
    if kind == "tags":
        assert list(answer.labels) == [LABELS[i] for i in expected[0, 1:-1].argmax(-1).tolist()]
        assert main(["predict", str(tmp_path), INPUTS[kind]]) == 0
    elif kind == "choice":
        logits = run(theirs, {name: value[None] for name, value in tokenizer(texts).items()}).logits
        assert answer.index == int(logits.argmax())
    else:
        words = INPUTS[kind][1].split()  # a token each
        scores = expected[0, -1 - len(words) : -1]
        spans = {(i, j): scores[i, 0] + scores[j, 1] for i in range(len(words)) for j in range(i, len(words))}
        first, last = max(spans, key=spans.get)
        assert answer.text == " ".join(words[first : last + 1])
        assert main(["predict", str(tmp_path), "\t".join(INPUTS[kind])]) == 0
