"""transformers' EncoderDecoderModel of two encoders of one kind: names and settings of both halves, of those of one."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import spec as specs
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.storage.json_view import Json, JsonMap

if TYPE_CHECKING:
    from kerasbert.models.bert2bert import Bert2BertSpec


class TwoBerts(Dialect):
    """Names of two halves, each with a configuration of its own."""

    by_file = ("share",)  # shared embeddings are written twice
    halves = ("encoder", "decoder")

    @property
    def _decoder(self) -> str:
        """What the names of the decoder's stack begin with."""
        return self.theirs("decoder/block_0/attention/query/bias")[0].partition("encoder.layer.")[0]

    def reads(self, config: JsonMap) -> bool:
        """Whether the encoder is of this family."""
        half = config.get("encoder")
        said = half.get("model_type") if isinstance(half, Mapping) else None
        kind = self.fixed["encoder.model_type"]  # a function of the configuration, `_settings`
        return callable(kind) and said == kind({"encoder.model_type": said})

    def write_config(self, config: Json, spec: "Bert2BertSpec") -> Json:
        """Whether transformers before 5 ties the halves."""
        return config | {"tie_encoder_decoder": spec.share == "all"}

    def originals(self, name: str) -> tuple[str, ...]:
        """Of the decoder's stack also the same of the encoder, which it may share."""
        found, decoder = super().originals(name), self._decoder
        return (*found, "encoder." + name.removeprefix(decoder)) if name.startswith(decoder) else found

    def copied(self, theirs: Collection[str]) -> Mapping[str, str]:
        """What the decoder has of the encoder, which transformers 5 ties no more."""
        decoder, encoder = self._decoder, "encoder."
        own = [name.removeprefix(decoder) for name in theirs if name.startswith(decoder) and ".cross" not in name]
        shared = tuple(part for part in _PARTS if not any(name.startswith(part) for name in own))
        names = (name.removeprefix(encoder) for name in theirs if name.startswith(encoder))
        return {decoder + name: encoder + name for name in names if name.startswith(shared)}


_PARTS = ("embeddings.", "encoder.layer.")


def _rows(half: Dialect, prefix: str) -> tuple[tuple[str, ...], ...]:
    """The names of both stacks, of those of an encoder."""
    rows: list[tuple[str, ...]] = []
    for ours, theirs, *rule in half.rows:
        if ours.startswith("heads/mlm/"):
            rows.append((ours.replace("heads/mlm", "output"), f"decoder.{theirs}", *rule))
        elif ours.startswith(("embeddings/", "block_")):
            rows.append((f"encoder/{ours}", theirs.replace(prefix, "encoder.", 1), *rule))
            rows.append((f"decoder/{ours}", f"decoder.{theirs}", *rule))
            if "/attention" in ours:
                crossed = theirs.replace(".attention.", ".crossattention.")
                rows.append((f"decoder/{ours.replace('/attention', '/cross_attention')}", f"decoder.{crossed}", *rule))
    return tuple(rows)


def _of_encoder(key: str) -> Callable[[JsonMap], object]:
    """The value of the encoder's key of that name."""
    return lambda config: config.get(f"encoder.{key}")


def _settings(half: Dialect, kinds: tuple[str, ...]) -> tuple[list[tuple[str, str]], Json]:
    """`config` and `fixed` of two halves: sizes are compared as numbers of both, all else is the encoder's."""
    rows, fixed = [("share", "tie_encoder_decoder")], {}
    for path, key in half.config:
        rows.append((path, f"encoder.{key}"))
        if specs.paths(specs.Spec)[path] is int or path in ("attention.heads", "feedforward.width"):
            rows.append(("decoder.layers" if path == "blocks.layers" else path, f"decoder.{key}"))
        else:  # of both stacks one number here
            fixed[f"decoder.{key}"] = _of_encoder(key)

    def kind(config: JsonMap) -> str:
        said = config.get("encoder.model_type")
        return said if said in kinds else kinds[0]

    fixed |= {"model_type": "encoder-decoder", "is_encoder_decoder": True}
    fixed |= {"encoder.model_type": kind, "decoder.model_type": kind, "decoder.tie_word_embeddings": True}
    for key in ("is_decoder", "add_cross_attention"):
        fixed |= {f"encoder.{key}": False, f"decoder.{key}": True}
    for key in ("position_embedding_type", "pad_token_id"):
        fixed |= {f"{side}.{key}": half.fixed[key] for side in TwoBerts.halves if key in half.fixed}
    return rows, fixed


def dialect(half: Dialect, kinds: tuple[str, ...], prefix: str, **changes: Any) -> TwoBerts:
    """The names of two halves of one kind.

    Args:
        half: names of an encoder. kinds: their model_types of it. prefix: what its names begin with.
    """
    rows, fixed = _settings(half, kinds)
    words = "embeddings.word_embeddings.weight"
    tied = {f"decoder.{copy}": f"decoder.{half.originals(copy)[0]}" for copy in half.tied}
    about = {
        "rows": _rows(half, prefix),
        "leaves": half.leaves,
        "heads": {},
        "config": tuple(rows),
        "fixed": fixed,
        "silent": {"tie_encoder_decoder": False},
        "values": {"tie_encoder_decoder": {True: "all", False: "none"}},
        "classes": {"EncoderDecoderModel": Class()},
        "model_types": ("encoder-decoder",),
        "renames": half.renames[:2],
        "tied": {copy: (own, f"encoder.{words}") if own.endswith(words) else own for copy, own in tied.items()},
        "ignored": {**half.ignored, "encoder.pooler.dense.*": None},  # of which nothing is read
        "stored": {
            "encoder.pooler.dense.weight": lambda spec: np.zeros((spec.hidden,) * 2, "float32"),
            "encoder.pooler.dense.bias": lambda spec: np.zeros(spec.hidden, "float32"),
        },
        "special": {"bos_token_id": "cls", "eos_token_id": "sep", "decoder_start_token_id": "cls"},
        "unread": {
            **half.unread,
            "vocab_size": "decoder.vocab_size by another name",
            "tf_legacy_loss": "of training in TensorFlow",
            "use_bfloat16": "how it is computed on a TPU",
        },
    }
    return TwoBerts(**(about | changes))
