"""Sketched alternating least squares on row and column blocks (DSANLS), and unsketched baselines on the same blocks.

Qian et al., "Fast and secure distributed nonnegative matrix factorization", section 3: for one organisation with many
machines, since every client sees a row block *and* a column block. The paper's U is our W, its V^T our H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np

from cofactor.local import arrays, sketch
from cofactor.local.columns import column_sums
from cofactor.local.init import random_factor
from cofactor.local.random_matrices import Drawn
from cofactor.local.refit import refit
from cofactor.local.sketch import Sketch, Subsampling
from cofactor.local.stats import gain, lipschitz, normalize
from cofactor.local.updates import BPP, HALS, MU, ProximalCD
from cofactor.method import SERVER, Method, Traits, total
from cofactor.method import rng as address
from cofactor.methods.blocks import Blocks, check_cover, cover
from cofactor.methods.refusals import SKETCH
from cofactor.privacy.errors import PrivacyError
from cofactor.schedules import Schedule
from cofactor.types import Array, CofactorError, DataError, Local, Message, Shared, Stats, Update

LARGE = 5000
"""Dense matrices with both sides at least this long are sketched to 0.03 of them, others to 0.1."""


LOOK = 10
"""Iterations between two whole factors, where sketches of it are sent in between: only there a run may end."""
ITERATIONS, SLOW = 200, 1000
"""The most iterations, and those of multiplicative updates: where a stop rule ends nothing before, twice as many gave
less than 2 % on all but one of the stored data sets."""


WEIGHT = 0.02
"""alpha = beta of :class:`Ramp`. The paper searches {0.1, 1, 10}, absolute; relative to the gram 0.1 is too careful
(5000 x 5000, 300 iterations: error .094, with 0.02 .047) and 0 stalls (.053)."""


@dataclass(frozen=True)
class Ramp(Schedule):
    """``alpha + beta t``: sketched half-problems err differently each time, so steps must become smaller."""

    alpha: float = WEIGHT
    beta: float = WEIGHT

    def __call__(self, t: int) -> float:
        """Return the weight of step t."""
        return self.alpha + self.beta * t


@dataclass(frozen=True)
class Sketched:
    """W and H in turn, each from a k x d sum over the clients: ``min_W |X[I] S - W (H S)|``, and so for H.

    Every client holds a :class:`Blocks` and keeps ``W[I]`` and ``H[:, J]``. An iteration is two rounds: with the sum
    ``H S = sum_r H[:, J_r] S[J_r]`` a client updates its codes and sends ``W[I]^T S'[I]`` (k x d'), with the sum of
    these its columns of H. S and S' are drawn by every client from one seed. Round 0 sends the start. Every few
    iterations, and in the last of the ``2 iterations + 1`` rounds, a client sends ``H[:, J]`` among zeros, so that
    their sum is H, of which the server makes the product: there a run may end. A side without a sketch is always sent
    whole in the same way, which makes the method MPI-FAUN on one-dimensional blocks (Kannan et al. 2018).

    ``row_sketch`` shrinks the ``n_rows`` rows in the half-problem of H, ``column_sketch`` the features in that of W.
    The loss is that of the half-problem; of a sketched one before its update, where it is right on average: after it a
    factor fits those columns better than the others.
    """

    rank: int
    n_rows: int
    update: Update = field(default_factory=lambda: ProximalCD(Ramp()))
    row_sketch: Sketch | None = None
    column_sketch: Sketch | None = None
    iterations: int = ITERATIONS

    @cached_property
    def traits(self) -> Traits:
        """Sums of all clients; it may end where the factor is whole, by its losses, which sketches estimate."""
        judged = "loss" if self.row_sketch is None and self.column_sketch is None else "estimate"
        every = 2 if self.column_sketch is None else 2 * LOOK
        return Traits("blocks", additive=True, complete=True, iterates=True, judged=judged, every=every)

    @property
    def rounds(self) -> int:
        """Two for each iteration, and one for the start."""
        return 2 * self.iterations + 1

    def partial(self) -> Sketched:
        """Refuse: a sum without one client is not the product."""
        raise CofactorError("a method on row and column blocks needs every client in every round. Found absent ones.")

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(SKETCH)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``product`` (k x d) or, every few rounds, ``factor`` (k x m); ``loss``; in the first ``covered`` (4)."""
        if self._whole(t):
            return {"factor": (self.rank, n_features), "loss": ()}
        kind, side = (self.row_sketch, self.n_rows) if t % 2 else (self.column_sketch, n_features)
        width = sketch.size_of(kind.size, side, self.rank) if kind else side
        covered = {"covered": (4,)} if t == 0 else {}
        return {"product": (self.rank, width), "loss": (), **covered}

    def _whole(self, t: int) -> bool:
        """Whether the factor is sent as it is in round t."""
        return t == self.rounds - 1 or (t > 0 and t % self.traits.every == 0)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Send a seed, from which all draw the same start and the same sketches; or a public start, once."""
        empty, seed = np.zeros((self.rank, 0)), int(rng.integers(1 << 62))
        whole = cover(slice(0, self.n_rows), slice(0, n_features))
        memory = {"whole": whole, "factor": self._drawn(seed, n_features) if factor is None else factor}
        extra = {"seed": np.int64(seed), "product": empty}
        return Shared(empty if factor is None else factor, extra, memory)

    def _drawn(self, seed: int, n_features: int) -> Array:
        """Return the start that all draw from the seed."""
        return random_factor(self.rank, n_features, address(seed, SERVER, -1))

    def join(self, data: Blocks, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Take the client's columns of the start; the codes are zero."""
        if data.column_block.shape[0] != self.n_rows:
            raise DataError(f"expected {self.n_rows} rows in all, found {data.column_block.shape[0]}.")
        H = shared.factor
        if not H.size:
            H = self._drawn(int(shared.extra["seed"]), data.shape[1])
        F = np.ascontiguousarray(H[:, data.columns_here], dtype=data.dtype).T
        squares = {
            "row_squares": arrays.row_squares(data.column_block),
            "column_squares": column_sums(data.row_block)[1],
        }
        memory = {"columns": F, **squares}
        return Local(np.zeros((data.shape[0], self.rank), data.dtype), memory)

    def step(
        self, data: Blocks, shared: Shared, local: Local, t: int, rng: np.random.Generator
    ) -> tuple[Local, Message]:
        """Update W[I] in odd rounds, H[:, J] in even ones, and send its part of the next product."""
        W, F, loss = local.codes, local.memory["columns"], 0.0
        seed = int(shared.extra["seed"])
        S, BS = self._draw(seed, t - 1, data.shape[1]), shared.extra["product"].astype(data.dtype, copy=False)
        if t % 2:
            X = data.by_column if S else data.row_block
            stats, square = sketch.sketched(S, X, BS, local.memory["column_squares"])
            W, loss = self._improve(_first(stats) if t == 1 else W, stats, square, S, t)
        elif t > 0:
            stats, square = sketch.sketched(S, data.columns_as_rows, BS, local.memory["row_squares"])
            F, loss = self._improve(F, stats, square, S, t)
        message = self._message(data, W, F, seed=seed, t=t)
        message.arrays["loss"] = np.float64(loss)
        if t == 0:
            message.arrays["covered"] = cover(data.rows_here, data.columns_here)
        return Local(W, {**local.memory, "columns": F}), message

    def _improve(self, F: Array, stats: Stats, square: float, S: Drawn | None, t: int) -> tuple[Array, float]:
        """Return the new F and ``1/2 |X S - F B S|^2``: of a sketch before the update, by what its precision needs."""
        update, step = self.update, (t - 1) // 2
        if S is None:
            new = update(F, stats, step)
            gained = gain(stats, new)
        elif isinstance(update, ProximalCD):
            new, gained = update.gaining(F, stats, step)
        else:
            new, gained = update(F, stats, step), 0.5 * np.vdot(stats.gram, arrays.gram(F)) - np.vdot(stats.cross, F)
        return new, max(0.5 * square + float(gained), 0.0)

    def _message(self, data: Blocks, W: Array, F: Array, *, seed: int, t: int) -> Message:
        n, m = self.n_rows, data.shape[1]
        part, here, side = (W, data.rows_here, n) if t % 2 else (F, data.columns_here, m)
        S = self._draw(seed, t, m)
        if S is not None and not self._whole(t):
            return Message({"product": sketch.fold(S, part, here)}, 1.0)
        whole = np.zeros((self.rank, side), part.dtype)
        whole[:, here] = part.T
        return Message({"factor" if self._whole(t) else "product": whole}, 1.0)

    def _draw(self, seed: int, t: int, n_features: int) -> Drawn | None:
        """Return the S of what is sent in round t: of the rows in odd rounds, of the features in even ones."""
        kind: Any
        kind, side = (self.row_sketch, self.n_rows) if t % 2 else (self.column_sketch, n_features)
        return _drawn(kind, side, self.rank, seed, t) if kind else None

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Sum the parts; the first sum tells whether the blocks of all clients are those of one matrix."""
        sums = total(messages)
        dtype = sums.dtype(next(iter(sums.arrays)))
        loss = float(sums.arrays["loss"]) if t else np.nan
        if t == 0:
            check_cover(sums.arrays["covered"], shared.memory["whole"])
        memory = {"factor": shared.memory["factor"]}
        product = next(iter(sums.arrays.values())).astype(dtype, copy=False)
        if self._whole(t):
            memory["factor"] = product
            S = self._draw(int(shared.extra["seed"]), t, product.shape[1])
            product = sketch.fold(S, product.T, slice(0, product.shape[1])) if S else product
        return Shared(np.zeros((self.rank, 0), dtype), {**shared.extra, "product": product}, memory, loss)

    def factor(self, shared: Shared) -> Array:
        """Return H as it was last sent, rows at norm 1."""
        H = shared.memory["factor"]
        return normalize(H.astype(shared.factor.dtype, copy=False))

    def refit(self, data: Blocks, factor: Array) -> Array:
        """Codes of the row block for the final factor."""
        return refit(data.row_block, factor)


@lru_cache(2)
def _drawn(kind: Sketch, side: int, rank: int, seed: int, t: int) -> Drawn | None:
    """Return the S of a round; it is used in the next one too, and by every client of a process."""
    return kind.draw(side, rank, address(seed, SERVER, t))


def _first(stats: Stats) -> Array:
    """Return a projected gradient step from codes of zero: positive, in the data's scale, the same on any blocks."""
    L = lipschitz(stats.gram)
    return np.maximum(stats.cross, 0) * stats.cross.dtype.type(1 / L if L > 0 else 0)


def dsanls(
    rank: int,
    *,
    shape: tuple[int, int],
    iterations: int = ITERATIONS,
    size: float | None = None,
    weight: float = WEIGHT,
) -> Sketched:
    """DSANLS: both half-problems through subsampling, solved by proximal coordinate descent (Qian et al., Alg. 2).

    ``shape`` is that of X. Without ``size`` the sketch keeps 0.1 of a side (0.03 where both are at least 5000 long) and
    leaves the shorter one alone where it is less than half as long. ``weight`` = 0 stalls.
    """
    n, m = shape
    share = size if size is not None else 0.03 if min(n, m) >= LARGE else 0.1
    for side in shape if size is not None else ():
        sketch.size_of(share, side, rank)  # a size that cannot work is refused before anything runs
    rows, columns = (Subsampling(share) if size is not None or 2 * a >= b else None for a, b in ((n, m), (m, n)))
    return Sketched(rank, n, ProximalCD(Ramp(weight, weight)), rows, columns, iterations)


def _plain(update: Update, what: str, most: int = ITERATIONS) -> Callable[..., Sketched]:
    def make(rank: int, *, shape: tuple[int, int], iterations: int = most) -> Sketched:
        return Sketched(rank, shape[0], update, iterations=iterations)

    make.__doc__ = f"{what} on row and column blocks, without a sketch (MPI-FAUN, Kannan et al. 2018)."
    return make


BLOCKED: dict[str, Callable[..., Method]] = {
    "dsanls": dsanls,
    "mu": _plain(MU(), "Multiplicative updates", SLOW),
    "hals": _plain(HALS(), "HALS"),
    "anls-bpp": _plain(BPP(), "Exact alternating least squares"),
}
"""Makers of the methods on row and column blocks; they need the shape of X, and clients that are :class:`Blocks`."""
