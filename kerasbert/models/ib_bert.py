"""IB-BERT, the teacher of MobileBERT (Sun et al., 2020, section 3.1, table 1): the same blocks, the bottleneck inverted.

Hugging Face has no such model; Google's code builds it from its own configuration.
"""

import dataclasses

from kerasbert.models.mobilebert import FIXED, MOBILEBERT, NAMES_IN_TF1, InvertedBottleneckBert
from kerasbert.registry import register

IB_BERT = register(
    MOBILEBERT.derive(
        "ib-bert",
        spec={
            "dropout": 0.1,
            "attention.dropout": None,
            "feedforward.width": 4096,
            "feedforward.activation": "gelu",
            "bottleneck.width": 1024,
            "bottleneck.key_query_shared": False,
            "bottleneck.networks": 1,
            "bottleneck.norm": "layer_norm",
        },
        sizes={"large": {}},
        aliases={},
        encoder=InvertedBottleneckBert,
        names={
            "tf1": dataclasses.replace(
                NAMES_IN_TF1, fixed=FIXED | {"classifier_activation": True, "normalization_type": "layer_norm"}
            )
        },
    )
)
