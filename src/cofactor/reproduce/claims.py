"""Verdicts: what a paper says, what was measured here, and whether the one follows from the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from cofactor.reproduce.experiment import Experiment, Settings, Where, chosen
from cofactor.types import unknown

YES, CORRECTED, NO, OPEN = "reproduced", "reproduced with correction", "not reproduced", "not run"
HOLDS, FAILS = "holds", "does not hold"
"""Verdicts on what no paper says: claims of this project, whose entry ``paper`` is a dash."""
KEYS = (
    "says",
    "paper",
    "measure",
    "of",
    "over",
    "each",
    "where",
    "low",
    "high",
    "share",
    "unit",
    "printed",
    "fix",
    "headline",
)
"""Entries of a claim: see ``cofactor_papers/README.md``."""


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict: what the paper says of it, what was measured here, and what had to be corrected."""

    says: str
    paper: str
    here: str
    verdict: str
    fix: str = ""

    def record(self) -> dict[str, str]:
        """As it is written down."""
        return asdict(self)


@dataclass(frozen=True)
class Found:
    """What was measured for one claim: a value for each group, and whether it is in bounds."""

    values: tuple[float, ...]
    holds: bool

    def text(self, unit: str) -> str:
        """Say it in words: one number, or the range over groups."""
        low, high = min(self.values), max(self.values)
        ends = list(dict.fromkeys([number(low), number(high)]))
        shown = " to ".join(ends)
        return f"{shown} {unit}".strip()


def number(value: float) -> str:
    """Write a number with three digits that count.

    >>> number(0.012345), number(1234.5), number(2.0)
    ('0.0123', '1230', '2')
    """
    if not math.isfinite(value):
        return "never" if value > 0 else str(value)
    return f"{float(f'{value:.3g}'):g}" if abs(value) < 1e6 else f"{value:.2e}"


def judge(experiment: Experiment, lines: Sequence[Settings]) -> list[Verdict]:
    """Return the verdict on every claim of an experiment from the lines of its cells."""
    return [_verdict(claim, lines, experiment.name) for claim in experiment.claims]


def _verdict(claim: Settings, lines: Sequence[Settings], name: str) -> Verdict:
    for word in claim:
        if word not in KEYS:
            raise unknown(f"entry of a claim of {name!r}", word, KEYS)
    says, paper, fix, unit = claim["says"], claim["paper"], claim.get("fix", ""), claim.get("unit", "")
    found = _measured(claim, claim["of"], lines)
    printed = _measured(claim, claim["printed"], lines) if "printed" in claim else None
    if found is None:
        return Verdict(says, paper, "nothing was measured", OPEN)
    here = found.text(unit) + _failures(claim, lines)
    if printed is not None:
        here = f"as printed {printed.text(unit)}; corrected {here}"
        if printed.holds:  # nothing had to be corrected
            return Verdict(says, paper, here, YES)
        return Verdict(says, paper, here, CORRECTED if found.holds else NO, fix)
    if paper == "-":
        return Verdict(says, paper, here, HOLDS if found.holds else FAILS, fix)
    return Verdict(says, paper, here, NO if not found.holds else CORRECTED if fix else YES, fix)


def _failures(claim: Settings, lines: Sequence[Settings]) -> str:
    """Say how many cells that the claim rests on failed; the others went on without them."""
    asked = [w for part in ("of", "over") for w in _several(claim.get(part, []))]
    rests = {id(line): line for w in asked for line in chosen(lines, {**claim.get("where", {}), **w})}
    failed = [line for line in rests.values() if line.get("error")]
    return f" ({len(failed)} of {len(rests)} cells failed)" if failed else ""


def _measured(claim: Settings, of: Any, lines: Sequence[Settings]) -> Found | None:
    """Measure a claim in every group; it holds where a ``share`` of the groups (all, unless said) is in bounds."""
    lines = [line for line in chosen(lines, claim.get("where", {})) if not line.get("error")]
    values = []
    for group in _groups(claim.get("each", []), [line for w in _several(of) for line in chosen(lines, w)]):
        here = chosen(lines, group)
        top, below = _best(here, of, claim["measure"]), _best(here, claim.get("over"), claim["measure"])
        if below is None:  # what does not depend on the groups is the same for all of them
            below = _best(lines, claim.get("over"), claim["measure"])
        if top is not None and (below is not None or "over" not in claim):
            values.append(top if below is None else _ratio(top, below))
    if not values:
        return None
    inside = [claim.get("low", -math.inf) <= v <= claim.get("high", math.inf) for v in values]
    return Found(tuple(values), sum(inside) >= claim.get("share", 1.0) * len(inside))


def _groups(each: Sequence[str], lines: Sequence[Settings]) -> list[Where]:
    found = [{name: line["cell"].get(name) for name in each} for line in lines]
    return list({tuple(group.values()): group for group in found}.values())


def _several(where: Any) -> list[Where]:
    return where if isinstance(where, list) else [where]


def _best(lines: Sequence[Settings], where: Any, measure: str) -> float | None:
    """Return the median over cells that are as said; of several such, the smallest."""
    if where is None:
        return None
    found = []
    for one in _several(where):
        values = [line["result"].get(measure) for line in chosen(lines, one)]
        numbers = [math.inf if v is None else float(v) for v in values]  # None: never reached
        found += [median(numbers)] if numbers else []
    return min(found) if found else None


def _ratio(top: float, below: float) -> float:
    if math.isinf(below):  # the other one never got there
        return 1.0 if math.isinf(top) else 0.0
    return top / below if below else (math.inf if top else 1.0)
