"""HALS on blocks over MPI next to the inline engine: seconds of an iteration and memory of a process.

    python benchmarks/mpi.py                   # 20000 x 2000, k = 50; 4 processes next to 2 threads

Both engines run in turn, and the fastest iteration of each counts: other work on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from cofactor import run
from cofactor.data import load
from cofactor.engines.inline import Inline
from cofactor.engines.mpi import Mpi
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks

ITERATIONS = 20


def fastest(history: list) -> float:
    """Return the seconds of the fastest iteration: two rounds one after the other."""
    seconds = [line.seconds for line in history[1:-1]]
    return min(a + b for a, b in zip(seconds[::2], seconds[1::2]))


def resident() -> float:
    """Return the most memory that this process has held, in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def process(path: Path, rank: int, name: str) -> None:
    """One process of the job: read the own blocks, run, and let process 0 print what all measured."""
    engine = Mpi()
    team = engine.team
    method = catalog.make(name, rank, shape=(200, 100), iterations=2)
    run(
        method,
        blocks(np.random.default_rng(0).uniform(size=(200, 100)), team.count, own(team)),
        rounds=5,
        engine=engine,
    )
    before = resident()
    X = load.read(path, blocks=True).X
    parts = blocks(X, team.count, own(team))
    method = catalog.make(name, rank, shape=X.shape, iterations=ITERATIONS)
    result = run(method, parts, rounds=method.rounds, engine=engine)
    held = sum(b.nbytes for p in parts for b in (p.row_block, p.column_block))
    factors = 8 * rank * sum(X.shape)
    share = (resident() - before) / (held + factors)
    found = team.exchange("measured", (fastest(result.history), share))
    if team.first:
        print(json.dumps({"seconds": found[0][0], "memory": max(s for _, s in found)}))


def own(team) -> slice:
    return slice(team.here, team.here + 1)


def inline(path: Path, rank: int, name: str, threads: int) -> float:
    X = np.load(path)
    method = catalog.make(name, rank, shape=X.shape, iterations=ITERATIONS)
    return fastest(run(method, blocks(X, threads), rounds=method.rounds, engine=Inline(threads)).history)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--rank", type=int, default=50)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--method", default="hals", choices=catalog.names("blocks"))
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        process(options.file, options.rank, options.method)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, np.random.default_rng(0).uniform(size=(options.rows, options.features)))
        job = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(options.processes), sys.executable, __file__]
        job += ["--file", str(path), "--rank", str(options.rank), "--method", options.method]
        for _ in range(options.repeats):
            here = inline(path, options.rank, options.method, options.threads)
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            there = json.loads(subprocess.run(job, env=env, capture_output=True, text=True, check=True).stdout)
            print(
                f"{options.method}: {options.processes} processes {there['seconds']:.3f} s, {options.threads} threads "
                f"{here:.3f} s, ratio {there['seconds'] / here:.2f} (<= 1.25); memory of a process "
                f"{there['memory']:.2f} x its blocks and the factors (<= 1.3)",
                flush=True,
            )


if __name__ == "__main__":
    main()
