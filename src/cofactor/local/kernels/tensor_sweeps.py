"""Coordinate descent on tensors: a Triton kernel on a CUDA device, and the same loops in torch anywhere else.

Tensors of rows x k are kept component by component in memory (their transpose is contiguous): a kernel then reads and
writes whole lines of rows, and so do the products that make them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cofactor.local.tensors import torch

MOST = 256
"""Components that the kernel takes; above it torch does the same, more slowly."""
CHUNK = 8
"""Sweeps between two looks at whether rows still move."""


def hals(F: Any, gram: Any, cross: Any, sweeps: int, tol: float = 0.0) -> Any:
    """Return F (rows x k) after ``sweeps``, or until no row moves by more than ``tol`` of its norm in some of them."""
    G, inverse = scaled(gram)
    FT, CT = F.T.clone(memory_format=torch().contiguous_format), cross.T.contiguous()
    once = _on_device if FT.is_cuda and FT.shape[0] <= MOST and has_triton() else _in_torch
    if tol <= 0:
        once(FT, G, inverse, CT, sweeps)
        return FT.T
    for done in range(0, sweeps, CHUNK):
        before = FT.clone()
        once(FT, G, inverse, CT, min(CHUNK, sweeps - done))
        moved, size = (before - FT).square().sum(0), FT.square().sum(0)
        if bool((moved <= tol * tol * size).all()):
            break
    return FT.T


def scaled(gram: Any) -> tuple[Any, Any]:
    """Return what a sweep multiplies by: rows of the gram over its diagonal, which is 0 there, and the inverse (k).

    The new coordinate is ``[inverse_j c_j - sum_p G_jp f_p]_+``. Where the diagonal is 0 the row is ``-e_j``, so that
    the coordinate stays as it is.
    """
    own = gram.diagonal()
    alive = own > 0
    inverse = torch().where(alive, 1 / torch().where(alive, own, 1), 0)
    whole = torch().eye(len(gram), dtype=gram.dtype, device=gram.device)
    G = gram * inverse[:, None] * (1 - whole) - whole * (~alive)[:, None]
    return G.contiguous(), inverse


def _in_torch(FT: Any, G: Any, inverse: Any, CT: Any, sweeps: int) -> None:
    """Sweep in place, one coordinate of all rows at a time."""
    scaled_cross = CT * inverse[:, None]
    for _ in range(sweeps):
        for j in range(len(FT)):
            torch().clamp(scaled_cross[j] - G[j] @ FT, min=0, out=FT[j])


def _on_device(FT: Any, G: Any, inverse: Any, CT: Any, sweeps: int) -> None:
    """Sweep in place, a block of rows in the registers of a warp."""
    from cofactor.local.kernels import triton_sweeps

    triton_sweeps.hals(FT, G, inverse, CT, sweeps)


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
