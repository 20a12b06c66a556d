"""Every method of more than one round against itself: default settings, and twice the rounds without a stop rule.

    python benchmarks/converged.py run                             # goes on where it ended
    python benchmarks/converged.py run tcga_breast_mirna --methods exact fedmavg --seeds 3
    python benchmarks/converged.py table                           # Markdown: the worst ratio of every method

All clients in every round, or some: a share of .25 is 2 of 8 clients, .1 is one. Rows are sorted, as in
``benchmarks/defaults.py``, whose data these are, cut further: clients that differ are the hard case. A result is one
line of JSON: the error at the default tolerance over that of a run with ``tol`` 0 that is twice as long, both after
their rounds. The second run goes on where the first one was, which is the same as to begin anew.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cofactor import FederatedNMF
from cofactor.data import datasets
from cofactor.engines.checkpoint import Checkpoint
from cofactor.methods import catalog
from cofactor.plan import ROUNDS, Plan
from defaults import CONVERGED, ESTIMATORS, SHARES, Cell, against, carry_out, fitted, read, split

SETS = {
    "real": (
        *("tcga_breast_mirna", "bbc_news", "scrna_pbmc68k_reduced"),  # dense, sparse text, cells
        *("gene_all_aml", "tcga_breast_mrna", "cbcl_faces", "mnist"),
    ),
    "gaps": ("tcga_breast_mrna", "scrna_pbmc68k_reduced"),
    "ratings": ("movielens_latest_small",),
    "clusters": ("tcga_breast_mrna", "scrna_pbmc68k_reduced", "mnist"),
    "blocks": ("tcga_breast_mirna", "bbc_news", "scrna_pbmc68k_reduced"),
    "boolean": ("mushroom", "dna", "tic_tac_toe"),
}
CUT = (240, 200)
"""The most rows and features: runs with few clients in each round are long."""
EVERY = 200
"""Rounds after which a run is kept, to go on there."""


class Line(NamedTuple):
    """One comparison."""

    kind: str
    data: str
    method: str
    share: float
    seed: int


def lines(seeds: int, shares: Sequence[float] = SHARES) -> Iterator[Line]:
    """All of them, a data set after the other, for methods of more than one round."""
    for kind, names in SETS.items():
        methods = [m for m in catalog.names(kind) if planned(m) or catalog.make(m, 2).rounds is None]
        asked = [share for share in shares if kind != "blocks" or share == 1]
        for name in names:
            for method in methods:
                yield from (Line(kind, name, method, share, seed) for share in asked for seed in range(seeds))


def planned(method: str) -> bool:
    """Whether a method is made for so many rounds or iterations: for twice as many it is another one.

    Rounds of a Boolean upload are those in which clients are waited for.
    """
    entry = catalog.CATALOG[method]
    uploads = entry.kind == "boolean" and catalog.make(method, 2).rounds == 1
    return not uploads and not {"rounds", "iterations"}.isdisjoint(entry.options)


def compared(line: Line) -> dict[str, Any]:
    """Return the errors of both runs, their rounds, and why the first one ended."""
    estimator: Any = ESTIMATORS.get(line.kind, FederatedNMF)()
    Xs = split(Cell(line.kind, line.data, "one" if line.kind == "blocks" else "sorted", line.method), CUT)
    common: dict[str, Any] = {"participation": line.share, "seed": line.seed}
    try:
        with tempfile.TemporaryDirectory() as folder:
            kept = None if planned(line.method) else Checkpoint(Path(folder, "run.npz"), EVERY)
            plan = Plan(estimator.rounds, stop=estimator.tol, **common)
            default, (out, settled) = fitted(line.method, Xs, plan, {}, kept)
            rounds = len(out.history) // (len(Xs) if settled.stream else 1)
            long = max(2 * rounds, math.ceil(ROUNDS / line.share))
            if line.kind == "blocks":  # iterations, of two rounds each
                long = rounds - 1
            converged, _ = fitted(line.method, Xs, Plan(long, **common), {}, kept)
    except Exception as refused:
        return {**line._asdict(), "refused": f"{type(refused).__name__}: {refused}"}
    ratio = round(default / converged, 4) if converged > 0 else None
    told = {"error": round(default, 6), "converged": round(converged, 6), "ratio": ratio}
    return {**line._asdict(), **told, "rounds": rounds, "long": long, "ended": out.ended}


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("data", nargs="*", help="only these data sets")
    parser.add_argument("--methods", nargs="*", default=[], help="only these methods")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES, help="only these shares of the clients")
    parser.add_argument("--results", type=Path, default=CONVERGED)
    options = parser.parse_args()
    if options.what == "table":
        print(against(read(options.results)))
    elif not os.environ.get(datasets.VARIABLE):
        parser.error(f"expected the folder of the data in {datasets.VARIABLE}, found none.")
    else:
        carry_out(lines(options.seeds, options.shares), compared, options)


if __name__ == "__main__":
    main()
