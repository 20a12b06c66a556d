"""A whole sweep, or many, for a block of rows that stays in registers: Triton, for CUDA devices."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "sweeps"])
def _sweep(F, C, G, inverse, n, sweeps, K: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    # F and C are k x n: a thread has some rows and all of their components, so that no sum crosses threads. ``n`` is
    # not specialized on purpose: were it known to be even, loads would be wide, and rows spread over threads. Code of
    # its own for every coordinate takes a minute to compile and five times as long to run: it leaves the cache.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = rows < n
    component = tl.arange(0, WIDE)
    inside = (component[:, None] < K) & here[None, :]
    places = component.to(tl.int64)[:, None] * n + rows[None, :]
    tile = tl.load(F + places, mask=inside, other=0)
    for _ in range(sweeps):
        for j in range(K):
            g = tl.load(G + j * K + component, mask=component < K, other=0)
            c = tl.load(C + tl.cast(j, tl.int64) * n + rows, mask=here, other=0)
            new = tl.maximum(c * tl.load(inverse + j) - tl.sum(g[:, None] * tile, axis=0), 0)
            tile = tl.where((component == j)[:, None], new[None, :], tile)
    tl.store(F + places, tile, mask=inside)


def hals(FT: Any, G: Any, inverse: Any, CT: Any, sweeps: int) -> None:
    """Sweep the rows of F = FT^T (FT k x n, contiguous) in place; G and inverse are ``tensor_sweeps.scaled``.

    A block of rows is one warp's: 64 of them up to 64 components of float32, 32 above (measured on an H200).
    """
    k, n = FT.shape
    if n == 0:
        return
    wide = max(triton.next_power_of_2(k), 16)
    words = wide * FT.element_size() // 4
    rows = 64 if words <= 64 and n > 50_000 else 32
    warps = 1 if n > 50_000 and words <= 128 else 2
    _sweep[(triton.cdiv(n, rows),)](FT, CT, G, inverse, n, sweeps, K=k, WIDE=wide, ROWS=rows, num_warps=warps)
