"""A third party's family in one file: BERT with an input of its own, visible_matrix [B, S, S], made of the segments.

A token of the first text sees the first alone, one of the second sees both (Dong et al., 2019, section 2.3: the mask of
their sequence-to-sequence objective, without its order). The file makes the input on a phone too.

kerasbert finetune DIR --plugin visible.py --task classification --text-b-column text_b --data FILE --out RUN
kerasbert-mobile run FILE "a text" "another" --plugin visible.py
"""

import numpy as np

from kerasbert import inputs
from kerasbert.registry import register

try:
    from kerasbert.models.bert import BERT
except ImportError:  # a phone has no Keras: it makes the input and knows no families
    BERT = None


def make(values):
    """With numpy: one row's segment_ids [S] -> int32 [S, S], 1 = the row's token may look at the column's."""
    segments = np.asarray(values["segment_ids"])
    return (segments[None, :] <= segments[:, None]).astype("int32")


def graph(batch):
    """The same of a batch in a graph: [B, S] -> [B, S, S]."""
    from keras import ops

    segments = batch["segment_ids"]
    return ops.cast(ops.expand_dims(segments, 1) <= ops.expand_dims(segments, 2), "int32")


MATRIX = inputs.register(inputs.Input("visible_matrix", "BSS", filled_by="maker", make=make, graph=graph))
if BERT is not None:
    paper = "Dong et al., 2019, Unified Language Model Pre-training for Natural Language Understanding and Generation"
    reads = {"inputs": (*inputs.TEXT, MATRIX), "names": {}, "aliases": {}}
    register(BERT.derive("visible", spec={}, sizes={"base": {}, "tiny": BERT.sizes["tiny"]}, paper=paper, **reads))
