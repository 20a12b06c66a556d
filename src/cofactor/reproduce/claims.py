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
    """A claim with its verdict: what the paper says, what was measured, what had to be corrected, what was asked."""

    says: str
    paper: str
    here: str
    verdict: str
    fix: str = ""
    asked: str = ""

    def record(self) -> dict[str, str]:
        """As it is written down."""
        return asdict(self)


@dataclass(frozen=True)
class Bounds:
    """What a claim asks for: values from ``low`` to ``high``, in a ``share`` of the groups."""

    low: float = -math.inf
    high: float = math.inf
    share: float = 1.0

    def has(self, value: float) -> bool:
        """Whether a value is in bounds."""
        return self.low <= value <= self.high

    def text(self) -> str:
        """Say it in words.

        >>> Bounds(high=0.95).text(), Bounds(11, 11).text(), Bounds(low=1, share=0.75).text(), Bounds().text()
        ('at most 0.95', '11', 'at least 1 in 75 % of the cases', '')
        """
        low, high = f"{self.low:g}", f"{self.high:g}"
        ends = {(True, False): f"at least {low}", (False, True): f"at most {high}", (True, True): f"{low} to {high}"}
        said = ends.get((math.isfinite(self.low), math.isfinite(self.high)), "")
        said = low if said and low == high else said
        return f"{said} in {self.share:.0%} of the cases".replace("%", " %") if said and self.share < 1 else said


@dataclass(frozen=True)
class Found:
    """What was measured for one claim: a value for each group."""

    values: tuple[float, ...]
    bounds: Bounds

    @property
    def holds(self) -> bool:
        """Whether enough of the values are in bounds."""
        return sum(map(self.bounds.has, self.values)) >= self.bounds.share * len(self.values)

    def text(self, unit: str) -> str:
        """Say it in words: one number, or the range over groups, with as many digits as the bound needs."""
        ends = dict.fromkeys(self._shown(end) for end in (min(self.values), max(self.values)))
        return f"{' to '.join(ends)} {unit}".strip()

    def _shown(self, value: float) -> str:
        texts = [number(value, digits) for digits in (3, 4, 5, 6)]
        honest = [text for text in texts if text == "never" or self.bounds.has(float(text)) == self.bounds.has(value)]
        return [*honest, texts[0]][0]


def number(value: float, digits: int = 3) -> str:
    """Write a number with three digits that count.

    >>> number(0.012345), number(1234.5), number(2.0), number(3.05e10)
    ('0.0123', '1230', '2', '3.05e10')
    """
    if not math.isfinite(value):
        return "never" if value > 0 else str(value)
    short = f"{float(f'{value:.{digits}g}'):.{digits + 3}g}"
    return short if abs(value) < 1e6 else f"{value:.{digits - 1}e}".replace("e+", "e")


def judge(experiment: Experiment, lines: Sequence[Settings]) -> list[Verdict]:
    """Return the verdict on every claim of an experiment from the lines of its cells."""
    return [_verdict(claim, lines, experiment.name) for claim in experiment.claims]


def _verdict(claim: Settings, lines: Sequence[Settings], name: str) -> Verdict:
    for word in claim:
        if word not in KEYS:
            raise unknown(f"entry of a claim of {name!r}", word, KEYS)
    says, paper, fix, unit = claim["says"], claim["paper"], claim.get("fix", ""), claim.get("unit", "")
    asked = _bounds(claim).text()
    found = _measured(claim, claim["of"], lines)
    printed = _measured(claim, claim["printed"], lines) if "printed" in claim else None
    if found is None:
        return Verdict(says, paper, f"nothing was measured{_failures(claim, lines)}", OPEN, asked=asked)
    here = found.text(unit) + _failures(claim, lines)
    if printed is not None:
        here = f"as printed {printed.text(unit)}; corrected {here}"
    if printed is not None and printed.holds:  # nothing had to be corrected
        return Verdict(says, paper, here, YES, asked=asked)
    if not found.holds:  # no correction helps
        return Verdict(says, paper, here, FAILS if paper == "-" else NO, asked=asked)
    return Verdict(says, paper, here, HOLDS if paper == "-" else CORRECTED if fix else YES, fix, asked)


def _bounds(claim: Settings) -> Bounds:
    return Bounds(**{word: float(claim[word]) for word in ("low", "high", "share") if word in claim})


def _failures(claim: Settings, lines: Sequence[Settings]) -> str:
    """Say how many cells that the claim rests on failed; the others went on without them."""
    asked = [w for part in ("of", "over") for w in _several(claim.get(part, []))]
    rests = {id(line): line for w in asked for line in chosen(lines, {**claim.get("where", {}), **w})}
    failed = [line for line in rests.values() if line.get("error")]
    return f" ({len(failed)} of {len(rests)} cells failed)" if failed else ""


def _measured(claim: Settings, of: Any, lines: Sequence[Settings]) -> Found | None:
    """Measure a claim in every group: the median of ``of``, divided by that of ``over`` where there is one."""
    lines = [line for line in chosen(lines, claim.get("where", {})) if not line.get("error")]
    values = []
    for group in _groups(claim.get("each", []), [line for w in _several(of) for line in chosen(lines, w)]):
        top = _least(lines, of, group, claim["measure"])
        below = _least(lines, claim["over"], group, claim["measure"]) if "over" in claim else None
        if top is not None and (below is not None or "over" not in claim):
            values.append(top if below is None else _ratio(top, below))
    return Found(tuple(values), _bounds(claim)) if values else None


def _groups(each: Sequence[str], lines: Sequence[Settings]) -> list[Where]:
    found = [{name: line["cell"].get(name) for name in each} for line in lines]
    return list({tuple(group.values()): group for group in found}.values())


def _several(where: Any) -> list[Where]:
    return where if isinstance(where, list) else [where]


def _least(lines: Sequence[Settings], where: Any, group: Where, measure: str) -> float | None:
    """Return the median over the cells of a group that are as said; of several such, the smallest.

    What ``where`` names itself may differ from the group, and cells without a setting are the same for all groups.
    """
    found = []
    for one in _several(where):
        said = {name: value for name, value in group.items() if not _names_one(one, name)}
        here = [line for line in chosen(lines, one) if all(line["cell"].get(n, v) == v for n, v in said.items())]
        values = [line["result"].get(measure) for line in here]
        found += [median(math.inf if v is None else float(v) for v in values)] if values else []  # None: never reached
    return min(found) if found else None


def _names_one(where: Where, name: str) -> bool:
    """Whether cells are asked for by one value of a setting, whatever the group has."""
    return name in where and not isinstance(where[name], list)


def _ratio(top: float, below: float) -> float:
    if math.isinf(below):  # the other one never got there
        return 1.0 if math.isinf(top) else 0.0
    return top / below if below else (math.inf if top else 1.0)
