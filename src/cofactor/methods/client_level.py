"""Client-level privacy for methods that send what a local solver found: clipped updates, noise on their sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.method import total
from cofactor.methods.wrapped import Wrapped
from cofactor.privacy import clip
from cofactor.privacy.plan import Plan
from cofactor.types import Array, Data, Local, Message, Shared


@dataclass(frozen=True)
class ClientLevel(Wrapped):
    """A method whose clients send ``H_j - H``, clipped to Frobenius norm ``bound``, with noise, each with weight 1.

    No record-level claim is possible for such updates, and none is made: what one client holds, as a whole, is hidden.
    With ``bits`` (one upload of Boolean factors, merged by a count of votes) the client sends its k m bits, which have
    norm at most sqrt(k m), instead of an update. Losses are not sent. Absent clients are not in the mean;
    against a server that sees who answers this saves no budget.
    """

    plan: Plan
    bound: float = 1.0
    bits: bool = False

    @property
    def rounds(self) -> int:
        """As many as were paid for."""
        return len(self.plan.shares)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m): a noisy update."""
        return {"factor": self.method.schema(n_features, t)["factor"]}

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Let the method step, then clip its update and add noise."""
        local, message = self.method.step(data, shared, local, t, rng)
        factor = message.arrays["factor"] / (message.weight if self.additive else 1.0)
        bound = float(np.sqrt(factor.size)) if self.bits else self.bound
        update = clip.norm(factor - self._origin(shared), bound)
        return local, self.plan.release(t, {"factor": update}, {"factor": bound}, rng)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Give the method the noisy factors, or where sums are enough the mean of them."""
        if self.additive:
            sums = total(messages)
            updates = [sums.arrays["factor"] / sums.weight]
        else:
            updates = [message.arrays["factor"] for message in messages]
        floor = -np.inf if self.bits else 0.0  # the mean of votes is unbiased as it is
        factors = [np.maximum(self._origin(shared) + u, floor) for u in updates]
        return self.method.aggregate(shared, [Message({"factor": F, "loss": np.nan}) for F in factors], t)

    def _origin(self, shared: Shared) -> Array:
        return np.zeros(shared.factor.shape) if self.bits else shared.factor.astype(np.float64)
