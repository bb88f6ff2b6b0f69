"""Late interaction and sparse vectors beside sentence-transformers' MultiVectorEncoder and SparseEncoder: vectors, losses."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.task import find_task
from tests import tiny
from tests.checkpoints.theirs import parity
from tests.support import ROOT, forgotten
from tests.tasks.test_parity_sentence_losses import check, save, setting, updates
from tests.training.test_loss_parity import SIZES

WIDTH = 16


def program(name, folder, **options):
    """Our task over their encoder."""
    registry.load_plugin(ROOT / "tests" / "plugins" / f"{name}.py")
    return TaskObjective(kb.import_checkpoint(folder), find_task(name).optioned(options))


@parity
def test_late_interaction_is_their_multi_vector_encoder(tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    save(tmp_path)
    about = {"bias": False, "activation_function": None, "module_input_name": "token_embeddings"}
    dense = Dense(SIZES["hidden_size"], WIDTH, **about)
    norm = Normalize("token_embeddings")
    model = MultiVectorEncoder(modules=[Transformer(str(tmp_path)), dense, norm, MultiVectorMask()], device="cpu")
    with forgotten():
        ours = program("late_interaction", tmp_path, dense=[{"width": WIDTH, "activation": "", "bias": False}])
        kernel = next(v for v in ours.model.variables if v.path.endswith("heads/dense_1/kernel"))
        kernel.assign(dense.linear.weight.detach().numpy().T)
        texts = tiny.sentences(12, 5)
        found = [answer.values for answer in kb.predict(ours.model, texts)]
        expected = model.encode(texts, convert_to_numpy=True)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        scores = ours.kind.answers.compare(found[:3], found[3:])
        np.testing.assert_allclose(scores, model.similarity(expected[:3], expected[3:]), atol=1e-4)
        _, inputs, targets = setting("ranking")
        check(updates(ours, model.train(), MultiVectorMultipleNegativesRankingLoss(model), inputs, targets))


@parity
def test_sparse_vectors_are_those_of_their_sparse_encoder(tmp_path):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder import losses, modules

    save(tmp_path, "BertForMaskedLM")
    transformer = modules.MLMTransformer(str(tmp_path))
    model = SparseEncoder(modules=[transformer, modules.SpladePooling("max")], device="cpu")
    with forgotten():
        ours = program("sparse", tmp_path, scale=0.05, query_flops=0.01, document_flops=0.02)
        head = kb.load(tmp_path, task="fill-mask").heads["mlm"]
        for own, read in zip(ours.model.heads["mlm"].weights, head.weights, strict=True):
            own.assign(read)
        texts = tiny.sentences(12, 5)
        found = kb.predict(ours.model, texts)
        expected = model.encode(texts, convert_to_tensor=False, convert_to_sparse_tensor=False)
        pieces = transformer.tokenizer.convert_ids_to_tokens(range(len(expected[0])))
        for answer, other in zip(found, expected, strict=True):
            other = {piece: float(x) for piece, x in zip(pieces, other) if x > 0}
            assert answer.weights == pytest.approx(other, abs=1e-5)
        loss = losses.SparseMultipleNegativesRankingLoss(model, scale=0.05)
        whole = losses.SpladeLoss(model, loss, 0.02, 0.01)
        _, inputs, targets = setting("ranking")
        check(updates(ours, model.train(), whole, inputs, targets))
