"""What an attacker finds: two worlds on all messages of a run, for every attack row, method and view.

The likelihood ratio of all releases of a run, with a unit and without it, gives a lower bound on mu (99 %).
``possible`` is the mu that this row could give at most, without chance. Both are held against the claim of the run.
Without secure sums the attacker is the server, or one participant, who sees what all are sent and takes its own message
out of it. With them it is the server together with one participant, once where as few clients answered as may, and once
where nobody dropped out, so that spare noise was revealed.

python benchmarks/attacks.py [releases]               # the worst row of every method
python benchmarks/attacks.py [releases] all [words]   # all rows, of methods with these words; 200 releases: 25 minutes
"""

from __future__ import annotations

import sys
from typing import Any

from cofactor.assurance.attack_rows import sensitivity, units
from cofactor.assurance.joint_worlds import Joint, joint
from cofactor.assurance.worst_case import kinds, small_clients
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy import Privacy

ROWS = 4
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "`dp-moments`, one record": ("dp-moments", "record", {}),
    "`dp-range`, one record": ("dp-range", "record", {"width": 4}),
    "`dp-nmf`, one record": ("dp-nmf", "record", {"sweeps": 2, "rounds": 2}),
    "`dp-moments`, one client": ("dp-moments", "client", {}),
    "`dp-nmf`, one client": ("dp-nmf", "client", {"sweeps": 2, "rounds": 2}),
    "`fedavg`, one client": ("fedavg", "client", {"sweeps": 2}),
    "`fnmf-lap`, one client": ("fnmf-lap", "client", {"sweeps": 2}),
    "`felb`, one client": ("felb", "client", {"sweeps": 0}),
    "votes (`asso`), one client": ("asso", "client", {"sweeps": 0}),
}


TOGETHER = 9
"""Bounds of so many cases hold together with 99 %."""
CLIENTS = 4
VIEWS: dict[str, tuple[bool, dict[str, Any]]] = {
    "the server": (False, {}),
    "one participant": (False, {"others": CLIENTS - 1}),
    "server and one participant, one dropped out": (True, {}),
    "server and one participant, all answered": (True, {"everybody": True}),
}


def make(case: str, *, secure: bool) -> Any:
    name, unit, options = CASES[case]
    rounds = 2 if name in ("fedavg", "fnmf-lap", "felb") else None
    plan = Plan(rounds, privacy=Privacy(8, 1e-6, unit), secure=secure)  # type: ignore[arg-type]
    return build(name, 3, plan, Facts(CLIENTS, 16), options)[0]


def worst(method: Any, tried: list[Any], seen: dict[str, Any], *, releases: int) -> tuple[str, Joint]:
    """Return the row that could give most, and what it gave."""
    dense = [u for u in tried if u[0].endswith("dense")]
    quick = [joint(method, *u[1:], releases=2, **seen).possible for u in dense]
    by, without, present = dense[quick.index(max(quick))]
    return by, joint(method, without, present, releases=releases, **seen)


def every(method: Any, tried: list[Any], seen: dict[str, Any], *, releases: int) -> tuple[str, Joint]:
    """Attack with all rows; return how many are within the claim, and the largest bounds.

    What a row could give is computed in all layouts, and sampled in one of them in turn, at a level at which all bounds
    of all methods and views together hold with 99 %.
    """
    layouts = len({by.rsplit(", ")[-1] for by, *_ in tried})
    rows = len(tried) // layouts
    sampled = {row * layouts + row % layouts for row in range(rows)}
    level = 1 - 0.01 / (TOGETHER * len(VIEWS) * rows)
    found = [
        joint(method, *u[1:], releases=releases if i in sampled else 2, confidence=level, **seen)
        for i, u in enumerate(tried)
    ]
    most = Joint(max(found[i].lower for i in sampled), max(f.possible for f in found), found[0].claim)
    return f"{sum(found[i].passed for i in sampled)} of {rows}, {sum(f.passed for f in found)} of {len(found)}", most


def main(releases: str = "300", which: str = "", words: str = "") -> None:
    print("| method, unit | seen by | attack | moves at most | mu at least | possible | claimed |")
    print("|---|---|---|---|---|---|---|")
    for case in (case for case in CASES if words in case):
        for view, (secure, seen) in VIEWS.items():
            method = make(case, secure=secure)
            moved = max((m for t in kinds(method) for m in sensitivity(method, t)), key=lambda m: m.share)
            tried = list(units(method, small_clients(method, 1)[1][0][:ROWS]))
            by, found = (every if which else worst)(method, tried, seen, releases=int(releases))
            numbers = f"{moved.share:.3f} | {found.lower:.2f} | {found.possible:.2f} | {found.claim:.2f}"
            print(f"| {case} | {view} | {by} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
