"""Semi-supervised Sequence Learning (Dai and Le, 2015): SA-LSTM and LM-LSTM.

- Section 2: a sequence autoencoder reads a text and writes it again from its last state; both networks are one LSTM with one
  table of words (`sequence_autoencoder`, figure 1).
- Section 3 (LM-LSTM): or the LSTM is a language model (`--objective recurrent_lm`, on records of `--packing stream`).
- Section 2: a classifier begins with the LSTM and the table, and reads the last state.
- Section 4: one layer of 1,024 units, vectors of 512 numbers; IMDB's texts.

The objectives' softmax has a table of its own, which a classifier does not need.

Differs: tokens are pieces; there is no linear gain (section 2: a label at every place, weighted from 0 to 1), no dropout of
words, and no joint training (section 4.1).
"""

from kerasbert.classics.layers.recurrent_encoder import RecurrentEncoder, RecurrentSpec, Words, flops, kept
from kerasbert.registry import Family, register


class SALSTM(RecurrentEncoder):
    """A table and LSTMs.

    Args and call: as RecurrentEncoder. Trainable weights: VE + 4H(E + H + 1) of one layer.
    """


SA_LSTM = register(
    Family(
        name="sa-lstm",
        spec=RecurrentSpec(hidden=1024, embeddings=Words(width=512)),  # pyright: ignore[reportArgumentType]  # no Spec
        sizes={"base": {}},
        encoder=SALSTM,
        readout="last",
        objective="sequence_autoencoder",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]  # of its own settings
        memory=kept,  # pyright: ignore[reportArgumentType]
        paper="Dai and Le, 2015, Semi-supervised Sequence Learning",
    )
)
