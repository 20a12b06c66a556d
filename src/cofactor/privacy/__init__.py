"""Privacy that is true: clipping, mechanisms, the accountant, secure summation and audits."""

from __future__ import annotations

from cofactor.privacy.accountant import Budget, Cost, Ledger, Mechanism, Spend, Unit, spend
from cofactor.privacy.allowance import Allowance, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.mechanisms import Gaussian
from cofactor.privacy.randomness import Source

__all__ = [
    "Allowance",
    "Budget",
    "Cost",
    "Gaussian",
    "Ledger",
    "Mechanism",
    "Privacy",
    "PrivacyError",
    "Source",
    "Spend",
    "Unit",
    "spend",
]
