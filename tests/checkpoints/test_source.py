"""What a model may be named by: a directory, a checkpoint of a run, a folder of others."""

import json
import shutil

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import mobile
from kerasbert.checkpoints import source
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.cli import main
from kerasbert.layers.naming import values
from tests import tiny
from tests.checkpoints.reference import CONFIG, random_tensors, write_hf
from tests.support import forked, python

QUIET = {"quiet": True, "log_every": 1}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return tiny.records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def cut(records, tmp_path_factory):
    """A pretraining run that ended early: checkpoints of the updates 2 and 4, no model."""
    run = tmp_path_factory.mktemp("cut") / "run"
    settings = {"batch": 8, "learning_rate": 1e-2, "changes": tiny.SPEC, "save_every": 2, "seed": 3} | QUIET
    kb.pretrain("bert/tiny", records, steps=4, out=run, optimizer_options={"ema": 0.5}, **settings)
    (run / "weights.safetensors").rename(run.parent / "finished.safetensors")
    content = json.loads((run / "run.json").read_text())
    del content["finished_steps"]
    (run / "run.json").write_text(json.dumps(content))
    return run


def test_a_checkpoint_of_an_unfinished_run_is_a_model(cut):
    """Of the last update: what the finished run left, the moving average of the weights."""
    model, finished = kb.load(f"{cut}@4"), Safetensors(cut.parent / "finished.safetensors")
    assert model.tokenizer.digest() == tiny.tokenizer().digest()
    for name, value in values(model).items():
        np.testing.assert_array_equal(value, finished.read(name), err_msg=name)
    earlier, raw = values(kb.load(f"{cut}@2")), Safetensors(cut / "checkpoints" / "step_4" / "weights.safetensors")
    assert all(
        (earlier[name] != finished.read(name)).any() for name in ("pooler/bias", "block_0/feedforward/inner/kernel")
    )
    assert (raw.read("pooler/bias") != finished.read("pooler/bias")).any()  # without the average


@pytest.mark.slow
def test_it_is_taken_by_every_stage(cut, records, tmp_path):
    assert source.directory(f"{cut}@last").name == "model"
    kb.export_checkpoint(f"{cut}@4", tmp_path / "hf")
    assert (tmp_path / "hf" / "model.safetensors").is_file()
    more = kb.pretrain("bert/tiny", records, steps=1, out=tmp_path / "more", init=f"{cut}@4", batch=8, **QUIET)
    assert more.spec == kb.load(f"{cut}@4").spec
    assert kb.encode(f"{cut}@2", ["the cat"]).shape == (1, 16)
    report = mobile.compress(
        f"{cut}@4", out=tmp_path / "cat.tflite", texts=["the cat", "a dog"], lengths=[8], min_agreement=0
    )
    assert report["texts"] == 2


def test_a_step_that_is_not_there_and_a_run_without_a_model(cut, tmp_path):
    with pytest.raises(kb.InputError, match=r"run has no checkpoint of step 3\. It has 2, 4$"):
        kb.load(f"{cut}@3")
    with pytest.raises(kb.InputError, match=r"run@x: 'x' is no step, expected RUN@STEP or RUN@last"):
        kb.load(f"{cut}@x")
    with pytest.raises(
        kb.InputError, match=r"unfinished run: .*, or take a checkpoint of it: .*run@4 \(there are 2, 4\)$"
    ):
        kb.load(cut)
    with pytest.raises(kb.InputError, match=r"no run nowhere, expected the directory of one before the @"):
        kb.load("nowhere@4")


def test_a_damaged_checkpoint_is_not_a_model(cut, tmp_path):
    for name in ("weights.safetensors", "optimizer.safetensors"):
        run = shutil.copytree(cut, tmp_path / name)
        file = run / "checkpoints" / "step_4" / name
        blob = bytearray(file.read_bytes())
        blob[-5] ^= 1
        file.write_bytes(blob)
        with pytest.raises(kb.InputError, match=rf"{name} is damaged \(another sha256\): take another checkpoint"):
            kb.load(f"{run}@4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Hugging Face folder of a masked LM, which has no pooler, with the tiny tokenizer."""
    from tests.checkpoints.reference import hf_shapes

    tokenizer = tiny.tokenizer()
    shapes = {
        name: (tokenizer.size if 13 in shape[:1] else shape[0], *shape[1:]) for name, shape in hf_shapes().items()
    }
    shapes = {name: shape for name, shape in shapes.items() if "pooler" not in name and "seq_" not in name}
    config = CONFIG | {"architectures": ["BertForMaskedLM"], "vocab_size": tokenizer.size}
    return write_hf(tmp_path_factory.mktemp("hf"), random_tensors(shapes), config, list(tokenizer.vocabulary))


def test_a_hugging_face_folder_is_a_model(folder, tmp_path, capsys):
    expected = values(kb.import_checkpoint(folder))
    model = kb.load(folder)
    assert all((value == expected[name]).all() for name, value in values(model).items())
    lines = [line for line in capsys.readouterr().err.splitlines() if "Hugging Face folder" in line]
    assert lines == [f"{folder} is a Hugging Face folder: read as bert (kerasbert import keeps it)"]
    assert kb.encode(folder, ["the cat"]).shape == (1, 6)
    kb.export_checkpoint(folder, tmp_path / "tf1", "tf1")
    made = source.directory(folder)
    assert made == source.directory(folder) == source.directory(made)  # converted once; a model directory is itself


@pytest.mark.slow
def test_fine_tuning_a_folder_makes_the_pooler_that_others_ask_for(folder, tmp_path, capsys):
    """As transformers does: without one no classifier could be written for it."""
    data = {"train": tiny.labelled(tmp_path / "train.tsv", 40), "dev": tiny.labelled(tmp_path / "dev.tsv", 20, seed=1)}
    settings = {"steps": 2, "batch": 8, "length": 9, "log_every": 1}
    model = kb.finetune(folder, "classification", data, out=tmp_path / "run", **settings)
    assert "the model has no pooler (a masked LM has none): a new one starts at random" in capsys.readouterr().err
    assert model.spec.pooler
    kb.export_checkpoint(tmp_path / "run", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    with pytest.raises(kb.InputError, match="holds another run"):
        kb.finetune(folder, "classification", data, out=tmp_path / "run", **settings | {"seed": 1})
    again = kb.finetune(folder, "classification", data, out=tmp_path / "again", **settings)
    assert all((value == values(model)[name]).all() for name, value in values(again).items())


@pytest.mark.full
def test_a_fine_tuning_that_was_begun_without_a_pooler_goes_on_without(folder, tmp_path):
    data = {"train": tiny.labelled(tmp_path / "train.tsv", 40), "dev": tiny.labelled(tmp_path / "dev.tsv", 20, seed=1)}
    settings = {"batch": 8, "length": 9, "quiet": True}
    kb.finetune(folder, "classification", data, out=tmp_path / "run", steps=2, **settings)
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    assert content["settings"].pop("pooler") == "new"
    del content["finished_steps"]
    path.write_text(json.dumps(content))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert not kb.finetune(folder, "classification", data, out=tmp_path / "run", steps=2, **settings).spec.pooler


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_name_that_is_no_folder(name, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # a port that nothing listens to
    for command in (
        ["encode", name, "x"],
        ["predict", name, "x"],
        ["export", name, "y"],
        ["export-checkpoint", name, "y"],
    ):
        assert main(command) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"error: no model directory {name}")
        assert "and the hub did not give it: " in line
        assert f"hf download {name} " in line


def test_a_folder_that_is_neither(tmp_path):
    with pytest.raises(
        kb.InputError, match=r"is no model directory \(no model.json\), expected a folder that kerasbert wrote"
    ):
        kb.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(kb.InputError, match=r"holds no model.safetensors"):
        kb.load(tmp_path)


def test_what_is_made_for_a_while_is_called_as_it_was_given(tmp_path, monkeypatch, capsys):
    """Errors named a temporary folder of ours in the place of the file that was given."""
    (tmp_path / "vectors.vec").write_text("2 3\ncat 1 0 0\nsat 0 1 0\n")
    monkeypatch.chdir(tmp_path)
    assert main(["export-checkpoint", "vectors.vec", "out", "--to", "hf"]) == 2
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert f"{tmp_path}/vectors.vec" in told
    assert "/model" not in told


def test_the_tokenizer_of_a_model_directory_is_taken(cut, tmp_path):
    (tmp_path / "corpus.txt").write_text("the cat sees\n\na dog runs\n")
    assert kb.load_tokenizer(cut).digest() == kb.load_tokenizer(cut / "tokenizer").digest()
    assert main(["data", str(tmp_path / "corpus.txt"), "--tokenizer", str(cut), "--out", str(tmp_path / "r")]) == 0


@pytest.mark.slow
def test_a_folder_is_converted_before_a_device_is_touched(folder):
    """`finetune FOLDER --strategy cpu:2`: a CPU can be divided only before TensorFlow's first operation."""
    program = (
        "import sys, tensorflow as tf; from kerasbert.checkpoints import source; source.directory(sys.argv[1]); "
        "cpu, = tf.config.list_physical_devices('CPU'); "
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2); "
        "print(len(tf.config.list_logical_devices('CPU')))"
    )
    assert forked("-c", program, folder).stdout.strip() == "2"


def test_a_name_is_refused_without_tensorflow():
    program = (
        "import sys; from kerasbert.cli import main; "
        "print(main(['finetune', 'bert-bse', '--task', 'classification', '--data', '.', '--out', 'x']), "
        "sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    assert python("-c", program).stdout.strip() == "2 []"


@pytest.mark.parametrize("command", ["import {} --out x", "finetune {} --task glue/sst2 --data x --out y"])
def test_a_decoder_of_a_known_family_is_named_as_one(command, tmp_path, capsys):
    config = {"model_type": "modernbert-decoder", "architectures": ["ModernBertDecoderModel"]}
    write_hf(tmp_path, random_tensors({"a": (2,)}), config)
    assert main(command.format(tmp_path).split()) == 2
    assert "is of model_type 'modernbert-decoder': a decoder alone, no encoder" in capsys.readouterr().err
