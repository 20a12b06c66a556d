"""A round of a dense client in one pass over its rows: both products while a block of them is in the last cache.

Codes, what is extrapolated, and their statistics are then made where they are used, too: of what a round takes beside
its products, little is left. All of it is done by the kernels of the single steps, in their order: to the bit.
"""

from __future__ import annotations

import numpy as np

from cofactor.local.kernels import cpu, dense_products
from cofactor.local.threads import each, lent
from cofactor.types import Array

BYTES = 9 << 19
"""Of a block of rows: what others leave of the last cache, and of little use for more."""


def fits(X: object, F: Array) -> bool:
    """Whether rows are dense and many, own kernels do every step, and chunks are as many for every thread.

    Where threads are more than chunks, each step is shared by all of them.
    """
    if not isinstance(X, np.ndarray) or X.dtype != F.dtype or not F.flags.c_contiguous:
        return False
    if dense_products.own_way(X, F, F.shape[1]) != "rows" or not dense_products.sums_grams(F):
        return False
    from cofactor.local.kernels import thin

    return len(X) >= thin.MANY and thin.CHUNKS % lent() == 0


def improve(X: Array, H: Array, gram: Array, F: Array, sweeps: int, momentum: float) -> tuple[Array, Array, Array]:
    """Return codes after sweeps from F (n x k), and of those extrapolated beyond F the gram and ``cross`` (k x m).

    Chunks of rows are shared by the threads that were lent; their sums are added in order.
    """
    from cofactor.local.kernels import thin
    from cofactor.local.kernels.grams import BLOCK, PART

    (n, k), parts, rows = F.shape, thin.panels(H), BLOCK
    while rows < PART and 2 * rows * X[0].nbytes <= BYTES:
        rows *= 2
    gram, new, grams = np.ascontiguousarray(gram), np.empty_like(F), np.zeros((-(-n // PART), k, k), F.dtype)

    def chunk(whole: slice) -> thin.Sums:
        sums, cross, ahead = thin.no_sums(X, k), np.empty((rows, k), F.dtype), np.empty((rows, k), F.dtype)
        for low in range(whole.start, whole.stop, rows):
            here = slice(low, min(low + rows, whole.stop))
            count = here.stop - low
            thin.dot_block(cross[:count], X[here], H, parts)
            into = new[here], ahead[:count], grams[low // PART :]
            cpu.codes_ahead(F[here], gram, cross[:count], sweeps, momentum, *into)
            thin.add_block(sums, X[here], ahead[:count])
        return sums

    sums = list(each(chunk, thin.chunks(n)))
    return new, grams.sum(axis=0), thin.added(sums)
