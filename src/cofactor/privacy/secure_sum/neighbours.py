"""Who masks with whom: everybody with everybody, or, for many clients, each with a few (Bell et al. 2020).

Many clients stand in a circle, in an order that the session's name draws. Each shares its masks and the shares of its
secrets with the k that stand nearest (a Harary graph with a random order), so its work grows with k and not with the
number of clients. What then holds, holds but for a small chance, which :func:`exposed` and :func:`unfinished` bound.

Bell, Bonawitz, Gascon, Lepoint and Raykova 2020, "Secure single-server aggregation with (poly)logarithmic overhead".
"""

from __future__ import annotations

import hashlib
import math
import struct
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from cofactor.privacy.errors import ParameterError

MIN_CLIENTS = 3
FULL = 100
"""Up to so many clients everybody masks with everybody: fewer neighbours would save little."""
COLLUDERS = 5
"""With neighbours, one in so many clients may put what it knows together with the server's."""
HIDDEN, DONE = 2.0**-40, 2.0**-20
"""The chance, in a round, that so many colluders see more than the sum; that with as many absent clients as the
threshold allows the sum cannot be unmasked."""


def _hypergeom() -> Any:
    """Return scipy's distribution; its module is a third of a second that small runs need not wait for."""
    from scipy.stats import hypergeom

    return hypergeom


def check_enough(clients: int) -> None:
    """Refuse a sum over so few that it would tell of one of them."""
    if clients < MIN_CLIENTS:
        raise ParameterError(f"secure summation needs at least {MIN_CLIENTS} clients. Found {clients}.")


def threshold(clients: int) -> int:
    """Return ``floor(2c/3) + 1``: how many of c clients must answer, at least three."""
    check_enough(clients)
    return 2 * clients // 3 + 1


class Bound(NamedTuple):
    """What masks among so many clients stand.

    Each client has ``neighbours``, of whom ``shares`` must put theirs together to rebuild one of its secrets. At most
    ``colluders`` learn no more than the sum but for the chance ``exposed``; up to ``absent`` clients may drop out, and
    the sum is unmasked but for the chance ``unfinished``.
    """

    clients: int
    neighbours: int
    shares: int
    colluders: int
    absent: int
    exposed: float
    unfinished: float

    def __str__(self) -> str:
        if self.neighbours == self.clients - 1:
            return f"each of {self.clients} clients masks with all others; at most {self.colluders} may collude"
        risk = f"but for a chance of 2^{math.log2(self.exposed):.0f} in each round"
        most = f"at most {self.colluders} may collude, {risk}"
        return f"each of {self.clients} clients masks with {self.neighbours} others; {most}"


def exposed(clients: int, neighbours: int, shares: int, *, colluders: int, absent: int) -> float:
    """Bound the chance that colluders and the server see more than the sum of the others.

    They do where ``shares`` neighbours of one client collude (both of its secrets can be rebuilt), or where the others
    fall apart into groups without a mask between them: ``c P[X >= t] + P[two gaps]`` with X hypergeometric, and a gap
    ``k/2`` colluders or absent clients in a row.
    """
    taken = clients * float(_hypergeom().sf(shares - 1, clients - 1, colluders, neighbours))
    return min(1.0, taken + _apart(clients, neighbours, colluders + absent))


def _apart(clients: int, neighbours: int, missing: int) -> float:
    """Bound the chance that a circle falls apart: where k of them, in two rows of k/2, are missing."""
    if neighbours == clients - 1 or missing < neighbours:
        return 0.0
    log = sum(math.log((missing - i) / (clients - i)) for i in range(neighbours))
    return math.exp(log) * math.comb(clients, 2)


def unfinished(clients: int, neighbours: int, shares: int, *, absent: int) -> float:
    """Bound the chance that of the neighbours of some client fewer than ``shares`` stay: ``c P[Y < t]``."""
    return min(1.0, clients * float(_hypergeom().cdf(shares - 1, clients - 1, clients - absent - 1, neighbours)))


@cache
def bound(clients: int) -> Bound:
    """Return with how many neighbours a round of so many clients goes, and what that stands.

    All others up to ``FULL`` clients; above, the fewest with which one in ``COLLUDERS`` clients is no danger.
    """
    check_enough(clients)
    absent = clients - threshold(clients)
    if clients > FULL:
        colluders = clients // COLLUDERS
        for neighbours in range(2, clients - 1, 2):
            shares = fewest_shares(clients, neighbours, colluders=colluders, absent=absent)
            if shares is not None:
                risk = exposed(clients, neighbours, shares, colluders=colluders, absent=absent)
                lost = unfinished(clients, neighbours, shares, absent=absent)
                return Bound(clients, neighbours, shares, colluders, absent, risk, lost)
    return Bound(clients, clients - 1, threshold(clients), threshold(clients) - 1, absent, 0.0, 0.0)


def fewest_shares(clients: int, neighbours: int, *, colluders: int, absent: int) -> int | None:
    """Return the smallest t with both chances small enough; None if there is none for so few neighbours."""
    tails = _hypergeom().sf(np.arange(neighbours + 1), clients - 1, colluders, neighbours)  # P[X > t - 1]
    least = int(np.argmax(clients * tails <= HIDDEN / 2)) + 1
    risky = exposed(clients, neighbours, least, colluders=colluders, absent=absent) > HIDDEN
    return None if risky or unfinished(clients, neighbours, least, absent=absent) > DONE else least


def circle(tag: bytes, clients: tuple[int, ...]) -> tuple[int, ...]:
    """Return the clients in the order that a session draws: by ``SHA-256(tag, client)``."""
    return tuple(
        sorted(clients, key=lambda c: hashlib.sha256(b"cofactor circle 1" + tag + struct.pack(">q", c)).digest())
    )
