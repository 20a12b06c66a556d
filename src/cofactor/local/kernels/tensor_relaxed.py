"""Inertial proximal steps of relaxed bits on tensors: few kernels each, and no number is waited for."""

from __future__ import annotations

from typing import Any

from cofactor.local.tensors import precisely, torch


def inertial(F: Any, old: Any, gram: Any, cross: Any, beta: float) -> tuple[Any, Any]:
    """Return ``E - eta (E gram - cross)`` (rows x k), ``E = F + beta (F - old)``, and eta, a tensor of one number.

    ``eta = 2 (1 - beta) / (1 + 2 beta) / |gram|_F``, or 0 where there is no gram.
    """
    E = torch().lerp(old, F, 1 + beta) if beta else F
    norm = torch().linalg.vector_norm(gram)
    eta = torch().where(norm > 0, 2 * (1 - beta) / (1 + 2 * beta) / norm, 0)
    down = precisely(lambda A, B: torch().addmm(cross, A, B, beta=-1), E, gram)
    return torch().addcmul(E, down, -eta), eta


def elb(x: Any, kappa: Any, lam: Any) -> Any:
    """Return the prox of the elastic-binary regularizer, cell by cell."""
    low = x <= 0.5
    return torch().where(low, x - kappa, x + (kappa + lam)).mul_(1 / (1 + lam)).clamp_(0, 1)


def alb(x: Any, kappa: Any, lam: Any, shift: float) -> Any:
    """Return the prox of the adaptive regularizer, cell by cell."""
    low = x <= 0.5
    d = torch().where(low, x, 1 - x).clamp_(min=0)
    u = -torch().expm1(-shift * d)
    d = torch().where(d > kappa, u * (d - kappa) / (u + lam), 0)
    return torch().where(low, d, 1 - d)
