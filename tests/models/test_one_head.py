"""Networks of one head: rows together are as each alone, which TensorFlow's product of several rows and one matrix is not."""

import numpy as np
import pytest

from kerasbert import registry

SIZE = {"hidden": 12, "attention.heads": 1, "attention.head_size": 6, "feedforward.width": 8, "dropout": 0.0}
SIZE |= {"embeddings.vocabulary": 40, "blocks.layers": 1}
FUNNEL = {"funnel.sizes": (1,), "funnel.blocks": 1, "funnel.decoder": 0}
REFORMER = {"reversible.kinds": ("lsh",), "embeddings.width": 6, "embeddings.positions": 16, "axial.shape": (4, 4)}
REFORMER |= {"lsh.chunk": 4, "lsh.buckets": (4,)}
FAMILIES = {
    "funnel": FUNNEL,
    "funnel, factorized": FUNNEL | {"funnel.attention": "factorized"},
    "reformer": REFORMER,
}


@pytest.mark.parametrize("case", FAMILIES)
def test_rows_together_are_as_each_alone(case):
    family = registry.family(case.partition(",")[0])
    encoder = family.encoder(family.spec.derive(SIZE | FAMILIES[case]))
    ids = np.random.default_rng(0).integers(5, 40, (3, 12)).astype("int32")
    given = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    if case != "reformer":
        given["segment_ids"] = np.zeros_like(ids)
    together = np.asarray(encoder(given)["sequence"])
    alone = encoder({name: value[2:] for name, value in given.items()})["sequence"]
    np.testing.assert_allclose(together[2], np.asarray(alone)[0], atol=1e-5)
