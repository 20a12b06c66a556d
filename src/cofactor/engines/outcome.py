"""What comes out of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cofactor.engines.contract import Arrival
from cofactor.engines.history import DONE, Round
from cofactor.privacy.accountant import Ledger
from cofactor.types import Array


@dataclass(frozen=True)
class Run:
    """What came out: the shared factor (rows at norm 1, or bits), each client's codes, history, and ledger.

    ``epsilon`` is what all releases of this run together cost; infinite for a method without noise.
    ``remark`` is what a private method has to say of its factor, in words. Codes are there for clients on this machine;
    ``findings`` are what the work of every client returned. A stream has ``arrivals``. Clients that never answered, or
    were given up, are ``absent``; of these ``undrawn`` are those that nobody asked. ``ended`` is why it ended, one of
    :data:`~cofactor.engines.history.ENDED`.
    ``empty`` are components that nothing is made of: zeros, or without codes at any client; ``unsure`` those that other
    restarts, as good as the one that was kept, did not find; ``single`` those that are made of one row of all clients,
    which they may hold as it is. ``sizes`` says of how many rows each centre is the mean. ``share`` and
    ``stability`` of each component are there where the server knows them; components then come by their share. A
    consensus has a ``silhouette`` of each, and a ``clustergram``: distances between the components of its starts.
    ``short`` counts clients with too few rows for summaries of as many components as the rank.
    ``recent`` are the factors of the last rounds, oldest first, where they were looked at, in the order of the rounds.
    ``unobserved`` are features of which nobody observed a cell, or only in rows of zeros: the factor has 0 there.
    """

    factor: Array
    codes: list[Array] = field(repr=False)
    history: list[Round] = field(repr=False)
    ended: str = ""
    ledger: Ledger | None = None
    epsilon: float = math.inf
    arrivals: list[Arrival] = field(default_factory=list, repr=False)
    absent: tuple[int, ...] = ()
    findings: list[Any] = field(default_factory=list, repr=False)
    remark: str = ""
    empty: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    short: int = 0
    undrawn: tuple[int, ...] = ()
    single: tuple[int, ...] = ()
    sizes: Array | None = None
    share: Array | None = None
    stability: Array | None = None
    silhouette: Array | None = None
    clustergram: Array | None = None
    unobserved: tuple[int, ...] = ()
    recent: list[Array] = field(default_factory=list, repr=False)

    @property
    def converged(self) -> bool:
        """Whether it ended because nothing was left to do."""
        return self.ended in DONE

    @property
    def bytes(self) -> int:
        """Everything that was sent, up and down."""
        return sum(r.bytes_up + r.bytes_down for r in self.history)
