"""What every model must pass, ours and a third party's: one battery, no list kept by hand.

registry.load_plugin("mine.py")
check_model("mine", tmp_path)  # seconds: as in the default run
# kerasbert.mobile.testing.check_journey goes on to the phone
"""

import fnmatch
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints import load_encoder, save_model
from kerasbert.data import write_records
from kerasbert.data.packing import PACKINGS
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor, Values
from kerasbert.layers import random
from kerasbert.layers.backend import fusion
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.naming import names
from kerasbert.objectives.base import Objective
from kerasbert.storage.json_view import Json
from kerasbert.testing import world
from kerasbert.testing.eager import eagerly
from kerasbert.testing.generating import NextToken, RowLabel, check_steps, check_two_stacks, target
from kerasbert.testing.weights import check_names, check_start
from kerasbert.text.base import SENTINEL, Tokenizer
from kerasbert.text.tree import with_knowledge

LENGTH, BATCH = 24, 8


def tiny(spec: specs.Spec, vocabulary: int, hidden: int = 16) -> dict:
    """Changes that make any Spec tiny, whatever fields its family adds.

    Known sizes get known values; any other whole number above 16 becomes narrower than H, as wide or wider, as it was.
    """
    known = {"heads": 2, "key_heads": 1, "layers": 2, "hidden": hidden}
    given = {"vocabulary": vocabulary, "positions": 32 + specs.maybe(spec, "embeddings.offset", 0), "languages": 2}
    changes = {}
    for path in specs.paths(type(spec)):
        value, name = specs.get(spec, path), path.rpartition(".")[2]
        if name == "filters":
            changes[path] = (2, 2, 2)
        if name in ("sizes", "repeats"):  # by groups of layers, of which there are fewer
            changes[path] = None
        if type(value) is not int:
            continue
        if name in given:
            changes[path] = given[name]
        elif name in known:
            changes[path] = min(value, known[name])
        elif value > 16:
            changes[path] = hidden // 2 if value < spec.hidden else hidden if value == spec.hidden else 3 * hidden // 2
    return changes


def shallow(spec: specs.Spec) -> dict[str, int]:
    """Changes that leave one layer of a Spec, whatever its layers are; none where it needs more."""
    changes = {path: 1 for path in ("blocks.layers", "recurrence.layers") if path in specs.paths(type(spec))}
    try:
        specs.derive(spec, changes)
    except InputError:
        return {}
    return changes


@functools.cache
def tokenizer(kind: str, layout: str = "") -> Tokenizer:
    """A tokenizer of a kind over the words of the tiny world."""
    from kerasbert.text.train import train

    if kind == "wordpiece":
        return world.tokenizer()
    if kind == "unigram":
        pytest.importorskip("sentencepiece")
    # bytes alone are 256 pieces
    return train(kind, world.sentences(300, 0) * 2, {"bpe": 300}.get(kind, 60), layout=layout or None)


@functools.cache
def with_sentinels(kind: str) -> Tokenizer:
    """The same with sentinels, which stand for what is left out of a text."""
    return tokenizer(kind).extended([SENTINEL.format(number) for number in reversed(range(8))])


class Subject:
    """A family made tiny, with what its pretraining needs.

    Args:
        name: str, of a registered family.
        folder: where records are made, shared by the families that pack alike.
        hidden: int, H.
        objective: str, the name of another objective than the family's own.
        changes: Spec fields over the tiny ones.
    """

    def __init__(self, name: str, folder: Path, hidden: int = 16, objective: str = "", **changes: Any) -> None:
        self.family = registry.family(name)
        self.name = f"{name}/{next(iter(self.family.sizes))}"
        self.pretrained = objective or self.family.objective
        untrained = NextToken if hasattr(self.family.encoder, "logits") else RowLabel
        self.objective = registry.objective(self.pretrained) if self.pretrained else untrained
        kind, layout = self.family.tokenizer, self.family.layout
        self.tokenizer = tokenizer(kind, layout) if self.family.one_stack else with_sentinels(kind)
        if self.family.reads_tree:
            self.tokenizer = with_knowledge(self.tokenizer, world.knowledge())
        base = registry.find(self.name)[1]
        self.spec = specs.derive(base, tiny(base, self.tokenizer.size, hidden) | changes)
        self.folder = folder

    def encoder(self, dtype: str = "float32", seed: int = 1, scale: float = 0.2) -> Encoder:
        """Built, with weights far from zero: at 0.02 a layer hardly does anything."""
        keras.utils.set_random_seed(seed)
        made = self.family.encoder(self.spec, dtype=dtype)
        made.build()
        generator = np.random.default_rng(seed)
        for weight in made.weights:
            if weight.path.endswith(("kernel", "table")):
                weight.assign(generator.normal(0, scale, weight.shape))
        made.tokenizer = self.tokenizer
        return made

    def program(self, encoder: Encoder, settings: Mapping[str, object] | None = None) -> Objective:
        """The objective on an encoder, or the next token's where there is none; with settings over its own."""
        if not self.pretrained:
            return self.objective(encoder, self.tokenizer)
        return self.objective(encoder, self.tokenizer, features=self.records().features, seed=0, settings=settings)

    def records(self) -> Records:
        """Tiny records, packed as the objective wants them."""
        languages = hasattr(self.spec.embeddings, "languages")
        of = "-".join(
            [
                f"{self.family.tokenizer}{self.family.layout}",
                str(self.tokenizer.size),
                self.objective.packing,
                *self.objective.records,
            ]
        )
        out = self.folder / f"{of}{'-languages' * languages}"
        if not out.exists():
            files = [world.corpus(self.folder / "corpus.txt")]
            if languages:
                files = {"en": files, "fr": [world.corpus(self.folder / "other.txt", seed=1)]}
            settings = {"length": LENGTH, "packing": self.objective.packing, "language_ids": languages}
            write_records(files, self.tokenizer, out, **settings, **self.objective.records)
        return Records(out)

    def batch(self, program: Objective) -> dict:
        """The first batch, prepared by the objective; random tokens where there is none."""
        if not self.pretrained:
            inputs = self.inputs(BATCH, LENGTH) | {"row": np.arange(BATCH, dtype="int32")}
            return {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
        features = world.first_batch(self.records().directory, BATCH)
        return {name: tf.convert_to_tensor(value) for name, value in program.prepare(features).items()}

    def inputs(self, rows: int = 3, length: int = 9, seed: int = 0) -> dict:
        """Random ordinary tokens; row i has i padded places."""
        generator = np.random.default_rng(seed)
        mask = (np.arange(length) < length - np.arange(rows)[:, None]).astype("int32")
        ordinary = np.setdiff1d(np.arange(self.tokenizer.size - 1), self.tokenizer.special_ids)
        ids = generator.choice(ordinary, (rows, length))
        segments = np.sort(generator.integers(0, 2, (rows, length)), axis=1)
        if not self.family.one_stack:
            return {"token_ids": ids.astype("int32"), "padding_mask": mask} | target(ids.astype("int32"), mask)
        found = {"token_ids": ids.astype("int32"), "padding_mask": mask, "segment_ids": segments.astype("int32")}
        return found | self.tokenizer.others(ids)


def different(*parts: str) -> list[str]:
    """Families by name; of those that are one encoder at a tiny size (BERT by other names) and equal in `parts`, the first."""
    found: dict = {}
    for name, family in registry.families().items():
        base = family.size(next(iter(family.sizes)))
        key = (family.encoder, specs.derive(base, tiny(base, 100)), *(getattr(family, part) for part in parts))
        found.setdefault(key, name)
    return list(found.values())


def check_model(name: str, folder: Path, compiled: bool = True) -> None:
    """Everything that is checked in seconds; `folder` keeps the records.

    Args:
        name: str, of a registered family.
        folder: where records are made.
        compiled: bool, compare the parts that CPU training compiles too; families of one encoder need it once.
    """
    known = specs.paths(type(registry.family(name).spec))
    still: Json = {path: 0.0 for path in ("dropout", "attention.dropout") if path in known}
    subject = Subject(name, folder, **still)
    encoder = subject.encoder()
    program = subject.program(encoder)
    check_spec(subject)
    check_names(program)
    check_start(subject.family.encoder(subject.spec), program)
    if subject.family.one_stack:
        check_relations(subject, encoder)
    else:
        layers = specs.maybe(subject.spec, "decoder.layers") or specs.maybe(subject.spec, "blocks.layers")
        check_two_stacks(encoder, subject.inputs(), layers, relative)
    if subject.family.kind != "encoder":
        check_steps(encoder, subject.inputs(), relative)
    check_adapted(subject, encoder)
    batch = subject.batch(program)
    check_bfloat16(subject, encoder, program, batch, compiled)
    check_gradients(subject, program, batch, compiled)
    check_saved(subject, encoder, program)
    check_two_steps(program, batch)


def check_spec(subject: Subject) -> None:
    """Sizes and Spec survive json; the weights are counted without memory."""
    from kerasbert import models

    for spec in (subject.spec, *map(subject.family.size, subject.family.sizes)):
        assert specs.from_dict(json.loads(json.dumps(specs.to_dict(spec))), type(spec)) == spec
    assert models.parameters(subject.family.encoder, subject.spec) == sum(
        int(np.prod(weight.shape)) for weight in subject.encoder().weights
    )


def relative(one: Tensor, other: Tensor) -> float:
    """Largest difference, as a share of the largest value."""
    one, other = (np.asarray(keras.ops.cast(x, "float32")) for x in (one, other))
    return float(np.abs(one - other).max() / max(1.0, np.abs(other).max()))


def check_relations(subject: Subject, encoder: Encoder, positions: bool = True) -> None:
    """Padding is not seen; single tokens are as among all (`positions`: any of them); positions are counted."""
    inputs = subject.inputs()
    outputs = encoder(inputs)
    assert outputs["sequence"].shape == (3, 9, subject.spec.hidden)
    if subject.family.has_blocks:
        assert len(outputs["hidden"]) == subject.spec.blocks.layers + 1
    assert ("pooled" in outputs) == bool(specs.maybe(subject.spec, "pooler"))
    pieces = {"packed_ids": inputs["padding_mask"] * np.array([1, 1, 1, 2, 2, 2, 3, 3, 3], "int32")}
    packed = {name: value for name, value in inputs.items() if name != "padding_mask"} | pieces
    every = encoder(packed)["sequence"]
    for given, whole in ((inputs, outputs["sequence"]), (packed, every)):
        for queries, picked in (("first", [[0]] * 3), (np.array([[4, 1], [0, 0], [6, 3]], "int32"), None)):
            if positions or picked:
                found = encoder(given, queries=queries)["sequence"]
                expected = np.take_along_axis(np.asarray(whole), np.array(picked or queries)[..., None], axis=1)
                assert relative(found, expected) < 1e-5
                assert found.shape == expected.shape
    short = {part: value[2:, :7] for part, value in inputs.items()}
    assert relative(encoder(short)["sequence"], outputs["sequence"][2:, :7]) < 1e-5
    other = inputs | {
        "token_ids": np.where(inputs["padding_mask"] == 1, inputs["token_ids"], inputs["token_ids"][0, 0])
    }
    np.testing.assert_array_equal(encoder(other)["sequence"][2, :7], outputs["sequence"][2, :7])
    counted = inputs | {"position_ids": np.tile(np.arange(9, dtype="int32"), (3, 1))}
    # rotations of [1, S] and of [B, S] places round differently
    assert relative(encoder(counted)["sequence"], outputs["sequence"]) < 1e-6


def check_adapted(subject: Subject, encoder: Encoder) -> None:
    """Every block hands what its sublayers give to `Block.adapted`, and goes on with what it gets back."""
    stacks = [encoder] if subject.family.has_blocks else []
    if not subject.family.one_stack and hasattr(encoder, "encoder_stack"):
        stacks = [encoder.encoder_stack, encoder.decoder_stack]
    if not stacks:
        return
    inputs, heard = subject.inputs(), set()
    plain = encoder(inputs)["sequence"]
    blocks = {id(block): block for stack in stacks for block in stack.blocks}.values()
    for block in blocks:

        def opposite(
            sublayer: str, y: Tensor, x: Tensor, context: Any, training: bool = False, block: Any = block
        ) -> Tensor:
            assert tuple(x.shape) in {(3, size, subject.spec.hidden) for size in (9, 7)}
            heard.add((block.path, sublayer))
            return -y

        block.adapted = opposite
    found = encoder(inputs)["sequence"]
    for block in blocks:
        del block.adapted
    counts = {block.path: len([path for path, _ in heard if path == block.path]) for block in blocks}
    silent = [block.path for block in blocks if counts[block.path] < 2 + hasattr(block, "cross_attention")]
    assert not silent, f"{silent} do not call self.adapted for each sublayer: no adapter would act there"
    assert relative(found, plain) > 1e-3


def check_bfloat16(
    subject: Subject, encoder: Encoder, program: Objective, batch: Values, compiled: bool = True
) -> None:
    """Half precision computes about the same, its pretraining losses too."""
    half = subject.encoder("mixed_bfloat16")
    found = half(subject.inputs())["sequence"]
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    assert relative(found, encoder(subject.inputs())["sequence"]) < 0.1
    rounded = subject.program(half)
    for one, other in zip(rounded.model.weights, program.model.weights, strict=True):
        one.assign(other)
    exact = total(program, batch).numpy()
    for on in (False, True)[: 1 + compiled]:
        with fusion(on):
            ours = total(rounded, batch).numpy()
        assert abs(ours - exact) < 0.05 * abs(exact), (ours, exact)


def total(program: Objective, batch: Values) -> tf.Tensor:
    """The loss that is differentiated: sum(scale * sum / count)."""
    counts = program.counts(batch)
    with random.scope(tf.constant([0, 0], tf.uint32), batch["row"]):
        sums = program.losses(batch, training=True)
    assert set(counts) <= set(sums)
    return sum(scale * sums[name] / counts[name] for name, scale in program.scales.items())


def check_gradients(subject: Subject, program: Objective, batch: Values, compiled: bool = True) -> None:
    """Every weight is trained by the family's own objective, but those that say they are not."""
    variables = {name: weight.value for name, weight in names(program.model).items() if weight.trainable}

    def differentiate(on: bool) -> dict[str, Tensor]:
        with fusion(on), tf.GradientTape() as tape:
            loss = total(program, batch)
        return dict(zip(variables, tape.gradient(loss, list(variables.values()))))

    gradients = differentiate(False)
    fused = differentiate(True) if compiled else gradients

    def dead(name: str) -> bool:
        # a key's bias adds one number to all scores of a query, which softmax does not see; without a question about
        # pairs nothing reads the pooler, or what the first token alone is made by
        if name.endswith(("key/bias", "key_global/bias")):
            return False
        alone = ("pooler/*", *getattr(program.model.encoder, "for_tasks", ()))
        if not PACKINGS[subject.objective.packing].feature and any(fnmatch.fnmatchcase(name, each) for each in alone):
            return False
        gradient = gradients[name]
        return gradient is None or not np.abs(tf.convert_to_tensor(gradient)).max() > 0

    assert [name for name in gradients if dead(name)] == []

    def differs(name: str) -> bool:
        one, other = (0.0 if g is None else tf.convert_to_tensor(g) for g in (gradients[name], fused[name]))
        return relative(other, one) > 1e-4

    # in the parts that CPU training compiles a weight may get no gradient, silently
    assert [name for name in gradients if differs(name)] == []


def check_saved(subject: Subject, encoder: Encoder, program: Objective) -> None:
    """A model directory gives back the same weights, tokenizer and answers, to the bit."""
    run = subject.folder / f"saved-{subject.family.name}"
    heads = program.model.heads
    save_model(run, encoder=encoder, name=subject.name, heads=heads, tokenizer=subject.tokenizer, replace=True)
    again, info = load_encoder(run)
    assert (info.family, info.spec) == (subject.family.name, subject.spec)
    mine, loaded = names(encoder), names(again)
    assert mine.keys() == loaded.keys()
    assert all((mine[name].value.numpy() == loaded[name].value.numpy()).all() for name in mine)
    assert again.tokenizer is not None
    assert again.tokenizer.pack("the happy cat") == subject.tokenizer.pack("the happy cat")
    np.testing.assert_array_equal(again(subject.inputs())["sequence"], encoder(subject.inputs())["sequence"])


def check_two_steps(program: Objective, batch: Values) -> None:
    """Two updates by the step core lower the loss of the batch."""
    from kerasbert.training.optimizers import adamw
    from kerasbert.training.step import StepCore

    with eagerly():
        core = StepCore(program, adamw(learning_rate=3e-3, steps=100), tf.distribute.get_strategy())
        losses = [float(core.step(batch)["loss"]) for _ in range(3)]
    assert np.isfinite(losses).all()
    assert losses[2] < losses[0], losses


def check_finetuning(name: str, folder: Path, run: Path) -> None:
    """A head learns a task in the tiny world."""
    subject = Subject(name, folder)
    files = {"train": world.labelled(folder / "train.tsv", 40), "dev": world.labelled(folder / "dev.tsv", 10, seed=1)}
    with eagerly():
        model = kb.finetune(
            subject.encoder(), "classification", files, out=run, steps=2, batch=20, length=16, quiet=True
        )
        answers = kb.predict(model, ["the happy cat", "a bad film"])
    assert {answer.label for answer in answers} <= {"neg", "pos"}
    assert model.spec == subject.family.settings_for(subject.spec, model.task.how.answers)
