"""What an attacker finds: two worlds on all messages of a run, for every attack row, method and view.

The likelihood ratio of all releases of a run, with a unit and without it, gives a lower bound on mu (99 %).
``possible`` is the mu that this row could give at most, without chance. Both are held against the claim of the run.
With secure sums the attacker is the server together with one participant, once where as few clients answered as may,
and once where nobody dropped out, so that spare noise was revealed.

python benchmarks/attacks.py [releases]        # the worst row of every method
python benchmarks/attacks.py [releases] all    # all rows: the largest of what they give (ten minutes at 40 releases)
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
    "`fedavg`, one client": ("fedavg", "client", {"sweeps": 2}),
    "votes (`asso`), one client": ("asso", "client", {"sweeps": 0}),
}


VIEWS = {
    "the server": (False, False),
    "server and one participant, one dropped out": (True, False),
    "server and one participant, all answered": (True, True),
}
CLIENTS = 4


def make(case: str, *, secure: bool) -> Any:
    name, unit, options = CASES[case]
    rounds = 2 if unit == "client" and name == "fedavg" else None
    plan = Plan(rounds, privacy=Privacy(8, 1e-6, unit), secure=secure)  # type: ignore[arg-type]
    return build(name, 3, plan, Facts(CLIENTS, 16), options)[0]


def worst(method: Any, tried: list[Any], *, everybody: bool, releases: int) -> tuple[str, Joint]:
    """Return the row that could give most, and what it gave."""
    quick = [joint(method, *u[1:], releases=2, everybody=everybody).possible for u in tried]
    by, without, present = tried[quick.index(max(quick))]
    return by, joint(method, without, present, releases=releases, everybody=everybody)


def every(method: Any, tried: list[Any], *, everybody: bool, releases: int) -> tuple[str, Joint]:
    """Attack with all rows, each at a level at which all bounds together hold with 99 %; return the largest."""
    level = 1 - 0.01 / (len(CASES) * len(VIEWS) * len(tried))
    found = [joint(method, *u[1:], releases=releases, everybody=everybody, confidence=level) for u in tried]
    most = Joint(max(f.lower for f in found), max(f.possible for f in found), found[0].claim)
    held = sum(f.passed for f in found)
    return f"{held} of {len(found)} rows within the claim", most


def main(releases: str = "300", which: str = "") -> None:
    print("| method, unit | seen by | attack | moves at most | mu at least | possible | claimed |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        for view, (secure, everybody) in VIEWS.items():
            method = make(case, secure=secure)
            moved = max((m for t in kinds(method) for m in sensitivity(method, t)), key=lambda m: m.share)
            base = small_clients(method, 1)[1][0][:ROWS]
            tried = [u for u in units(method, base) if u[0].endswith("dense") or which]
            by, found = (every if which else worst)(method, tried, everybody=everybody, releases=int(releases))
            numbers = f"{moved.share:.3f} | {found.lower:.2f} | {found.possible:.2f} | {found.claim:.2f}"
            print(f"| {case} | {view} | {by} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
