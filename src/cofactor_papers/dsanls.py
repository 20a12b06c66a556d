"""DSANLS (Qian et al.): sketched against plain iterations, over time, ranks, solvers and processes.

Seconds are CPU seconds of the steps alone.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from cofactor.data import datasets, partition
from cofactor.engines.loop import run, run_stream
from cofactor.local import arrays
from cofactor.local.sketch import Gaussian, Subsampling
from cofactor.local.updates import PGD, ProximalCD
from cofactor.method import SERVER, Method, rng
from cofactor.methods import catalog
from cofactor.methods.blocks import Blocks, blocks
from cofactor.methods.build import Facts, build
from cofactor.methods.sketched import WEIGHT, Ramp, Sketched
from cofactor.metrics import relative_error
from cofactor.plan import Plan
from cofactor.types import Array, CofactorError, Data, Local, Shared

Cell = dict[str, Any]
NEVER = float("inf")


def matrix(cell: Cell) -> Data:
    """Return the matrix of a cell: some rows of a stored one, or a dense one, planted or without structure."""
    n, m = cell["shape"]
    if cell["matrix"] == "uniform":
        return np.random.default_rng(0).uniform(size=(n, m)).astype(np.float32)
    if cell["matrix"] == "planted":
        draw = np.random.default_rng(0)
        W, H = (draw.exponential(size=s) * (draw.uniform(size=s) < 0.5) for s in ((n, 30), (30, m)))
        X = (W @ H).astype(np.float32)
        return X + X.mean() * np.float32(0.2) * draw.uniform(size=X.shape).astype(np.float32)
    X = datasets.load(cell["data"]).X
    rows = min(n, X.shape[0])
    X = X[np.sort(np.random.default_rng(0).choice(X.shape[0], rows, replace=False))]
    if hasattr(X, "toarray"):  # counts of terms: without a logarithm a few long documents are all that counts
        X = X.log1p()
    return X.astype(np.float32)


def made(cell: Cell, shape: tuple[int, int]) -> Sketched:
    """Return the method of a cell on blocks; DSANLS/G and the projected gradient are built here."""
    k, iterations, own = cell["rank"], cell["iterations"], cell["spec"].get("sketch")
    if own is None:
        found: Any = catalog.make(cell["spec"].get("name", cell["method"]), k, shape=shape, iterations=iterations)
        return found
    kind = Gaussian if own == "gaussian" else Subsampling
    rows, columns = (kind(0.1) if 2 * a >= b else None for a, b in (shape, shape[::-1]))
    update = Decaying() if cell["spec"].get("solver") == "pgd" else ProximalCD(Ramp(WEIGHT, WEIGHT))
    return Sketched(k, shape[0], update, rows, columns, iterations)


class Decaying:
    """Projected gradient with steps ``1 / (L sqrt(t + 1))``, which go to 0 as the paper's theorem asks."""

    def __call__(self, F: Array, stats: Any, t: int = 0, previous: Array | None = None) -> Array:
        """Return F after one step."""
        full = PGD()(F, stats)
        return np.maximum(F + (full - F) / np.float32(np.sqrt(t + 1)), 0).astype(F.dtype)


def stepped(
    method: Method, data: Any, rounds: int, seed: int, *, clock: Callable[[], float], tries: int = 1
) -> Iterator[tuple[float, Local, Shared]]:
    """Step one client that holds everything; yield (seconds so far, its state, what is shared) after every round.

    Steps are pure functions: of several ``tries`` the fastest counts, since other work on the machine only adds to it.
    """
    shared, spent = method.start(data.shape[1], rng(seed, SERVER, -1)), 0.0
    local: Any = None
    for t in range(rounds):
        took = []
        for _ in range(tries):
            begin = clock()
            held = method.join(data, shared, t, rng(seed, 0, -1)) if t in method.traits.stages else local
            held, message = method.step(data, shared, held, t, rng(seed, 0, t))
            summed = method.aggregate(shared, [message], t)
            took.append(clock() - begin)
        local, shared, spent = held, summed, spent + min(took)
        yield spent, local, shared


def play(
    method: Sketched, data: Blocks, seed: int = 0, *, clock: Callable[[], float] = time.perf_counter, tries: int = 1
) -> Iterator[tuple[float, Array, Array]]:
    """Step a method on blocks; yield (seconds so far, W, H) after every iteration, which is two rounds."""
    for t, (spent, local, _) in enumerate(stepped(method, data, method.rounds, seed, clock=clock, tries=tries)):
        if t and t % 2 == 0:
            yield spent, local.codes, local.memory["columns"].T


Point = tuple[int, float, float]


def _on_blocks(cell: Cell, X: Data) -> Iterator[Point]:
    """Points of a method on blocks: iteration, CPU seconds, relative error."""
    method, (data,), tries = made(cell, X.shape), blocks(X, 1), cell["spec"].get("tries", 1)
    for i, (spent, W, H) in enumerate(play(method, data, cell["seed"], clock=time.process_time, tries=tries), start=1):
        if _shown(i):
            yield i, spent, relative_error(X, W, H)


def _on_rows(cell: Cell, X: Data) -> Iterator[Point]:
    """The same of a method by its defaults, start included; the error is by its own loss, which is exact."""
    rounds, tries = cell["iterations"], cell["spec"].get("tries", 1)
    method, _ = build(cell["method"], cell["rank"], Plan(rounds), Facts(1, X.shape[1], X.shape[0]))
    begins, square = method.traits.stages[-1], float(arrays.row_squares(X).sum())
    steps = stepped(method, X, rounds, cell["seed"], clock=time.process_time, tries=tries)
    for i, (spent, _, shared) in enumerate(steps, start=1):
        if i > begins and _shown(i):  # before that the start is not over
            yield i, spent, math.sqrt(2 * shared.loss / square)


def _shown(iteration: int) -> bool:
    return iteration <= 10 or iteration % 5 == 0


def over_time(cell: Cell) -> dict[str, Any]:
    """Relative error over CPU seconds: Fig. 2, 4 and 5."""
    X, spec = matrix(cell), cell["spec"]
    on_blocks = "sketch" in spec or catalog.find(spec.get("name", cell["method"])).kind == "blocks"
    points = _on_blocks if on_blocks else _on_rows
    next(points(cell, X))  # what is compiled or laid out once is not timed
    found = list(points(cell, X))
    iteration, seconds, errors = map(list, zip(*found))
    return {
        "seconds": seconds,
        "iteration": iteration,
        "error": errors,
        "last": errors[-1],
        "to_goal": next((s for _, s, e in found if e <= cell["goal"]), NEVER),
        "per_iteration": seconds[-1] / iteration[-1],
    }


# Figures 3, 8 and 9: processes of MPI


def scaling(cell: Cell) -> dict[str, Any]:
    """Iterations a second on so many processes of this machine, which start once for all methods ``beside`` this."""
    common = {name: value for name, value in cell.items() if name not in ("method", "spec")}
    seconds = _started(json.dumps(common))[cell["method"]]
    return {"rate": 1 / seconds, "seconds": seconds, "cores": len(os.sched_getaffinity(0))}


@lru_cache(maxsize=32)
def _started(settings: str) -> dict[str, float]:
    """Return the seconds of an iteration of every method, measured by processes that start here."""
    count = str(json.loads(settings)["processes"])
    mpiexec = which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if mpiexec is None:
        raise CofactorError("expected the command mpiexec. Found none. Install MPI: pip install 'cofactor[mpi]' mpich.")
    job = [mpiexec, "-n", count, sys.executable, "-m", "cofactor_papers.dsanls"]
    how: dict[str, Any] = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "capture_output": True, "text": True}
    done = subprocess.run([*job, settings], check=False, timeout=300, **how)
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(said) != 1:
        text = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise CofactorError(f"{count} processes of MPI: expected one line of seconds. Found {len(said)}: {text}")
    found: dict[str, float] = json.loads(said[0])
    return found


def _process(settings: str) -> None:
    """One process: its rows, all methods; process 0 prints the seconds of one iteration of each."""
    from cofactor.engines.mpi import Mpi

    cell, engine = json.loads(settings), Mpi()
    X = matrix(cell)
    measure = _paced if "split" in cell else _fastest
    found = {name: measure({**cell, "method": name, "spec": {}}, X, engine) for name in cell["beside"]}
    if engine.team.first:
        print(json.dumps(found))


def _fastest(cell: Cell, X: Data, engine: Any) -> float:
    """Figure 3: the fastest iteration, since other work on the machine only adds to it."""
    team, name = engine.team, cell["method"]
    if catalog.find(name).kind != "blocks":
        method = catalog.make(name, cell["rank"], start="random")
        history = run(method, [np.array_split(X, team.count)[team.here]], rounds=cell["iterations"], engine=engine)
        return min(line.seconds for line in history.history[1:])
    method = made(cell, X.shape)
    parts = blocks(X, team.count, slice(team.here, team.here + 1))
    history = run(method, parts, rounds=method.rounds, engine=engine)
    return min(a.seconds + b.seconds for a, b in zip(history.history[1::2], history.history[2::2]))


def _paced(cell: Cell, X: Data, engine: Any) -> float:
    """Figures 8 and 9: seconds of one sweep: the mean round, or as many arrivals as there are clients."""
    team, method = engine.team, catalog.make(cell["method"], cell["rank"])
    c, sweeps, rounds = team.count, cell["beside"][cell["method"]], cell["iterations"]
    mine = [X[partition.sizes(X.shape[0], shares(cell["split"], c), seed=0)[team.here]]]
    if method.traits.streams and c == 1:  # the clock of a stream in one process is a simulated one
        return math.inf
    if method.traits.streams:
        clocks = [arrival.clock for arrival in run_stream(method, mine, updates=rounds * c, engine=engine).arrivals]
        return (clocks[-1] - clocks[c - 1]) / (rounds - 1) / sweeps
    history = run(method, mine, rounds=rounds, engine=engine).history
    return float(np.mean([line.seconds for line in history[1:]])) / sweeps


def shares(split: str, clients: int) -> list[float]:
    """What each client holds of all rows: the same, or half of them at client 0."""
    if split == "uniform" or clients == 1:
        return [1 / clients] * clients
    return [0.5] + [0.5 / (clients - 1)] * (clients - 1)


if __name__ == "__main__":
    _process(sys.argv[1])
