"""Whole sweeps, and the sums of Kullback-Leibler, for a block that stays in registers: Triton, for CUDA devices."""

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


def _tile(wide: int) -> dict[str, int]:
    """Rows, columns, warps and stages of a block of Kullback-Leibler: the best of 54 on an H200 at 64 components."""
    rows, columns, warps, stages = (64, 64, 4, 2) if wide <= 64 else (64, 32, 4, 3)
    return {"WIDE": wide, "ROWS": rows, "COLUMNS": columns, "num_warps": warps, "num_stages": stages}


@triton.jit(do_not_specialize=["n", "m"])
def _count_codes(  # type: ignore[no-untyped-def]
    X, W, H, out, n, m, tiny, K: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    # A block of rows stays while the columns pass by: the model's cells and the ratios are never written.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    component, column = tl.arange(0, WIDE), tl.arange(0, COLUMNS)
    here, alive = rows < n, component < K
    w = tl.load(W + rows[:, None] * K + component[None, :], mask=here[:, None] & alive[None, :], other=0.0)
    total = tl.zeros((ROWS, WIDE), tl.float32)
    for low in range(0, m, COLUMNS):
        there = low + column < m
        places = component.to(tl.int64)[:, None] * m + (low + column)[None, :]
        h = tl.load(H + places, mask=alive[:, None] & there[None, :], other=0.0)
        x = tl.load(X + rows[:, None] * m + (low + column)[None, :], mask=here[:, None] & there[None, :], other=0.0)
        ratio = x.to(tl.float32) / tl.maximum(tl.dot(w, h, input_precision="tf32x3"), tiny)
        total += tl.dot(ratio, tl.trans(h), input_precision="tf32x3")
    tl.store(out + rows[:, None] * K + component[None, :], total, mask=here[:, None] & alive[None, :])


@triton.jit(do_not_specialize=["n", "m", "each"])
def _count_factor(  # type: ignore[no-untyped-def]
    X, W, H, out, loss, n, m, each, tiny, K: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    # A block of columns stays while some of the rows pass by; parts of the sum are written, and added by the caller.
    columns = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    component, row = tl.arange(0, WIDE), tl.arange(0, ROWS)
    here, alive = columns < m, component < K
    places = component.to(tl.int64)[:, None] * m + columns[None, :]
    h = tl.load(H + places, mask=alive[:, None] & here[None, :], other=0.0)
    total = tl.zeros((WIDE, COLUMNS), tl.float32)
    lost = tl.zeros((COLUMNS,), tl.float32)
    begin = tl.program_id(1).to(tl.int64) * each
    for low in range(0, each, ROWS):
        rows = begin + low + row
        there = (rows < n) & (low + row < each)
        w = tl.load(W + rows[:, None] * K + component[None, :], mask=there[:, None] & alive[None, :], other=0.0)
        seen = there[:, None] & here[None, :]
        x = tl.load(X + rows[:, None] * m + columns[None, :], mask=seen, other=0.0).to(tl.float32)
        ratio = x / tl.maximum(tl.dot(w, h, input_precision="tf32x3"), tiny)
        total += tl.dot(tl.trans(w), ratio, input_precision="tf32x3")
        lost += tl.sum(tl.where(x > 0, x * tl.log(tl.where(x > 0, ratio, 1.0)) - x, 0.0), axis=0)
    part = tl.program_id(1).to(tl.int64)
    tl.store(out + part * K * m + places, total, mask=alive[:, None] & here[None, :])
    tl.store(loss + part * m + columns, lost, mask=here)


def count_codes(X: Any, W: Any, H: Any, tiny: float) -> Any:
    """``(X / (W H)) H^T`` (n x k) in float32 for contiguous X (n x m), W (n x k) and H (k x m), k up to 128."""
    (n, m), k = X.shape, len(H)
    out = W.new_empty((n, k))
    tile = _tile(max(triton.next_power_of_2(k), 16))
    _count_codes[(triton.cdiv(n, tile["ROWS"]),)](X, W, H, out, n, m, tiny, K=k, **tile)
    return out


def count_factor(X: Any, W: Any, H: Any, tiny: float) -> tuple[Any, Any]:
    """``W^T (X / (W H))`` (k x m), and ``sum x log(x / y) - x`` in double precision; shapes as for the codes."""
    (n, m), k = X.shape, len(H)
    tile = _tile(max(triton.next_power_of_2(k), 16))
    tiles = triton.cdiv(m, tile["COLUMNS"])
    parts = max(1, min(triton.cdiv(2000, tiles), triton.cdiv(n, 512), 64))
    each = triton.cdiv(triton.cdiv(n, parts), tile["ROWS"]) * tile["ROWS"]
    parts = triton.cdiv(n, each)
    out, loss = H.new_empty((parts, k, m)), H.new_empty((parts, m))
    _count_factor[(tiles, parts)](X, W, H, out, loss, n, m, each, tiny, K=k, **tile)
    return out.sum(0), loss.double().sum()
