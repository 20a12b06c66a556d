"""Client-level privacy for methods that send what a local solver found: clipped updates, noise on their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cofactor.method import Traits, total
from cofactor.methods.refusals import no_record
from cofactor.methods.untold import unless_it_fails
from cofactor.methods.wrapped import Wrapped
from cofactor.privacy import clip
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Allowance, Parts, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared

BOUND = 1.0
"""Default Frobenius clip of a client's update of H, whose rows have norm 1; .3 and 2 were worse at 100 clients."""


@dataclass(frozen=True)
class ClientLevel(Wrapped):
    """A method whose clients send ``H_j - H``, clipped to Frobenius norm ``bound``, with noise, each with weight 1.

    No record-level claim is possible for such updates, and none is made: what one client holds, as a whole, is hidden.
    With ``bits`` (one upload of Boolean factors, merged by a count of votes) the client sends its k m bits, which have
    norm at most sqrt(k m), instead of an update. Losses are not sent. Absent clients are not in the mean;
    against a server that sees who answers this saves no budget. A client whose solver fails, or that has no rows, sends
    an update of zero with noise on it, like any other: that it failed is nobody's business.
    """

    allowance: Allowance
    bound: float = 1.0
    bits: bool = False

    @property
    def rounds(self) -> int:
        """As many as were paid for."""
        return len(self.allowance.shares)

    @cached_property
    def traits(self) -> Traits:
        """As the method says; the allowance pays for its noise."""
        return replace(self.method.traits, rowwise=None, together=None, allowance=self.allowance)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m): a noisy update."""
        return {"factor": self.method.schema(n_features, t)["factor"]}

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Let the method step, then clip its update and add noise."""
        bound = float(np.sqrt(shared.factor.size)) if self.bits else self.bound

        def step() -> tuple[Local, Array]:
            after, message = self.method.step(data, shared, local, t, rng)
            factor = message.arrays["factor"] / (message.weight if self.traits.additive else 1.0)
            return after, clip.norm(factor - self._origin(shared), bound)

        local, update = unless_it_fails(step, lambda: (local, np.zeros(shared.factor.shape)))
        return local, self.allowance.release(t, {"factor": update}, {"factor": bound}, rng)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """As the method does; a client that cannot join has nothing."""
        nothing = Local(np.zeros((data.shape[0], self.rank)))
        return unless_it_fails(lambda: self.method.join(data, shared, t, rng), lambda: nothing)

    def refit(self, data: Data, factor: Array) -> Array:
        """As the method does; zeros where codes cannot be found."""
        nothing = np.zeros((data.shape[0], len(factor)))
        return unless_it_fails(lambda: self.method.refit(data, factor), lambda: nothing) if len(nothing) else nothing

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Give the method the noisy factors, or where sums are enough the mean of them."""
        if self.traits.additive:
            sums = total(messages)
            updates = [sums.arrays["factor"] / sums.weight]
        else:
            updates = [message.arrays["factor"] for message in messages]
        floor = -np.inf if self.bits else 0.0  # the mean of votes is unbiased as it is
        factors = [np.maximum(self._origin(shared) + u, floor) for u in updates]
        return self.method.aggregate(shared, [Message({"factor": F, "loss": np.nan}) for F in factors], t)

    def _origin(self, shared: Shared) -> Array:
        return np.zeros(shared.factor.shape) if self.bits else shared.factor.astype(np.float64)

    def bench(self, features: int) -> tuple[ClientLevel, None]:
        """Whole clients have no records."""
        return self, None

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Any state will do: the bound is always the same."""
        return (shared,)

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """It does what it does, whatever the noise."""
        return False

    def remark(self, shared: Shared) -> str:
        """Nothing has to be said of its factor."""
        return ""

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Noise of the mean update over its bound; of the mean vote over a quarter, which three votes of four have."""
        sigma = self.allowance.sigma(self.rounds - 1, "factor", 1.0, clients, clients)
        return sigma * math.sqrt(self.rank * features) / clients / (0.25 if self.bits else 1.0)


def client_level(method: Any, privacy: Privacy, *, rounds: int, parts: Parts, bits: bool = False) -> ClientLevel:
    """Return a method whose clients send noisy updates in each of so many rounds, or refuse the unit record."""
    if privacy.unit is Unit.RECORD:
        raise PrivacyError(no_record(method.traits.kind))
    planned = min(rounds, method.rounds or rounds)
    allowance = Allowance(privacy, ({"factor": 1.0},) * planned, parts)
    return ClientLevel(method, allowance, BOUND if privacy.clip is None else privacy.clip, bits)
