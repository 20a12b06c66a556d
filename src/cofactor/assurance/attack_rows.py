"""Rows that attack a bound: the smallest and largest numbers there are, empty, constant, sharp and orthogonal ones.

For any finite row, what it moves in a release before noise must be within the bound of that release: dense or sparse,
in single or double precision. What is measured here needs no luck: there is no noise in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.assurance.worst_case import scaled, small_clients, step_of
from cofactor.privacy.accountant import Unit
from cofactor.privacy.errors import HostileInputError
from cofactor.privacy.grid import on_grid
from cofactor.types import Array, Data, Shared

LAYOUTS: dict[str, Callable[[Array], Data]] = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}
PRECISIONS = ("float64", "float32")


def attack_rows(m: int, precision: str = "float64", *, long: float = 1e4) -> dict[str, Array]:
    """Return rows (m) by name, of one precision; ``long`` is far above the bound of a row."""
    kind, one = np.finfo(precision), np.zeros(m)
    one[0] = 1.0
    # squares of the first are zero, of the second the smallest number: a norm of raw squares misses most of the row
    vanishing, surviving = (1.5e-162, 1.6e-162) if precision == "float64" else (2.6e-23, 2.7e-23)
    overflowing = 1e300 if precision == "float64" else 3e38
    half = np.arange(m) % 2 == 0
    found = {
        "zero": 0 * one,
        "constant": np.ones(m),
        "one-hot": one,
        "long one-hot": long * one,
        "long": long * np.linspace(0.1, 1.0, m),
        "random": np.random.default_rng(0).random(m),
        "long and random": long * np.random.default_rng(1).random(m),
        "sharp and random": np.random.default_rng(2).random(m) ** 8,
        "short": 1e-9 * np.linspace(0.1, 1.0, m),
        "orthogonal": np.where(half, 1.0, 0.0),
        "squares vanish": np.full(m, vanishing),
        "one square survives": np.where(one > 0, surviving, vanishing),
        "denormal": np.full(m, float(kind.smallest_subnormal)),
        "denormal one-hot": float(kind.smallest_subnormal) * one,
        "huge": np.full(m, overflowing),
        "largest": np.full(m, float(kind.max)),
        "largest one-hot": float(kind.max) * one,
        "all sizes": np.where(half, overflowing, vanishing),
    }
    return {name: row.astype(precision) for name, row in found.items()}


class Moved(NamedTuple):
    """How far a unit moved an array at most, over its bound, and which one that was; above 1 the claim is wrong."""

    name: str
    share: float
    by: str = ""

    @property
    def passed(self) -> bool:
        """Whether the bound held."""
        return self.share <= 1.0 + 1e-9


def sensitivity(method: Any, t: int, *, seed: int = 0) -> list[Moved]:
    """Add one attacking unit after the other, and measure without noise how far each one moves every array."""
    silent = scaled(method, 0.0)
    start, (base, *_) = small_clients(silent, 1, seed)
    worst: dict[str, Moved] = {}
    for shared in silent.late(start, t):
        without = _Without(silent, shared, t)
        for by, before, after in units(method, base):
            for name, share in _moves_or_refusal(without, before, after):
                if share > worst.get(name, Moved(name, -1.0)).share:
                    worst[name] = Moved(name, share, by)
    return list(worst.values())


def units(method: Any, base: Array) -> Iterator[tuple[str, Data | None, Data]]:
    """Yield names of attacks with data before and after one unit was added; None is a client with nothing."""
    bits, long = method.traits.kind == "boolean", 1e4 * (method.allowance.privacy.clip or 1.0)
    by_client = method.allowance.privacy.unit is Unit.CLIENT
    for precision in PRECISIONS:
        rows, kind = attack_rows(base.shape[1], precision, long=long), base.dtype if bits else precision
        layouts = {"dense": LAYOUTS["dense"]} if bits else LAYOUTS
        without = {layout: None if by_client else make(base.astype(kind)) for layout, make in layouts.items()}
        for name, found in rows.items():
            row = (found > 0).astype(kind) if bits else found
            whole = np.vstack([row] * len(base)) if by_client else np.vstack([base.astype(kind), row])
            for layout, make in layouts.items():
                yield f"{name}, {precision}, {layout}", without[layout], make(whole)


class _Without:
    """What is sent without noise in one state; of data without the unit, which many units have in common, once."""

    def __init__(self, silent: Any, shared: Shared, t: int) -> None:
        self.silent, self.shared, self.t = silent, shared, t
        self.known: dict[int, dict[str, Any]] = {}

    def sent(self, data: Data) -> Any:
        return step_of(self.silent, data, self.shared, self.t, np.random.default_rng(0))

    def before(self, data: Data | None) -> dict[str, Any]:
        if data is None:
            return {}
        if id(data) not in self.known:
            self.known[id(data)] = self.sent(data).arrays
        return self.known[id(data)]


def _moves_or_refusal(without: _Without, before: Data | None, after: Data) -> list[tuple[str, float]]:
    """Return how far every array was moved; infinitely far where the message was refused, which all would see."""
    try:
        with np.errstate(all="ignore"):  # of a broken mechanism, which is to be measured
            return list(_moves(without, before, after))
    except HostileInputError:
        return [(name, np.inf) for name in without.silent.allowance.shares[without.t]]


def _moves(without: _Without, before: Data | None, after: Data) -> Iterator[tuple[str, float]]:
    new, old = without.sent(after), without.before(before)
    for name, a in new.arrays.items():
        moved = float(np.linalg.norm(np.ravel(a - old.get(name, 0.0))))
        yield name, moved / on_grid(new.cost[name].clip, np.size(a))
