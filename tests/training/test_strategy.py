"""Strategies by name, the TPU's client replaced by a fake, and what is checked before a device is asked for."""

import glob
import inspect
import json
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.layers import backend
from kerasbert.spec import Spec
from kerasbert.training import chips, multiworker, preflight
from kerasbert.training.runs import open_run
from kerasbert.training.strategy import Place, check_devices, described, parse, resolve, strategy
from tests import tiny
from tests.support import forked, often

TF_CONFIG = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}


@pytest.fixture
def tpu(monkeypatch):
    """A client that writes down what it is asked for, and fails where `.error` is set."""
    calls = []
    fake = SimpleNamespace(calls=calls, error=None)

    def resolver(tpu, zone):
        calls.append(("resolve", tpu, zone))
        if fake.error:
            raise fake.error
        return "resolver"

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda found: calls.append(("connect", found)))
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda found: calls.append(("initialize", found)))
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda found: ("strategy", found))
    return fake


def test_a_tpu_by_name_is_connected(tpu):
    assert strategy("tpu:mine@us-west4-a") == ("strategy", "resolver")
    assert tpu.calls == [("resolve", "mine", "us-west4-a"), ("connect", "resolver"), ("initialize", "resolver")]


def test_layers_are_told_the_kind_of_a_connected_tpu(tpu, monkeypatch):
    monkeypatch.setattr(backend, "_chips", [None])
    monkeypatch.setattr(chips, "metadata", {"attributes/accelerator-type": "v5litepod-4"}.get)
    strategy("tpu:local")
    assert backend.tpu_chip() == "v5e"


def test_the_tpu_of_this_machine_is_not(tpu):
    assert strategy("tpu:local") == ("strategy", "resolver")
    assert tpu.calls == [("resolve", "local", None), ("initialize", "resolver")]


def test_a_tpu_out_of_reach(tpu):
    tpu.error = ValueError("Could not find mine\nmore of it")
    with pytest.raises(InputError, match="^cannot reach TPU 'mine': Could not find mine. Check its name and zone"):
        strategy("tpu:mine")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("cpu", Place("cpu", 1)),
        ("gpu:4", Place("gpu", 4)),
        ("tpu:local", Place("tpu", None, "local")),
        ("tpu:pod-7@us-west4-a", Place("tpu", None, "pod-7", "us-west4-a")),
    ],
)
def test_names(name, place):
    assert parse(name) == place
    assert place.remote == (name.startswith("tpu:pod"))


@pytest.mark.parametrize("name", ["", "cpu:0", "tpu", "tpu:", "tpu:x@", "gpus", "multi"])
def test_names_that_are_none(name):
    with pytest.raises(
        InputError, match="no strategy .* Expected one of: auto, cpu, cpu:N, gpu, gpu:N, tpu:local, tpu:NAME"
    ):
        parse(name)


@pytest.mark.parametrize(
    ("gpus", "name", "devices"), [(0, "cpu", None), (1, "gpu", "/gpu:0"), (2, "gpu:2", ["/gpu:0", "/gpu:1"])]
)
def test_auto_takes_the_gpus_that_are_there(monkeypatch, gpus, name, devices):
    """No GPU was ever there: TensorFlow's list of devices is replaced."""
    listed = {"GPU": [f"GPU:{i}" for i in range(gpus)], "CPU": ["CPU:0"]}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: listed[kind])
    for kind in ("OneDeviceStrategy", "MirroredStrategy"):
        monkeypatch.setattr(tf.distribute, kind, lambda devices: devices)
    assert resolve("auto") == name
    found = strategy("auto")
    assert found == devices if gpus else found is tf.distribute.get_strategy()
    assert described(name) == f"training on {name}" + (" (TensorFlow sees no GPU)" if not gpus else "")
    assert (resolve("cpu:3"), described("cpu:3")) == ("cpu:3", "training on cpu:3")
    with pytest.raises(InputError, match="no strategy 'gpus'"):
        resolve("gpus")


def test_auto_is_the_default_everywhere():
    from kerasbert.mobile.distill import distill
    from kerasbert.mobile.pipeline.plan import Plan

    for function in (kb.pretrain, kb.finetune, distill, Plan, strategy):
        names = inspect.signature(function).parameters
        assert names["strategy" if "strategy" in names else "name"].default == "auto"


def test_another_place_is_no_other_run(tmp_path, capsys):
    open_run(tmp_path / "run", "pretrain", {"steps": 3}, strategy="cpu")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["strategy"] == "cpu"
    open_run(tmp_path / "run", "pretrain", {"steps": 3}, strategy="gpu:2")
    assert capsys.readouterr().err == f"{tmp_path / 'run'} was begun on cpu: on gpu:2 the rounding differs\n"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["strategy"] == "gpu:2"
    open_run(tmp_path / "old", "pretrain", {"steps": 3})  # of before
    open_run(tmp_path / "old", "pretrain", {"steps": 3}, strategy="cpu")
    assert capsys.readouterr().err == ""


PRECISIONS = """
import sys
from pathlib import Path
import numpy as np
import kerasbert as kb
from kerasbert.training.checkpoints import Checkpoints
from tests import tiny
from tests.training.test_pretrain import weights
folder, data, strategy = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
save = Checkpoints.save
def dying(self, step, groups, state):
    save(self, step, groups, state)
    raise RuntimeError("killed")
for precision in ("mixed_bfloat16", "mixed_float16"):  # float32: tests/training/test_pretrain.py
    def run():
        kb.pretrain("bert/tiny", data, out=folder / precision, steps=4, batch=8, save_every=2, precision=precision,
                    strategy=strategy, changes=tiny.SPEC | {"blocks.layers": 1}, learning_rate=1e-3, quiet=True)
    Checkpoints.save = dying
    try:
        run()
    except RuntimeError as error:
        assert str(error) == "killed"
    Checkpoints.save = save
    found = Checkpoints(folder / precision).latest()
    assert 2 <= found.step < 4, found
    scale = found.state["scale"]
    assert (scale is None) == (precision != "mixed_float16"), scale
    assert scale is None or 1 <= scale[0] <= 2**24, scale
    run()
    assert all(np.isfinite(value).all() for value in weights(folder / precision).values())
"""


@pytest.mark.parametrize("name", often(["cpu", "cpu:2"], "cpu"))
def test_every_precision_saves_and_goes_on(tmp_path, name):
    """On two replicas the loss scale is a variable of both, which `float` does not take."""
    forked("-c", PRECISIONS, tmp_path, tiny.records(tmp_path), name)


def test_a_zone_of_this_machine():
    with pytest.raises(InputError, match="names a zone for this machine's own TPU: leave out @us-west4-a"):
        parse("tpu:local@us-west4-a")


def test_workers_come_from_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(TF_CONFIG))
    assert multiworker.cluster() == multiworker.Cluster(("a:1", "b:2"), 1)
    assert parse("multiworker") == Place("multiworker", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "strategy 'multiworker' needs the environment variable TF_CONFIG on every machine"),
        ("{", "TF_CONFIG is not understood"),
        ("{}", "TF_CONFIG is not understood .KeyError: 'cluster'"),
        (json.dumps(TF_CONFIG | {"task": {"type": "worker", "index": 2}}), "another role or index"),
        (json.dumps(TF_CONFIG | {"task": {"type": "chief", "index": 0}}), "another role or index"),
    ],
)
def test_a_bad_tf_config(monkeypatch, text, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError, match=message):
        parse("multiworker")


def test_finetune_is_for_one_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", json.dumps(TF_CONFIG))
    files = {"train": tiny.labelled(tmp_path / "train.tsv"), "dev": tiny.labelled(tmp_path / "dev.tsv")}
    with pytest.raises(InputError, match="^finetune runs on one machine: choose another --strategy"):
        kb.finetune(tmp_path, "classification", files, out=tmp_path / "run", strategy="multiworker")


def check(strategy, data="gs://texts/128", out="gs://texts/run", batch=256, accumulate=1):
    return preflight.preflight(strategy, data=[data], out=out, batches=[(batch, accumulate)])


@pytest.fixture
def elsewhere(monkeypatch):
    """No Google Cloud: neither metadata nor gcloud."""
    for module in (chips, preflight):
        monkeypatch.setattr(module, "metadata", lambda name: None)
    monkeypatch.setattr(preflight, "bucket_location", lambda name: None)


@pytest.mark.parametrize("paths", [{"data": "/records"}, {"out": "runs/bert"}, {"out": "s3://texts/run"}])
def test_a_remote_tpu_cannot_read_this_machine(tpu, elsewhere, paths):
    ((kind, path),) = paths.items()
    with pytest.raises(InputError, match=f"^{kind} {path} is a path of this machine, and the hosts of 'tpu:mine' read"):
        check("tpu:mine", **paths)
    assert not tpu.calls
    assert check("tpu:local", **paths) == Place("tpu", None, "local")


def test_pretrain_refuses_before_anything_is_connected(tpu, tmp_path):
    with pytest.raises(InputError, match="is a path of this machine, and the hosts of 'tpu:mine' read"):
        kb.pretrain("bert/tiny", tiny.records(tmp_path), steps=3, out="gs://texts/run", strategy="tpu:mine")
    assert not tpu.calls


def test_a_bucket_elsewhere_is_told_of(monkeypatch):
    monkeypatch.setattr(preflight, "bucket_location", {"gs://texts": "US-EAST1"}.get)
    with pytest.warns(UserWarning, match="gs://texts is in us-east1 and the TPU in us-west4"):
        check("tpu:mine@us-west4-a")


@pytest.mark.parametrize(
    ("location", "zone", "warns"),
    [
        ("US-WEST4", "us-west4-a", False),
        ("US", "us-west4-a", False),
        ("EU", "europe-west4-b", False),
        ("EU", "us-west4-a", True),
        ("EUROPE-WEST1", "europe-west4-b", True),
        (None, "us-west4-a", False),
        ("US-EAST1", None, False),
    ],
)
def test_regions(location, zone, warns):
    assert bool(preflight.region_warning("gs://texts", location, zone)) == warns


def test_the_place_of_a_bucket_is_asked_of_gcloud(monkeypatch, tmp_path):
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(
        '#!/bin/sh\n[ "$*" = "storage buckets describe gs://texts --format=value(location)" ] && echo US-EAST1\n'
    )
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert preflight.bucket_location("gs://texts") == "US-EAST1"
    assert preflight.bucket_location("gs://others") is None


@pytest.mark.parametrize(
    ("name", "batch", "accumulate", "message"),
    [
        ("cpu:3", 256, 1, r"batch 256 is not a multiple of 3 replica\(s\) x 1 micro-batch"),
        ("cpu:2", 6, 2, r"batch 6 is not a multiple of 2 replica\(s\) x 2 micro-batch"),
    ],
)
def test_a_batch_that_cannot_be_divided(name, batch, accumulate, message):
    with pytest.raises(InputError, match=message):
        check(name, batch=batch, accumulate=accumulate)


def test_memory_follows_the_compilers_figures():
    # BERT-base with heads, bfloat16, on v5e: 1.23 GB of state, temporaries 1.03 GB at 32 x 128 and 3.95 GB at 128 x 128
    small, large = (preflight.estimate_hbm(Spec(), 110_104_890, rows, 128) for rows in (32, 128))
    assert small["state"] == pytest.approx(1.23, abs=0.01)
    assert small["temporaries"] == pytest.approx(1.03, rel=0.1)
    assert large["temporaries"] == pytest.approx(3.95, rel=0.1)
    assert preflight.hbm_warning(large, "v5e") is None
    assert preflight.hbm_warning(large, None) is None


def test_too_much_memory_is_told_of(monkeypatch):
    monkeypatch.setattr(preflight, "metadata", {"attributes/accelerator-type": "v5litepod-4"}.get)
    with pytest.warns(
        UserWarning, match="a replica on v5e has 15.75: lower --batch or raise --accumulate. `kerasbert check"
    ):
        preflight.warn_of_memory(parse("tpu:local"), Spec(), 110_104_890, 1024, 128, True)
    preflight.warn_of_memory(parse("tpu:local"), Spec(), 110_104_890, 32, 128, True)
    preflight.warn_of_memory(parse("cpu"), Spec(), 110_104_890, 1024, 128, True)


@pytest.mark.slow
def test_the_command_line_refuses_in_one_line(tmp_path):
    command = ["-m", "kerasbert.cli", "pretrain", "bert/tiny", "--data", tmp_path, "--steps", "2", "--out", "run"]
    done = forked(*command, "--strategy", "tpu:mine", check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: data {tmp_path} is a path of this machine")


def test_gpus_are_counted_by_their_files_before_tensorflow_is_imported(monkeypatch):
    there: list[str] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(
        glob, "glob", lambda pattern: [path for path in there if path.startswith(pattern.partition("[")[0])]
    )
    for name in ("gpu", "gpu:2"):
        with pytest.raises(
            InputError, match=rf"strategy '{name}' needs \d GPU\(s\), this machine has 0: take auto or cpu"
        ):
            check_devices(name)
    for name in ("auto", "cpu:9", "tpu:local", "multiworker"):
        check_devices(name)
    there += ["/dev/nvidia0", "/dev/nvidia1"]
    check_devices("gpu:2")
    with pytest.raises(InputError, match="needs 3 GPU.s., this machine has 2"):
        check_devices("gpu:3")
    there[:] = ["/dev/kfd"]  # another maker's, which TensorFlow alone can count
    check_devices("gpu:3")
