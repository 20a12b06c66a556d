"""How items move from what clients send about them: solved exactly from sums, or by the mean of the rows' pulls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from cofactor.local.symmetric import triangle
from cofactor.ratings import halves
from cofactor.ratings.halves import ColumnStats, Layout
from cofactor.schedules import at
from cofactor.types import Array, Data, Local, Message, Shared

EPSILON = 1e-12


class Items(Protocol):
    """The half of a masked method that finds the items; codes are always solved by their rows."""

    @property
    def running(self) -> bool:
        """Whether the server keeps running sums of what clients sent."""
        ...

    @property
    def judged(self) -> str:
        """What says that the items are found: the "loss" of all clients, or how far the "factor" moves."""
        ...

    def partial(self) -> Items:
        """Return the form for rounds with absent clients."""
        ...

    def schema(self, layout: Layout, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array that a client sends."""
        ...

    def send(self, data: Data, W: Array, H: Array, local: Local, layout: Layout) -> dict[str, Any]:
        """Client: what the server needs of new codes W, all of which adds up over rows.

        ``local`` is the state before this step; ``fresh`` in its memory marks rows that the server has not heard of.
        """
        ...

    def move(self, shared: Shared, sent: Message, layout: Layout, t: int) -> Shared:
        """Server: the new items from the sum of all messages; t counts the rounds that move items."""
        ...


@dataclass(frozen=True)
class Solved:
    """Every item by ridge regression on summed statistics: the server's half of pooled alternating least squares.

    A client sends for each item i that it may have rated the sums of ``v_u v_u^T`` and ``v_u (x_ui - b_u - mean)``,
    ``v_u = [w_u, 1]``: p(p+1)/2 + p numbers with p = k + 1; of implicit feedback also ``every``, the gram of all its
    rows. ``changes=True`` is for rounds with absent clients: they stay in the server's running sums with what they sent
    last.
    """

    changes: bool = False
    judged = "loss"

    @property
    def running(self) -> bool:
        """Of changes."""
        return self.changes

    def partial(self) -> Self:
        """Send changes."""
        return replace(self, changes=True)

    def schema(self, layout: Layout, n_features: int) -> dict[str, tuple[int, ...]]:
        """``gram`` and ``cross`` per item and ``known``, a scalar; ``every`` of implicit feedback."""
        p = layout.free
        triangle = p * (p + 1) // 2
        shapes = {"gram": (n_features, triangle), "cross": (n_features, p), "known": ()}
        return {**shapes, "every": (triangle,)} if layout.implicit else shapes

    def send(self, data: Data, W: Array, H: Array, local: Local, layout: Layout) -> dict[str, Any]:
        """Statistics, or how they changed."""
        fresh, sent = local.memory["fresh"], _statistics(data, W, H, layout)
        if not self.changes or fresh.all():
            return sent
        old = _statistics(halves.observed(data)[~fresh], local.codes[~fresh], H, layout)
        return {name: sent[name] - old[name] for name in sent}

    def move(self, shared: Shared, sent: Message, layout: Layout, t: int) -> Shared:
        """Solve every item; the loss is the ridge objective of all clients after that."""
        sums = sent.arrays
        if self.changes and shared.memory:
            sums = {name: shared.memory[name] + a for name, a in sums.items()}
        gram = sums["gram"] + sums["every"] if layout.implicit else sums["gram"]
        H, gain = halves.solve_factor(ColumnStats(gram, sums["cross"]), shared.factor, layout)
        return Shared(H, memory=sums if self.changes else {}, loss=float(sums["known"] + gain), drift=0.0)


def _statistics(X: Data, W: Array, H: Array, layout: Layout) -> dict[str, Any]:
    gram, cross = halves.column_stats(X, W, H, layout)
    known = 0.5 * halves.known_square(X, W, H, layout) + layout.penalty(W[:, layout.code_columns])
    sums = {"gram": gram, "cross": cross, "known": np.float64(known)}
    if layout.implicit:
        sums["every"] = triangle(halves.every(W))
    return sums


@dataclass(frozen=True)
class Pulled:
    """FedMAvg (Wang et al. 2022), every row a client of its own: local copies of the items, averaged per item.

    A row takes Q2 gradient steps (size ``1 / (gamma |v_u|^2)``) on its copy of the items that it rated, of all items
    with implicit feedback. These move ``[h_i, c_i]`` along ``v_u = [w_u, 1]`` only, so they have a closed form: the
    share ``1 - (1 - 1/gamma)^Q2`` of the residual is explained. Copies are averaged per item, by weight times
    ``|v_u|^2``; the ridge takes part as one more row that votes for zero. Messages have p + 1 numbers per item.
    """

    factor_steps: Any
    gamma: float = 2.0
    running = False
    judged = "factor"

    def partial(self) -> Self:
        """Absent clients are simply not in the mean."""
        return self

    def schema(self, layout: Layout, n_features: int) -> dict[str, tuple[int, ...]]:
        """``pull`` per item, ``fresh`` and ``loss``."""
        return {"pull": (n_features, layout.free + 1), "fresh": (), "loss": ()}

    def send(self, data: Data, W: Array, H: Array, local: Local, layout: Layout) -> dict[str, Any]:
        """How far the rows pull their items, and how many rows are here for the first time."""
        loss = 0.5 * halves.losses(data, W, H, layout).sum() + layout.penalty(W[:, layout.code_columns])
        fresh = np.float64(local.memory["fresh"].sum())
        return {"pull": halves.pulls(data, W, H, layout), "fresh": fresh, "loss": np.float64(loss)}

    def move(self, shared: Shared, sent: Message, layout: Layout, t: int) -> Shared:
        """Move every item by the mean of its pulls; the ridge counts as much as the share of rows that take part."""
        seen = shared.memory.get("seen", 0.0) + float(sent.arrays["fresh"])
        here = min(sent.weight / seen, 1.0)
        share = 1 - (1 - 1 / self.gamma) ** at(self.factor_steps, t)
        H = shared.factor.astype(np.float64)
        F, pull = H[layout.factor_rows].T, sent.arrays["pull"]
        slope = pull[:, :-1] - here * layout.penalties * F
        damping = pull[:, -1:] + max(layout.penalties.max(), EPSILON)
        H[layout.factor_rows] = (F + share * slope / damping).T
        loss = float(sent.arrays["loss"]) + here * layout.penalty(F)
        return Shared(H, memory={"seen": seen}, loss=loss)
