"""Boolean factorization of one client's data: bits, refit, sweeps, proxes and five local factorizers.

``X ~ W o H`` with 0/1 codes W (n x k), a 0/1 factor H (k x m) and ``(W o H)_ij = OR_l W_il and H_lj``. Every
function is pure and local; counts and tallies are additive, so their sums over clients are those of the
stacked rows. The factorizers are ``asso.factorize``, ``elbmf.factorize``, ``grecond.factorize``,
``mebf.factorize`` and ``zhang.factorize``, each ``(X, rank, rng) -> (W, H)``.
"""

from cofactor.boolean import asso, elbmf, grecond, mebf, zhang
from cofactor.boolean.bits import (
    Bits,
    Tally,
    are_bits,
    check_boolean,
    error,
    loss,
    pack,
    product,
    tally,
    unpack,
)
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.elbmf import Relaxation, ipalm_step
from cofactor.boolean.prox import alb_prox, elb_prox, lam_at
from cofactor.boolean.sweeps import (
    Changes,
    changes,
    choose_all,
    polish,
    prices,
    reseed,
    sweep,
    uncovered,
    worth,
)

__all__ = [
    "Bits",
    "Changes",
    "Relaxation",
    "Tally",
    "alb_prox",
    "are_bits",
    "asso",
    "changes",
    "check_boolean",
    "choose_all",
    "elb_prox",
    "elbmf",
    "error",
    "grecond",
    "greedy_refit",
    "ipalm_step",
    "lam_at",
    "loss",
    "mebf",
    "pack",
    "polish",
    "prices",
    "product",
    "reseed",
    "sweep",
    "tally",
    "uncovered",
    "unpack",
    "worth",
    "zhang",
]
