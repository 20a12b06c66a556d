"""What starts from a few rounds of sums have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.method import Traits
from cofactor.methods.refusals import no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Shared


@dataclass(frozen=True)
class FromSums:
    """Rounds in which clients send sums over their rows and remember nothing; the factor is there after the last."""

    rank: int

    rounds = 2
    traits = Traits(additive=True)  # not rowwise: stacked sums round otherwise, and few rows leave directions open
    refusal: ClassVar[str] = no_private("real")
    """Why there is no private form."""

    def partial(self) -> Self:
        """Absent clients are simply not in the sums."""
        return self

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse: the sums leave without noise."""
        raise PrivacyError(self.refusal)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], self.rank), data.dtype))

    def factor(self, shared: Shared) -> Array:
        """Return the factor; before the last round there is none."""
        return normalize(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        return refit(data, factor)
