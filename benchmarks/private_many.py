"""Private NMF with hundreds of clients: what dp-range sends, costs under masks, and reaches, beside dp-moments.

Faces (CBCL), rows of norm 1, secure sums, unit record, delta 1e-5. One real run over so many clients for each cell:
every client has its own rows, noise and masks. CPU milliseconds are of a client in all rounds (steps, noise, masks),
and of the server, divided by the number of clients.

COFACTOR_DATA=<folder> python benchmarks/private_many.py [clients,...] [epsilons,...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import private_floor as floor
from cofactor import Privacy, run
from cofactor.engines import secure
from cofactor.engines.inline import Inline
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.types import Array

RANK, DELTA = 25, 1e-5
METHODS: dict[str, tuple[str, dict[str, int]]] = {
    "`dp-moments`": ("dp-moments", {}),
    "`dp-range`, r = 70 (2 k + 20)": ("dp-range", {}),
    "`dp-range`, r = 40": ("dp-range", {"width": 40}),
}


class Clock:
    """CPU seconds of what clients do, in one thread."""

    spent = 0.0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same work, on this clock."""

        def go(*arguments: Any) -> Any:
            begun = time.process_time()
            found = work(*arguments)
            self.spent += time.process_time() - begun
            return found

        return go


def really(method: Any, plan: Plan, Xs: list[Array]) -> tuple[Array, float, float]:
    """Return the factor of a real run, and CPU milliseconds of a client in all rounds, and of the server for it."""
    kind, clock, begun = type(method), Clock(), time.process_time()
    answer, bring, step = secure.answer, secure.bring, kind.step
    secure.answer, secure.bring, kind.step = clock.timed(answer), clock.timed(bring), clock.timed(step)
    try:
        found = run(method, Xs, plan, engine=secure.Secure(Inline(workers=1)))
    finally:
        secure.answer, secure.bring, kind.step = answer, bring, step
    whole = time.process_time() - begun
    return found.factor, 1e3 * clock.spent / len(Xs), 1e3 * (whole - clock.spent) / len(Xs)


def main(clients: str = "200", epsilons: str = "1,4") -> None:
    X = np.asarray(floor.rows("cbcl_faces"))
    X = X[np.random.default_rng(0).permutation(len(X))]
    levels = [float(e) for e in epsilons.split(",")]
    head = " | ".join(f"epsilon {e:g}" for e in levels)
    print(f"| clients | method | numbers a client sends | CPU ms a client | of the server, over clients | {head} |")
    print(f"|---|---|---|---|---|{'---|' * len(levels)}")
    for count in map(int, clients.split(",")):
        for name, (entry, options) in METHODS.items():
            losses, numbers, own, server = [], 0, 0.0, 0.0
            for e in levels:
                asked = Plan(privacy=Privacy(e, DELTA), secure=True)
                method, plan = build(entry, RANK, asked, Facts(count, X.shape[1]), options)
                H, own, server = really(method, plan, np.array_split(X, count))
                losses.append(f"{floor.objective(X, H):.4f}")
                shapes = [shape for t in range(method.rounds or 0) for shape in method.schema(X.shape[1], t).values()]
                numbers = sum(int(np.prod(shape)) for shape in shapes)
            print(f"| {count} | {name} | {numbers} | {own:.0f} | {server:.0f} | {' | '.join(losses)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
