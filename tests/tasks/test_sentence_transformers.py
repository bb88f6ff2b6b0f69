"""A model as a SentenceTransformer: its vectors are those of `kb.encode`, and what takes one takes it."""

import abc
import asyncio
import copy
import pickle
import sys
import types

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.tasks import sentence_transformers
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskModel
from tests import tiny

TEXTS = ["the cat", "a dog sees", "", "river old old cat sees the dog"]
PROMPTS = {"query": "the film ", "document": "old "}


@pytest.fixture(scope="module")
def model():
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "mean", "prompts": PROMPTS}))
    model.build()
    return model


def test_without_the_library_one_line(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match="needs sentence-transformers .5 or later.: pip install sentence-transformers"):
        kb.sentence_transformer(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_its_vectors_are_those_of_encode(model, tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    theirs, options = kb.sentence_transformer(model), {"convert_to_numpy": True, "show_progress_bar": False}
    assert isinstance(theirs, library.SentenceTransformer)
    assert "sentence_transformers" in str(type(theirs))  # by which BERTopic knows one
    assert (theirs.get_sentence_embedding_dimension(), theirs.max_seq_length) == (16, 32)
    assert theirs.prompts == PROMPTS
    for name in (None, "query", "document"):
        wanted = kb.encode(model, TEXTS, prompt_name=name)
        np.testing.assert_allclose(theirs.encode(TEXTS, prompt_name=name, batch_size=2, **options), wanted, atol=1e-6)
    np.testing.assert_allclose(theirs.encode_query(TEXTS), kb.encode(model, TEXTS, prompt_name="query"), atol=1e-6)
    np.testing.assert_allclose(theirs.encode(TEXTS, prompt="a "), kb.encode(model, TEXTS, prompt="a "), atol=1e-6)
    whole = kb.encode(model, TEXTS)
    units = whole / np.linalg.norm(whole, axis=-1, keepdims=True)
    np.testing.assert_allclose(theirs.encode(TEXTS, normalize_embeddings=True), units, atol=1e-6)
    np.testing.assert_allclose(theirs.encode(TEXTS, truncate_dim=3), whole[:, :3], atol=1e-6)
    np.testing.assert_allclose(theirs.similarity(whole, whole), units @ units.T, atol=1e-6)
    assert theirs.encode(TEXTS, convert_to_tensor=True).dtype == torch.float32
    assert theirs.encode("the cat").shape == (16,)
    query = kb.encode(model, ["the cat"], prompt_name="query")[0]
    np.testing.assert_allclose(theirs.embed_query("the cat"), query, atol=1e-6)
    documents = kb.encode(model, TEXTS, prompt_name="document")
    np.testing.assert_allclose(theirs.embed_documents(TEXTS), documents, atol=1e-6)
    theirs.max_seq_length = 4
    np.testing.assert_allclose(theirs.encode(TEXTS), kb.encode(model, TEXTS, length=4), atol=1e-6)
    with pytest.raises(InputError, match="is not saved: kerasbert export-checkpoint RUN FOLDER --to sentence_trans"):
        theirs.save_pretrained(str(tmp_path / "out"))
    first = kb.sentence_transformer(model.encoder, pooling="first+max", length=8)
    assert (first.get_sentence_embedding_dimension(), first.max_seq_length) == (32, 8)
    settings = {"pooling": "first+max", "length": 8}
    np.testing.assert_allclose(first.encode(TEXTS), kb.encode(model.encoder, TEXTS, **settings), atol=1e-6)
    wanted = kb.encode(model.encoder, ["a " + text for text in TEXTS], **settings)
    np.testing.assert_allclose(first.encode(TEXTS, prompt="a "), wanted, atol=1e-6)
    kept = TaskModel(model.encoder, Task("v", "vector", options={"prompts": PROMPTS, "include_prompt": False}))
    kept.build()
    wanted = kb.encode(kept, TEXTS, prompt_name="document")
    found = kb.sentence_transformer(kept).encode(TEXTS, prompt_name="document")
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_vectors_of_tokens_and_what_it_does_not_do(model, tmp_path):
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("sentence_transformers")
    theirs = kb.sentence_transformer(model)
    tokens = theirs.encode(TEXTS, output_value="token_embeddings", batch_size=2)
    assert [len(each) for each in tokens] == [4, 5, 2, 9]
    means = np.stack([each.mean(0).numpy() for each in tokens])
    np.testing.assert_allclose(means, kb.encode(model, TEXTS, prompt_name=""), atol=1e-6)
    alone = theirs.encode("cat", prompt="old ", output_value="token_embeddings")
    np.testing.assert_allclose(alone.numpy().mean(0), kb.encode(model, ["old cat"], prompt_name="")[0], atol=1e-6)
    assert theirs.tokenizer(TEXTS[:2])["input_ids"] == [[2, *model.tokenizer.encode(text), 3] for text in TEXTS[:2]]
    refused = {
        "output_value is None, expected one of sentence_embedding": lambda: theirs.encode(TEXTS, output_value=None),
        "output_value is 'x'": lambda: theirs.encode_query(TEXTS, None, None, 2, False, "x"),
        "processing_kwargs is of a processor": lambda: theirs.encode(TEXTS, processing_kwargs={"text": {}}),
        "received torch.float16 on cpu": theirs.half,
        "received torch.bfloat16": lambda: theirs.to(torch.bfloat16),
        "on meta": lambda: theirs.encode(TEXTS, device="meta"),
        "include_prompt=False is no setting": lambda: theirs.set_pooling_include_prompt(False),
        "which others do not train: kerasbert finetune": theirs.train,
        "is not saved": lambda: theirs.save(str(tmp_path / "out")),
        "of a loaded model is not pickled": lambda: pickle.dumps(theirs),
    }
    for line, call in refused.items():
        with pytest.raises(InputError, match=line):
            call()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_copy_and_a_pickle_have_what_was_set(model, tmp_path):
    pytest.importorskip("sentence_transformers")
    kb.save(model, tmp_path / "run")
    theirs = kb.sentence_transformer(tmp_path / "run")
    theirs.max_seq_length, theirs.truncate_dim, theirs.prompts["mine"] = 4, 3, "a "
    for other in (copy.deepcopy(theirs), pickle.loads(pickle.dumps(theirs)), copy.deepcopy(copy.copy(theirs))):
        np.testing.assert_array_equal(other.encode(TEXTS, prompt_name="mine"), theirs.encode(TEXTS, prompt_name="mine"))
        assert other.model_card_data.model_name == "kerasbert/run"
    pool = theirs.start_multi_process_pool(["cpu"])
    try:
        np.testing.assert_allclose(theirs.encode(TEXTS, pool=pool), theirs.encode(TEXTS), atol=1e-6)
    finally:
        theirs.stop_multi_process_pool(pool)


class Embeddings(abc.ABC):
    """What langchain-core 1.8 has under this name, which is not among the packages of the tests."""

    @abc.abstractmethod
    def embed_documents(self, texts): ...

    @abc.abstractmethod
    def embed_query(self, text): ...

    async def aembed_query(self, text):
        return self.embed_query(text)


@pytest.mark.slow
def test_it_is_an_embeddings_of_langchain_where_that_is_installed(model, monkeypatch):
    pytest.importorskip("sentence_transformers")
    assert not isinstance(kb.sentence_transformer(model), Embeddings)
    for name in ("langchain_core", "langchain_core.embeddings"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "Embeddings", Embeddings, raising=False)
    for kept in ("_embeddings", "_vectors"):  # without what other tests asked for
        monkeypatch.setattr(sentence_transformers, kept, getattr(sentence_transformers, kept).__wrapped__)
    theirs = kb.sentence_transformer(model)
    assert isinstance(theirs, Embeddings)
    assert asyncio.run(theirs.aembed_query("the cat")) == theirs.embed_query("the cat")
