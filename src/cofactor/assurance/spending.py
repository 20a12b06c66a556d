"""What a run has spent: what was charged before its rounds, whether or not all of it was released."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cofactor.assurance import ledger
from cofactor.files import lines_of
from cofactor.privacy.accountant import Spend, spend
from cofactor.privacy.charges import Costs, costs_from
from cofactor.records import Evaluation, PrivacyRecord, decode, load

TOTAL, LAST, HISTORY = "privacy.json", "evaluation.json", "history.jsonl"
"""What tells a total, of which the second is written last of all, and what tells one for every round."""
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


def untrue(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Say which results of a run whose ledger holds tell another total than its charges, or its budget, come to.

    Lines and manifest are signed, what tells of them is not. A client of a federation tells the budget.
    """
    if manifest.get("privacy") is None:
        return []
    budget = decode(PrivacyRecord, manifest["privacy"], "manifest.json")
    paid = {line.entry["round"]: line.entry["costs"] for line in ledger.read(folder / ledger.CHARGES, ledger.CHARGES)}
    spent = spending([costs_from(costs, ledger.CHARGES) for costs in paid.values()], budget).spent
    told = {TOTAL: _told(folder / TOTAL), LAST: _told(folder / LAST)}
    over = (folder / LAST).exists()  # until then what is not there is still to come
    return _untrue_rounds(folder / HISTORY, paid, budget) + [
        f"{name}: expected the total of what was charged, {spent.text}, found another one, or none: it was changed"
        for name, total in told.items()
        if (over or (folder / name).exists()) and (total is None or not (_same(total, spent) or total == budget))
    ]


def _untrue_rounds(file: Path, paid: Mapping[int, Any], budget: PrivacyRecord) -> list[str]:
    """Say which round of the history tells another epsilon than what was charged up to it; of none nothing is told."""
    for line in map(_round, lines_of(file)):
        t, told = line.get("round"), line.get("epsilon")
        if told is None or told == budget.epsilon or not isinstance(t, int):
            continue
        costs = [costs_from(paid[s], ledger.CHARGES) for s in range(t + 1) if s in paid]
        spent = spending(costs, budget).spent
        if not isinstance(told, int | float) or not math.isclose(told, spent.epsilon or 0.0, rel_tol=1e-9):
            return [
                f"{HISTORY}, round {t}: expected the epsilon of what was charged up to it, {spent.text}, found "
                f"{told}: it was changed"
            ]
    return []


def _round(text: str) -> dict[str, Any]:
    """Read a line of the history; of one that was cut off nothing."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def _told(file: Path) -> PrivacyRecord | None:
    """Return the total that a result tells, if it is there and tells one."""
    if not file.exists():
        return None
    return load(Evaluation, file).privacy if file.name == LAST else load(PrivacyRecord, file)


def _same(told: PrivacyRecord, spent: PrivacyRecord) -> bool:
    """Whether totals are the same, epsilons up to rounding: they may have been added up in another order."""
    a, b = (math.inf if one.epsilon is None else one.epsilon for one in (told, spent))
    return math.isclose(a, b, rel_tol=1e-9) and replace(told, epsilon=None) == replace(spent, epsilon=None)
