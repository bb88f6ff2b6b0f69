"""Settings of what adapts a model by few weights: groups of a Spec (`spec.py`)."""

import dataclasses

from kerasbert.errors import InputError
from kerasbert.options import checked_fields


@checked_fields
@dataclasses.dataclass(frozen=True)
class Adapters:
    """Small networks between a sublayer and its residual sum (Houlsby et al., 2019, section 2.1).

    Args:
        width: int m, units of the bottleneck (the paper's 8 to 256); 0 for none.
        activation: as in FeedForward.
    """

    width: int = 0
    activation: str = "gelu"


@checked_fields
@dataclasses.dataclass(frozen=True)
class Lora:
    """Low-rank updates of linear maps (Hu et al., 2021, section 4.1): W + alpha / rank * A B, of which A and B are trained.

    Args:
        rank: int r, columns of A and rows of B; 0 for none.
        alpha: float; None for the rank, a factor of 1.
        targets: which maps, by their paths in a block, such as "attention.query", "attention.key", "attention.output",
            "feedforward.inner", "feedforward.outer", or in the encoder: "pooler". Of MobileBERT's networks
            "feedforward.inner" is every one, "feedforward_0.inner" the first.
    """

    rank: int = 0
    alpha: float | None = None
    targets: tuple[str, ...] = ("attention.query", "attention.value")

    @property
    def scale(self) -> float:
        """What A B is multiplied by."""
        return 1.0 if self.alpha is None else self.alpha / self.rank

    def validate(self) -> "Lora":
        """Refuse settings that mean nothing; returns self."""
        if self.rank < 0:
            raise InputError(f"lora.rank must be at least 0. Received: {self.rank}")
        if self.rank == 0 and self != Lora():
            raise InputError(f"lora.rank is 0, no adaptation, and {self} has more: give lora.rank (--lora 8)")
        if self.alpha is not None and not self.alpha > 0:
            raise InputError(f"lora.alpha must be more than 0. Received: {self.alpha}")
        if not self.targets:
            raise InputError("lora.targets is empty, expected paths such as attention.query,attention.value")
        return self


@checked_fields
@dataclasses.dataclass(frozen=True)
class Pals:
    """Projected attention layers, beside every block (Stickland and Murray, 2019, section 3.2).

    Args:
        width: int d_s, of the small attention (the paper's 204); 0 for none.
        heads: int, of it.
    """

    width: int = 0
    heads: int = 12
