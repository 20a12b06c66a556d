"""Kullback-Leibler on tensors: a Triton kernel on a CUDA device, row blocks in torch anywhere else.

Nothing of the size of the data is made: the model's cells and their ratios live in registers, or in one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cofactor.local.kernels.counts import TINY
from cofactor.local.kernels.tensor_sweeps import has_triton
from cofactor.local.tensors import torch

MOST = 128
"""Components that the kernel takes; above it torch does the same, more slowly."""
CELLS = 1 << 26
"""Cells of a block in torch: 256 MB of float32."""


def codes(X: Any, W: Any, H: Any) -> Any:
    """``(X / (W H)) H^T`` (n x k) for X (n x m), W (n x k), H (k x m)."""
    if _is_for_triton(X, W, H):
        from cofactor.local.kernels import triton_sweeps

        return triton_sweeps.count_codes(X, W.contiguous(), H.contiguous(), TINY)
    if X.layout == torch().sparse_csr:
        out = torch().zeros_like(W)
        for rows, columns, ratio, _ in _entries(X, W, H):
            out.index_add_(0, rows, ratio[:, None] * H.T[columns])
        return out
    found = [(part.to(W.dtype) / (W[rows] @ H).clamp_(min=TINY)) @ H.T for rows, part in _blocks(X)]
    return torch().cat(found)


def factor(X: Any, W: Any, H: Any) -> tuple[Any, Any]:
    """``W^T (X / (W H))`` (k x m), and ``sum x log(x / y) - x`` over cells above 0, a number in double precision."""
    if _is_for_triton(X, W, H):
        from cofactor.local.kernels import triton_sweeps

        return triton_sweeps.count_factor(X, W.contiguous(), H.contiguous(), TINY)
    up, loss = torch().zeros_like(H), torch().zeros((), dtype=torch().float64, device=H.device)
    if X.layout == torch().sparse_csr:
        turned = torch().zeros((H.shape[1], len(H)), dtype=H.dtype, device=H.device)
        for rows, columns, ratio, x in _entries(X, W, H):
            turned.index_add_(0, columns, ratio[:, None] * W[rows])
            loss += (torch().xlogy(x, ratio) - x).sum(dtype=torch().float64)
        return turned.T, loss
    for rows, part in _blocks(X):
        x = part.to(W.dtype)
        ratio = x / (W[rows] @ H).clamp_(min=TINY)
        up += W[rows].T @ ratio
        loss += (torch().xlogy(x, ratio) - x).sum(dtype=torch().float64)
    return up, loss


def _is_for_triton(X: Any, W: Any, H: Any) -> bool:
    narrow = W.dtype == H.dtype == torch().float32 and X.dtype in (torch().float32, torch().bfloat16)
    whole = X.layout == torch().strided
    return bool(X.is_cuda and narrow and whole and X.is_contiguous() and len(H) <= MOST and has_triton())


def _blocks(X: Any) -> Iterator[tuple[slice, Any]]:
    step = max(1, CELLS // X.shape[1])
    for low in range(0, X.shape[0], step):
        rows = slice(low, low + step)
        yield rows, X[rows]


def _entries(X: Any, W: Any, H: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield (rows, columns, x / (W H), x) of what a CSR tensor stores, some at a time."""
    begins, columns, values = X.crow_indices(), X.col_indices(), X.values()
    rows = torch().repeat_interleave(torch().arange(len(W), device=W.device), begins.diff())
    step = max(1, CELLS // len(H))
    for low in range(0, len(values), step):
        i, j, x = (a[low : low + step] for a in (rows, columns, values))
        yield i, j, x / (W[i] * H.T[j]).sum(1).clamp_(min=TINY), x
