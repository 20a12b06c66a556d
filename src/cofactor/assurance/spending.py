"""What a run has spent: what was charged before its rounds, whether or not all of it was released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cofactor.privacy.accountant import Spend, spend
from cofactor.privacy.charges import Costs
from cofactor.records import PrivacyRecord

NONE = "no finite epsilon: releases without noise"


@dataclass(frozen=True)
class Spending:
    """What a run costs so far, in how many rounds, and of what budget (None: there was none)."""

    rounds: int
    spent: PrivacyRecord
    budget: PrivacyRecord | None


def record(spend: Spend) -> PrivacyRecord:
    """Return a spend with everything that an epsilon means nothing without."""
    epsilon = spend.epsilon if math.isfinite(spend.epsilon) else None
    about = str(spend.unit), spend.relation, spend.accountant, str(spend), spend.honest
    return PrivacyRecord(spend.private, epsilon, spend.delta, *about)


def spending(charged: Sequence[Costs], budget: PrivacyRecord | None, rounds: int = 0) -> Spending:
    """Return what the charges of a private run cost together; ``rounds`` are those of a run without a budget."""
    if budget is None or not budget.delta:
        return Spending(rounds, PrivacyRecord(False, text=NONE), budget)
    if not charged:
        return Spending(0, replace(budget, epsilon=0.0, text="nothing yet"), budget)
    costs = [cost for paid in charged for cost in paid.values()]
    return Spending(len(charged), record(spend(costs, budget.delta)), budget)
