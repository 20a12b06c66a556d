"""What an attacker finds: two worlds on all messages of a run, for every attack row, method and view.

The likelihood ratio of all releases of a run, with a unit and without it, gives a lower bound on mu (99 %).
``possible`` is the mu that this row could give at most, without chance. Both are held against the claim of the run.

python benchmarks/attacks.py [releases] [all]    # the worst row of every method, or all rows (an hour)
"""

from __future__ import annotations

import sys
from typing import Any

from cofactor.assurance.attack_rows import sensitivity, units
from cofactor.assurance.joint_worlds import joint
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


def make(case: str, *, secure: bool) -> Any:
    name, unit, options = CASES[case]
    rounds = 2 if unit == "client" and name == "fedavg" else None
    plan = Plan(rounds, privacy=Privacy(8, 1e-6, unit), secure=secure)  # type: ignore[arg-type]
    return build(name, 3, plan, Facts(3, 16), options)[0]


def main(releases: str = "300", which: str = "") -> None:
    print("| method, unit | seen by | attack | moves at most | mu at least | possible | claimed |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        for secure in (False, True):
            method = make(case, secure=secure)
            moved = max((m for t in kinds(method) for m in sensitivity(method, t)), key=lambda m: m.share)
            base = small_clients(method, 1)[1][0][:ROWS]
            tried = [u for u in units(method, base) if u[0].endswith("dense") or which]
            quick = [(joint(method, *u[1:], releases=2).possible, i) for i, u in enumerate(tried)]
            chosen = range(len(tried)) if which else [max(quick)[1]]
            for i in chosen:
                by, without, present = tried[i]
                found = joint(method, without, present, releases=int(releases))
                view = "one participant, secure sums" if secure else "the server"
                numbers = f"{moved.share:.3f} | {found.lower:.2f} | {found.possible:.2f} | {found.claim:.2f}"
                print(f"| {case} | {view} | {by} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
