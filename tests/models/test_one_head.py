"""Networks of one head: rows together are as each alone, which TensorFlow's product of several rows and one matrix is not."""

import numpy as np
import pytest

from kerasbert import registry

SIZE = {"hidden": 16, "attention.heads": 1, "attention.head_size": 6, "feedforward.width": 12, "dropout": 0.0}
SIZE |= {
    "embeddings.vocabulary": 40,
    "funnel.sizes": (1, 1),
    "funnel.blocks": 2,
    "blocks.layers": 2,
    "funnel.decoder": 1,
}
FAMILIES = {
    "funnel": {},
    "funnel, factorized": {"funnel.attention": "factorized"},
}


@pytest.mark.parametrize("case", FAMILIES)
def test_rows_together_are_as_each_alone(case):
    family = registry.family(case.partition(",")[0])
    encoder = family.encoder(family.spec.derive(SIZE | FAMILIES[case]))
    ids = np.random.default_rng(0).integers(5, 40, (3, 12)).astype("int32")
    given = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    together = np.asarray(encoder(given)["sequence"])
    for row in range(3):
        alone = encoder({name: value[row : row + 1] for name, value in given.items()})["sequence"]
        np.testing.assert_allclose(together[row], np.asarray(alone)[0], atol=1e-5)
