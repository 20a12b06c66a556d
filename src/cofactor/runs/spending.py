"""What a run has spent, as its ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cofactor.runs import ledger, private
from cofactor.runs.folder import RunFolder

NONE = "no finite epsilon: releases without noise"


def spending(run: Path) -> dict[str, Any]:
    """Return the spend of all releases in a run's ledger, with its unit, relation and accountant, and the budget."""
    folder = RunFolder.open(run)
    manifest, lines = folder.manifest(), ledger.read(folder.path / ledger.FILE)
    rounds = len({line.entry["round"] for line in lines if line.entry})
    budget = manifest.get("privacy")
    spent = ledger.spent(lines, budget["delta"]) if budget else None
    if spent is not None:
        return {"rounds": rounds, **private.record(spent), "budget": budget}
    if budget and not lines:
        return {"rounds": 0, **budget, "epsilon": 0.0, "text": "nothing yet", "budget": budget}
    nothing = dict.fromkeys(("epsilon", "delta", "unit", "relation", "accountant"))
    return {"rounds": rounds, "private": False, **nothing, "text": NONE, "budget": budget}
