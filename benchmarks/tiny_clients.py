"""A round over 1000 clients of one row each, next to a round over one client with the same rows.

python benchmarks/tiny_clients.py
"""

from __future__ import annotations

import numpy as np

from cofactor import run
from cofactor.engines.inline import Inline
from cofactor.methods import catalog

CLIENTS, FEATURES, RANK, ROUNDS = 1000, 1000, 20, 30


def seconds_per_round(Xs: list) -> float:
    history = run(catalog.make("exact", RANK, start="random"), Xs, rounds=ROUNDS, engine=Inline()).history
    return float(np.median([line.seconds for line in history[2:]]))


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(CLIENTS, RANK)) @ rng.uniform(size=(RANK, FEATURES))
    one, many = seconds_per_round([X]), seconds_per_round([X[i : i + 1] for i in range(CLIENTS)])
    print(f"one client of {CLIENTS} rows: {one * 1e3:.1f} ms a round")
    print(f"{CLIENTS} clients of one row: {many * 1e3:.1f} ms a round, {many / one:.2f} x")


if __name__ == "__main__":
    main()
