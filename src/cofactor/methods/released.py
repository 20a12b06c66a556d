"""What private methods have in common whose clients send sums over their rows, with noise: one release a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from cofactor.local.outliers import Outliers
from cofactor.local.stats import normalize
from cofactor.method import Traits, fits
from cofactor.methods import untold
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Allowance, Parts, Privacy
from cofactor.privacy.errors import OutOfRangeError, ShapeError
from cofactor.types import Array, Data, Local, Message, Shared

TINY, LARGEST = 1e-5, 1e9
"""No bound of a state that a run comes to is smaller, and no number larger: no product with rows overflows.

The last bit of what a product makes of a row depends on how many rows there are. Against a bound of 1e-9 the last bits
of all rows together would count as much as a row.
"""


@dataclass(frozen=True)
class Released(ABC):
    """The base of methods that say what a client sums (:meth:`sums`) and how far one row moves it (:meth:`bounds`).

    Clients remember nothing: every round depends on released values alone. For the unit client every client sends
    means over its rows, which the same bounds hold for. ``outliers`` are taken out of the codes.
    """

    rank: int
    allowance: Allowance
    outliers: Outliers | None = field(default=None, kw_only=True)

    @property
    def rounds(self) -> int:
        """As many as were paid for."""
        return len(self.allowance.shares)

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough; every client adds its own noise."""
        return Traits(additive=True, allowance=self.allowance)

    def partial(self) -> Self:
        """Absent clients are simply not in the sums."""
        return self

    def private(self, privacy: Privacy, *, rounds: int, parts: Parts) -> Self:
        """It is private already, for the budget that it was made with."""
        return self

    @abstractmethod
    def sums(self, data: Data, shared: Shared, t: int) -> dict[str, Array]:
        """Client: what is summed over its rows in round t, without noise."""

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t: 1, unless a method knows better."""
        return dict.fromkeys(self.allowance.shares[t], 1.0)

    def states(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array, besides the factor, of a state; ``OWN`` is a side of any length."""
        return {}

    def check(self, shared: Shared, n_features: int) -> None:
        """Refuse a state that no run comes to, before a row is read: an error over rows would tell of them.

        So whoever sends it learns no more than it knows: whether it is such a state.
        """
        shapes = {"factor": (self.rank, n_features), **self.states(n_features)}
        found = {"factor": shared.factor, **shared.extra}
        if set(found) != set(shapes) or any(not fits(np.shape(found[name]), shape) for name, shape in shapes.items()):
            raise ShapeError(f"a state of {shapes} was expected. Found arrays of other names or shapes.")
        for name, a in found.items():
            index = name == "features"
            least, most = (0.0, n_features - 1.0) if index else (-LARGEST, LARGEST)
            least = TINY if shapes[name] == () and np.asarray(a).dtype.kind != "b" else least  # a bound
            if np.asarray(a).dtype.kind not in ("iu" if index else "fiub") or not np.all((a >= least) & (a <= most)):
                raise OutOfRangeError(f"numbers from {least:g} to {most:g} were expected in {name!r}. Found others.")

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Sum over the rows, each inside its bound, and add noise."""
        self.check(shared, data.shape[1])
        n = max(data.shape[0], 1) if self.allowance.privacy.unit is Unit.CLIENT else 1
        sums = {name: a / n for name, a in self.sums(data, shared, t).items()}
        return local, self.allowance.release(t, sums, self.bounds(shared, t), rng)

    @abstractmethod
    def merge(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Server: what comes of the noisy sums of round t."""

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Merge; refuse a state that no client would go on from, and that hostile numbers alone lead to."""
        new = self.merge(shared, messages, t)
        if t + 1 < self.rounds:
            self.check(new, new.factor.shape[1])
        return new

    def sigma(self, t: int, name: str, bound: float, sums: Message) -> float:
        """Deviation of the noise in a sum as it came in."""
        return self.allowance.sigma(t, name, bound, sums.weight, sums.spared)

    def planned(self, t: int, name: str, clients: float) -> float:
        """Deviation of the noise in a sum of sensitivity 1 in which nobody is missing."""
        return self.allowance.sigma(t, name, 1.0, clients, clients)

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Any state will do: the bounds are always the same."""
        return (shared,)

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """It does what it does, whatever the noise."""
        return False

    def remark(self, shared: Shared) -> str:
        """Nothing has to be said of its factor."""
        return ""

    def factor(self, shared: Shared) -> Array:
        """Return H, rows at norm 1."""
        return normalize(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor, outliers aside: they stay at the client."""
        return untold.codes(data, factor, self.outliers)
