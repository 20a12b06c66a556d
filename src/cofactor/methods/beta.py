"""Federated factorization under any beta-divergence, Kullback-Leibler first: the pooled answer from sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from cofactor.local import divergence
from cofactor.local.divergence import exponent
from cofactor.local.penalties import FREE, Penalties, Penalty
from cofactor.local.stats import normalize
from cofactor.method import Method, Traits, total
from cofactor.methods.raced import raced
from cofactor.methods.refusals import no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data, DataError, Local, Message, Shared

STEPS = 3
"""Steps of the codes in a round: beside the sums of the factor they cost little, and save rounds."""
FIRST_STEPS = 5
"""More steps of rows that take part for the first time, from flat codes."""
MOST = 4.0
"""By how much an entry of the factor grows or shrinks at most in a pass over clients of which some are absent: what
these sent last is too old for more, and what they need is not gone before they were heard."""
NOTHING = 1e-20
"""Part of the largest entry of a factor below which one is 0: its powers would leave the range of numbers."""
FAINT, LOUD = 1e-20, 1e140
"""Least size of a model's largest cell, which is far above what keeps ratios finite, and the most of its square root
of a power: beyond them a divergence is no number."""
ALIVE = 1e-3
"""Least part of a start's mean entry: multiplied, a zero stays zero for ever."""


@dataclass(frozen=True)
class Divergence:
    """Minimize ``sum_j d_beta(X_j | W_j H)`` by majorizers of H that add up over clients.

    Each client improves its codes for the broadcast factor, then sends numerator ``N_j`` and denominator ``D_j``
    (:mod:`cofactor.local.divergence`); the server sets ``H <- H (sum N_j / sum D_j)^g``, which is the multiplicative
    update on the pooled rows. With ``gaps`` cells that are NaN are not observed, and cells may have weights. With
    ``momentum`` both factors are extrapolated until the divergence rises.

    ``changes=True`` is for rounds with absent clients: clients send how their sums changed, and the server keeps
    running ones, so whoever is absent stays in with what it sent last, as in the stochastic average gradient (Schmidt
    et al. 2017). Where a share s of the rows answers, the step is ``H <- H (sum N_j / sum D_j)^(g s)``, and momentum
    grows by s: a pass over all clients goes as far as one round of all of them.
    """

    rank: int
    beta: float = 1.0
    momentum: bool = True
    codes_penalty: Penalty = FREE
    factor_penalty: Penalty = FREE
    gaps: bool = False
    changes: bool = False
    rounds: int | None = None

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough; with changes a client remembers what it sent, so rows do not stand alone."""
        kind = "gaps" if self.gaps else "real"
        return Traits(kind, additive=True, rowwise=None if self.changes else 0, running=self.changes)

    def partial(self) -> Divergence:
        """Send changes."""
        return replace(self, changes=True)

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse: no bound is known for what a row adds to these sums."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``up`` (k x m), ``down`` (k x m; k for Kullback-Leibler), ``loss``; ``rows`` for changes and penalties."""
        k = self.rank
        down = (k,) if self.beta == 1 and not self.gaps else (k, n_features)
        shapes = {"up": (k, n_features), "down": down, "loss": (), "rows": ()}
        return {name: shape for name, shape in shapes.items() if name != "rows" or self._counts}

    @property
    def _counts(self) -> bool:
        """Whether rows are counted: a penalty of the factor is given for one, and a round of some is a share of all."""
        return self.changes or any(self.factor_penalty)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at random entries, or at a public factor, lifted from zero."""
        H = rng.uniform(size=(self.rank, n_features)) if factor is None else np.asarray(factor)
        sent, H = np.result_type(H, np.float32), normalize(H.astype(np.float64))
        H = np.maximum(H, ALIVE * H.mean())
        sums = {name: np.zeros(shape) for name, shape in self.schema(n_features, 0).items()}
        return Shared(H.astype(sent), {"pace": np.float64(0)}, {**sums, "factor": H})

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Flat codes, every row new to the server."""
        if self.beta <= 0 and divergence.has_zeros(data):
            raise DataError(
                f"expected cells above 0 for a divergence of beta = {self.beta:g}, found zeros; take beta > 0."
            )
        H = shared.factor.astype(data.dtype, copy=False)
        codes = divergence.flat_codes(data, H)
        self._check_size(float(codes.max(initial=0)) * float(H.max(initial=0)) * self.rank)
        memory: dict[str, Any] = {"before": codes, "fresh": np.ones(data.shape[0], bool)}
        if self.changes:
            shapes = self.schema(data.shape[1], t)
            memory |= {f"sent_{name}": np.zeros(shape) for name, shape in shapes.items()}
        return Local(codes, memory)

    def _check_size(self, largest: float) -> None:
        """Refuse data of a unit in which divergences are no numbers, by the largest cell of flat codes."""
        most = LOUD ** (2 / max(self.beta, 2))
        if largest > 0 and not FAINT <= largest <= most:
            raise DataError(
                f"expected values of a size from {FAINT:g} to {most:.3g} for a divergence of beta = {self.beta:g}, "
                f"found about {largest:.1g}; give the data of all clients in another unit."
            )

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Improve the codes; send the majorizer of the factor, or how it changed."""
        H, known = shared.factor.astype(data.dtype, copy=False), local.memory
        codes = self._first_codes(data, local, H)
        new = divergence.ahead(codes, known["before"], self.beta, float(shared.extra["pace"]))
        for _ in range(STEPS):
            new = divergence.move_codes(data, new, H, self.beta, self._of_codes(data), gaps=self.gaps)
        sent = self._sums(data, new, H)
        memory: dict[str, Any] = {"before": codes, "fresh": np.zeros_like(known["fresh"])}
        before = {name: known[f"sent_{name}"] if self.changes else 0.0 for name in sent}
        arrays = {name: np.asarray(a - before[name], data.dtype if a.ndim else None) for name, a in sent.items()}
        if self.changes:  # what the server adds up, rounded: else a component that is gone would leave a rest
            memory |= {f"sent_{name}": before[name] + a for name, a in arrays.items()}
        return Local(new, memory), Message(arrays, data.shape[0])

    def _first_codes(self, data: Data, local: Local, H: Array) -> Array:
        """Return the codes, those of rows that are new after a few steps."""
        codes, fresh = local.codes, local.memory["fresh"]
        for _ in range(FIRST_STEPS if fresh.any() else 0):
            better = divergence.move_codes(data, codes, H, self.beta, self._of_codes(data), gaps=self.gaps)
            codes = np.where(fresh[:, None], better, codes)
        return codes

    def _sums(self, data: Data, W: Array, H: Array) -> dict[str, Any]:
        """Return what a client's rows say of the factor."""
        up, down, loss = divergence.for_factor(data, W, H, self.beta, gaps=self.gaps)
        found: dict[str, Any] = {"up": up, "down": down, "loss": np.float64(loss)}
        return found | ({"rows": np.float64(data.shape[0])} if self._counts else {})

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Sum the majorizers, go to their minimizer, extrapolate."""
        summed, old = total(messages), shared.memory
        sums = {name: old[name] + a if self.changes else a for name, a in summed.arrays.items()}
        point, share = shared.factor.astype(np.float64), self._share(summed, sums)
        up, down = np.maximum(sums["up"], 0), sums["down"].reshape(self.rank, -1)
        if any(self.factor_penalty):  # it is given for one row
            l1, l2 = (float(sums["rows"]) * weight for weight in self.factor_penalty)
            down = down + l1 + l2 * point
        step, most = exponent(self.beta) * share, MOST if self.changes else np.inf
        H = divergence.improve(point, up, np.broadcast_to(down, point.shape), step, most)
        H[H < NOTHING * H.max(initial=0)] = 0
        loss, begins = float(sums["loss"]), not old["up"].any()  # the loss of another stage is in another unit
        rising = loss > shared.loss and not begins
        pace = 0.0 if rising or not self.momentum else float(shared.extra["pace"]) + share
        y = divergence.ahead(H, old["factor"], self.beta, pace, share).astype(summed.dtypes["up"])
        memory = {**sums, "factor": H} | ({"observed": sums["down"].any(axis=0)} if self.gaps else {})
        return Shared(y, {"pace": np.float64(pace)}, memory, loss, 0.0)

    def _share(self, summed: Message, sums: Mapping[str, Any]) -> float:
        """Return the share of the rows that were heard so far which this round is of."""
        return min(1.0, summed.weight / float(sums["rows"])) if self.changes and sums["rows"] > 0 else 1.0

    def factor(self, shared: Shared) -> Array:
        """Return the last minimizer; rows are at norm 1, unless a penalty says how large codes and factor are.

        A feature that nobody observed pulls at nothing: it is 0, not what is left of the start.
        """
        H = shared.memory.get("factor", shared.factor).astype(shared.factor.dtype, copy=False)
        observed = shared.memory.get("observed")
        if observed is not None and observed.any():
            H = H * observed
        return H if any((*self.codes_penalty, *self.factor_penalty)) else normalize(H)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        H = factor.astype(data.dtype, copy=False)
        return divergence.solve_codes(data, H, self.beta, self._of_codes(data), gaps=self.gaps)

    def _of_codes(self, data: Data) -> Penalty:
        """Return the penalty of a code: it is given for one feature."""
        return self.codes_penalty.times(data.shape[1])


def divergent(
    rank: int,
    *,
    beta: float = 1.0,
    momentum: bool = True,
    codes_penalty: tuple[float, float] = (0.0, 0.0),
    factor_penalty: tuple[float, float] = (0.0, 0.0),
) -> Divergence:
    """Return :class:`Divergence` with penalties ``(l1, l2)``, or say what is wrong with them."""
    if not np.isfinite(beta):
        raise CofactorError(f"beta must be a finite number (1: Kullback-Leibler, 0: Itakura-Saito). Found {beta}.")
    held = Penalties(Penalty(*codes_penalty), Penalty(*factor_penalty))
    return Divergence(rank, float(beta), momentum, held.codes, held.factor)


def gapped(
    rank: int,
    *,
    beta: float = 2.0,
    momentum: bool = True,
    codes_penalty: tuple[float, float] = (0.0, 0.0),
    factor_penalty: tuple[float, float] = (0.0, 0.0),
    starts: int = 8,
) -> Method:
    """The pooled answer over the cells that were observed (the others are NaN), from sums.

    ``beta`` is the divergence: 2 is least squares, 1 Kullback-Leibler. Penalties as for ``exact-beta``. Twenty rounds
    of random ``starts`` side by side, halved as they go, say where to begin: where few cells were observed, one in four
    ends far from the others (70 % missing: an error of .075 on the observed cells in the place of .009).
    """
    held: dict[str, Any] = {"codes_penalty": codes_penalty, "factor_penalty": factor_penalty}
    return raced(replace(divergent(rank, beta=beta, momentum=momentum, **held), gaps=True), starts)
