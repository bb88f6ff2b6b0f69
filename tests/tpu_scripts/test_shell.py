"""The shell scripts: their syntax, what they ask of gcloud and pip, and when a command is started again."""

import os
import signal
import subprocess
import time

import pytest

from tests.support import ROOT

SCRIPTS = ROOT / "tpu_scripts"
FAKE = '#!/usr/bin/env bash\nprintf "%q " "$@" >> "$RECORD"; echo >> "$RECORD"\n'


@pytest.fixture
def gcloud(tmp_path):
    """Runs a script with a gcloud that writes down its arguments; `fails` is a part of those that it fails for."""
    (tmp_path / "gcloud").write_text(FAKE + '[ -z "$FAILS" ] || [[ "$*" != *"$FAILS"* ]]\n')
    (tmp_path / "gcloud").chmod(0o755)

    def run(*arguments, fails="", **env):
        record = tmp_path / "record"
        record.write_text("")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(record), "FAILS": fails}
        done = subprocess.run(
            ["bash", SCRIPTS / "tpu.sh", *arguments],
            env=environment | {"ZONE": "us-west4-a"} | env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done, record.read_text().splitlines()

    return run


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.sh")))
def test_syntax(script):
    subprocess.run(["bash", "-n", SCRIPTS / script], check=True)
    assert os.access(SCRIPTS / script, os.X_OK)


def calls(done, lines):
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in lines]


def test_create(gcloud):
    assert calls(*gcloud("create", "mine", "v5litepod-16", "--spot")) == [
        "compute tpus tpu-vm create mine --zone us-west4-a --accelerator-type v5litepod-16 --version v2-alpha-tpuv5-lite --spot"
    ]
    (line,) = calls(*gcloud("create", "mine", "v4-8", PROJECT="p", VERSION="tpu-vm-tf-2.20.0-pod-pjrt"))
    assert line.endswith("--zone us-west4-a --project p --accelerator-type v4-8 --version tpu-vm-tf-2.20.0-pod-pjrt")


def test_queue(gcloud):
    assert calls(*gcloud("queue", "mine", "v6e-64")) == [
        "compute tpus queued-resources create mine --node-id mine --zone us-west4-a --accelerator-type v6e-64 "
        "--runtime-version v2-alpha-tpuv6e"
    ]
    assert calls(*gcloud("state", "mine")) == [
        r"compute tpus queued-resources describe mine --zone us-west4-a --format value\(state.state\)"
    ]


def test_setup_copies_the_scripts_and_the_wheel(gcloud):
    copy, enter = calls(*gcloud("setup", "mine", "dist/kerasbert-0.1.0-py3-none-any.whl"))
    assert copy == (
        f"compute tpus tpu-vm scp --recurse {SCRIPTS} dist/kerasbert-0.1.0-py3-none-any.whl mine: --zone us-west4-a --worker all"
    )
    assert enter == (
        "compute tpus tpu-vm ssh mine --zone us-west4-a --worker all --command "
        r"bash\ tpu_scripts/setup_vm.sh\ kerasbert-0.1.0-py3-none-any.whl"
    )


def test_ssh(gcloud):
    (line,) = calls(*gcloud("ssh", "mine", "python", "x.py"))
    assert line == r"compute tpus tpu-vm ssh mine --zone us-west4-a --worker 0 --command python\ x.py"


def test_delete(gcloud):
    queued = calls(*gcloud("delete", "mine"))
    assert queued[1] == "compute tpus queued-resources delete mine --zone us-west4-a --force --quiet"
    plain = calls(*gcloud("delete", "mine", fails="queued-resources describe"))
    assert plain[1] == "compute tpus tpu-vm delete mine --zone us-west4-a --quiet"


@pytest.mark.parametrize("arguments", [(), ("create",), ("create", "mine"), ("destroy", "mine")])
def test_usage(gcloud, arguments):
    done, lines = gcloud(*arguments)
    assert done.returncode == 2
    assert "tpu.sh create" in done.stderr
    assert not lines


def test_a_zone_is_needed_and_a_failure_is_passed_on(gcloud):
    done, lines = gcloud("create", "mine", "v4-8", ZONE="")
    assert done.returncode != 0
    assert "set ZONE" in done.stderr
    assert not lines
    assert gcloud("create", "mine", "v4-8", fails="create")[0].returncode == 1


def test_setup_vm_pins_what_works(tmp_path):
    python = tmp_path / "python"
    python.write_text(f"{FAKE}mkdir -p $3/bin; cp $0 $3/bin/pip; cp $0 $3/bin/python\n")
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python), "VENV": str(tmp_path / "venv"), "RECORD": str(tmp_path / "record")}
    done = subprocess.run(
        ["bash", SCRIPTS / "setup_vm.sh", "x.whl"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    lines = [line.strip() for line in (tmp_path / "record").read_text().splitlines()]
    assert lines[0] == f"-m venv {tmp_path / 'venv'}"
    assert lines[1:4] == [
        "install --upgrade pip",
        "install tensorflow-tpu==2.20.0 libtpu==0.0.14",
        r"install x.whl\[tpu\]",
    ]
    assert "TPU" in lines[4]
    assert done.stdout.startswith("ready: source ")


def until_done(tmp_path, statuses, **env):
    """Run a command that ends with these statuses, one after the other; returns the last and the number of starts."""
    (tmp_path / "left").write_text(" ".join(map(str, statuses)))
    command = 'read -r first rest < left; echo "$rest" > left; echo x >> starts; exit "$first"'
    done = subprocess.run(
        ["bash", SCRIPTS / "until_done.sh", "bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PAUSE": "0", **env},
        check=False,
        capture_output=True,
    )
    return done.returncode, (tmp_path / "starts").read_text().count("x")


@pytest.mark.parametrize(
    ("statuses", "expected"), [((0,), (0, 1)), ((75, 75, 0), (0, 3)), ((75, 2), (2, 2)), ((1, 0), (1, 1))]
)
def test_only_status_75_starts_it_again(tmp_path, statuses, expected):
    assert until_done(tmp_path, statuses) == expected


def test_it_gives_up(tmp_path):
    assert until_done(tmp_path, [75] * 9, TRIES="3") == (75, 3)


def test_a_signal_goes_to_the_command_and_ends_both(tmp_path):
    command = "trap 'sleep 0.3; echo saved > saved; exit 75' TERM; echo x >> starts; while :; do sleep 0.05; done"
    process = subprocess.Popen(["bash", SCRIPTS / "until_done.sh", "bash", "-c", command], cwd=tmp_path)
    deadline = time.monotonic() + 20
    while not (tmp_path / "starts").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 75
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert (tmp_path / "starts").read_text() == "x\n"


def test_a_signal_between_two_starts_ends_it(tmp_path):
    process = subprocess.Popen(
        ["bash", SCRIPTS / "until_done.sh", "bash", "-c", "echo x >> starts; exit 75"],
        cwd=tmp_path,
        env=os.environ | {"PAUSE": "0.5"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "going on from the last checkpoint" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 75
    process.stderr.close()
    assert (tmp_path / "starts").read_text() == "x\n"
