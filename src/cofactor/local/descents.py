"""Descents on a union of summaries, from several starts side by side: what they do with its rows is one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from cofactor.local import anew
from cofactor.local.kernels import cpu
from cofactor.local.stacked import Stacked
from cofactor.local.stats import normalize, shares
from cofactor.local.threads import each, lent
from cofactor.types import Array

TOL = 1e-5
"""A descent is over when an iteration takes less than this part off what is missed."""
FIRST, SWEEPS = 6, 3
"""Sweeps of the first codes, and of every half of an iteration."""
SAME = 1e-3
"""Runs are as good as each other where what they miss differs by less than this part of it, or by rounding."""
BESIDE = 32
"""Runs that go on as one, at most: more than the starts of a search are, and no more memory than a few of them take."""


class Found(NamedTuple):
    """The factor of a union: H (k x m, rows at norm 1), codes C (c x r x k) for it, and the ``gram`` (k x k) of all.

    ``share`` (k) is that of every component in what they explain. ``runs`` are the factors, rows at norm 1, of the
    restart that went on and of those that lose hardly more; none where nothing was compared.
    """

    factor: Array
    codes: Array
    gram: Array
    share: Array
    runs: Sequence[Array] = ()


class Descents:
    """Alternating coordinate descents on ``sum_j tr((H_j - C_j H)^T G_j (H_j - C_j H))``, C_j, H >= 0.

    ``F`` (runs x m x k) are the transposed H of all runs, ``C`` (runs x c x r x k) their codes, ``loss`` (runs) what
    each ended at.
    """

    def __init__(self, union: Stacked, F: Array, C: Array | None = None) -> None:
        self.union, self.F = union, F
        self.C = np.zeros((len(F), *union.factors.shape[:2], F.shape[2]), F.dtype) if C is None else C
        self.loss, self.settled = np.full(len(F), np.inf), np.zeros(len(F), bool)

    @classmethod
    def of(cls, union: Stacked, factors: Sequence[Array]) -> Descents:
        """Return runs that begin at these H (k x m)."""
        return cls(union, np.stack([H.T for H in factors]).astype(union.rows.dtype, order="C"))

    @classmethod
    def joined(cls, parts: Sequence[Descents]) -> Descents:
        """Return the runs of all parts, which are on one union."""
        whole = cls(parts[0].union, *(np.concatenate(a) for a in zip(*((p.F, p.C) for p in parts), strict=True)))
        whole.loss, whole.settled = (np.concatenate(a) for a in zip(*((p.loss, p.settled) for p in parts), strict=True))
        return whole

    @property
    def missed(self) -> Array:
        """What is not explained of all data (runs)."""
        return np.maximum(self.loss + self.union.rest, 1e-12 * self.union.square)

    def ranked(self) -> Array:
        """Return which runs miss least, the first one first; those that are as good as each other in their own order.

        Several starts often end in one minimum: if rounding chose among them, other processors, or a device, would
        begin elsewhere.
        """
        least = np.min(self.missed)
        hair = SAME * least + 10 * np.finfo(self.F.dtype).eps * self.union.square
        return np.argsort(np.rint((self.missed - least) / hair), kind="stable")

    def factors(self) -> list[Array]:
        """Return the H of every run (k x m), rows at norm 1."""
        return [normalize(F.T) for F in self.F]

    def some(self, index: Array | Sequence[int] | slice) -> Descents:
        """Return some of the runs, as they are now."""
        part = Descents(self.union, self.F[index].copy(), self.C[index].copy())
        part.loss, part.settled = self.loss[index], self.settled[index]
        return part

    def codes(self, sweeps: int) -> Array:
        """Improve all C_j for H; return the losses."""
        return self._improve_codes(sweeps)[0]

    def advance(self, iterations: int) -> Self:
        """Let each go on until its loss, with what the summaries miss, falls by less than ``TOL`` of itself."""
        for _ in range(iterations):
            if not self.settled.any():
                self._go_on()
            elif (going := np.flatnonzero(~self.settled)).size:  # no run depends on those beside it
                part = self.some(going)
                part._go_on()
                self.F[going], self.C[going] = part.F, part.C
                self.loss[going], self.settled[going] = part.loss, part.settled
            else:
                break
        return self

    def _go_on(self) -> None:
        """Take one iteration."""
        before = self.loss
        self.loss, gram, weighed = self._improve_codes(SWEEPS if np.isfinite(before).all() else FIRST)
        self.F = cpu.hals_runs(self.F, gram, self.union.rows.T @ weighed, SWEEPS)
        if self.F.dtype == np.double:  # in single precision rounding takes as much off
            self.settled = before - self.loss <= TOL * self.missed

    def _improve_codes(self, sweeps: int) -> tuple[Array, Array, Array]:
        """Return the losses, and the statistics of the new codes."""
        grams, seen = self.union.grams, self.F.transpose(0, 2, 1) @ self.F
        cross = grams @ (self.union.rows @ self.F).reshape(self.C.shape)
        cpu.hals_metric(self.C, grams, seen, cross, sweeps)
        gram, weighed = self._statistics()
        cost, gain = np.einsum("xkl,xkl->x", gram, seen), np.einsum("xcrk,xcrk->x", self.C, cross, dtype=np.float64)
        explained = cost - 2 * gain
        return self.union.square + explained, gram, weighed

    def _statistics(self) -> tuple[Array, Array]:
        """Return ``sum_j C_j^T G_j C_j`` of every run (runs x k x k), and all ``G_j C_j`` (runs x c r x k)."""
        shape = len(self.C), -1, self.C.shape[3]
        weighed = (self.union.grams @ self.C).reshape(shape)
        return self.C.reshape(shape).transpose(0, 2, 1) @ weighed, weighed

    def spread(self, union: Stacked, index: Array) -> Descents:
        """Return the same on all columns of a union of which this one has seen those at ``index``."""
        F = np.zeros((len(self.F), union.rows.shape[1], self.F.shape[2]))
        F[:, index] = self.F
        whole = self.on(union)
        gram, weighed = whole._statistics()
        return Descents(union, cpu.hals_runs(F, gram, union.rows.T @ weighed, SWEEPS), whole.C)

    def on(self, union: Stacked) -> Descents:
        """Return the same on a union whose summaries are those of this one, in its precision and at its scale."""
        return Descents(union, *(A.astype(union.rows.dtype, copy=False) for A in (self.F, self.C)))

    def freed(self, count: int, rng: np.random.Generator) -> Descents:
        """Return the same on drawn rows, whose codes need not be ``V_j C`` any more."""
        rows, V = self.union.drawn(count, rng)
        return Descents(rows, self.F, V @ self.C)

    def summarized(self) -> Stacked:
        """Return the summary of what the first one has found: its factor and gram."""
        found = self.found()
        return Stacked(found.factor[None], found.gram[None], self.union.rest + max(float(self.loss[0]), 0.0))

    def found(self, runs: Sequence[Array] = ()) -> Found:
        """Return the first one's factor with rows at norm 1, and codes ``sum_j C_j^T G_j C_j`` for it."""
        size = np.linalg.norm(self.F[0], axis=0)
        H = normalize(self.F[0].T, size)
        gram = self._statistics()[0][0] * np.outer(size, size)
        return Found(H, self.C[0] * size, gram, shares(gram, H), runs)

    def begun(self, pairs: int, directions: int) -> Descents:
        """Return runs from the first one, in each of which one component stands for two, so that one begins anew.

        These are the ``pairs`` that lose least; it begins in one of the ``directions`` in which most is missed.
        """
        H, C, gram = self.F[0].T, self.C[0], self._statistics()[0][0]
        size = np.sqrt(np.einsum("crr->cr", self.union.grams)).ravel()
        missed = C.reshape(len(size), -1) @ H
        np.maximum(np.subtract(self.union.rows, missed, out=missed), 0, out=missed)
        missed *= size[:, None]
        places = anew.directions(missed, directions)
        made = [anew.merged(H, C, gram, pair, v) for pair in anew.pairs(gram, H @ H.T, pairs) for v in places]
        begun = Descents.of(self.union, [H for H, _ in made])
        begun.C[:] = [C for _, C in made]
        return begun


def advanced(runs: Descents, iterations: int) -> Descents:
    """Let every run go on; threads that were lent take some of them each."""
    width = min(BESIDE, -(-len(runs.F) // lent()))
    parts = [runs.some(slice(i, i + width)) for i in range(0, len(runs.F), width)]
    return Descents.joined(list(each(lambda part: part.advance(iterations), parts)))
