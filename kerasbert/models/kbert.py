"""K-BERT: Enabling Language Representation with Knowledge Graph (Liu et al., 2019).

Differences from BERT, which it is in all else, its weights included: triples of a knowledge graph are inserted behind the
entities of a text, a sentence tree ("Knowledge layer", `text.tree`); a token's position is its place in the tree, the soft
position ("Embedding layer", figure 2); a token sees those of its own branch, and a branch and the entity it hangs on see each
other, the visible matrix ("Seeing layer", equation 3) in every layer ("Mask-Transformer").

The tree is built where the text is read, in Python, on a phone and in a SavedModel's graph, and comes as three numbers a token;
the matrix [B, S, S] is made of them in the network. A graph is read in fine-tuning alone, as in the paper, where K-BERT starts
from a BERT's weights; with an empty one it is BERT.

Differs: hidden scores get -100 (`visibility.HIDDEN`), equation 3 has minus infinity, the released code -10,000.
What the paper leaves open, and the released code does otherwise, stands in `text.knowledge` and `text.tree`.
"""

from collections.abc import Mapping

from kerasbert.inputs import BRANCHES, ENTITIES, POSITIONS, TEXT, Tensor
from kerasbert.layers import visibility
from kerasbert.models import bert
from kerasbert.models.bert import BERT
from kerasbert.registry import register


class Encoder(bert.Encoder):
    """BERT's encoder over sentence trees.

    Call: as its parent's, and position_ids, branch_ids, entity_ids, int [B, S]; without them every token is of the trunk.
    """

    without_tree = bert.Encoder  # whose weights it has

    def visible(self, inputs: Mapping[str, Tensor]) -> Tensor:
        seen = super().visible(inputs)
        if "branch_ids" not in inputs:
            return seen
        return visibility.both(seen, visibility.tree(inputs["branch_ids"], inputs["entity_ids"]))


KBERT = register(
    BERT.derive(
        "kbert",
        spec={},
        encoder=Encoder,
        inputs=(*TEXT, POSITIONS, BRANCHES, ENTITIES),
        paper="Liu et al., 2019, K-BERT: Enabling Language Representation with Knowledge Graph",
    )
)
