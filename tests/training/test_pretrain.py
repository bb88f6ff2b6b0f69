"""Runs: resume, refuse, repeat."""

import json
import random
import signal
import time

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_tensors
from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.training.checkpoints import Checkpoints
from kerasbert.training.optimizers import LinearSchedule, adamw
from tests import tiny
from tests.support import forked, often, start

ARGUMENTS = {"steps": 12, "batch": 8, "learning_rate": 1e-3, "changes": tiny.SPEC, "quiet": True}


def weights(run):
    tensors = read_tensors(run)
    return {name: tensors.read(name) for name in tensors.names()}


def same(one, other) -> bool:
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pretrain")


@pytest.fixture(scope="module")
def data(folder):
    return tiny.records(folder)


@pytest.fixture(scope="module")
def run(folder, data):
    kb.pretrain("bert/tiny", data, out=folder / "run", **ARGUMENTS)
    return folder / "run"


def test_a_run_holds_a_model_directory_and_its_history(run, data):
    model = kb.load(run)
    assert model.spec.hidden == 16
    assert model.spec.embeddings.vocabulary == model.tokenizer.size == tiny.tokenizer().size
    assert model({"token_ids": np.ones((1, 5), "int32")})["sequence"].shape == (1, 5, 16)
    assert {"heads/mlm/bias", "heads/nsp/kernel"} <= weights(run).keys()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 12]
    assert {"loss", "mlm", "nsp", "mlm/accuracy", "gradient_norm", "learning_rate", "tokens_per_second"} <= lines[
        0
    ].keys()
    described = json.loads((run / "run.json").read_text())
    assert described["settings"]["data"] == kb_records(data).digest
    assert described["finished_steps"] == 12


def kb_records(data):
    from kerasbert.data import Records

    return Records(data)


@pytest.mark.slow
def test_the_loss_goes_down(folder, data):
    kb.pretrain(
        "bert/tiny", data, out=folder / "longer", **ARGUMENTS | {"steps": 80, "learning_rate": 1e-2, "warmup": 5}
    )
    losses = [json.loads(line)["mlm"] for line in (folder / "longer" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_a_rerun_is_the_same_to_the_bit_and_a_finished_one_is_left_alone(folder, data, run):
    kb.pretrain("bert/tiny", data, out=folder / "again", **ARGUMENTS)
    assert same(run, folder / "again")
    before = (folder / "again" / "weights.safetensors").stat().st_mtime_ns
    kb.pretrain("bert/tiny", data, out=folder / "again", **ARGUMENTS)
    assert (folder / "again" / "weights.safetensors").stat().st_mtime_ns == before


@pytest.mark.full
def test_stopped_anywhere_it_goes_on_to_the_same_weights(folder, data, run, monkeypatch):
    out = folder / "stopped"
    begin, calls = Checkpoints.begin, []

    def failing(self, step, groups, state):
        begin(self, step, groups, state)
        calls.append(step)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "begin", failing)
    with pytest.raises(KeyboardInterrupt):
        kb.pretrain("bert/tiny", data, out=out, save_every=4, **ARGUMENTS)
    monkeypatch.undo()
    with pytest.raises(InputError, match="holds an unfinished run"):
        kb.load(out)
    kb.pretrain("bert/tiny", data, out=out, save_every=4, **ARGUMENTS)
    assert calls == [4, 8]
    assert same(run, out)


@pytest.mark.slow
def test_a_damaged_checkpoint_falls_back_to_the_one_before(folder, data, run):
    out = folder / "damaged"
    kb.pretrain("bert/tiny", data, out=out, save_every=4, **ARGUMENTS)
    newest = out / "checkpoints" / "step_12" / "weights.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes(content)
    # the run died before it wrote down that it was finished
    (out / "run.json").write_text((out / "run.json").read_text().replace('"finished_steps": 12', '"finished_steps": 0'))
    with pytest.warns(UserWarning, match=r"step_12 is damaged \(weights.safetensors has another sha256\)"):
        kb.pretrain("bert/tiny", data, out=out, save_every=4, **ARGUMENTS)
    assert same(run, out)
    assert Checkpoints(out).latest().step == 12


def test_another_run_in_the_same_place_is_refused_by_field(folder, data, run):
    with pytest.raises(InputError, match="holds another run: learning_rate is 0.001 there, 0.01 asked for"):
        kb.pretrain("bert/tiny", data, out=run, **ARGUMENTS | {"learning_rate": 1e-2, "warmup": 1})
    (folder / "other").mkdir()
    (folder / "other" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="holds something that is not a run"):
        kb.pretrain("bert/tiny", data, out=folder / "other", **ARGUMENTS)


@pytest.mark.full
def test_steps_may_grow(folder, data):
    for steps in (4, 6):
        kb.pretrain("bert/tiny", data, out=folder / "grown", **ARGUMENTS | {"steps": steps})
    described = json.loads((folder / "grown" / "run.json").read_text())
    assert (described["settings"]["steps"], described["finished_steps"]) == (6, 6)
    assert (folder / "grown" / "checkpoints" / "step_6").is_dir()
    with pytest.raises(InputError, match="steps is 6 there, 5 asked for"):
        kb.pretrain("bert/tiny", data, out=folder / "grown", **ARGUMENTS | {"steps": 5})


def test_records_of_another_tokenizer_than_the_models_are_refused(folder, run):
    from kerasbert.data import write_records

    other = tiny.tokenizer()
    other = type(other)([*other.vocabulary[:-1], "##zz"])
    write_records([folder / "corpus.txt"], other, folder / "others", length=24)
    with pytest.raises(InputError, match="were made with another tokenizer"):
        kb.pretrain(run, folder / "others", out=folder / "never", steps=1, batch=8)


@pytest.mark.slow
def test_continued_pretraining_starts_from_the_weights(folder, data, run):
    kb.pretrain(
        run, data, out=folder / "continued", **{k: v for k, v in ARGUMENTS.items() if k != "changes"} | {"steps": 1}
    )
    before, after = weights(run), weights(folder / "continued")
    assert 0 < max(np.abs(before[name] - after[name]).max() for name in before) < 5e-3


@pytest.mark.slow
def test_full_sentences_have_no_next_sentence_head(folder):
    data = tiny.records(folder, "full")
    kb.pretrain("bert/tiny", data, out=folder / "full", **ARGUMENTS | {"steps": 2, "objective": {"static": 3}})
    assert "heads/nsp/kernel" not in weights(folder / "full")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1. Received: 0"),
        ({"warmup": 13}, r"warmup must be between 0 and steps \(12\). Received: 13"),
        ({"precision": "float64"}, "no precision 'float64'. Expected one of: float32"),
        ({"strategy": "cpu:x"}, "no strategy 'cpu:x'. Nearest: 'cpu'. Expected one of: auto, cpu, cpu:N"),
        ({"accumulate": 3}, "batch 8 is not a multiple of 3 micro-batches"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number of at least 0. Received: nan"),
        ({"changes": {"embeddings.positions": 8}}, "records have 24 tokens, the model 8 positions"),
        ({"changes": {"embeddings.vocabulary": 9}}, "the model has 9 token embeddings"),
        ({"objective": {"rate": 2}}, "masking rate 2"),
    ],
)
def test_bad_settings_leave_nothing(tmp_path, data, settings, text):
    with pytest.raises(InputError, match=text):
        kb.pretrain("bert/tiny", data, out=tmp_path / "run", **ARGUMENTS | settings)
    assert list(tmp_path.iterdir()) == []


def test_schedule_by_hand():
    schedule = LinearSchedule(1.0, steps=10, warmup=4)
    rates = [round(float(schedule(step)), 4) for step in range(11)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 0.8571, 0.7143, 0.5714, 0.4286, 0.2857, 0.1429, 0.0]


def test_adamw_by_hand_decays_matrices_only():
    import keras

    kernel, bias = (keras.Variable(np.ones(1, "float32"), name=name) for name in ("kernel", "bias"))
    optimizer = adamw(learning_rate=0.1, steps=10**9, weight_decay=0.5)
    optimizer.build([kernel, bias])
    optimizer.apply([np.array([2.0], "float32")] * 2, [kernel, bias])
    # Adam's first update is the rate in the gradient's direction; the decay takes rate * 0.5 of the weight before it
    np.testing.assert_allclose(float(bias[0]), 1 - 0.1, atol=1e-5)
    np.testing.assert_allclose(float(kernel[0]), 1 - 0.1 * 0.5 - 0.1, atol=1e-5)


COMMAND = [
    "-m",
    "kerasbert.cli",
    "pretrain",
    "bert/tiny",
    "--batch",
    "8",
    "--steps",
    "400",
    "--save-every",
    "25",
]
COMMAND += ["--learning-rate", "1e-3", "--quiet", *(f"--set={path}={value}" for path, value in tiny.SPEC.items())]


@pytest.fixture(scope="module")
def whole(folder, data):
    """The run of COMMAND that nothing killed."""
    forked(*COMMAND, "--data", data, "--out", folder / "whole")
    return folder / "whole"


@pytest.mark.parametrize("name", often(["SIGKILL", "SIGTERM"], "SIGKILL"))
def test_killed_at_random_moments_the_same_command_ends_with_the_same_weights(folder, data, whole, name):
    out = folder / f"killed-{name}"
    draw, kills, statuses = random.Random(name), 0, []
    while not (out / "weights.safetensors").exists():
        process = start(*COMMAND, "--data", data, "--out", out)
        if kills < 4:
            # wait for the run to begin, so that the kill falls into training or saving
            wait_for(process, out, checkpoints=min(kills, 1) + 1)
            time.sleep(draw.random() * 0.6)
            process.send_signal(getattr(signal, name))
            kills += 1
        statuses.append(process.wait(timeout=300))
    # a SIGTERM before Python listens, in the first tenths of a second, ends the process as any other
    assert set(statuses[:-1]) <= ({-signal.SIGKILL, 0} if name == "SIGKILL" else {75, -signal.SIGTERM, 0})
    assert name == "SIGKILL" or 75 in statuses
    assert statuses[-1] == 0
    assert kills >= 2
    assert same(whole, out)


def wait_for(process, run, checkpoints, seconds=120):
    end = time.monotonic() + seconds
    while process.poll() is None and len(list(run.glob("checkpoints/step_*"))) < checkpoints and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_goes_on_with_the_masking_it_was_begun_with(tmp_path, data, monkeypatch):
    """A later version's default is another."""
    from kerasbert.objectives.bert import BertPretraining

    kb.pretrain("bert/tiny", data, out=tmp_path / "run", **ARGUMENTS | {"steps": 2})
    monkeypatch.setattr(BertPretraining, "defaults_of", classmethod(lambda cls, spec: {"rate": 0.25}))
    kb.pretrain("bert/tiny", data, out=tmp_path / "run", **ARGUMENTS | {"steps": 3})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["objective_settings"]["rate"] == 0.15
    with pytest.raises(InputError, match="objective_settings.rate is 0.15 there, 0.3 asked for"):
        kb.pretrain("bert/tiny", data, out=tmp_path / "run", **ARGUMENTS | {"objective": {"rate": 0.3}})


@pytest.mark.slow
def test_another_objective_is_recorded_and_compared(tmp_path, folder, run, data):
    """The span boundary objective on RoBERTa."""
    arguments = ARGUMENTS | {"steps": 2}
    full = tiny.records(folder, "full")
    kb.pretrain("roberta/base", full, out=tmp_path / "span", objective="spanbert", **arguments)
    settings = json.loads((tmp_path / "span" / "run.json").read_text())["settings"]
    assert (settings["objective"], settings["objective_settings"]["select"]) == ("spanbert", "spans")
    assert {"heads/sbo/places/table", "heads/mlm/bias"} <= weights(tmp_path / "span").keys()
    asked = {"name": "spanbert", "select": "spans"}
    kb.pretrain("roberta/base", full, out=tmp_path / "span", objective=asked, **arguments)
    with pytest.raises(InputError, match="objective is 'spanbert' there, 'masked_lm' asked for"):
        kb.pretrain("roberta/base", full, out=tmp_path / "span", **arguments)


@pytest.mark.full
def test_a_model_starts_from_another_of_the_same_encoder(tmp_path, folder, run, capsys):
    arguments = {name: value for name, value in ARGUMENTS.items() if name != "changes"} | {"steps": 1, "quiet": False}
    kb.pretrain("structbert/base", tiny.records(folder, "place"), init=run, out=tmp_path / "run", **arguments)
    assert f"structbert/base starts from the bert in {run}: their encoders are of one kind" in capsys.readouterr().err
    assert kb.load(tmp_path / "run").model_name == "structbert/base"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["objective"] == "structbert"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("electra/small", "holds a bert, expected electra/small: name its own model"),
        ("ernie/base", "holds a bert with .*, expected .* of ernie/base: name its own model"),
    ],
)
def test_a_model_of_another_kind_is_no_start(tmp_path, data, run, model, message):
    with pytest.raises(InputError, match=message):
        kb.pretrain(model, data, init=run, steps=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("electr", "no objective 'electr'. Nearest: 'electra'"),
        ("electra", "the objective electra needs a generator"),
        ({"rat": 0.1}, "the objective has no setting 'rat'. Nearest: 'rate'"),
        ({"name": "spanbert", "rate": "all"}, "rate must be float. Received: 'all'"),
    ],
)
def test_an_objective_that_cannot_be(tmp_path, data, objective, message):
    with pytest.raises(InputError, match=message):
        kb.pretrain("bert/tiny", data, objective=objective, out=tmp_path / "run", **ARGUMENTS)
    assert not (tmp_path / "run").exists()


def test_a_damaged_shard_stops_a_run_before_it_begins(tmp_path):
    """Behind the first block, where the size and the head of a shard tell nothing."""
    corpus = tiny.corpus(tmp_path / "corpus.txt", documents=100)
    write_records([corpus], tiny.tokenizer(), tmp_path / "records", length=16)
    shard = next((tmp_path / "records").glob("shard-*"))
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    assert Records(tmp_path / "records").shards[0].blocks > 1
    with pytest.raises(InputError, match=rf"{shard.name} is damaged: its sha256 .* Copy it again, or make the records"):
        kb.pretrain("bert/tiny", tmp_path / "records", out=tmp_path / "run", **ARGUMENTS)
    assert not (tmp_path / "run").exists()


def test_records_that_number_languages_otherwise_are_refused(tmp_path, monkeypatch):
    """Masked LM of ar, en, fr and translations of en, fr trained each other's vectors, with status 0."""
    from kerasbert.data import write_records

    lines = tiny.sentences(40, 0)
    for name in ("ar", "en", "fr"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(f"{line} {name[0]}" for line in lines))
    (tmp_path / "a.tsv").write_text("en\tfr\n" + "".join(f"{line}\t{line}\n" for line in lines))
    texts = {name: [tmp_path / f"{name}.txt"] for name in ("ar", "en", "fr")}
    tokenizer, made = tiny.tokenizer(), {}
    for name, table in (("mlm", None), ("other", None), ("same", {"ar": 0, "en": 1, "fr": 2})):
        tokenizer.languages = table
        settings = {"length": 24, "packing": "doc", "language_ids": True}
        if name != "mlm":
            settings = {"length": 24, "packing": "translations", "text_field": "en,fr"}
        files = texts if name == "mlm" else [tmp_path / "a.tsv"]
        made[name] = str(write_records(files, tokenizer, tmp_path / name, **settings).directory)
    settings = ARGUMENTS | {"steps": 2, "changes": tiny.SPEC | {"embeddings.languages": 3}}

    def run(name):
        phases = [{"data": made["mlm"], "steps": 1}, {"data": made[name]}]
        kb.pretrain("xlm/mlm-tlm-xnli15-1024", made["mlm"], out=tmp_path / "run", phases=phases, **settings)

    with pytest.raises(
        InputError, match=r"other number en 0, fr 1; .*mlm has ar where they have en\. Make all of a run's"
    ):
        run("other")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("kerasbert.training.pretrain.find_strategy", None)  # what comes behind the checks
    with pytest.raises(TypeError):
        run("same")
