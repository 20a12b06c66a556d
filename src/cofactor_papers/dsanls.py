"""DSANLS (Qian et al.): sketched against plain iterations, over time, ranks, solvers and processes.

Seconds are CPU seconds of the steps alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data import datasets
from cofactor.local.sketch import Gaussian, Subsampling
from cofactor.local.updates import PGD, ProximalCD
from cofactor.method import SERVER, rng
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks
from cofactor.methods.sketched import WEIGHT, Ramp, Sketched
from cofactor.metrics import relative_error
from cofactor.types import Array, Data

Cell = dict[str, Any]
NEVER = float("inf")


def matrix(cell: Cell) -> Data:
    """Return the matrix of a cell: some rows of a stored one, or a planted dense one."""
    if cell["matrix"] == "planted":
        n, m = cell["shape"]
        draw = np.random.default_rng(0)
        W, H = (draw.exponential(size=s) * (draw.uniform(size=s) < 0.5) for s in ((n, 30), (30, m)))
        X = (W @ H).astype(np.float32)
        return X + X.mean() * np.float32(0.2) * draw.uniform(size=X.shape).astype(np.float32)
    X = datasets.load(cell["data"]).X
    rows = min(cell["shape"][0], X.shape[0])
    X = X[np.sort(np.random.default_rng(0).choice(X.shape[0], rows, replace=False))]
    if hasattr(X, "toarray"):  # counts of terms: without a logarithm a few long documents are all that counts
        X = X.log1p()
    return X.astype(np.float32)


def made(cell: Cell, shape: tuple[int, int]) -> Sketched:
    """Return the method of a cell on blocks; DSANLS/G and the projected gradient are built here."""
    k, iterations, own = cell["rank"], cell["iterations"], cell["spec"].get("sketch")
    if own is None:
        return catalog.make(cell["spec"].get("name", cell["method"]), k, shape=shape, iterations=iterations)
    kind = Gaussian if own == "gaussian" else Subsampling
    sides = [kind(0.1) if 2 * a >= b else None for a, b in (shape, shape[::-1])]
    update = Decaying() if cell["spec"].get("solver") == "pgd" else ProximalCD(Ramp(WEIGHT, WEIGHT))
    return Sketched(k, shape[0], update, *sides, iterations)


class Decaying:
    """Projected gradient with steps ``1 / (L sqrt(t + 1))``, which go to 0 as the paper's theorem asks."""

    def __call__(self, F: Array, stats: Any, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after one step."""
        full = PGD()(F, stats)
        return np.maximum(F + (full - F) / np.float32(np.sqrt(t + 1)), 0).astype(F.dtype)


def play(method: Sketched, X: Data, seed: int) -> Iterator[tuple[float, Array, Array]]:
    """Step one client that holds everything; yield (CPU seconds so far, W, H) after every iteration."""
    (data,) = blocks(X, 1)
    shared = method.start(data.shape[1], rng(seed, SERVER, -1))
    local, spent = method.join(data, shared, 0, rng(seed, 0, -1)), 0.0
    for t in range(method.rounds):
        begin = time.process_time()
        local, message = method.step(data, shared, local, t, rng(seed, 0, t))
        shared = method.aggregate(shared, [message], t)
        spent += time.process_time() - begin
        if t and t % 2 == 0:
            yield spent, local.codes, local.memory["columns"].T


def over_time(cell: Cell) -> dict[str, Any]:
    """Relative error over CPU seconds: Fig. 2, 4 and 5."""
    X = matrix(cell)
    some = X[: 8 * cell["rank"]]
    next(play(made(cell, some.shape), some, 0))  # what is compiled once is not timed
    seconds, errors, seen = [], [], 0
    for i, (spent, W, H) in enumerate(play(made(cell, X.shape), X, cell["seed"])):
        if i < 10 or i % 5 == 4:
            seconds.append(spent)
            errors.append(relative_error(X, W, H))
        seen = i + 1
    reached = [s for s, e in zip(seconds, errors) if e <= cell["goal"]]
    return {
        "seconds": seconds,
        "iteration": [*range(1, 11), *range(15, seen + 1, 5)][: len(errors)],
        "error": errors,
        "last": errors[-1],
        "to_goal": reached[0] if reached else NEVER,
        "per_iteration": seconds[-1] / seen,
    }


# Figure 3: processes of MPI


def scaling(cell: Cell) -> dict[str, Any]:
    """Iterations a second on 1, 2, 4 processes of this machine."""
    job = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(cell["processes"]), sys.executable, "-m"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.json"
        path.write_text(json.dumps(cell))
        done = subprocess.run(
            [*job, "cofactor_papers.dsanls", str(path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
    seconds = float(done.stdout.split()[-1])
    return {"rate": 1 / seconds, "seconds": seconds, "cores": len(os.sched_getaffinity(0))}


def _process(path: str) -> None:
    """One process: its blocks, all iterations; process 0 prints the seconds of the fastest iteration."""
    from cofactor.engines.loop import run
    from cofactor.engines.mpi import Mpi

    cell = json.loads(Path(path).read_text())
    engine = Mpi()
    team = engine.team
    X = np.random.default_rng(0).uniform(size=cell["shape"]).astype(np.float32)
    method = made(cell, X.shape)
    parts = blocks(X, team.count, slice(team.here, team.here + 1))
    history = run(method, parts, rounds=method.rounds, engine=engine).history
    seconds = [a.seconds + b.seconds for a, b in zip(history[1::2], history[2::2])]
    if team.first:
        print(min(seconds))


if __name__ == "__main__":
    _process(sys.argv[1])
