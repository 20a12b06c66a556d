"""Privacy that is true: clipping, mechanisms, the accountant, secure summation and audits."""

from __future__ import annotations

from cofactor.privacy.accountant import Budget, Cost, Ledger, Spend, Unit, spend
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.mechanisms import DiscreteGaussian, Gaussian, Laplace, RandomizedResponse
from cofactor.privacy.plan import Plan, Privacy
from cofactor.privacy.pld import Mechanism
from cofactor.privacy.randomness import Source

__all__ = [
    "Budget",
    "Cost",
    "DiscreteGaussian",
    "Gaussian",
    "Laplace",
    "Ledger",
    "Mechanism",
    "Plan",
    "Privacy",
    "PrivacyError",
    "RandomizedResponse",
    "Source",
    "Spend",
    "Unit",
    "spend",
]
