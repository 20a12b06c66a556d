"""Shared and own programs: ``X_j ~ W_j (H + V_j)``, where V_j, such as a batch effect, never leaves its client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from cofactor.local import apart, arrays
from cofactor.local.symmetric import triangle
from cofactor.local.updates import HALS
from cofactor.method import Traits
from cofactor.methods.refusals import no_private
from cofactor.methods.summed import Summed
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared, Update

FIRST = HALS(20)
"""Update of codes that begin."""


@dataclass(frozen=True)
class Integrated:
    """Minimize ``sum_j |X_j - W_j (H + V_j)|^2 + weight |W_j V_j|^2`` from sums (integrative NMF, federated).

    A client improves its codes and its own part, and sends the statistics of ``X_j - W_j V_j``; the server does with
    them what :class:`~cofactor.methods.summed.Summed` does. A large ``weight`` leaves nothing to V_j.
    """

    rank: int
    weight: float = 0.1
    update: Update = field(default_factory=lambda: HALS(3))
    changes: bool = False
    rounds: int | None = None

    @cached_property
    def _server(self) -> Summed:
        """The server's half, without momentum: clients go on from where they are."""
        return Summed(self.rank, self.update, momentum=0.0, changes=self.changes)

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough; the own part belongs to all rows of a client, so rows do not stand alone."""
        return Traits(additive=True, running=self.changes, apart=self.weight)

    def partial(self) -> Integrated:
        """Send changes."""
        return replace(self, changes=True)

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse: what a row changes in its client's own part has no bound."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """As for summed statistics."""
        return self._server.schema(n_features, t)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a random or a public factor."""
        return self._server.start(n_features, rng, factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """No codes and no own part yet."""
        k, m = self.rank, data.shape[1]
        memory = {"own": np.zeros((k, m), data.dtype), "square": np.float64(arrays.square(data))}
        sent = {f"sent_{name}": np.zeros(shape) for name, shape in self.schema(m, t).items()} if self.changes else {}
        return Local(np.zeros((data.shape[0], k), data.dtype), {**memory, **sent})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Improve codes, then the own part; send the statistics of what is left to share."""
        H, V = shared.factor.astype(data.dtype, copy=False), local.memory["own"]
        update = self.update if local.codes.any() else FIRST
        W = update(local.codes, apart.for_codes(data, H, V, self.weight), t)
        gram, cross = W.T @ W, arrays.times_codes(data, W).T
        V = np.ascontiguousarray(self.update(V.T, apart.for_own(gram, cross, H, self.weight), t).T)
        half = apart.for_shared(gram, cross, V, self.weight, float(local.memory["square"]))
        sent: dict[str, Any] = {
            "gram": triangle(half.gram)[None],
            "cross": half.cross,
            "square": np.float64(half.square),
        }
        memory: dict[str, Any] = {"own": V, "square": local.memory["square"]}
        if self.changes:  # what the server adds up is rounded: of that the next change is one
            before = {name: local.memory[f"sent_{name}"] for name in sent}
            sent = {name: (a - before[name]).astype(a.dtype) for name, a in sent.items()}
            memory |= {f"sent_{name}": before[name] + a for name, a in sent.items()}
        return Local(W, memory), Message(sent, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Sum the statistics, and update H."""
        return self._server.aggregate(shared, messages, t)

    def factor(self, shared: Shared) -> Array:
        """Return H, rows at norm 1."""
        return self._server.factor(shared)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor, with the own part that belongs to them."""
        return apart.solve(data, factor, self.weight)[0]
