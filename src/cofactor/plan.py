"""How a run goes: rounds, participation, stop rule, seed, privacy, secure sums; made once, by whoever asks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.types import Array, CofactorError

ROUNDS = 50
"""The rounds of a method without a plan of its own, unless a number is asked for."""
MOST = 200
"""The same where a stop rule ends them: enough that it does."""
BY_SHARE = "participation: a draw by share shows how many rows clients have, and is refused for private methods."


def is_whole(value: object) -> TypeGuard[int]:
    """Whether something is a whole number; True and False are not, though Python counts with them."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if not (is_whole(value) and value >= least):
        raise CofactorError(f"{name} must be a whole number of at least {least}. Found {value!r}.")


@dataclass(frozen=True)
class Stop:
    """End a run when it is done; ``tol`` 0 never stops.

    By its loss: the best one fell by less than ``tol`` of itself over ``patience`` rounds, and no component of the
    factor has come far (2 % of its norm) in them; or the factor stands still (``tol`` in all of them), as it does
    where nothing is left to explain. By its factor: no component has come further than ``tol`` in any of them, and the
    loss has not fallen by more (small steps may be large beside a small error); or all go to and fro, and nowhere: it
    stands still against its own noise (:func:`cofactor.engines.over.still`).
    """

    tol: float = 0.0
    patience: int = 3

    def __post_init__(self) -> None:
        if not (isinstance(self.tol, Real) and self.tol >= 0):
            raise CofactorError(f"tol must be a number >= 0. Found {self.tol!r}.")
        check_whole("patience", self.patience, 1)


@dataclass(frozen=True)
class ByShare:
    """Draw ``count`` clients with replacement, each with probability ``p_j = n_j / n`` (Wang et al. 2022).

    A client that is drawn c times uploads once, and its message counts ``c / (count p_j)`` times: an unbiased estimate
    of the sum over all clients, for methods that need only that sum. ``rows`` are the n_j, which it makes public; where
    all clients are here they need not be given.
    """

    count: int
    rows: tuple[int, ...] | None = None

    def __call__(self, rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the participants in order and how much each one counts; ``rows`` are the n_j."""
        share = rows / rows.sum()
        who, times = np.unique(rng.choice(len(rows), self.count, p=share), return_counts=True)
        return who, times / (self.count * share[who])


@dataclass(frozen=True)
class Stream:
    """Clients that answer one by one: the server merges ``updates`` messages as they arrive.

    A client that has not answered ``deadline`` seconds after it was sent the factor is given up. ``speeds`` says how
    long simulated clients take (:mod:`cofactor.engines.speeds`); an engine of real ones takes the time they take.
    """

    updates: int = 200
    deadline: float = math.inf
    speeds: Any = None

    def __post_init__(self) -> None:
        check_whole("updates", self.updates, 1)
        if not (isinstance(self.deadline, Real) and self.deadline > 0):
            raise CofactorError(f"deadline must be a time above 0. Found {self.deadline!r}.")


@dataclass(frozen=True)
class Plan:
    """How a run goes.

    ``rounds`` is the most rounds. None: the method's own number; or 50 for each client on average, and 200 where a stop
    rule ends them and no release is paid for, or more where a method is slow. ``stop`` is such a rule, or the tolerance
    of :class:`Stop`. ``participation`` is the share of clients drawn for each round, or :class:`ByShare`. ``privacy``
    is what all releases together may cost; ``secure`` adds messages up under masks. ``stream`` makes clients answer one
    by one instead of in rounds.

    ``share`` is the part of the clients that a round is of: a draw by share stands for all of them. ``rows`` are those
    of all clients, where a private run may know them: it counts nothing by itself.
    """

    rounds: int | None = None
    participation: float | ByShare = 1.0
    stop: Stop | float = 0.0
    seed: int = 0
    privacy: Privacy | None = None
    secure: bool = False
    stream: Stream | None = None
    share: float = field(init=False, repr=False, compare=False)
    rows: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out, before any data is read; a number is the tolerance of a stop rule."""
        _ = self.rule
        check_whole("seed", self.seed, 0)
        if self.rounds is not None:
            check_whole("rounds", self.rounds, 1)
        if self.privacy is not None and not isinstance(self.privacy, Privacy):
            raise ParameterError(
                f"privacy: expected Privacy(epsilon=..., delta=...) or None. Found {self.privacy!r}; an epsilon means "
                "nothing without its delta and unit."
            )
        if self.stream is not None and not isinstance(self.stream, Stream):
            raise CofactorError(f"stream: expected Stream(updates=...) or None. Found {self.stream!r}.")
        self._check_participation()
        by_share = isinstance(self.participation, ByShare)
        object.__setattr__(self, "share", 1.0 if by_share else float(self.participation))  # type: ignore[arg-type]
        object.__setattr__(self, "rows", None if self.privacy is None else self.privacy.rows)

    @cached_property
    def rule(self) -> Stop:
        """The stop rule."""
        return self.stop if isinstance(self.stop, Stop) else Stop(self.stop)

    def _check_participation(self) -> None:
        share = self.participation
        if isinstance(share, ByShare):
            if not (is_whole(share.count) and share.count >= 1):
                raise CofactorError(f"participation: expected a count of at least 1. Found {share.count}.")
            if self.privacy is not None:
                raise PrivacyError(BY_SHARE)
            if self.secure:
                raise CofactorError("participation: a draw by share weighs single messages; here is only their sum.")
        elif not (isinstance(share, Real) and 0 < share <= 1):
            raise CofactorError(f"participation must be in (0, 1]. Found {share}.")

    def participants(self, clients: int) -> int:
        """Return how many of the clients take part in a round (at most, with a draw by share)."""
        if isinstance(self.participation, ByShare):
            return min(self.participation.count, clients)
        return max(1, round(self.participation * clients))
