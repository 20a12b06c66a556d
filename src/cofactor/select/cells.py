"""Factorize without the held-out cells, and score them: the codes of a row never see the cells it hides."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.local.stats import normalize
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.select import cell_kernels, holdout
from cofactor.select.holdout import Holdout
from cofactor.types import Array, Data

BEGUN, ITERATIONS, IMPROVING = 10, 20, 3
"""Rounds on data whose hidden cells are guessed, iterations on the kept cells alone, sweeps of each half of them."""
LOOKING = 8
"""Iterations where only ranks are compared: the others move errors by less than a rank does."""
LADDER = 1.5
"""Ratio of one rank to the next where a client looks for its own best one."""
PATIENCE = 2
GROUPS = 4
"""Groups of rows whose errors a client reports apart, so that few clients give a standard error too."""
SWEEPS, TOL = 200, 1e-4
RIDGE = 0.05
"""The largest share of the energy ``h^2`` that a held-out cell still puts on the diagonal of its row's gram.

Without it a component that lies almost wholly in held-out cells of a row gets any code at all, and one such
cell outweighs all others (digits, rank 30: a held-out error of 10^5 instead of 0.4). It is no more than the factor
leaves of the data: clean data need none, and codes that are held back ask for components that are not there.
"""


class Score(NamedTuple):
    """Squared errors of one factor at one client: held-out (groups; weighted) and over the kept cells."""

    heldout: Array
    training: float


class Masked(NamedTuple):
    """Data and the cells they hide, as factorizations of any rank need them: made once, by :func:`masked`.

    ``known`` has zeros at the hidden cells, ``guessed`` first guesses; ``in_rows`` and ``in_columns`` say where the
    hidden cells of every row and of every column begin, and which they are.
    """

    held: Holdout
    known: Data
    guessed: Data
    in_rows: tuple[Array, Array]
    in_columns: tuple[Array, Array]


def masked(X: Data, held: Holdout) -> Masked:
    """Hide cells of X (n x m)."""
    known, (n, m) = holdout.kept(X, held), X.shape
    guessed = holdout.fill(X, held, holdout.first_guess(known, held))
    return Masked(held, known, guessed, (held.starts(n), held.columns), held.by_column(m))


def factorize(
    data: Masked, rank: int, rng: np.random.Generator, *, iterations: int = ITERATIONS
) -> tuple[Array, Array]:
    """Minimize ``sum over kept cells (X - W H)^2``: return (W, H), rows of H at norm 1.

    Rounds on data whose hidden cells are guessed are where it begins. Then W and H are improved in turn, every row of W
    and every column of H with the gram of its own kept cells, so that no component is spent on what was guessed. The
    codes that are returned are those by which :func:`scores` judges H.
    """
    W, H = Alone(Summed(rank), rounds=BEGUN)(data.guessed, rank, rng)
    W, F = (np.ascontiguousarray(a, dtype=np.float64) for a in (W, H.T))
    known = data.known
    for _ in range(iterations):
        _improve(W, F, arrays.times_factor(known, F.T.astype(known.dtype)), data.in_rows)
        _improve(F, W, arrays.times_codes(known, W.astype(known.dtype)), data.in_columns)
    H = normalize(F.T)
    return _held_back(known, H, data.held, arrays.square(known))[0], H


def _improve(F: Array, B: Array, cross: Array, hidden: tuple[Array, Array]) -> None:
    """Improve F (rows x k) in ``sum over kept cells (X - F B^T)^2``, in place; ``hidden`` are cells of its rows."""
    stats = B.T @ B, np.ascontiguousarray(cross, dtype=np.float64)
    cell_kernels.masked_hals(F, stats, B, hidden, (0.0, IMPROVING, 0.0))


def own_rank(X: Data, most: int, *, held: Holdout, share: float, rng: np.random.Generator) -> int:
    """Return the rank, at most ``most``, at which the client alone best predicts a further ``share`` of cells.

    A client that factorizes at a higher rank fits its own noise; the factor of the union then carries it on. Ranks are
    tried far apart first, then between the best one and its neighbours.
    """
    inner = holdout.draw(X, share, rng)
    both, hidden = holdout.union(held, inner, X.shape)
    data, truth, errors = masked(X, both), holdout.values(X, both), dict[int, float]()

    def look(rank: int) -> None:
        W, H = factorize(data, rank, rng, iterations=LOOKING)
        errors[rank] = float((both.weights * (truth - predict(W, H, both)) ** 2)[hidden].sum())

    worse = 0
    for rank in _ladder(most):
        least = min(errors.values(), default=np.inf)
        look(rank)
        worse = 0 if errors[rank] < least else worse + 1
        if worse == PATIENCE:
            break
    while True:
        best = min(errors, key=errors.__getitem__)
        near = [(a + b) // 2 for a, b in pairwise(sorted(errors)) if best in (a, b) and b - a > 1]
        if not near:
            return best
        for rank in near:
            look(rank)


def _ladder(most: int) -> list[int]:
    """Ranks 1, 2, 3, 5, 8, ... up to ``most``."""
    steps = range(int(np.ceil(np.log(max(most, 1)) / np.log(LADDER))) + 1)
    return sorted({min(round(LADDER**i), most) for i in steps})


def predict(W: Array, H: Array, held: Holdout) -> Array:
    """``(W H)`` at the held-out cells (cells)."""
    columns = np.ascontiguousarray(H.T, dtype=np.float64)
    return cell_kernels.products(np.ascontiguousarray(W, dtype=np.float64), columns, held.rows, held.columns)


def scores(X: Data, factors: list[Array], held: Holdout) -> list[Score]:
    """Score factors (k x m each) on one client: codes from the kept cells, errors on both kinds of cells."""
    known, hidden = holdout.kept(X, held), holdout.values(X, held)
    square, out = arrays.square(known), []
    for H in factors:
        W, gain = _held_back(known, H, held, square)
        errors = held.weights * (hidden - predict(W, H, held)) ** 2
        out.append(Score(grouped(held, errors), max(square + gain, 0.0)))
    return out


def grouped(held: Holdout, amounts: Array) -> Array:
    """Sum amounts (cells) over the groups of rows (groups)."""
    return np.bincount(held.rows % GROUPS, weights=amounts, minlength=GROUPS)


def _held_back(known: Data, H: Array, held: Holdout, square: float) -> tuple[Array, float]:
    """Return what :func:`_solve` does with a ridge as large as the share of ``|X|^2`` that is left, or ``RIDGE``."""
    W, gain = _solve(known, H, held, ridge=RIDGE, sweeps=SWEEPS, tol=TOL)
    rest = max(square + gain, 0.0)
    if rest >= RIDGE * square:
        return W, gain
    return _solve(known, H, held, ridge=rest / square, sweeps=SWEEPS, tol=TOL)


def _solve(known: Data, H: Array, held: Holdout, *, ridge: float, sweeps: int, tol: float) -> tuple[Array, float]:
    """Return ``argmin_{W >= 0} sum over kept cells (X - W H)^2`` by HALS (n x k), and that sum ``- |X|^2``.

    Row i has the gram ``H H^T - sum over its held-out cells c of (h_c h_c^T - ridge diag(h_c^2))``, with the
    columns ``h_c`` of H, and the cross ``sum over its kept cells x_ic h_c``.
    """
    H = H.astype(np.float64, copy=False)
    cross = np.ascontiguousarray(arrays.times_factor(known, H.astype(known.dtype)), dtype=np.float64)
    W, columns = np.zeros(cross.shape), np.ascontiguousarray(H.T)
    cells = (held.starts(len(W)), held.columns)
    gain = cell_kernels.masked_hals(W, (H @ H.T, cross), columns, cells, (ridge, sweeps, tol))
    return W, float(gain)
