"""What a run writes down, one line per round, and what of its rounds follows from the traits of its method."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from cofactor.method import Traits, rng


class Round(NamedTuple):
    """One line of the history. ``loss`` is the method's own objective ``sum_j 1/2 |X_j - W_j H|^2`` in that round.

    Methods that average factors report the clients' losses with their own factors; ``drift`` is how far these
    were apart. Errors of the final factor come from the refitted codes instead. ``epsilon`` is what all releases up to
    this round cost together; NaN for a method without noise. Losses compare within a ``stage``, not across. ``moved``
    is how far the component of the factor that moved most has come since the round before, over the size of the
    largest; of a stream since every client has answered about once. ``net`` is how far a component has come in many
    rounds over the size of its steps in them, of the one that comes furthest: about 1 where it goes to and fro.
    ``ended`` is why the run ended with this round, one of ``ENDED``.
    """

    round: int
    loss: float
    drift: float
    bytes_up: int
    bytes_down: int
    seconds: float
    participants: int
    epsilon: float = math.nan
    stage: int = 0
    moved: float = math.nan
    net: float = math.nan
    ended: str = ""


ENDED = {
    "loss": "the loss has settled",
    "factor": "the factor stands still",
    "noise": "the factor stands still against its own noise",
    "plan": "all rounds of the method's own plan were run",
    "iterations": "the iterations of the method's own plan were used up before its loss had settled",
    "asked": "all rounds were run, as asked: tol 0 looks for no other end",
    "rounds": "the rounds were used up before it had settled",
    "few": "the rounds were used up, too few of them to judge whether it had settled",
    "precision": "it stands still as far as the precision of the data shows, which is coarser than tol",
    "callback": "a callback ended it",
}
"""Why a run ended."""
DONE = ("loss", "factor", "noise", "plan")
"""Ends at which nothing is left to do."""


EVENTS = "events.jsonl"


@dataclass(frozen=True)
class Event:
    """One line of ``EVENTS``: what happened to a client of a federation, or ("") to the run."""

    time: str
    client: str
    what: str


def event(client: str, what: str) -> dict[str, str]:
    """Return the line that says what happened just now."""
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "client": client, "what": what}


def stage_of(traits: Traits, t: int) -> int:
    """Return the number of the stage that round t of a method belongs to.

    >>> [stage_of(Traits(stages=(0, 2)), t) for t in range(4)]
    [0, 0, 1, 1]
    """
    return bisect_right(traits.stages, t) - 1


def draws(seed: int, who: int, t: int, *, unseeded: int = 0) -> np.random.Generator:
    """Return what a client or the server draws from in round t; in the first ``unseeded`` ones no seed counts."""
    return rng(0 if 0 <= t < unseeded else seed, who, t)


def adds_up(traits: Traits, t: int) -> bool:
    """Whether the messages of round t add up over the rows of stacked clients."""
    return traits.rowwise is not None and t >= traits.rowwise


def dtype_of(traits: Traits, dtypes: Sequence[Any]) -> np.dtype[Any]:
    """Return the type in which all clients step: the widest of theirs; in a private run on numbers double precision.

    There nothing may depend on what one of them holds, and no row is too large for it.
    """
    alone = traits.allowance is not None and traits.kind == "real"
    return np.dtype(np.float64) if alone else np.result_type(*dtypes)
