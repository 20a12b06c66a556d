"""What a run has spent, as its ledger says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cofactor.assurance import ledger
from cofactor.assurance.ledger import Line
from cofactor.privacy.accountant import Spend
from cofactor.records import PrivacyRecord

NONE = "no finite epsilon: releases without noise"


@dataclass(frozen=True)
class Spending:
    """What all releases in a ledger cost, in how many rounds, and of what budget (None: there was none)."""

    rounds: int
    spent: PrivacyRecord
    budget: PrivacyRecord | None


def record(spend: Spend) -> PrivacyRecord:
    """Return a spend with everything that an epsilon means nothing without."""
    epsilon = spend.epsilon if math.isfinite(spend.epsilon) else None
    about = str(spend.unit), spend.relation, spend.accountant, str(spend), spend.honest
    return PrivacyRecord(spend.private, epsilon, spend.delta, *about)


def spending(lines: Sequence[Line], budget: PrivacyRecord | None) -> Spending:
    """Return what the lines of a ledger cost together."""
    rounds = len({line.entry["round"] for line in lines if line.entry})
    spent = ledger.spent(lines, budget.delta) if budget and budget.delta else None
    if spent is not None:
        return Spending(rounds, record(spent), budget)
    if budget and not lines:
        return Spending(0, replace(budget, epsilon=0.0, text="nothing yet"), budget)
    return Spending(rounds, PrivacyRecord(False, text=NONE), budget)
