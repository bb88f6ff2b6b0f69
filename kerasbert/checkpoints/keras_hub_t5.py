"""T5's names in KerasHub's presets: T5Backbone, T5 v1.1 and mT5 among them."""

from typing import TYPE_CHECKING

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.keras_hub_files import T5_DECODER, T5_LAYER
from kerasbert.checkpoints.keras_hub_tasks import activation_of
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.spec import Spec


ATTENTION = ("query", "key", "value", "output")
_GATED = "gated "


class T5KerasHub(keras_hub.Backbone):
    """An activation and whether there is a gate are one setting here; a table of its own is not scaled."""

    def read_config(self, config: Json) -> Json:
        """With both in `activation`."""
        name = activation_of(config.get("activation", "relu"))
        gate = _GATED if config.get("use_gated_activation") else ""
        return config | {"activation": gate + name, "scaled": config.get("tie_embedding_weights") is not False}

    def write_config(self, config: Json, spec: "Spec") -> Json:
        """As their class has it."""
        gated, name = config["activation"].startswith(_GATED), config["activation"].removeprefix(_GATED)
        said = {key: value for key, value in config.items() if key != "scaled"}
        return said | {"activation": keras_hub.written_activation(name), "use_gated_activation": gated}


def _hub_rows(stack: str, layers: str, norm: str) -> tuple[tuple[str, str], ...]:
    """Names of one stack in a preset."""
    block, theirs = f"{stack}/block_{{i}}", f"layers/{layers}_{{i}}"
    parts = (("inner", "input"), ("gate", "input"), ("linear", "gate"), ("outer", "output"))
    return (
        *(
            (f"{block}/{ours}attention/{part}", f"{theirs}/{name}_attention/{part}_projector")
            for ours, name in (("", "self"), ("cross_", "cross"))
            for part in ATTENTION
        ),
        (f"{block}/attention_norm", f"{theirs}/self_attention_layer_norm"),
        (f"{block}/cross_attention_norm", f"{theirs}/cross_attention_layer_norm"),
        *((f"{block}/feedforward/{part}", f"{theirs}/{name}_projector") for part, name in parts),
        (f"{block}/feedforward_norm", f"{theirs}/layer_norm"),
        (f"{stack}/relative/table", f"layers/{layers}_0/self_attention/vars/0"),
        (f"{stack}/norm", f"layers/{norm}"),
    )


KERAS_HUB = T5KerasHub.of_names(
    keras_hub.dialect(
        "T5Backbone",
        *_hub_rows("encoder", T5_LAYER, "t5_layer_norm"),
        *_hub_rows("decoder", T5_DECODER, "t5_layer_norm_1"),
        ("output/table", "layers/reversible_embedding/vars/1", "T"),
        config=(
            ("attention.head_size", "key_value_dim"),
            ("feedforward.activation", "activation"),
            ("epsilon", "layer_norm_epsilon"),
            ("output.own", "tie_embedding_weights"),
            ("output.scaled", "scaled"),
        ),
        without=("embeddings.positions",),
    ).derive(
        forms={},
        silent={"use_gated_activation": True, "scaled": True},
        values={
            "activation": keras_hub.ACTIVATIONS
            | {_GATED + name: f"gated_{ours}" for name, ours in keras_hub.ACTIVATIONS.items()},
            "tie_embedding_weights": {True: False, False: True},
        },
    )
)
